/* The HTTP server: one event-loop thread, a few text workers, one engine behind include/xenon.h.
 *
 *     server_create        binds the port, starts the loop: /health says 503 from now on
 *     xenon_open           in the caller's thread; its notify is server_notify
 *     server_set_engine    requests are served
 *     server_run           until SIGTERM or SIGINT has drained everything; no handle is left then
 *     xenon_close
 *     server_destroy
 *
 * SIGTERM and SIGINT stop accepting, refuse new work with 503 and let running requests end within drain_s; a second
 * one, or one while loading, calls on_exit. SIGPIPE is ignored.
 * Threads: server_notify from any, the rest from the one that created it. Owns: everything but the engine. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "base/err.h"
#include "xenon.h"

struct server;

enum { SERVER_NAMES_MAX = 32 };

/* Strings are borrowed for the server's life. Zero numbers mean the default in brackets. */
struct server_options {
    const char *host;              /* ["127.0.0.1"] */
    int port;                      /* 0: any free one, see server_port */
    const char *served_model_names[SERVER_NAMES_MAX];
    int n_served_model_names;      /* at least 1; the first is the one that replies carry */
    const char *api_keys[SERVER_NAMES_MAX];
    int n_api_keys;                /* 0: open */
    const char *cors_origin;       /* ["*"]; "" sends no CORS headers */
    const char *ssl_certfile, *ssl_keyfile; /* PEM; NULL: plain HTTP */
    bool disable_prefix_caching;   /* for /metrics only */
    int max_connections;           /* [4096] */
    int64_t max_body;              /* bytes [32 MiB] */
    int64_t max_backlog;           /* bytes of a slow reader's stream held here [256 KiB] */
    int keepalive_s;               /* a comment on a silent stream [15] */
    int idle_s, head_s, body_s, write_s; /* connection timeouts [75, 10, 120, 60] */
    int drain_s;                   /* [30] */
    int text_threads;              /* [2] */
    int text_queue;                /* requests waiting for one [1024] */
    /* A signal wants the process to end now; called from the loop thread, need not return. */
    void (*on_exit)(void *user, int signal);
    void *user;
};

enum err server_create(struct server **out, const struct server_options *opt, struct err_msg *msg) ATTR_NODISCARD;

/* The port in use. */
int server_port(const struct server *s);

/* xenon_options.notify with user = the server. */
void server_notify(void *server);

void server_set_engine(struct server *s, struct xenon *x);

/* Returns when the loop has ended: after a drain or server_stop. */
void server_run(struct server *s);

/* Ends the loop without draining. */
void server_stop(struct server *s);

/* Stops if still running. NULL is fine. */
void server_destroy(struct server *s);

#endif
