/* An HTTP/1.1 client for many requests at once on one thread: what `xenon bench serve` loads a server with. Connections
 * are kept alive and used again; a request that finds its old connection closed before the first byte of a reply is
 * sent once more on a new one. Replies come in pieces as they arrive, so that streams can be timed.
 *
 * Threads: the one that calls http_client_run; callbacks come from it. Owns: its connections, the copies of requests.
 */
#ifndef SERVE_HTTP_CLIENT_H
#define SERVE_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct http_client;

struct http_client_options {
    const char *url;     /* "http://host:port" or https, with an optional path that every request's path follows */
    const char *api_key; /* sent as a bearer token; NULL: none */
    int silence_s;       /* a reply that brings nothing for so long has failed; 0: waits for ever */
};

struct http_client_hooks {
    void (*on_body)(void *user, const char *data, size_t len);
    /* Once for every request that was sent. status 0: no complete reply, `why` says what happened (borrowed). Requests
     * may be sent from here. */
    void (*on_end)(void *user, int status, const char *why);
};

/* Resolves the host, and takes the first of its addresses that answers. ERR_ARG for a wrong URL, ERR_IO for a name that
 * does not resolve. */
enum err http_client_create(struct http_client **out, const struct http_client_options *opt,
                            struct err_msg *msg) ATTR_NODISCARD;

/* Drops what is under way; no hook is called any more. NULL is fine. */
void http_client_destroy(struct http_client *c);

/* Sends a request; body NULL: GET, else POST of JSON. hooks must outlive the request. False: out of memory or
 * descriptors, no hook will be called. */
bool http_client_send(struct http_client *c, const char *path, const void *body, size_t len,
                      const struct http_client_hooks *hooks, void *user) ATTR_NODISCARD;

/* The one timer: fn(user) after delay_ns, in place of what it was set to before. */
void http_client_after(struct http_client *c, int64_t delay_ns, void (*fn)(void *user), void *user);

/* Returns after http_client_stop, or when nothing is under way and the timer is not set. */
void http_client_run(struct http_client *c);
void http_client_stop(struct http_client *c);

#endif
