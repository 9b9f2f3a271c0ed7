/* include/xenon.h: opening, information, requests. The text half is in xenon_text.c. */
#include "engine/xenon_int.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"

_Static_assert((int)XENON_ENOMEM == (int)ERR_NOMEM && (int)XENON_EIO == (int)ERR_IO &&
                   (int)XENON_EFORMAT == (int)ERR_FORMAT && (int)XENON_EUNSUPPORTED == (int)ERR_UNSUPPORTED &&
                   (int)XENON_EARG == (int)ERR_ARG && (int)XENON_ELIMIT == (int)ERR_LIMIT &&
                   (int)XENON_EBUSY == (int)ERR_BUSY && (int)XENON_ECANCELLED == (int)ERR_CANCELLED &&
                   (int)XENON_EDEAD == (int)ERR_DEAD,
               "the public codes are those of base/err.h");
_Static_assert(sizeof(struct xenon_error) == sizeof(struct err_msg), "the public text is that of base/err.h");

struct err_msg *xenon_int_msg(struct xenon_error *err) { return (struct err_msg *)(void *)err; }

/* ---- Opening ---- */

static enum err read_defaults(struct xenon *x, struct err_msg *msg) {
    struct xenon_info *const i = &x->info;
    struct conf *c = NULL;
    i->default_temperature = i->default_top_p = i->default_repetition_penalty = (double)NAN;
    i->default_top_k = -1;
    TRY(ckpt_json(x->ckpt, "generation_config.json", &c, msg));
    if (!c) return ERR_OK;
    conf_f64(c, "temperature", &i->default_temperature);
    conf_f64(c, "top_p", &i->default_top_p);
    conf_f64(c, "repetition_penalty", &i->default_repetition_penalty);
    conf_i64(c, "top_k", &i->default_top_k);
    conf_close(c);
    return ERR_OK;
}

static enum err fill_info(struct xenon *x, struct err_msg *msg) {
    const struct model_runner *const r = &x->core.runner;
    struct xenon_info *const i = &x->info;
    *i = (struct xenon_info){.model_path = ckpt_path(x->ckpt),
                             .architecture = r->model.def->name,
                             .isa = cpu_level_name(r->kern.level),
                             .max_model_len = r->max_model_len,
                             .vocab_size = r->model.h.vocab,
                             .n_parameters = r->model.n_parameters,
                             .weight_bytes = r->weights.packed_bytes,
                             .kv_bytes = r->kv.bytes,
                             .num_kv_blocks = r->kv.groups[0].n_pages,
                             .block_size = r->block_size,
                             .max_num_seqs = r->max_num_seqs,
                             .max_num_batched_tokens = x->core.budget,
                             .threads = pool_n_lanes(r->pool),
                             .nodes = pool_n_teams(r->pool),
                             .level = r->level,
                             .has_chat_template = x->chat != NULL,
                             .bos_id = x->tok ? tokenizer_bos(x->tok) : -1,
                             .n_eos = x->core.n_eos,
                             .eos_ids = x->core.eos_ids};
    return read_defaults(x, msg);
}

/* Without a tokenizer (random weights from a bare configuration) requests are token ids and answers too. */
static enum err open_text(struct xenon *x, const struct xenon_options *opt, struct err_msg *msg) {
    const bool dummy = opt->load_format && strcmp(opt->load_format, "dummy") == 0;
    const enum err e = tokenizer_open(&x->tok, x->ckpt, msg);
    if (e) return dummy ? ERR_OK : e;
    x->core.eos_ids = tokenizer_eos_ids(x->tok, &x->core.n_eos);
    return xenon_int_open_template(x, opt->chat_template, msg);
}

