/* HTTP/1.1 connections on libevent's bufferevents: requests in, replies and streams out.
 *
 * libevent's own evhttp is not used: it accepts ambiguous framing (two lengths, bare LF), cannot bound the time a head
 * may take, answers its errors in HTML and does not look at the socket while a request is in work. Here reads stay on
 * all the time, so a client that leaves is seen at once; nothing a client sends or fails to read can grow without
 * bound.
 *
 * A request belongs to its connection. It is over, and its pointer dead, after http_reply, after http_stream_end, or
 * when its gone hook has been called. Requests of one connection are answered in order; the next one is only looked at
 * when the one before is over. A client that closes its sending side counts as gone.
 * Threads: the event loop's only. Owns: sockets, buffers, timers. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include <event2/event.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "serve/http_parse.h"

struct http;      /* a listening server */
struct http_conn; /* opaque */

struct http_request {
    struct http_conn *conn;
    struct http_head *head;
    struct strbuf body;   /* may be taken with strbuf_take */
    int64_t start_ns;     /* when its head was complete */
    char id[65];          /* x-request-id */
    struct strbuf extra;  /* header lines for the reply; see http_add_header */
    int status;           /* of the reply, once begun */
    const char *label;    /* of the route, for logs and metrics; set by the router */

    /* While the request is in work. */
    void (*on_gone)(void *arg);    /* the client left or stopped reading; the request is dead afterwards */
    void (*on_drained)(void *arg); /* the output has run low again */
    void *hook_arg;
};

struct http_options {
    int listen_fd;         /* bound and listening; taken */
    SSL_CTX *tls;          /* borrowed; NULL: plain text */
    int max_connections;
    size_t max_head, max_body;
    int idle_s, head_s, body_s, write_s; /* limits of: waiting for a request, its head, its body, a stalled reader */
    void *user;
    void (*on_request)(void *user, struct http_request *r);
    /* The body (JSON) of an error that the HTTP layer itself answers. */
    void (*error_body)(void *user, struct strbuf *out, int status, const char *why);
    /* After every finished request; status 499 for a client that left. NULL label: refused by the HTTP layer. */
    void (*on_done)(void *user, const char *label, int status);
};

/* NULL: no memory (listen_fd is closed then too). */
struct http *http_create(struct event_base *base, const struct http_options *opt);

/* Closes every connection (gone hooks are called) and the listening socket. NULL is fine. */
void http_destroy(struct http *h);

/* No new connections; idle ones are closed, busy ones after their reply. */
void http_drain(struct http *h);

/* To be called about twice a second: ends requests whose client has left behind more input than is read ahead. */
void http_tick(struct http *h);

int http_n_connections(const struct http *h);

/* Adds "name: value" to the reply's head; CR and LF in the value are dropped. */
void http_add_header(struct http_request *r, const char *name, const char *value);

/* A whole reply. HEAD requests get the head alone. */
void http_reply(struct http_request *r, int status, const char *type, const void *body, size_t len);

/* A reply of unknown length: begin, write any number of times, end. With complete = false the connection is cut
 * without the end mark, so that the client sees the reply is incomplete. */
void http_stream_begin(struct http_request *r, int status, const char *type);
void http_stream_write(struct http_request *r, const void *data, size_t len);
void http_stream_end(struct http_request *r, bool complete);

/* Bytes written but not yet taken by the kernel. */
size_t http_stream_backlog(const struct http_request *r);

/* Name of a status, "Not Found". */
const char *http_status_name(int status);

#endif
