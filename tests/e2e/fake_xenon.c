/* A stand-in for the engine behind include/xenon.h, so that the server can be tested without a model: a byte tokenizer,
 * answers that are a function of the prompt, and troubles on demand.
 *
 * Environment: FAKE_LOAD_MS, FAKE_TOKEN_US (per step), FAKE_PREFILL_US (per prompt token), FAKE_MAX_LEN, FAKE_QUEUE.
 * A prompt that contains FAKE-ERROR ends in an engine error, one with FAKE-DIE stops the engine. */
#include "xenon.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd/bench_serve.h"
#include "cmd/serve.h"

enum { BOS = 256, EOS, IM_START, IM_END, VOCAB };

static const char *const special_text[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>"};
static const char sentence[] =
    "The quick brown fox jumps over the lazy dog. "
    "\xc3\xa9 \xe6\xbc\xa2\xe5\xad\x97 \xf0\x9f\x98\x8a and\xe2\x80\xa8so on.\n";

struct xenon_handle {
    struct xenon *x;
    struct xenon_handle *next;
    struct xenon_sampling s;
    char *stop[XENON_STOP_MAX];
    int32_t stop_ids[256];
    int32_t *prompt;
    size_t n_prompt;
    int64_t ready_ns, queued_ns, first_ns, last_ns;
    size_t start;    /* where in the sentence it begins */
    size_t n_answer; /* tokens before its end of text */
    bool fails, kills, cancelled, running;
    char *text; /* all text so far */
    size_t len, cap, n_gen;
    enum xenon_finish finish;
    int stop_hit;   /* index of the stop string, -1 */
    size_t stop_at; /* text ends here */
    int32_t stop_id;
    size_t out_text, out_tokens; /* taken by polls */
    bool out_end, out_prompt;
    char *polled;
    struct xenon_token *tokens, *prompt_tokens;
    struct xenon_logprob *tops;
};

struct xenon {
    pthread_mutex_t lock;
    pthread_t thread;
    bool stop, dead;
    struct xenon_options opt;
    struct xenon_info info;
    struct xenon_handle *handles;
    struct xenon_stats stats;
    int64_t token_us, prefill_us;
    int max_queue;
};

static const int32_t eos_ids[] = {EOS, IM_END};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void sleep_us(int64_t us) {
    const struct timespec t = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&t, NULL);
}

static int64_t env_int(const char *name, int64_t fallback) {
    const char *const v = getenv(name);
    return v && *v ? strtoll(v, NULL, 10) : fallback;
}

static int fail(struct xenon_error *err, int code, const char *text) {
    if (err) snprintf(err->text, sizeof err->text, "%s", text);
    return code;
}

/* ---- Text ------------------------------------------------------------------------------------ */

const char *xenon_token_bytes(const struct xenon *x, int32_t id, size_t *len) {
    static char bytes[256];
    (void)x;
    if (id < 0 || id >= VOCAB) return NULL;
    if (id >= 256) {
        *len = strlen(special_text[id - 256]);
        return special_text[id - 256];
    }
    bytes[id] = (char)id;
    *len = 1;
    return &bytes[id];
}

bool xenon_token_is_special(const struct xenon *x, int32_t id) {
    (void)x;
    return id >= 256;
}

int xenon_tokenize(const struct xenon *x, const char *text, size_t len, bool add_special, bool parse_special,
                   int32_t **ids, size_t *n, struct xenon_error *err) {
    (void)x;
    *ids = malloc((len + 1) * sizeof **ids);
    if (!*ids) return fail(err, XENON_ENOMEM, "no memory");
    *n = 0;
    if (add_special) (*ids)[(*n)++] = BOS;
    for (size_t i = 0; i < len; i++) {
        int32_t id = (unsigned char)text[i];
        for (int k = 2; k < 4 && parse_special; k++) {
            const size_t m = strlen(special_text[k]);
            if (len - i < m || memcmp(text + i, special_text[k], m) != 0) continue;
            id = 256 + k;
            i += m - 1;
            break;
        }
        (*ids)[(*n)++] = id;
    }
    return XENON_OK;
}

