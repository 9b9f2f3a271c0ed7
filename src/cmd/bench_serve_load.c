#include "cmd/bench_serve_load.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd/progress.h"
#include "serve/http_client.h"
#include "serve/json_write.h"

enum { POOL_WORDS = 2000 };

static const char *const DONE = "[DONE]";

struct load;

/* A request under way. */
struct flight {
    struct load *load;
    struct bench_serve_sample *sample;
    struct strbuf line; /* the unfinished line of the stream */
    bool done;          /* the stream has said that it is complete */
};

/* Everything of a run. */
struct load {
    struct bench_serve_load *l;
    struct http_client *client;
    struct progress bar;
    int64_t *due_ns; /* [num_prompts] after start_ns */
    int64_t start_ns;
    int n_sent, n_under_way, n_ended;
};

static double now_s(void) {
    return (double)clock_ns() * 1e-9;
}

static void blame(struct bench_serve_sample *s, const char *what, const char *more) {
    if (!s->why[0]) snprintf(s->why, sizeof s->why, "%s%.120s", what, more);
    for (char *p = s->why; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
}

/* ---- Arrivals -------------------------------------------------------------------------------- */

static double uniform(struct rng *r) {
    return ((double)(rng_next(r) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller. */
static double normal(struct rng *r) {
    const double u = uniform(r), v = uniform(r);
    return sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v);
}

double bench_serve_load_gap(struct rng *r, double shape, double mean) {
    if (shape < 1.0) { /* X(shape) = X(shape + 1) U^(1 / shape) */
        const double u = uniform(r);
        return bench_serve_load_gap(r, shape + 1.0, mean * (shape + 1.0) / shape) * pow(u, 1.0 / shape);
    }
    const double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        const double x = normal(r), t = 1.0 + c * x, v = t * t * t;
        if (t > 0 && log(uniform(r)) < 0.5 * x * x + d - d * v + d * log(v)) return d * v * mean / shape;
    }
}

static bool plan_arrivals(struct load *w) {
    const struct bench_serve_options *const o = &w->l->opt;
    struct rng r = rng_seeded(o->dataset_seed ^ 0xa441);
    double at = 0;
    w->due_ns = mem_calloc((size_t)o->num_prompts, sizeof *w->due_ns);
    if (!w->due_ns) return false;
    for (int i = 1; i < o->num_prompts && o->request_rate > 0; i++) {
        at += bench_serve_load_gap(&r, o->burstiness, 1.0 / o->request_rate);
        w->due_ns[i] = (int64_t)(at * 1e9);
    }
    return true;
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void take_usage(struct bench_serve_sample *s, const json_t *usage) {
    if (!json_is_object(usage)) return;
    s->n_input = json_integer_value(json_object_get(usage, "prompt_tokens"));
    s->n_output = json_integer_value(json_object_get(usage, "completion_tokens"));
}

static void take_text(struct bench_serve_sample *s, double now) {
    if (s->first == 0) {
        s->first = s->last = now;
        return;
    }
    if (mem_grow(&s->gaps, &s->cap_gaps, s->n_gaps + 1, sizeof *s->gaps)) s->gaps[s->n_gaps++] = (float)(now - s->last);
    else blame(s, "memory ran out", "");
    s->last = now;
}

static void take_event(struct flight *f, const char *data, size_t len, double now) {
    struct bench_serve_sample *const s = f->sample;
    if (len == strlen(DONE) && memcmp(data, DONE, len) == 0) {
        f->done = true;
        return;
    }
    json_t *const root = json_loadb(data, len, 0, NULL);
    const json_t *const error = json_object_get(root, "error"), *const choices = json_object_get(root, "choices");
    if (!root) blame(s, "an event that is no JSON: ", data);
    if (json_is_object(error)) {
        const char *const text = json_string_value(json_object_get(error, "message"));
        blame(s, "error event: ", text ? text : "");
    }
    if (json_string_length(json_object_get(json_array_get(choices, 0), "text")) > 0) take_text(s, now);
    take_usage(s, json_object_get(root, "usage"));
    json_decref(root);
}

/* A line of the stream without its end. Every event of the API is one line of data. */
static void take_line(struct flight *f, const char *line, size_t len, double now) {
    if (len > 0 && line[len - 1] == '\r') len--;
    if (len < 5 || memcmp(line, "data:", 5) != 0) return;
    const size_t skip = len > 5 && line[5] == ' ' ? 6 : 5;
    take_event(f, line + skip, len - skip, now);
}

static void on_body(void *user, const char *data, size_t len) {
    struct flight *const f = user;
    const double now = now_s();
    strbuf_append(&f->line, data, len);
    size_t at = 0;
    for (const char *end; f->line.len > at && (end = memchr(f->line.data + at, '\n', f->line.len - at));) {
        take_line(f, f->line.data + at, (size_t)(end - f->line.data) - at, now);
        at = (size_t)(end - f->line.data) + 1;
    }
    if (at == 0) return;
    memmove(f->line.data, f->line.data + at, f->line.len - at);
    strbuf_truncate(&f->line, f->line.len - at);
}

/* What a reply that is no stream says. */
static void blame_status(struct flight *f, int status) {
    char what[32];
    json_t *const root = json_loadb(strbuf_cstr(&f->line), f->line.len, 0, NULL);
    const char *const text = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    snprintf(what, sizeof what, "HTTP %d: ", status);
    blame(f->sample, what, text ? text : strbuf_cstr(&f->line));
    json_decref(root);
}

static void pump(void *user);

static void flight_free(struct flight *f) {
    strbuf_deinit(&f->line);
    mem_free(f);
}

static void on_end(void *user, int status, const char *why) {
    struct flight *const f = user;
    struct load *const w = f->load;
    struct bench_serve_sample *const s = f->sample;
    s->end = now_s();
    if (status == 0) blame(s, why, "");
    else if (status != 200) blame_status(f, status);
    else if (!f->done) blame(s, "the stream ended without [DONE]", "");
    if (f->line.failed) blame(s, "memory ran out", "");
    if (s->n_output == 0 && s->first > 0) s->n_output = 1 + (int64_t)s->n_gaps; /* a server that sends no usage */
    s->ok = !s->why[0];
    flight_free(f);
    w->n_under_way--;
    w->n_ended++;
    progress_show(&w->bar, "requests", w->n_ended, w->l->opt.num_prompts);
    pump(w);
}

static const struct http_client_hooks hooks = {on_body, on_end};

/* ---- Requests -------------------------------------------------------------------------------- */

static void write_body(const struct bench_serve_load *l, int i, struct strbuf *b) {
    int max_tokens;
    strbuf_puts(b, "{\"model\":");
    json_write_cstr(b, l->model);
    strbuf_puts(b, ",\"prompt\":");
    bench_serve_prompt_write(l, i, b, &max_tokens);
    strbuf_printf(b, ",\"max_tokens\":%d,\"temperature\":%g%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
                  max_tokens, l->opt.temperature, l->opt.ignore_eos ? ",\"ignore_eos\":true" : "");
}

static void send_next(struct load *w) {
    const int i = w->n_sent++;
    struct bench_serve_sample *const s = &w->l->samples[i];
    struct flight *const f = mem_calloc(1, sizeof *f);
    struct strbuf body = {0};
    write_body(w->l, i, &body);
    s->start = now_s();
    errno = ENOMEM;
    if (f && !body.failed) {
        f->load = w;
        f->sample = s;
        if (http_client_send(w->client, "/v1/completions", body.data, body.len, &hooks, f)) {
            w->n_under_way++;
            strbuf_deinit(&body);
            return;
        }
    }
    blame(s, "not sent: ", strerror(errno));
    s->end = s->start;
    w->n_ended++;
    strbuf_deinit(&body);
    if (f) flight_free(f);
}

/* Sends what is due; sets the timer for what is not. */
static void pump(void *user) {
    struct load *const w = user;
    const struct bench_serve_options *const o = &w->l->opt;
    while (w->n_sent < o->num_prompts && (o->max_concurrency == 0 || w->n_under_way < o->max_concurrency)) {
        const int64_t wait = w->start_ns + w->due_ns[w->n_sent] - clock_ns();
        if (wait > 0) {
            http_client_after(w->client, wait, pump, w);
            return;
        }
        send_next(w);
    }
}

/* ---- The server's own words ------------------------------------------------------------------ */

struct fetched {
    struct strbuf text;
    int status;
    char why[BENCH_SERVE_WHY_MAX];
};

static void fetched_body(void *user, const char *data, size_t len) {
    strbuf_append(&((struct fetched *)user)->text, data, len);
}

static void fetched_end(void *user, int status, const char *why) {
    struct fetched *const g = user;
    g->status = status;
    snprintf(g->why, sizeof g->why, "%s", why ? why : "");
}

/* One request whose whole reply is JSON. NULL: it failed; *g says how, its text is freed. */
static json_t *fetch(struct load *w, const char *path, const struct strbuf *body, struct fetched *g) {
    static const struct http_client_hooks whole = {fetched_body, fetched_end};
    json_t *root = NULL;
    *g = (struct fetched){.why = "out of memory or descriptors"};
    if (http_client_send(w->client, path, body ? body->data : NULL, body ? body->len : 0, &whole, g))
        http_client_run(w->client);
    if (g->status == 200 && !g->text.failed) root = json_loadb(strbuf_cstr(&g->text), g->text.len, 0, NULL);
    strbuf_deinit(&g->text);
    return root;
}

static enum err find_model(struct load *w, struct err_msg *msg) {
    struct fetched g;
    const char *const wanted = w->l->opt.model;
    json_t *const root = fetch(w, "/v1/models", NULL, &g);
    const char *const name = json_string_value(json_object_get(json_array_get(json_object_get(root, "data"), 0), "id"));
    if (wanted || name) snprintf(w->l->model, sizeof w->l->model, "%s", wanted ? wanted : name);
    json_decref(root);
    if (g.status == 0) return err_set(msg, ERR_IO, "%s: %s", w->l->opt.url, g.why);
    if (!w->l->model[0])
        return err_set(msg, ERR_IO, "%s/v1/models: HTTP %d and no model's name; say --model%s", w->l->opt.url, g.status,
                       g.status == 401 ? " and --api-key" : "");
    return ERR_OK;
}

/* The ids of common words, so that prompts have exactly the wanted number of tokens. */
static enum err fill_pool(struct load *w, struct err_msg *msg) {
    struct bench_serve_load *const l = w->l;
    struct strbuf body = {0};
    struct fetched g;
    strbuf_puts(&body, "{\"model\":");
    json_write_cstr(&body, l->model);
    strbuf_puts(&body, ",\"add_special_tokens\":false,\"prompt\":\"");
    bench_serve_prompt_words(&body, 1, POOL_WORDS);
    strbuf_puts(&body, "\"}");
    json_t *const root = body.failed ? NULL : fetch(w, "/tokenize", &body, &g);
    const json_t *const ids = json_object_get(root, "tokens");
    const size_t n = json_array_size(ids);
    l->pool = n > 0 ? mem_calloc(n, sizeof *l->pool) : NULL;
    for (size_t i = 0; l->pool && i < n; i++)
        l->pool[l->n_pool++] = (int32_t)json_integer_value(json_array_get(ids, i));
    json_decref(root);
    const bool short_of_memory = body.failed || (n > 0 && !l->pool);
    strbuf_deinit(&body);
    return short_of_memory ? err_set(msg, ERR_NOMEM, "memory ran out") : ERR_OK;
}

static enum err save_prompts(const struct bench_serve_load *l, struct err_msg *msg) {
    FILE *const f = fopen(l->opt.prompts_out, "w");
    struct strbuf b = {0};
    if (!f) return err_set(msg, ERR_IO, "%s: %s", l->opt.prompts_out, strerror(errno));
    for (int i = 0; i < l->opt.num_prompts; i++) {
        int max_tokens;
        strbuf_clear(&b);
        strbuf_puts(&b, "{\"prompt\":");
        bench_serve_prompt_write(l, i, &b, &max_tokens);
        strbuf_printf(&b, ",\"max_tokens\":%d,\"temperature\":%g}\n", max_tokens, l->opt.temperature);
        fputs(strbuf_cstr(&b), f);
    }
    const bool bad = b.failed || ferror(f);
    strbuf_deinit(&b);
    return fclose(f) != 0 || bad ? err_set(msg, ERR_IO, "%s: can not be written", l->opt.prompts_out) : ERR_OK;
}

/* ---- A run ----------------------------------------------------------------------------------- */

static enum err prepare(struct load *w, struct err_msg *msg) {
    struct bench_serve_load *const l = w->l;
    const struct http_client_options co = {l->opt.url, l->opt.api_key, l->opt.silence_s};
    TRY(http_client_create(&w->client, &co, msg));
    TRY(find_model(w, msg));
    TRY(fill_pool(w, msg));
    l->samples = mem_calloc((size_t)l->opt.num_prompts, sizeof *l->samples);
    if (!l->samples || !plan_arrivals(w)) return err_set(msg, ERR_NOMEM, "memory ran out");
    return l->opt.prompts_out ? save_prompts(l, msg) : ERR_OK;
}

enum err bench_serve_load_run(struct bench_serve_load *l, struct err_msg *msg) {
    struct load w = {.l = l};
    progress_init(&w.bar, l->opt.quiet);
    w.bar.items = true;
    const enum err e = prepare(&w, msg);
    if (!e) {
        w.start_ns = clock_ns();
        pump(&w);
        http_client_run(w.client);
        l->seconds = (double)(clock_ns() - w.start_ns) * 1e-9;
        progress_end(&w.bar);
    }
    http_client_destroy(w.client);
    mem_free(w.due_ns);
    return e;
}

void bench_serve_load_deinit(struct bench_serve_load *l) {
    for (int i = 0; l->samples && i < l->opt.num_prompts; i++) mem_free(l->samples[i].gaps);
    mem_free(l->samples);
    mem_free(l->pool);
}
