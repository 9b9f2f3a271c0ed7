#include "cmd/generate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd/engine_flags.h"
#include "cmd/progress.h"
#include "cmd/prompts.h"
#include "serve/json_write.h"

static const char usage[] = "xenon generate --model M (--prompt TEXT | --token-ids 1,2,3 | --prompts FILE) [flags]";

struct generate_flags {
    const char *prompt, *token_ids, *prompts;
    bool chat, json, quiet, ignore_eos, greedy;
    int max_tokens, top_k, logprobs, prompt_logprobs;
    double temperature, top_p, min_p;
    uint64_t sample_seed;
    struct arg_list stop;
};

#define FIELD(f) offsetof(struct generate_flags, f)

// clang-format off
static const struct arg_def defs[] = {
    {"prompt", "-p", ARG_STRING, FIELD(prompt), NULL, 0, 0, 0, "TEXT", "what to go on from; - reads standard input", false},
    {"token-ids", NULL, ARG_STRING, FIELD(token_ids), NULL, 0, 0, 0, "IDS", "the same as ids: 1,2,3", false},
    {"prompts", NULL, ARG_STRING, FIELD(prompts), NULL, 0, 0, 0, "FILE", "a JSON string, array of ids or object per line", false},
    {"chat", NULL, ARG_FLAG, FIELD(chat), NULL, 0, 0, 0, NULL, "a prompt is a user's message: use the chat template", false},
    {"max-tokens", "-n", ARG_INT, FIELD(max_tokens), NULL, 0, 1e9, 0, "N", "longest answer (as many as fit)", false},
    {"temperature", NULL, ARG_DOUBLE, FIELD(temperature), NULL, 0, 100, 0, "X", "0: the likeliest token (0)", false},
    {"top-p", NULL, ARG_DOUBLE, FIELD(top_p), NULL, 0, 1, 0, "X", "nucleus (1)", false},
    {"top-k", NULL, ARG_INT, FIELD(top_k), NULL, 0, 1e9, 0, "N", "only the N likeliest (all)", false},
    {"min-p", NULL, ARG_DOUBLE, FIELD(min_p), NULL, 0, 1, 0, "X", "least share of the likeliest (0)", false},
    {"sample-seed", NULL, ARG_UINT64, FIELD(sample_seed), NULL, 0, 0, 0, "N", "noise of the draws; --seed does the same here", true},
    {"stop", NULL, ARG_LIST, FIELD(stop), NULL, 0, 0, 0, "TEXT", "end before this text", false},
    {"ignore-eos", NULL, ARG_FLAG, FIELD(ignore_eos), NULL, 0, 0, 0, NULL, "go on behind the end of the text", false},
    {"logprobs", NULL, ARG_INT, FIELD(logprobs), NULL, 0, XENON_TOP_LOGPROBS_MAX, 1, "N", "logprobs of N alternatives (with --json)", false},
    {"prompt-logprobs", NULL, ARG_INT, FIELD(prompt_logprobs), NULL, 0, XENON_TOP_LOGPROBS_MAX, 1, "N", "the same for the prompt", true},
    {"json", NULL, ARG_FLAG, FIELD(json), NULL, 0, 0, 0, NULL, "one JSON object per prompt instead of text", false},
    {"quiet", "-q", ARG_FLAG, FIELD(quiet), NULL, 0, 0, 0, NULL, "no progress, no figures", false},
};
// clang-format on

/* One prompt on its way. */
struct job {
    struct xenon_handle *h;
    struct strbuf text, logprobs, prompt_logprobs;
    int32_t *ids;
    size_t n_ids, cap_ids;
    enum xenon_finish finish;
    double ttft_ms, tpot_ms;
};

struct run {
    const struct generate_flags *f;
    struct xenon *x;
    struct prompt_list prompts;
    struct job *jobs;
    bool failed;
};

static int complain(const char *what) {
    fprintf(stderr, "xenon generate: %s\n", what);
    return 1;
}

static void sampling_of(const struct run *r, const struct prompt *p, uint64_t seed, struct xenon_sampling *s) {
    const struct generate_flags *const f = r->f;
    xenon_sampling_default(s);
    s->temperature = (float)(isnan(p->temperature) ? f->temperature : p->temperature);
    s->top_p = (float)f->top_p;
    s->min_p = (float)f->min_p;
    s->top_k = f->top_k;
    s->max_tokens = p->max_tokens != INT32_MIN ? p->max_tokens : f->max_tokens;
    s->ignore_eos = f->ignore_eos;
    s->logprobs = f->logprobs - 1;
    s->prompt_logprobs = f->prompt_logprobs - 1;
    s->has_seed = p->has_seed || seed != 0;
    s->seed = p->has_seed ? p->seed : seed;
    s->stop = f->stop.items;
    s->n_stop = (size_t)f->stop.n;
}