static enum err open_all(struct xenon *x, const struct xenon_options *opt, struct err_msg *msg) {
    const bool dummy = opt->load_format && strcmp(opt->load_format, "dummy") == 0;
    if (!opt->model) return err_set(msg, ERR_ARG, "no model: name a GGUF file or a model folder with --model");
    TRY(dummy ? ckpt_open_config(&x->ckpt, opt->model, msg) : ckpt_open(&x->ckpt, opt->model, msg));
    TRY(open_text(x, opt, msg));
    x->seed = opt->seed ? opt->seed : (uint64_t)clock_ns();
    x->core.x = x;
    x->core.opt = opt;
    x->core.ckpt = x->ckpt;
    x->core.notify = opt->notify;
    x->core.user = opt->user;
    TRY(engine_core_start(&x->core, msg));
    x->started = true;
    return fill_info(x, msg);
}

int xenon_open(struct xenon **out, const struct xenon_options *opt, struct xenon_error *err) {
    *out = NULL;
    struct xenon *const x = mem_calloc(1, sizeof *x);
    if (!x) return err_set(xenon_int_msg(err), ERR_NOMEM, "memory ran out");
    const enum err e = open_all(x, opt, xenon_int_msg(err));
    if (e) xenon_close(x);
    else *out = x;
    return (int)e;
}

void xenon_close(struct xenon *x) {
    if (!x) return;
    if (x->started) engine_core_stop(&x->core);
    chat_template_close(x->chat);
    tokenizer_close(x->tok);
    ckpt_close(x->ckpt);
    mem_free(x);
}

const struct xenon_info *xenon_info(const struct xenon *x) { return &x->info; }

/* The lock is not part of what a const engine promises not to change. */
static struct engine_core *core_of(const struct xenon *x) {
    union {
        const struct engine_core *in;
        struct engine_core *out;
    } u = {.in = &x->core};
    return u.out;
}

bool xenon_alive(const struct xenon *x) {
    struct engine_core *const e = core_of(x);
    pthread_mutex_lock(&e->lock);
    const bool alive = e->state == ENGINE_RUNNING;
    pthread_mutex_unlock(&e->lock);
    return alive;
}

void xenon_stats(const struct xenon *x, struct xenon_stats *out) {
    struct engine_core *const e = core_of(x);
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    out->n_waiting += e->n_submitted;
    pthread_mutex_unlock(&e->lock);
}

/* ---- Requests ---- */

void xenon_sampling_default(struct xenon_sampling *s) {
    *s = (struct xenon_sampling){.temperature = 1.0f,
                                 .top_p = 1.0f,
                                 .repetition_penalty = 1.0f,
                                 .max_tokens = -1,
                                 .logprobs = -1,
                                 .prompt_logprobs = -1,
                                 .skip_special_tokens = true};
}

static enum err check_request(const struct xenon *x, const struct xenon_request *req, struct err_msg *msg) {
    const struct xenon_sampling *const s = &req->sampling;
    for (size_t i = 0; i < req->n_prompt; i++)
        if (req->prompt[i] < 0 || req->prompt[i] >= x->info.vocab_size)
            return err_set(msg, ERR_ARG, "prompt token %zu is %d; the vocabulary has ids 0 to %lld", i, req->prompt[i],
                           (long long)x->info.vocab_size - 1);
    if (s->logprobs > XENON_TOP_LOGPROBS_MAX || s->prompt_logprobs > XENON_TOP_LOGPROBS_MAX)
        return err_set(msg, ERR_LIMIT, "logprobs: at most %d alternatives per token", XENON_TOP_LOGPROBS_MAX);
    for (size_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id < 0 || s->bias[i].id >= x->info.vocab_size)
            return err_set(msg, ERR_ARG, "logit_bias: token %d; the vocabulary has ids 0 to %lld", s->bias[i].id,
                           (long long)x->info.vocab_size - 1);
    /* Rows of the cache: the last token of an answer has none. A prompt beyond the model's length is refused later. */
    const int64_t n = (int64_t)req->n_prompt, most = x->info.max_model_len;
    const int64_t n_new = s->max_tokens < 0 ? 1 : s->max_tokens < most - n ? s->max_tokens : most - n;
    const int64_t rows = n_new > 0 ? n + n_new - 1 : n;
    if (most - n >= (s->max_tokens != 0) && rows > x->core.max_fit)
        return err_set(msg, ERR_LIMIT, "prompt of %zu and answer of %lld tokens: the KV cache holds %lld; raise "
                       "--kv-cache-memory", req->n_prompt, (long long)n_new, (long long)x->core.max_fit);
    return ERR_OK;
}