int xenon_detokenize(const struct xenon *x, const int32_t *ids, size_t n, bool skip_special, char **text, size_t *len,
                     struct xenon_error *err) {
    *text = malloc(n * 16 + 1);
    *len = 0;
    if (!*text) return fail(err, XENON_ENOMEM, "no memory");
    for (size_t i = 0; i < n; i++) {
        size_t m = 0;
        const char *const b = xenon_token_bytes(x, ids[i], &m);
        if (!b || (skip_special && ids[i] >= 256)) continue;
        memcpy(*text + *len, b, m);
        *len += m;
    }
    (*text)[*len] = '\0';
    return XENON_OK;
}

int xenon_render_chat(const struct xenon *x, const struct xenon_chat *chat, char **text, size_t *len,
                      struct xenon_error *err) {
    (void)x;
    if (chat->chat_template) return fail(err, XENON_EARG, "chat_template: this engine parses none");
    json_t *const messages = json_loads(chat->messages, JSON_ALLOW_NUL, NULL), *m;
    size_t i, cap = strlen(chat->messages) * 2 + 64 * json_array_size(messages) + 256;
    char *const out = malloc(cap);
    size_t n = 0;
    json_array_foreach(messages, i, m) {
        const char *const content = json_string_value(json_object_get(m, "content"));
        if (content && strstr(content, "FAKE-RAISE")) {
            json_decref(messages);
            free(out);
            return fail(err, XENON_EARG, "the template says no");
        }
        n += (size_t)snprintf(out + n, cap - n, "<|im_start|>%.20s\n%s<|im_end|>\n",
                              json_string_value(json_object_get(m, "role")), content ? content : "");
    }
    if (chat->add_generation_prompt) n += (size_t)snprintf(out + n, cap - n, "<|im_start|>assistant\n");
    json_decref(messages);
    *text = out;
    *len = n;
    return XENON_OK;
}

void xenon_free(void *p) {
    free(p);
}

/* ---- Requests -------------------------------------------------------------------------------- */

void xenon_sampling_default(struct xenon_sampling *s) {
    *s = (struct xenon_sampling){.temperature = 1,
                                 .top_p = 1,
                                 .repetition_penalty = 1,
                                 .max_tokens = -1,
                                 .logprobs = -1,
                                 .prompt_logprobs = -1,
                                 .skip_special_tokens = true};
}

const char *xenon_finish_name(enum xenon_finish f) {
    static const char *const names[] = {NULL, "stop", "length", "abort", "error"};
    return names[f];
}

static bool contains(const int32_t *ids, size_t n, const char *word) {
    const size_t m = strlen(word);
    for (size_t i = 0; i + m <= n; i++) {
        size_t k = 0;
        while (k < m && ids[i + k] == (unsigned char)word[k])
            k++;
        if (k == m) return true;
    }
    return false;
}

static void handle_free(struct xenon_handle *h) {
    for (size_t i = 0; i < h->s.n_stop; i++)
        free(h->stop[i]);
    free(h->prompt);
    free(h->text);
    free(h->polled);
    free(h->tokens);
    free(h->prompt_tokens);
    free(h->tops);
    free(h);
}