/* [[id, logprob], ...] best first; the chosen token is among them or last. */
static void put_logprobs(struct strbuf *b, const struct xenon_token *t) {
    bool chosen = false;
    strbuf_puts(b, b->len ? ",[" : "[");
    for (int i = 0; i < t->n_top; i++) {
        chosen = chosen || t->top[i].id == t->id;
        strbuf_printf(b, "%s[%d,", i ? "," : "", t->top[i].id);
        json_write_float(b, t->top[i].logprob);
        strbuf_putc(b, ']');
    }
    if (!chosen) {
        strbuf_printf(b, "%s[%d,", t->n_top ? "," : "", t->id);
        json_write_float(b, t->logprob);
        strbuf_putc(b, ']');
    }
    strbuf_putc(b, ']');
}

static void take_output(struct run *r, struct job *j, const struct xenon_output *o, bool live) {
    for (size_t i = 0; i < o->n_tokens; i++) {
        if (mem_grow(&j->ids, &j->cap_ids, j->n_ids + 1, sizeof *j->ids)) j->ids[j->n_ids++] = o->tokens[i].id;
        else r->failed = true;
        if (r->f->logprobs > 0) put_logprobs(&j->logprobs, &o->tokens[i]);
    }
    for (size_t i = 0; o->prompt_tokens && i < o->n_prompt; i++) {
        if (i == 0) strbuf_puts(&j->prompt_logprobs, "null");
        else put_logprobs(&j->prompt_logprobs, &o->prompt_tokens[i]);
    }
    strbuf_append(&j->text, o->text, o->text_len);
    if (live && fwrite(o->text, 1, o->text_len, stdout) == o->text_len) fflush(stdout);
    if (o->finish == XENON_FINISH_NONE) return;
    j->finish = o->finish;
    if (o->first_token_ns) j->ttft_ms = (double)(o->first_token_ns - o->queued_ns) * 1e-6;
    if (j->n_ids > 1) j->tpot_ms = (double)(o->last_token_ns - o->first_token_ns) * 1e-6 / (double)(j->n_ids - 1);
    if (o->error) {
        complain(o->error);
        r->failed = true;
    }
}

static void put_ids(struct strbuf *b, const char *before, const int32_t *ids, size_t n) {
    strbuf_puts(b, before);
    for (size_t i = 0; i < n; i++) strbuf_printf(b, "%s%d", i ? "," : "", ids[i]);
}

static void print_json(const struct job *j, const struct prompt *p) {
    struct strbuf b = {0};
    put_ids(&b, "{\"prompt_token_ids\":[", p->ids, p->n);
    put_ids(&b, "],\"token_ids\":[", j->ids, j->n_ids);
    strbuf_puts(&b, "],\"text\":");
    json_write_string(&b, strbuf_cstr(&j->text), j->text.len);
    strbuf_printf(&b, ",\"finish_reason\":\"%s\",\"logprobs\":[%s]", xenon_finish_name(j->finish),
                  strbuf_cstr(&j->logprobs));
    if (j->prompt_logprobs.len) strbuf_printf(&b, ",\"prompt_logprobs\":[%s]", strbuf_cstr(&j->prompt_logprobs));
    strbuf_printf(&b, ",\"ttft_ms\":%.3f,\"tpot_ms\":%.3f}", j->ttft_ms, j->tpot_ms);
    puts(strbuf_cstr(&b));
    strbuf_deinit(&b);
}

/* Submits prompt i, waiting while the queue is full. */
static bool submit(struct run *r, size_t i, uint64_t seed) {
    struct xenon_request req = {.prompt = r->prompts.items[i].ids, .n_prompt = r->prompts.items[i].n};
    struct xenon_error err;
    int rc;
    sampling_of(r, &r->prompts.items[i], seed, &req.sampling);
    while ((rc = xenon_submit(r->x, &req, &r->jobs[i].h, &err)) == XENON_EBUSY) usleep(2000);
    if (rc) complain(err.text);
    return rc == XENON_OK;
}