static enum err make_handle(struct xenon *x, const struct xenon_request *req, struct xenon_handle **out,
                            struct err_msg *msg) {
    struct sequence *seq = NULL;
    const int64_t now = clock_ns();
    const uint64_t id = atomic_fetch_add_explicit(&x->next_id, 1, memory_order_relaxed);
    const struct sequence_spec spec = {
        .id = id,
        .prompt = req->prompt,
        .n_prompt = req->n_prompt,
        .sampling = &req->sampling,
        .seed = hash_mix(x->seed + id),
        .salt = req->cache_salt,
        .priority = req->priority,
        .arrival_ns = now,
        .deadline_ns = req->timeout_s > 0 ? now + (int64_t)(fmin(req->timeout_s, 1e8) * 1e9) : 0,
        .max_model_len = x->info.max_model_len,
        .n_groups = x->core.runner.kv.n_groups,
        .block_size = x->info.block_size,
    };
    TRY(check_request(x, req, msg));
    TRY(sequence_create(&seq, &spec, msg));
    const enum err e = request_create(out, x, seq, x->tok, &req->sampling, msg);
    if (e) sequence_destroy(seq);
    return e;
}

int xenon_submit(struct xenon *x, const struct xenon_request *req, struct xenon_handle **out, struct xenon_error *err) {
    struct xenon_handle *h = NULL;
    *out = NULL;
    enum err e = make_handle(x, req, &h, xenon_int_msg(err));
    if (e) return (int)e;
    e = engine_core_submit(&x->core, h, xenon_int_msg(err));
    if (e) {
        request_unref(h); /* the engine's */
        request_unref(h);
        return (int)e;
    }
    *out = h;
    return XENON_OK;
}

const char *xenon_finish_name(enum xenon_finish f) {
    static const char *const names[] = {NULL, "stop", "length", "abort", "error"};
    return (unsigned)f < N_ELEMENTS(names) ? names[f] : NULL;
}

/* Entry i of a store as the client sees it. */
static struct xenon_token token_of(const struct logprob_store *st, int64_t i, int32_t id) {
    struct xenon_token t = {.id = id};
    if (st->n_top < 0) return t;
    t.logprob = st->logprob[i];
    t.rank = st->rank[i];
    t.n_top = st->n_tops[i];
    t.top = st->tops + i * st->n_top;
    return t;
}

/* Feeds the processor what the engine has published; ends the request at a stop string. */
static void take_tokens(struct xenon_handle *h, int64_t published, enum xenon_finish finish) {
    struct client_side *const c = &h->client;
    while (c->consumed < published && c->finish == XENON_FINISH_NONE) {
        const int32_t id = h->seq->tokens[h->seq->n_prompt + c->consumed];
        const struct xenon_token t = token_of(&h->out, c->consumed, id);
        c->consumed++;
        if (output_processor_push(&h->processor, &t)) c->finish = XENON_FINISH_STOP;
        if (h->processor.failed) return; /* give_up says so */
        if (c->finish != XENON_FINISH_NONE) engine_core_want_finish(&h->x->core, h, c->finish);
    }
    if (c->finish != XENON_FINISH_NONE || finish == XENON_FINISH_NONE) return;
    c->finish = output_processor_finish(&h->processor) ? XENON_FINISH_STOP : finish;
}

/* Memory ran out on the client's side: what was lost cannot be told, so the request ends, even if it was at its end. */
static void give_up(struct xenon_handle *h) {
    if (!h->processor.failed || h->client.finish == XENON_FINISH_ERROR) return;
    h->client.finish = XENON_FINISH_ERROR;
    engine_core_want_finish(&h->x->core, h, XENON_FINISH_ERROR);
}

