#include "serve/server_int.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "serve/generation.h"
#include "serve/listen.h"
#include "serve/route.h"
#include "serve/tls.h"
#include "sys/thread.h"

enum {
    MAX_HEAD = 32 * 1024,
    TICK_MS = 500,
    END_GRACE_S = 5, /* after a drain: how long last bytes may take to leave */
};

/* ---- What handlers use ----------------------------------------------------------------------- */

static bool not_ready(struct server *s, struct openai_error *e, bool count, enum metrics_reject why, const char *text) {
    if (count) s->metrics.rejected[why]++;
    return openai_error_set(e, 503, "server_is_overloaded", NULL, "%s", text);
}

bool server_ready(struct server *s, struct openai_error *e, bool count) {
    if (s->draining) return not_ready(s, e, count, METRICS_DRAINING, "The server is shutting down.");
    if (!s->engine) return not_ready(s, e, count, METRICS_LOADING, "The model is still loading.");
    if (xenon_alive(s->engine)) return true;
    return not_ready(s, e, count, METRICS_DEAD, "The engine has stopped; restart the server.");
}

void server_reply_json(struct http_request *r, int status, const struct strbuf *body) {
    struct openai_error e;
    if (!body->failed) {
        http_reply(r, status, "application/json", strbuf_cstr(body), body->len);
        return;
    }
    openai_error_set(&e, 503, "server_is_overloaded", NULL, "memory is short; try again");
    server_reply_error(r, &e);
}

void server_reply_error(struct http_request *r, const struct openai_error *e) {
    static const char last_resort[] =
        "{\"error\":{\"message\":\"memory is short\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
    struct strbuf b = {0};
    if (e->status == 429 || e->status == 503) http_add_header(r, "Retry-After", e->status == 429 ? "1" : "5");
    openai_error_write(&b, e);
    if (b.failed)
        http_reply(r, e->status, "application/json", last_resort, sizeof last_resort - 1);
    else
        http_reply(r, e->status, "application/json", b.data, b.len);
    strbuf_deinit(&b);
}

void server_make_id(struct server *s, char *out, size_t size, const char *prefix) {
    const uint64_t n = ++s->n_ids, t = (uint64_t)clock_ns();
    snprintf(out, size, "%s%016llx%08x", prefix, (unsigned long long)hash_mix(t ^ n << 48), (unsigned)hash_mix(n + t));
}

/* ---- Callbacks of the HTTP layer ------------------------------------------------------------- */

static void on_request(void *user, struct http_request *r) {
    route_request(user, r);
}

static void error_body(void *user, struct strbuf *out, int status, const char *why) {
    struct openai_error e;
    (void)user;
    openai_error_set(&e, status, status == 413 ? "request_too_large" : NULL, NULL, "%s", why);
    openai_error_write(out, &e);
}

static void on_done(void *user, const char *label, int status) {
    metrics_http(&((struct server *)user)->metrics, label, status);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void wake(struct server *s) {
    const uint64_t one = 1;
    (void)!write(s->wake_fd, &one, sizeof one);
}

static void wake_from_jobs(void *user) {
    wake(user);
}

void server_notify(void *server) {
    wake(server);
}

/* The engine is there: what requests are checked against. */
static void take_engine(struct server *s, struct xenon *x) {
    const struct xenon_info *const i = xenon_info(x);
    size_t longest = 0;
    for (int64_t id = 0; id < i->vocab_size; id++) {
        size_t len = 0;
        if (xenon_token_bytes(x, (int32_t)id, &len) && len > longest) longest = len;
    }
    s->limits = (struct openai_limits){.vocab_size = i->vocab_size,
                                       .max_token_bytes = longest,
                                       .max_model_len = i->max_model_len,
                                       .models = s->opt.served_model_names,
                                       .n_models = s->opt.n_served_model_names,
                                       .has_chat_template = i->has_chat_template,
                                       .default_temperature = i->default_temperature,
                                       .default_top_p = i->default_top_p,
                                       .default_top_k = i->default_top_k,
                                       .default_repetition_penalty = i->default_repetition_penalty};
    snprintf(s->fingerprint, sizeof s->fingerprint, "fp_xenon_" XENON_VERSION "_%s", i->isa ? i->isa : "unknown");
    s->engine = x;
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    struct server *const s = arg;
    uint64_t n;
    (void)what;
    (void)!read(fd, &n, sizeof n);
    struct xenon *const x =
        atomic_exchange_explicit(&s->engine_new, NULL, memory_order_acquire); /* pairs with server_set_engine */
    if (x) take_engine(s, x);
    if (atomic_load_explicit(&s->stop, memory_order_acquire)) event_base_loopbreak(s->base);
    jobs_reap(s->jobs);
    generation_poll_all(s);
}

static void on_tick(evutil_socket_t fd, short what, void *arg) {
    struct server *const s = arg;
    (void)fd, (void)what;
    http_tick(s->http);
    generation_tick(s);
    if (!s->draining) return;
    const int64_t now = clock_ns();
    if (s->n_generations > 0 && now > s->drain_until_ns) {
        log_warn("serve", "%d requests did not end within %d s and are cut off", s->n_generations, s->opt.drain_s);
        generation_abort_all(s);
    }
    /* Connections that only have bytes to send get a short grace. */
    if (s->n_generations == 0 &&
        (http_n_connections(s->http) == 0 || now > s->drain_until_ns + END_GRACE_S * 1000000000ll))
        event_base_loopbreak(s->base);
}

static void on_signal(evutil_socket_t sig, short what, void *arg) {
    struct server *const s = arg;
    (void)what;
    if (s->draining || !s->engine) {
        if (s->opt.on_exit) s->opt.on_exit(s->opt.user, s->draining ? (int)sig : 0);
        event_base_loopbreak(s->base);
        return;
    }
    log_info("serve", "signal %d: no new requests, %d running ones may end within %d s", (int)sig, s->n_generations,
             s->opt.drain_s);
    s->draining = true;
    s->drain_until_ns = clock_ns() + s->opt.drain_s * 1000000000ll;
    http_drain(s->http);
    if (s->n_generations == 0 && http_n_connections(s->http) == 0) event_base_loopbreak(s->base);
}

static void *loop(void *arg) {
    struct server *const s = arg;
    event_base_dispatch(s->base);
    /* No handle and no job may outlive the engine. */
    http_destroy(s->http);
    s->http = NULL;
    jobs_destroy(s->jobs);
    s->jobs = NULL;
    return NULL;
}

/* ---- Life ------------------------------------------------------------------------------------ */

static void fill_defaults(struct server_options *o) {
    if (!o->host) o->host = "127.0.0.1";
    if (!o->cors_origin) o->cors_origin = "*";
    if (!o->max_connections) o->max_connections = 4096;
    if (!o->max_body) o->max_body = 32 << 20;
    if (!o->max_backlog) o->max_backlog = 256 << 10;
    if (!o->keepalive_s) o->keepalive_s = 15;
    if (!o->idle_s) o->idle_s = 75;
    if (!o->head_s) o->head_s = 10;
    if (!o->body_s) o->body_s = 120;
    if (!o->write_s) o->write_s = 60;
    if (!o->drain_s) o->drain_s = 30;
    if (!o->text_threads) o->text_threads = 2;
    if (!o->text_queue) o->text_queue = 1024;
}

/* A connection is a file descriptor: take as many as the system lets us have. */
static void raise_file_limit(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_cur >= l.rlim_max) return;
    l.rlim_cur = l.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &l);
}