int xenon_submit(struct xenon *x, const struct xenon_request *req, struct xenon_handle **out, struct xenon_error *err) {
    if (req->n_prompt + (size_t)(req->sampling.max_tokens > 0 ? req->sampling.max_tokens : 0) >
        (size_t)x->info.max_model_len)
        return fail(err, XENON_ELIMIT, "the request can never fit");
    struct xenon_handle *const h = calloc(1, sizeof *h);
    h->x = x;
    h->s = req->sampling;
    h->prompt = malloc(req->n_prompt * sizeof *h->prompt);
    memcpy(h->prompt, req->prompt, req->n_prompt * sizeof *h->prompt);
    h->n_prompt = req->n_prompt;
    for (size_t i = 0; i < h->s.n_stop; i++)
        h->stop[i] = strdup(req->sampling.stop[i]);
    for (size_t i = 0; i < h->s.n_stop_ids; i++)
        h->stop_ids[i] = req->sampling.stop_ids[i];
    h->stop_hit = h->stop_id = -1;
    uint64_t hash = h->s.temperature > 0 && h->s.has_seed ? h->s.seed * 77 : 0;
    for (size_t i = 0; i < h->n_prompt; i++)
        hash = hash * 31 + (uint64_t)h->prompt[i];
    h->start = (size_t)(hash % 40);
    h->n_answer = 60 + (size_t)(hash % 30);
    h->fails = contains(h->prompt, h->n_prompt, "FAKE-ERROR");
    h->kills = contains(h->prompt, h->n_prompt, "FAKE-DIE");
    h->queued_ns = now_ns();
    h->ready_ns = h->queued_ns + x->prefill_us * 1000 * (int64_t)h->n_prompt;
    pthread_mutex_lock(&x->lock);
    int code = x->dead ? XENON_EDEAD : XENON_OK, n = 0;
    for (const struct xenon_handle *q = x->handles; q; q = q->next)
        n += q->finish == XENON_FINISH_NONE;
    if (!code && n >= x->max_queue) code = XENON_EBUSY;
    if (!code) {
        h->next = x->handles;
        x->handles = h;
        x->stats.prompt_tokens += (int64_t)h->n_prompt;
        x->stats.prefix_queries += (int64_t)h->n_prompt;
    }
    pthread_mutex_unlock(&x->lock);
    if (code) {
        handle_free(h);
        return fail(err, code, code == XENON_EBUSY ? "the queue is full; try again" : "the engine has stopped");
    }
    *out = h;
    return XENON_OK;
}

static void end(struct xenon_handle *h, enum xenon_finish f) {
    h->finish = f;
    if (f == XENON_FINISH_ABORT)
        h->x->stats.requests_aborted++;
    else
        h->x->stats.requests_finished++;
}

/* Looks for a stop string that ends with the newest byte. */
static bool stop_matches(struct xenon_handle *h) {
    for (size_t i = 0; i < h->s.n_stop; i++) {
        const size_t m = strlen(h->stop[i]);
        if (h->len < m || memcmp(h->text + h->len - m, h->stop[i], m) != 0) continue;
        h->stop_hit = (int)i;
        h->stop_at = h->s.include_stop_str_in_output ? h->len : h->len - m;
        return true;
    }
    return false;
}

static void step_handle(struct xenon_handle *h, int64_t now) {
    if (h->finish || now < h->ready_ns) return;
    h->running = true;
    if (h->s.max_tokens == 0) {
        end(h, XENON_FINISH_LENGTH);
        return;
    }
    if (h->n_gen >= h->n_answer && !h->s.ignore_eos) {
        end(h, XENON_FINISH_STOP);
        return;
    }
    const unsigned char c = (unsigned char)sentence[(h->start + h->n_gen) % (sizeof sentence - 1)];
    if (h->len + 1 > h->cap) {
        h->cap = h->cap ? h->cap * 2 : 64;
        h->text = realloc(h->text, h->cap);
    }
    h->text[h->len++] = (char)c;
    h->n_gen++;
    h->x->stats.generation_tokens++;
    if (!h->first_ns) h->first_ns = now;
    h->last_ns = now;
    if (h->fails && h->n_gen > 3) {
        end(h, XENON_FINISH_ERROR);
        return;
    }
    if (h->kills && h->n_gen > 3) h->x->dead = true;
    for (size_t i = 0; i < h->s.n_stop_ids; i++)
        if (h->stop_ids[i] == c) h->stop_id = c;
    if (h->stop_id >= 0 || stop_matches(h))
        end(h, XENON_FINISH_STOP);
    else if (h->n_gen == (size_t)h->s.max_tokens || h->n_prompt + h->n_gen >= (size_t)h->x->info.max_model_len)
        end(h, XENON_FINISH_LENGTH);
}

