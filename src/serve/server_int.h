/* What the files of serve/ share: the server's state. Everything here belongs to the event-loop thread except the
 * members marked otherwise. */
#ifndef SERVE_SERVER_INT_H
#define SERVE_SERVER_INT_H

#include <event2/event.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "serve/http.h"
#include "serve/jobs.h"
#include "serve/metrics.h"
#include "serve/openai_error.h"
#include "serve/openai_request.h"
#include "serve/server.h"

struct generation; /* generation.h */

struct server {
    struct server_options opt;
    struct event_base *base;
    struct http *http;
    struct jobs *jobs;
    SSL_CTX *tls;
    struct event *wake_event, *tick_event, *sigterm_event, *sigint_event;
    int wake_fd;                        /* eventfd; any thread writes */
    _Atomic(struct xenon *) engine_new; /* set by server_set_engine, taken by the loop */
    atomic_bool stop;                   /* set by server_stop */
    int port;
    pthread_t thread;
    bool thread_started;

    struct xenon *engine;        /* NULL while loading */
    struct openai_limits limits; /* valid once engine is set; read by text workers, immutable then */
    char fingerprint[64];        /* version and instruction set: what answers depend on */
    bool draining;
    int64_t drain_until_ns;
    struct generation *generations;
    int n_generations;
    struct metrics metrics;
    uint64_t n_ids;              /* for reply ids */
};

/* Whether requests can be served; fills a 503 otherwise. count: a request is turned away by it (for the metrics). */
bool server_ready(struct server *s, struct openai_error *e, bool count);

/* A reply with a JSON body. */
void server_reply_json(struct http_request *r, int status, const struct strbuf *body);

/* An error reply; 429 and 503 carry Retry-After. */
void server_reply_error(struct http_request *r, const struct openai_error *e);

/* A fresh id with this prefix, "chatcmpl-…". */
void server_make_id(struct server *s, char *out, size_t size, const char *prefix);

#endif
