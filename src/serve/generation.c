#include "serve/generation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "serve/json_write.h"
#include "serve/openai_logprobs.h"
#include "serve/openai_reply.h"
#include "serve/stream.h"

struct choice {
    struct xenon_handle *handle; /* NULL before submission and after the end */
    struct strbuf text;          /* the whole answer; of a stream, what waits for a reader that does not keep up */
    struct openai_logprobs logprobs;
    struct openai_finish finish; /* reason NULL: still running */
    char *stop_string;           /* owned copy for finish.stop_string */
    bool begun, ended;           /* its first, last chunk is written */
    size_t n_prompt, n_cached, n_generated;
    int64_t last_token_ns;
};

struct generation {
    struct job job; /* first: a job is cast back */
    struct server *server;
    struct generation *next, **link;
    struct http_request *r; /* NULL: the client left */
    bool in_job;            /* a text worker has it */
    struct strbuf body;
    struct openai_request req;
    struct openai_error error; /* of the worker */
    bool parsed;
    struct choice *choices; /* n_prompts * n, in the order of the reply */
    int n_choices, n_running;
    struct stream stream;
    bool stalled; /* the reader does not keep up: news are held in the choices */
    char id[48];
    int64_t created, start_ns;
    struct openai_usage usage; /* so far */
};

/* ---- Life ------------------------------------------------------------------------------------ */

static void generation_free(struct generation *g) {
    *g->link = g->next;
    if (g->next) g->next->link = g->link;
    g->server->n_generations--;
    for (int i = 0; i < g->n_choices; i++) {
        struct choice *const c = &g->choices[i];
        if (c->handle) g->server->metrics.finished[METRICS_ABORT]++;
        xenon_release(c->handle);
        strbuf_deinit(&c->text);
        openai_logprobs_deinit(&c->logprobs);
        mem_free(c->stop_string);
    }
    mem_free(g->choices);
    openai_request_deinit(&g->req);
    strbuf_deinit(&g->body);
    stream_deinit(&g->stream);
    mem_free(g);
}

/* The client left: nothing more is computed for it. */
static void on_gone(void *arg) {
    struct generation *const g = arg;
    g->r = NULL;
    if (g->in_job && jobs_cancel(g->server->jobs, &g->job)) g->in_job = false;
    if (!g->in_job) generation_free(g);
}

/* Ends the request with an error: its own status if nothing went out yet, else an error event. Frees g. */
static void fail(struct generation *g, const struct openai_error *e) {
    struct http_request *const r = g->r;
    r->on_gone = r->on_drained = NULL;
    if (g->stream.begun) {
        strbuf_clear(&g->stream.out);
        openai_error_write(stream_event_begin(&g->stream), e);
        stream_event_end(&g->stream);
        (void)!stream_flush(&g->stream);
        stream_end(&g->stream, false);
    } else {
        server_reply_error(r, e);
    }
    generation_free(g);
}