static void fill_prompt(struct xenon_handle *h, struct xenon_output *out) {
    struct client_side *const c = &h->client;
    if (h->prompt.n_top < 0 || c->prompt_given || !atomic_load_explicit(&h->prompt_ready, memory_order_acquire)) return;
    c->prompt_given = true;
    c->prompt_tokens = mem_calloc((size_t)h->seq->n_prompt, sizeof *c->prompt_tokens);
    if (!c->prompt_tokens) {
        h->processor.failed = true;
        return;
    }
    for (int64_t i = 0; i < h->seq->n_prompt; i++) c->prompt_tokens[i] = token_of(&h->prompt, i, h->seq->tokens[i]);
    out->prompt_tokens = c->prompt_tokens;
}

bool xenon_poll(struct xenon_handle *h, struct xenon_output *out) {
    struct client_side *const c = &h->client;
    memset(out, 0, sizeof *out);
    out->stop_id = -1;
    if (c->done) return false;
    /* finish first: everything published before it is then visible. */
    const enum xenon_finish finish = (enum xenon_finish)atomic_load_explicit(&h->finish, memory_order_acquire);
    const int64_t published = atomic_load_explicit(&h->published, memory_order_acquire);
    fill_prompt(h, out);
    take_tokens(h, published, finish);
    output_processor_take(&h->processor, out);
    give_up(h);
    out->finish = c->finish;
    out->n_prompt = (size_t)h->seq->n_prompt;
    out->n_cached = (size_t)atomic_load_explicit(&h->n_cached, memory_order_relaxed);
    out->n_generated = (size_t)c->consumed;
    out->queued_ns = h->seq->arrival_ns;
    out->first_token_ns = atomic_load_explicit(&h->first_token_ns, memory_order_relaxed);
    out->last_token_ns = atomic_load_explicit(&h->last_token_ns, memory_order_relaxed);
    out->now_ns = clock_ns();
    c->done = out->finish != XENON_FINISH_NONE;
    if (c->done) {
        out->stop_reason = h->processor.matched;
        if (finish != XENON_FINISH_NONE && !out->stop_reason) out->stop_id = h->seq->stop_id;
        if (out->finish == XENON_FINISH_ERROR)
            out->error = h->processor.failed ? "memory ran out while the answer was read" : h->error.text;
    }
    return c->done || out->n_tokens > 0 || out->text_len > 0 || out->prompt_tokens;
}

/* Whether a poll may bring something: new tokens, or an end that was not told. */
static bool has_news(const struct xenon_handle *h) {
    if (h->client.done) return true;
    return atomic_load_explicit(&h->finish, memory_order_acquire) != XENON_FINISH_NONE ||
           atomic_load_explicit(&h->published, memory_order_acquire) > h->client.consumed ||
           (h->prompt.n_top >= 0 && !h->client.prompt_given &&
            atomic_load_explicit(&h->prompt_ready, memory_order_acquire));
}

bool xenon_wait(struct xenon_handle *h, int timeout_ms) {
    const int64_t deadline = timeout_ms < 0 ? -1 : clock_ns() + (int64_t)timeout_ms * 1000000;
    uint64_t seen = 0;
    for (;;) {
        if (has_news(h)) return true;
        const uint64_t serial = engine_core_wait_news(&h->x->core, seen, deadline);
        if (serial == seen || (deadline >= 0 && clock_ns() >= deadline)) return has_news(h);
        seen = serial;
    }
}

void xenon_cancel(struct xenon_handle *h) { engine_core_want_finish(&h->x->core, h, XENON_FINISH_ABORT); }

void xenon_release(struct xenon_handle *h) {
    if (!h) return;
    if (atomic_load_explicit(&h->finish, memory_order_acquire) == XENON_FINISH_NONE) xenon_cancel(h);
    request_unref(h);
}