static bool create_events(struct server *s, int listen_fd) {
    const struct timeval tick = {.tv_usec = TICK_MS * 1000};
    const struct http_options ho = {.listen_fd = listen_fd,
                                    .tls = s->tls,
                                    .max_connections = s->opt.max_connections,
                                    .max_head = MAX_HEAD,
                                    .max_body = (size_t)s->opt.max_body,
                                    .idle_s = s->opt.idle_s,
                                    .head_s = s->opt.head_s,
                                    .body_s = s->opt.body_s,
                                    .write_s = s->opt.write_s,
                                    .user = s,
                                    .on_request = on_request,
                                    .error_body = error_body,
                                    .on_done = on_done};
    s->base = event_base_new();
    if (!s->base) {
        close(listen_fd);
        return false;
    }
    s->http = http_create(s->base, &ho);
    s->jobs = jobs_create(s->opt.text_threads, s->opt.text_queue, wake_from_jobs, s);
    s->wake_event = event_new(s->base, s->wake_fd, EV_READ | EV_PERSIST, on_wake, s);
    s->tick_event = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    s->sigterm_event = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->sigint_event = evsignal_new(s->base, SIGINT, on_signal, s);
    if (!s->http || !s->jobs || !s->wake_event || !s->tick_event || !s->sigterm_event || !s->sigint_event) return false;
    return event_add(s->wake_event, NULL) == 0 && event_add(s->tick_event, &tick) == 0 &&
           event_add(s->sigterm_event, NULL) == 0 && event_add(s->sigint_event, NULL) == 0;
}

static enum err create(struct server *s, struct err_msg *msg) {
    int fd = -1;
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (s->wake_fd < 0) return err_set(msg, ERR_IO, "eventfd: %s", strerror(errno));
    if (s->opt.ssl_certfile) TRY(tls_create(&s->tls, s->opt.ssl_certfile, s->opt.ssl_keyfile, msg));
    TRY(listen_open(&fd, &s->port, s->opt.host, s->opt.port, msg));
    if (!create_events(s, fd)) return err_set(msg, ERR_NOMEM, "no memory for the server");
    TRY(thread_start(&s->thread, "xenon-serve", loop, s, msg));
    s->thread_started = true;
    return ERR_OK;
}

enum err server_create(struct server **out, const struct server_options *opt, struct err_msg *msg) {
    struct server *const s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(msg, ERR_NOMEM, "no memory for the server");
    s->opt = *opt;
    s->wake_fd = -1;
    fill_defaults(&s->opt);
    metrics_init(&s->metrics);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    const enum err e = create(s, msg);
    if (e == ERR_OK)
        *out = s;
    else
        server_destroy(s);
    return e;
}

int server_port(const struct server *s) {
    return s->port;
}

void server_set_engine(struct server *s, struct xenon *x) {
    atomic_store_explicit(&s->engine_new, x, memory_order_release); /* pairs with on_wake */
    wake(s);
}

void server_run(struct server *s) {
    if (s->thread_started) thread_join(s->thread);
    s->thread_started = false;
}

void server_stop(struct server *s) {
    atomic_store_explicit(&s->stop, true, memory_order_release); /* pairs with on_wake */
    wake(s);
}

void server_destroy(struct server *s) {
    if (!s) return;
    if (s->thread_started) {
        server_stop(s);
        server_run(s);
    }
    http_destroy(s->http);
    jobs_destroy(s->jobs);
    struct event *const events[] = {s->wake_event, s->tick_event, s->sigterm_event, s->sigint_event};
    for (size_t i = 0; i < N_ELEMENTS(events); i++)
        if (events[i]) event_free(events[i]);
    if (s->base) event_base_free(s->base);
    if (s->wake_fd >= 0) close(s->wake_fd);
    SSL_CTX_free(s->tls);
    mem_free(s);
}