static void fail_memory(struct generation *g) {
    struct openai_error e;
    openai_error_set(&e, 503, "server_is_overloaded", NULL, "memory is short; try again");
    fail(g, &e);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static struct openai_meta meta_of(const struct generation *g) {
    return (struct openai_meta){.chat = g->req.chat,
                                .id = g->id,
                                .created = g->created,
                                .model = g->req.model,
                                .fingerprint = g->server->fingerprint,
                                .usage_null = g->req.include_usage,
                                .usage = g->req.continuous_usage ? &g->usage : NULL};
}

static struct openai_logprobs *logprobs_of(struct generation *g, struct choice *c) {
    return g->req.sampling.logprobs >= 0 ? &c->logprobs : NULL;
}

static void count_usage(struct generation *g) {
    g->usage = (struct openai_usage){0};
    for (int i = 0; i < g->n_choices; i++) {
        g->usage.completion += (int64_t)g->choices[i].n_generated;
        if (i % g->req.n != 0) continue; /* the prompt counts once for its n answers */
        g->usage.prompt += (int64_t)g->req.prompts[i / g->req.n].n_ids;
        g->usage.cached += (int64_t)g->choices[i].n_cached;
    }
}

/* Every choice has ended. Frees g. */
static void finish_stream(struct generation *g) {
    const struct openai_meta m = meta_of(g);
    if (g->req.include_usage) {
        openai_reply_usage_chunk(stream_event_begin(&g->stream), &m, &g->usage);
        stream_event_end(&g->stream);
    }
    if (!stream_flush(&g->stream)) {
        fail_memory(g);
        return;
    }
    g->r->on_gone = g->r->on_drained = NULL;
    stream_end(&g->stream, true);
    generation_free(g);
}

static void finish_whole(struct generation *g) {
    const struct openai_meta m = meta_of(g);
    struct strbuf b = {0};
    openai_reply_begin(&b, &m);
    for (int i = 0; i < g->n_choices; i++) {
        struct choice *const c = &g->choices[i];
        if (c->text.failed) b.failed = true;
        const struct openai_choice_text t = {strbuf_cstr(&c->text), c->text.len, logprobs_of(g, c), c->finish};
        openai_reply_choice(&b, &m, i, &t);
    }
    openai_reply_end(&b, &m, &g->usage);
    if (b.failed) {
        strbuf_deinit(&b);
        fail_memory(g);
        return;
    }
    g->r->on_gone = NULL;
    server_reply_json(g->r, 200, &b);
    strbuf_deinit(&b);
    generation_free(g);
}

/* ---- News of the engine ---------------------------------------------------------------------- */

static void write_text(struct generation *g, int i, const char *text, size_t len) {
    struct choice *const c = &g->choices[i];
    const struct openai_meta m = meta_of(g);
    openai_reply_text_chunk(stream_event_begin(&g->stream), &m, i, text, len, logprobs_of(g, c));
    stream_event_end(&g->stream);
}

static void write_end(struct generation *g, int i) {
    struct choice *const c = &g->choices[i];
    const struct openai_meta m = meta_of(g);
    openai_reply_finish_chunk(stream_event_begin(&g->stream), &m, i, &c->finish);
    stream_event_end(&g->stream);
    c->ended = true;
}

/* Text for choice i: an event of the stream, or kept. */
static void put_text(struct generation *g, int i, const char *text, size_t len) {
    struct choice *const c = &g->choices[i];
    if (!g->req.stream || g->stalled) strbuf_append(&c->text, text, len);
    else if (len > 0 || c->logprobs.n > 0) write_text(g, i, text, len);
}

/* The reader is back: what was held for it. */
static void write_held(struct generation *g) {
    for (int i = 0; i < g->n_choices; i++) {
        struct choice *const c = &g->choices[i];
        if (c->text.failed) g->stream.out.failed = true;
        if (c->text.len > 0 || (c->finish.reason && c->logprobs.n > 0))
            write_text(g, i, strbuf_cstr(&c->text), c->text.len);
        strbuf_deinit(&c->text);
        if (c->finish.reason && !c->ended) write_end(g, i);
    }
}

static size_t held_bytes(const struct generation *g) {
    size_t n = 0;
    for (int i = 0; i < g->n_choices; i++)
        n += g->choices[i].text.len + openai_logprobs_bytes(&g->choices[i].logprobs);
    return n;
}

/* The first news of a choice: the role of a chat answer, the echo of a prompt. */
static void begin_choice(struct generation *g, int i, const struct xenon_output *o) {
    struct choice *const c = &g->choices[i];
    c->begun = true;
    if (g->req.chat && g->req.stream) {
        const struct openai_meta m = meta_of(g);
        openai_reply_role_chunk(stream_event_begin(&g->stream), &m, i);
        stream_event_end(&g->stream);
    }
    if (!g->req.echo) return;
    for (size_t k = 0; o->prompt_tokens && k < o->n_prompt; k++)
        openai_logprobs_add(&c->logprobs, g->server->engine, &o->prompt_tokens[k], k > 0);
    const struct openai_prompt *const p = &g->req.prompts[i / g->req.n];
    put_text(g, i, p->text ? p->text : "", p->text_len);
}

/* Latencies of the tokens in o. */
static void observe_tokens(struct generation *g, struct choice *c, const struct xenon_output *o) {
    struct metrics *const m = &g->server->metrics;
    int64_t n = (int64_t)o->n_tokens;
    if (n == 0) return;
    if (c->last_token_ns == 0) {
        metrics_observe(&m->ttft, (double)(o->first_token_ns - g->start_ns) * 1e-9);
        c->last_token_ns = o->first_token_ns;
        n--;
    }
    if (n > 0) metrics_observe_n(&m->inter_token, (double)(o->last_token_ns - c->last_token_ns) * 1e-9 / (double)n, n);
    c->last_token_ns = o->last_token_ns;
}

static void observe_end(struct generation *g, const struct choice *c, const struct xenon_output *o) {
    struct metrics *const m = &g->server->metrics;
    const bool ended = o->finish == XENON_FINISH_STOP || o->finish == XENON_FINISH_LENGTH;
    m->finished[o->finish == XENON_FINISH_STOP     ? METRICS_STOP
                : o->finish == XENON_FINISH_LENGTH ? METRICS_LENGTH
                : o->finish == XENON_FINISH_ABORT  ? METRICS_ABORT
                                                   : METRICS_ERROR]++;
    if (!ended) return;
    const double decode = (double)(o->last_token_ns - o->first_token_ns) * 1e-9;
    metrics_observe(&m->e2e, (double)(clock_ns() - g->start_ns) * 1e-9);
    metrics_observe(&m->prompt_tokens, (double)c->n_prompt);
    metrics_observe(&m->generation_tokens, (double)c->n_generated);
    if (c->n_generated > 0) metrics_observe(&m->decode, decode);
    if (c->n_generated > 1) metrics_observe(&m->tpot, decode / (double)(c->n_generated - 1));
}

/* Seconds until the request's time limit. */
static double time_left(const struct generation *g) {
    return (double)g->req.timeout_s - (double)(clock_ns() - g->start_ns) * 1e-9;
}

/* The end of choice i; false when it ended badly, with *e filled. */
static bool end_choice(struct generation *g, int i, const struct xenon_output *o, struct openai_error *e) {
    struct choice *const c = &g->choices[i];
    observe_end(g, c, o);
    g->n_running--;
    if (o->finish == XENON_FINISH_ERROR)
        return openai_error_set(e, 500, NULL, NULL, "%s", o->error ? o->error : "the engine failed on this request");
    if (o->finish == XENON_FINISH_ABORT && g->req.timeout_s > 0 && time_left(g) <= 0)
        return openai_error_set(e, 504, "timeout", "timeout", "the request's time limit of %g s has passed",
                                (double)g->req.timeout_s);
    if (o->finish == XENON_FINISH_ABORT)
        return openai_error_set(e, 503, "server_is_overloaded", NULL, "the request was stopped before its end");
    c->stop_string = o->stop_reason ? mem_strdup(o->stop_reason) : NULL;
    c->finish = (struct openai_finish){xenon_finish_name(o->finish), c->stop_string, o->stop_id};
    if (g->req.stream && !g->stalled) write_end(g, i);
    return true;
}

static bool take_output(struct generation *g, int i, const struct xenon_output *o, struct openai_error *e) {
    struct choice *const c = &g->choices[i];
    observe_tokens(g, c, o);
    c->n_prompt = o->n_prompt;
    c->n_cached = o->n_cached;
    c->n_generated = o->n_generated;
    if (g->req.continuous_usage) count_usage(g);
    const bool bad = o->finish == XENON_FINISH_ERROR || o->finish == XENON_FINISH_ABORT;
    /* An echo waits for the log probabilities of its prompt. */
    const bool wait =
        g->req.sampling.prompt_logprobs >= 0 && !o->prompt_tokens && !o->n_tokens && o->finish == XENON_FINISH_NONE;
    if (!c->begun && !bad && !wait) begin_choice(g, i, o);
    if (g->req.sampling.logprobs >= 0)
        for (size_t k = 0; k < o->n_tokens; k++)
            openai_logprobs_add(&c->logprobs, g->server->engine, &o->tokens[k], true);
    /* Tokens whose text is held back keep their log probabilities for the chunk that brings it. */
    if (o->text_len > 0 || (o->finish != XENON_FINISH_NONE && !bad)) put_text(g, i, o->text, o->text_len);
    return o->finish == XENON_FINISH_NONE || end_choice(g, i, o, e);
}

/* Takes the news of all its choices, those of a slow reader too: a stop string ends its request when it is computed,
 * not when it is read. What is held is bounded; beyond that news wait in the engine's slot. May free g. */
static void take_news(struct generation *g) {
    struct openai_error e = {0};
    const size_t most = (size_t)g->server->opt.max_backlog;
    const bool was_stalled = g->stalled;
    g->stalled = g->stream.begun && http_stream_backlog(g->r) > most;
    if (g->stalled && held_bytes(g) > most) return; /* until drained */
    if (was_stalled && !g->stalled) write_held(g);
    for (int i = 0; i < g->n_choices; i++) {
        struct choice *const c = &g->choices[i];
        struct xenon_output o;
        if (!c->handle || !xenon_poll(c->handle, &o)) continue;
        const bool ok = take_output(g, i, &o, &e);
        if (!ok || c->finish.reason) {
            xenon_release(c->handle);
            c->handle = NULL;
        }
        if (!ok) {
            fail(g, &e);
            return;
        }
    }
    if (g->n_running == 0 && !g->stalled) {
        count_usage(g);
        if (g->req.stream)
            finish_stream(g);
        else
            finish_whole(g);
    } else if (!stream_flush(&g->stream)) {
        fail_memory(g);
    }
}

static void on_drained(void *arg) {
    struct generation *const g = arg;
    if (!g->in_job) take_news(g);
}

/* ---- Start ----------------------------------------------------------------------------------- */

static bool submit_choice(struct generation *g, int i, struct openai_error *e) {
    const struct openai_prompt *const p = &g->req.prompts[i / g->req.n];
    struct choice *const c = &g->choices[i];
    struct xenon_error xe = {{0}};
    struct xenon_request q = {.prompt = p->ids,
                              .n_prompt = p->n_ids,
                              .sampling = g->req.sampling,
                              .priority = g->req.priority,
                              .timeout_s = g->req.timeout_s > 0 ? fmax(time_left(g), 1e-9) : 0,
                              .cache_salt = g->req.cache_salt};
    q.sampling.seed += (uint64_t)(i % g->req.n); /* n answers of one seed are to differ */
    c->finish.stop_id = -1;
    c->logprobs.chat = g->req.chat;
    c->logprobs.skip_special = g->req.sampling.skip_special_tokens;
    const int code = xenon_submit(g->server->engine, &q, &c->handle, &xe);
    if (code == XENON_OK) return true;
    c->handle = NULL;
    if (code == XENON_EBUSY) g->server->metrics.rejected[METRICS_QUEUE_FULL]++;
    return openai_error_from_engine(e, code, xe.text);
}

static bool submit(struct generation *g, struct openai_error *e) {
    const size_t n = g->req.n_prompts * (size_t)g->req.n;
    g->choices = mem_calloc(n, sizeof *g->choices);
    if (!g->choices) return openai_error_set(e, 503, "server_is_overloaded", NULL, "memory is short; try again");
    g->n_choices = (int)n;
    for (int i = 0; i < g->n_choices; i++)
        if (!submit_choice(g, i, e)) return false;
    g->n_running = g->n_choices;
    metrics_observe(&g->server->metrics.params_n, g->req.n);
    if (g->req.max_tokens >= 0) metrics_observe(&g->server->metrics.params_max_tokens, (double)g->req.max_tokens);
    openai_request_trim(&g->req);
    return true;
}

static void run_job(struct job *j) {
    struct generation *const g = (struct generation *)(void *)j;
    struct openai_error *const e = &g->error;
    const struct openai_limits *const lim = &g->server->limits;
    const bool ok = g->req.chat ? openai_request_parse_chat(&g->req, lim, strbuf_cstr(&g->body), g->body.len, e)
                                : openai_request_parse_completion(&g->req, lim, strbuf_cstr(&g->body), g->body.len, e);
    strbuf_deinit(&g->body);
    g->parsed = ok && openai_request_encode(&g->req, g->server->engine, lim, e);
}

static void job_done(struct job *j) {
    struct generation *const g = (struct generation *)(void *)j;
    struct openai_error e = g->error;
    g->in_job = false;
    if (!g->r) {
        generation_free(g);
        return;
    }
    if (!g->parsed) {
        if (j->skipped)
            openai_error_set(&e, 503, "server_is_overloaded", NULL, "the server is shutting down");
        else
            g->server->metrics.rejected[METRICS_INVALID]++;
        fail(g, &e);
        return;
    }
    if (!server_ready(g->server, &e, true) || !submit(g, &e))
        fail(g, &e);
    else
        take_news(g);
}

static void start(struct server *s, struct http_request *r, bool chat) {
    struct openai_error e;
    struct generation *const g = mem_calloc(1, sizeof *g);
    if (!g) {
        openai_error_set(&e, 503, "server_is_overloaded", NULL, "memory is short; try again");
        server_reply_error(r, &e);
        return;
    }
    g->job.run = run_job;
    g->job.done = job_done;
    g->server = s;
    g->r = r;
    g->req.chat = chat;
    g->start_ns = r->start_ns;
    g->created = clock_unix_s();
    g->body = r->body;
    r->body = (struct strbuf){0};
    stream_init(&g->stream, r);
    server_make_id(s, g->id, sizeof g->id, chat ? "chatcmpl-" : "cmpl-");
    g->next = s->generations;
    g->link = &s->generations;
    if (g->next) g->next->link = &g->next;
    s->generations = g;
    s->n_generations++;
    r->on_gone = on_gone;
    r->on_drained = on_drained;
    r->hook_arg = g;
    g->in_job = jobs_submit(s->jobs, &g->job);
    if (g->in_job) return;
    s->metrics.rejected[METRICS_QUEUE_FULL]++;
    openai_error_set(&e, 429, "rate_limit_exceeded", NULL, "too many requests are waiting; try again");
    fail(g, &e);
}

void generation_chat(struct server *s, struct http_request *r) {
    start(s, r, true);
}

void generation_completion(struct server *s, struct http_request *r) {
    start(s, r, false);
}

/* ---- All of them ----------------------------------------------------------------------------- */

void generation_poll_all(struct server *s) {
    for (struct generation *g = s->generations, *next; g; g = next) {
        next = g->next;
        if (!g->in_job) take_news(g);
    }
}

void generation_tick(struct server *s) {
    const int64_t now = clock_ns(), keepalive_ns = (int64_t)s->opt.keepalive_s * 1000000000;
    const bool dead = s->engine && !xenon_alive(s->engine);
    if (dead) generation_poll_all(s);
    for (struct generation *g = s->generations, *next; g; g = next) {
        next = g->next;
        if (g->in_job) continue;
        if (dead && g->n_running > 0) {
            struct openai_error e;
            openai_error_set(&e, 503, "server_is_overloaded", NULL, "the engine has stopped");
            fail(g, &e);
        } else if (g->req.stream && now - g->stream.last_flush_ns > keepalive_ns && http_stream_backlog(g->r) == 0) {
            stream_keep_alive(&g->stream);
        }
    }
}

void generation_abort_all(struct server *s) {
    for (struct generation *g = s->generations, *next; g; g = next) {
        next = g->next;
        struct openai_error e;
        openai_error_set(&e, 503, "server_is_overloaded", NULL, "the server is shutting down");
        if (!g->in_job) fail(g, &e);
    }
}