static void *engine(void *arg) {
    struct xenon *const x = arg;
    for (;;) {
        bool news = false;
        pthread_mutex_lock(&x->lock);
        if (x->stop) break;
        const int64_t now = now_ns();
        for (struct xenon_handle *h = x->handles; h; h = h->next) {
            if (h->finish) continue;
            const size_t before = h->n_gen;
            if (h->cancelled || x->dead)
                end(h, XENON_FINISH_ABORT);
            else
                step_handle(h, now);
            news |= h->finish || h->n_gen != before;
        }
        x->stats.steps++;
        pthread_mutex_unlock(&x->lock);
        if (news && x->opt.notify) x->opt.notify(x->opt.user);
        sleep_us(x->token_us);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* Bytes of the text that are certain: whole code points, no beginning of a stop string. */
static size_t certain_len(const struct xenon_handle *h) {
    size_t n = h->len;
    if (h->stop_hit >= 0) n = h->stop_at;
    if (h->finish) return n;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const unsigned char c = (unsigned char)h->text[n - back];
        if ((c & 0xc0) == 0x80) continue;
        const size_t want = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if (want > back) n -= back;
        break;
    }
    for (size_t i = 0; i < h->s.n_stop; i++) {
        const size_t m = strlen(h->stop[i]);
        for (size_t k = m - 1; k > 0; k--) {
            if (k > h->len || memcmp(h->text + h->len - k, h->stop[i], k) != 0) continue;
            if (h->len - k < n) n = h->len - k;
            break;
        }
    }
    return n;
}

static void fill_token(struct xenon_token *t, int32_t id, int n_top, struct xenon_logprob *top) {
    *t = (struct xenon_token){.id = id, .logprob = -0.1f, .rank = 1, .n_top = n_top, .top = top};
    for (int i = 0; i < n_top; i++)
        top[i] = (struct xenon_logprob){(id + i) % 256, i ? -1.5f * (float)i : -0.1f};
}

/* Tokens and text since the last poll; the lock is held. */
static void fill_output(struct xenon_handle *h, struct xenon_output *o) {
    const int lp = h->s.logprobs, plp = h->s.prompt_logprobs;
    const size_t n = h->n_gen - h->out_tokens, upto = certain_len(h), top = (size_t)(lp > plp ? lp : plp) + 1;
    *o = (struct xenon_output){.n_tokens = n,
                               .finish = h->finish,
                               .stop_id = h->stop_id,
                               .n_prompt = h->n_prompt,
                               .n_generated = h->n_gen,
                               .queued_ns = h->queued_ns,
                               .first_token_ns = h->first_ns,
                               .last_token_ns = h->last_ns,
                               .now_ns = now_ns()};
    free(h->tokens);
    free(h->tops);
    free(h->polled);
    h->tokens = calloc(n + 1, sizeof *h->tokens);
    h->tops = calloc((n + h->n_prompt + 1) * top + 1, sizeof *h->tops);
    for (size_t i = 0; i < n; i++)
        fill_token(&h->tokens[i], (unsigned char)h->text[h->out_tokens + i], lp > 0 ? lp : 0, h->tops + i * top);
    o->tokens = h->tokens;
    if (plp >= 0 && !h->out_prompt) {
        free(h->prompt_tokens);
        h->prompt_tokens = calloc(h->n_prompt, sizeof *h->prompt_tokens);
        for (size_t i = 0; i < h->n_prompt; i++)
            fill_token(&h->prompt_tokens[i], h->prompt[i], plp, h->tops + (n + i) * top);
        o->prompt_tokens = h->prompt_tokens;
        h->out_prompt = true;
    }
    const size_t text_len = upto > h->out_text ? upto - h->out_text : 0;
    h->polled = malloc(text_len + 1);
    if (text_len) memcpy(h->polled, h->text + h->out_text, text_len);
    h->polled[text_len] = '\0';
    o->text = h->polled;
    o->text_len = text_len;
    if (h->stop_hit >= 0 && h->finish) o->stop_reason = h->stop[h->stop_hit];
    if (h->finish == XENON_FINISH_ERROR) o->error = "non-finite logits in this request";
    h->out_tokens = h->n_gen;
    h->out_text += text_len;
    h->out_end = h->finish != XENON_FINISH_NONE;
}

bool xenon_poll(struct xenon_handle *h, struct xenon_output *o) {
    pthread_mutex_lock(&h->x->lock);
    const bool news = h->n_gen > h->out_tokens || (h->finish && !h->out_end);
    if (news) fill_output(h, o);
    pthread_mutex_unlock(&h->x->lock);
    return news;
}

bool xenon_wait(struct xenon_handle *h, int timeout_ms) {
    for (int i = 0; timeout_ms < 0 || i <= timeout_ms; i++) {
        pthread_mutex_lock(&h->x->lock);
        const bool news = h->n_gen > h->out_tokens || (h->finish && !h->out_end);
        pthread_mutex_unlock(&h->x->lock);
        if (news) return true;
        sleep_us(1000);
    }
    return false;
}

void xenon_cancel(struct xenon_handle *h) {
    pthread_mutex_lock(&h->x->lock);
    h->cancelled = true;
    pthread_mutex_unlock(&h->x->lock);
}

void xenon_release(struct xenon_handle *h) {
    if (!h) return;
    struct xenon *const x = h->x;
    pthread_mutex_lock(&x->lock);
    if (!h->finish) x->stats.requests_aborted++;
    for (struct xenon_handle **p = &x->handles; *p; p = &(*p)->next) {
        if (*p != h) continue;
        *p = h->next;
        break;
    }
    pthread_mutex_unlock(&x->lock);
    handle_free(h);
}

/* ---- Engine ---------------------------------------------------------------------------------- */

int xenon_open(struct xenon **out, const struct xenon_options *opt, struct xenon_error *err) {
    const int64_t load_ms = env_int("FAKE_LOAD_MS", 0);
    if (strcmp(opt->model, "missing") == 0) return fail(err, XENON_EIO, "missing: no such file or directory");
    for (int64_t i = 0; i < load_ms; i += 20) {
        if (opt->progress) opt->progress(opt->user, "weights", i << 20, load_ms << 20);
        sleep_us(20000);
    }
    struct xenon *const x = calloc(1, sizeof *x);
    pthread_mutex_init(&x->lock, NULL);
    x->opt = *opt;
    x->token_us = env_int("FAKE_TOKEN_US", 500);
    x->prefill_us = env_int("FAKE_PREFILL_US", 0);
    x->max_queue = (int)env_int("FAKE_QUEUE", 4096);
    x->info =
        (struct xenon_info){.model_path = opt->model,
                            .architecture = "fake",
                            .isa = "generic",
                            .vocab_size = VOCAB,
                            .max_model_len = opt->max_model_len ? opt->max_model_len : env_int("FAKE_MAX_LEN", 4096),
                            .num_kv_blocks = 1024,
                            .block_size = 16,
                            .max_num_seqs = 256,
                            .has_chat_template = true,
                            .bos_id = BOS,
                            .n_eos = 2,
                            .eos_ids = eos_ids,
                            .default_temperature = (double)NAN,
                            .default_top_p = (double)NAN,
                            .default_repetition_penalty = (double)NAN,
                            .default_top_k = -1};
    pthread_create(&x->thread, NULL, engine, x);
    *out = x;
    return XENON_OK;
}

void xenon_close(struct xenon *x) {
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    x->stop = true;
    pthread_mutex_unlock(&x->lock);
    pthread_join(x->thread, NULL);
    if (x->handles) fprintf(stderr, "fake engine: handles were not released\n"), abort();
    pthread_mutex_destroy(&x->lock);
    free(x);
}

const struct xenon_info *xenon_info(const struct xenon *x) {
    return &x->info;
}

/* The lock is not const; it only guards. */
static struct xenon *mutable(const struct xenon *x) {
    struct xenon *m;
    memcpy(&m, &x, sizeof m);
    return m;
}

bool xenon_alive(const struct xenon *x) {
    pthread_mutex_lock(&mutable(x)->lock);
    const bool dead = x->dead;
    pthread_mutex_unlock(&mutable(x)->lock);
    return !dead;
}

void xenon_stats(const struct xenon *x, struct xenon_stats *out) {
    pthread_mutex_lock(&mutable(x)->lock);
    *out = x->stats;
    out->kv_blocks_total = 1024;
    for (const struct xenon_handle *h = x->handles; h; h = h->next) {
        if (h->finish) continue;
        if (h->running)
            out->n_running++;
        else
            out->n_waiting++;
        out->kv_blocks_used += (int64_t)(h->n_prompt + h->n_gen + 15) / 16;
    }
    pthread_mutex_unlock(&mutable(x)->lock);
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "bench") == 0 && strcmp(argv[2], "serve") == 0)
        return bench_serve_main(argc - 2, argv + 2);
    if (argc < 2 || strcmp(argv[1], "serve") != 0) {
        fprintf(stderr, "usage: fake_xenon serve [flags] | bench serve [flags]\n");
        return 2;
    }
    return serve_main(argc - 1, argv + 1);
}