/* Results come in the order of the prompts. */
static void collect(struct run *r) {
    const bool live = !r->f->json && r->prompts.n == 1;
    for (size_t i = 0; i < r->prompts.n; i++) {
        struct job *const j = &r->jobs[i];
        struct xenon_output o;
        while (j->h && j->finish == XENON_FINISH_NONE) {
            xenon_wait(j->h, -1);
            if (xenon_poll(j->h, &o)) take_output(r, j, &o, live);
        }
        if (!j->h) continue;
        if (r->f->json) print_json(j, &r->prompts.items[i]);
        else if (!live) puts(strbuf_cstr(&j->text));
        else putchar('\n');
    }
}

static void print_figures(const struct run *r, double seconds) {
    struct xenon_stats s;
    xenon_stats(r->x, &s);
    fprintf(stderr, "%lld prompt and %lld generated tokens in %.2f s: %.1f generated tokens/s",
            (long long)s.prompt_tokens, (long long)s.generation_tokens, seconds, (double)s.generation_tokens / seconds);
    if (r->prompts.n == 1 && r->jobs[0].h)
        fprintf(stderr, "; first token after %.1f ms, then %.2f ms each", r->jobs[0].ttft_ms, r->jobs[0].tpot_ms);
    fputc('\n', stderr);
}

static enum err read_prompts(struct run *r, struct err_msg *msg) {
    const struct generate_flags *const f = r->f;
    if (f->prompts) TRY(prompts_add_file(&r->prompts, r->x, f->prompts, f->chat, msg));
    if (f->token_ids) TRY(prompts_add_ids(&r->prompts, f->token_ids, msg));
    if (f->prompt && strcmp(f->prompt, "-") != 0)
        TRY(prompts_add_text(&r->prompts, r->x, f->prompt, strlen(f->prompt), f->chat, msg));
    if (f->prompt && strcmp(f->prompt, "-") == 0) {
        struct strbuf all = {0};
        char part[4096];
        for (size_t n; (n = fread(part, 1, sizeof part, stdin)) > 0;) strbuf_append(&all, part, n);
        const enum err e = prompts_add_text(&r->prompts, r->x, strbuf_cstr(&all), all.len, f->chat, msg);
        strbuf_deinit(&all);
        return e;
    }
    return ERR_OK;
}

static int run_all(struct run *r, uint64_t seed) {
    struct err_msg msg;
    if (read_prompts(r, &msg)) return complain(msg.text);
    r->jobs = mem_calloc(r->prompts.n, sizeof *r->jobs);
    if (!r->jobs) return complain("memory ran out");
    const int64_t start = clock_ns();
    for (size_t i = 0; i < r->prompts.n; i++)
        if (!submit(r, i, seed)) r->failed = true;
    collect(r);
    if (!r->f->quiet) print_figures(r, (double)(clock_ns() - start) * 1e-9);
    for (size_t i = 0; i < r->prompts.n; i++) {
        struct job *const j = &r->jobs[i];
        xenon_release(j->h);
        strbuf_deinit(&j->text);
        strbuf_deinit(&j->logprobs);
        strbuf_deinit(&j->prompt_logprobs);
        mem_free(j->ids);
    }
    mem_free(r->jobs);
    return r->failed || fflush(stdout) != 0 ? 1 : 0;
}

int generate_main(int argc, char **argv) {
    struct xenon_options opt = {0};
    struct generate_flags f = {.max_tokens = -1, .top_p = 1.0};
    const struct arg_group groups[] = {{"generate", defs, N_ELEMENTS(defs), &f}, engine_flags_group(&opt)};
    struct args a = {.groups = groups, .n_groups = N_ELEMENTS(groups), .n_positional_max = 1};
    struct err_msg msg;
    enum err e = args_parse(&a, argc, argv, &msg);
    if (!e && (a.help || a.help_all)) {
        args_print_help(&a, stdout, usage, a.help_all);
        return 0;
    }
    if (!e) e = engine_flags_finish(&opt, &a, &msg);
    if (!e && !f.prompt && !f.token_ids && !f.prompts)
        e = err_set(&msg, ERR_ARG, "nothing to do: give --prompt, --token-ids or --prompts");
    if (e) {
        complain(msg.text);
        return 2;
    }
    struct progress bar;
    struct xenon_error err;
    struct run r = {.f = &f};
    progress_init(&bar, f.quiet);
    opt.progress = progress_callback;
    opt.user = &bar;
    const int rc = xenon_open(&r.x, &opt, &err);
    progress_end(&bar);
    if (rc) return complain(err.text);
    const int status = run_all(&r, f.sample_seed ? f.sample_seed : opt.seed);
    prompts_deinit(&r.prompts);
    xenon_close(r.x);
    return status;
}
