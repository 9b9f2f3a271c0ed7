#include "serve/http.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    READ_MAX = 64 * 1024,  /* input held per connection besides a body */
    NOTSENT_BYTES = 65536, /* output that the kernel takes before it is sent */
    DRAINED = 16 * 1024,   /* output below this wakes on_drained */
    REPLIES_MAX = 65536,   /* output that may wait while the next pipelined request is begun */
    LINGER_S = 3,          /* how long a closing connection reads on, so that its reply is not lost to a reset */
    BODIES_MAX = 16,       /* bodies of the largest size that may be in memory together */
    ACCEPT_PAUSE_MS = 100, /* after accept failed for want of file descriptors */
};

enum conn_state { ST_HEAD, ST_BODY, ST_WORK, ST_FLUSH, ST_LINGER };

struct http_conn {
    struct http *http;
    struct http_conn *next, **link;
    struct bufferevent *bev;
    struct event *timer;
    enum conn_state state;
    bool processing;  /* conn_process is on the stack */
    bool close_after; /* no further request on this connection */
    bool peer_eof;
    bool streaming;  /* a stream has begun */
    bool head_begun; /* part of a head has arrived, its clock runs */
    bool broken;     /* memory for output ran out: the reply must not look complete */
    char *head_text; /* [max_head] what head's strings point into */
    struct http_head head;
    struct http_chunked chunked;
    size_t body_charged; /* of http.body_bytes */
    struct http_request req;
};

struct http {
    struct event_base *base;
    struct http_options opt;
    struct evconnlistener *listener;
    struct event *accept_timer;
    struct http_conn *conns;
    int n_conns;
    size_t body_bytes; /* in memory over all connections */
    uint64_t n_requests;
    bool draining;
};

static void conn_process(struct http_conn *c);

const char *http_status_name(int status) {
    static const struct {
        int status;
        const char *name;
    } names[] = {{200, "OK"},
                 {204, "No Content"},
                 {400, "Bad Request"},
                 {401, "Unauthorized"},
                 {404, "Not Found"},
                 {405, "Method Not Allowed"},
                 {408, "Request Timeout"},
                 {411, "Length Required"},
                 {413, "Content Too Large"},
                 {414, "URI Too Long"},
                 {415, "Unsupported Media Type"},
                 {429, "Too Many Requests"},
                 {431, "Request Header Fields Too Large"},
                 {500, "Internal Server Error"},
                 {501, "Not Implemented"},
                 {503, "Service Unavailable"},
                 {504, "Gateway Timeout"},
                 {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (names[i].status == status) return names[i].name;
    return "Unknown";
}

/* ---- Life of a connection -------------------------------------------------------------------- */

static void set_timer(struct http_conn *c, int seconds) {
    const struct timeval tv = {.tv_sec = seconds};
    if (seconds > 0)
        evtimer_add(c->timer, &tv);
    else
        evtimer_del(c->timer);
}

static void request_clear(struct http_conn *c) {
    c->http->body_bytes -= c->body_charged;
    c->body_charged = 0;
    strbuf_deinit(&c->req.body);
    strbuf_deinit(&c->req.extra);
    c->req = (struct http_request){.conn = c, .head = &c->head};
    c->streaming = c->head_begun = false;
}

static void conn_free(struct http_conn *c) {
    if (c->state == ST_WORK) {
        void (*const gone)(void *) = c->req.on_gone;
        c->state = ST_FLUSH;
        if (gone) gone(c->req.hook_arg);
        c->http->opt.on_done(c->http->opt.user, c->req.label, 499);
    }
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    c->http->n_conns--;
    request_clear(c);
    if (c->timer) event_free(c->timer);
    if (c->bev) {
        SSL *const ssl = c->http->opt.tls ? bufferevent_openssl_get_ssl(c->bev) : NULL;
        if (ssl) {
            /* Send our close_notify without waiting for the peer's. */
            SSL_set_shutdown(ssl, SSL_RECEIVED_SHUTDOWN);
            SSL_shutdown(ssl);
        }
        bufferevent_free(c->bev);
    }
    mem_free(c->head_text);
    mem_free(c);
}

static size_t output_len(const struct http_conn *c) {
    return evbuffer_get_length(bufferevent_get_output(c->bev));
}

/* The reply is out and the connection is to end: stop sending, read on for a moment. */
static void begin_linger(struct http_conn *c) {
    if (c->peer_eof || c->http->opt.tls) {
        conn_free(c);
        return;
    }
    shutdown(bufferevent_getfd(c->bev), SHUT_WR);
    c->state = ST_LINGER;
    struct evbuffer *const in = bufferevent_get_input(c->bev);
    evbuffer_drain(in, evbuffer_get_length(in));
    set_timer(c, LINGER_S);
}

/* The request is over; c may be freed by this. */
static void request_over(struct http_conn *c) {
    c->http->opt.on_done(c->http->opt.user, c->req.label, c->req.status);
    log_debug("http", "%s %s %d %.1f ms", c->req.id, c->head.path, c->req.status,
              (double)(clock_ns() - c->req.start_ns) * 1e-6);
    request_clear(c);
    if (c->close_after || c->peer_eof) {
        c->state = ST_FLUSH;
        set_timer(c, c->http->opt.write_s);
        if (output_len(c) == 0 && !c->processing) begin_linger(c);
        return;
    }
    c->state = ST_HEAD;
    set_timer(c, c->http->opt.idle_s);
    conn_process(c);
}

/* ---- Replies --------------------------------------------------------------------------------- */

void http_add_header(struct http_request *r, const char *name, const char *value) {
    strbuf_puts(&r->extra, name);
    strbuf_puts(&r->extra, ": ");
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p >= 0x20) strbuf_putc(&r->extra, *p);
    strbuf_puts(&r->extra, "\r\n");
}

static void write_head(struct http_request *r, int status, const char *type, int64_t length) {
    struct http_conn *const c = r->conn;
    struct evbuffer *const out = bufferevent_get_output(c->bev);
    char date[40];
    const time_t now = (time_t)clock_unix_s();
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    r->status = status;
    if (!c->head.keep_alive || c->http->draining) c->close_after = true;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nServer: xenon\r\n", status, http_status_name(status), date);
    if (type) evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    if (length >= 0)
        evbuffer_add_printf(out, "Content-Length: %lld\r\n", (long long)length);
    else if (!c->head.http10)
        evbuffer_add_printf(out, "Transfer-Encoding: chunked\r\n");
    if (r->id[0]) evbuffer_add_printf(out, "x-request-id: %s\r\n", r->id);
    if (r->start_ns)
        evbuffer_add_printf(out, "openai-processing-ms: %lld\r\n", (long long)((clock_ns() - r->start_ns) / 1000000));
    evbuffer_add(out, r->extra.data, r->extra.len);
    evbuffer_add_printf(out, "Connection: %s\r\n\r\n", c->close_after ? "close" : "keep-alive");
}

void http_reply(struct http_request *r, int status, const char *type, const void *body, size_t len) {
    struct http_conn *const c = r->conn;
    CHECK(c->state == ST_WORK && !c->streaming);
    write_head(r, status, status == 204 ? NULL : type, status == 204 ? 0 : (int64_t)len);
    if (c->head.method != HTTP_HEAD && status != 204 && evbuffer_add(bufferevent_get_output(c->bev), body, len) != 0)
        c->close_after = true; /* out of memory: the client sees a short body */
    request_over(c);
}

void http_stream_begin(struct http_request *r, int status, const char *type) {
    struct http_conn *const c = r->conn;
    CHECK(c->state == ST_WORK && !c->streaming);
    if (c->head.http10) c->close_after = true;
    write_head(r, status, type, -1);
    c->streaming = true;
}

void http_stream_write(struct http_request *r, const void *data, size_t len) {
    struct http_conn *const c = r->conn;
    struct evbuffer *const out = bufferevent_get_output(c->bev);
    CHECK(c->streaming);
    if (len == 0) return;
    const bool chunks = !c->head.http10;
    bool ok = !chunks || evbuffer_add_printf(out, "%zx\r\n", len) > 0;
    ok = ok && evbuffer_add(out, data, len) == 0;
    ok = ok && (!chunks || evbuffer_add(out, "\r\n", 2) == 0);
    if (!ok) c->broken = true;
}

void http_stream_end(struct http_request *r, bool complete) {
    struct http_conn *const c = r->conn;
    CHECK(c->streaming);
    if (!complete || c->broken)
        c->close_after = true;
    else if (!c->head.http10)
        evbuffer_add(bufferevent_get_output(c->bev), "0\r\n\r\n", 5);
    request_over(c);
}

size_t http_stream_backlog(const struct http_request *r) {
    return output_len(r->conn);
}

/* Answers an error of the HTTP layer itself and ends the connection. */
static void refuse(struct http_conn *c, int status, const char *why) {
    struct strbuf body = {0};
    c->http->opt.error_body(c->http->opt.user, &body, status, why);
    c->close_after = true;
    c->state = ST_WORK;
    c->req.on_gone = NULL;
    if (status == 503) http_add_header(&c->req, "Retry-After", "1");
    http_reply(&c->req, status, "application/json", strbuf_cstr(&body), body.len);
    strbuf_deinit(&body);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void make_request_id(struct http_conn *c) {
    const char *const given = http_parse_field(&c->head, "x-request-id");
    struct http_request *const r = &c->req;
    size_t n = 0;
    if (given)
        while (given[n] > 0x20 && given[n] < 0x7f && n < sizeof r->id)
            n++;
    if (given && n > 0 && n < sizeof r->id && !given[n])
        memcpy(r->id, given, n + 1);
    else
        snprintf(r->id, sizeof r->id, "req-%016llx",
                 (unsigned long long)hash_mix((uint64_t)clock_ns() + ++c->http->n_requests));
}

static void dispatch(struct http_conn *c) {
    c->state = ST_WORK;
    set_timer(c, 0);
    c->http->opt.on_request(c->http->opt.user, &c->req);
}

/* Takes a complete head from the input. */
static void take_head(struct http_conn *c, size_t head_len) {
    struct http *const h = c->http;
    const char *why = "";
    evbuffer_remove(bufferevent_get_input(c->bev), c->head_text, head_len);
    const int status = http_parse_head(&c->head, c->head_text, head_len, &why);
    c->req.start_ns = clock_ns();
    if (status) {
        c->head.keep_alive = false;
        refuse(c, status, why);
        return;
    }
    make_request_id(c);
    if (c->head.content_length > h->opt.max_body) {
        refuse(c, 413, "the request body is larger than this server's limit");
        return;
    }
    c->chunked = (struct http_chunked){0};
    if (!c->head.chunked && c->head.content_length == 0) {
        dispatch(c);
        return;
    }
    if (c->head.expect_continue) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        evbuffer_add(bufferevent_get_output(c->bev), go_on, sizeof go_on - 1);
    }
    c->state = ST_BODY;
    set_timer(c, h->opt.body_s);
}

/* All of the input in one piece. NULL: there is none, or memory is short, which ends the connection with a 503. */
static char *input_bytes(struct http_conn *c, size_t *len) {
    struct evbuffer *const in = bufferevent_get_input(c->bev);
    *len = evbuffer_get_length(in);
    char *const data = *len > 0 ? (char *)evbuffer_pullup(in, -1) : NULL;
    if (data || *len == 0) return data;
    if (c->state == ST_HEAD) c->head = (struct http_head){.path = "", .query = ""};
    refuse(c, 503, "memory is short; try again");
    return NULL;
}

static bool step_head(struct http_conn *c) {
    struct evbuffer *const in = bufferevent_get_input(c->bev);
    size_t len;
    const char *const data = input_bytes(c, &len);
    if (!data) return false;
    if (data[0] == '\r' && (len == 1 || data[1] == '\n')) { /* RFC 9112 2.2: a stray CRLF before a request */
        if (len > 1) evbuffer_drain(in, 2);
        return len > 2;
    }
    const size_t head_len = http_parse_find_head(data, len);
    if (head_len > c->http->opt.max_head || (head_len == 0 && len >= c->http->opt.max_head)) {
        c->head = (struct http_head){.path = "", .query = ""};
        refuse(c, 431, "the request head is larger than this server's limit");
        return false;
    }
    if (head_len) {
        take_head(c, head_len);
        return true;
    }
    /* The clock of a head starts with its first byte and is not restarted by later ones. */
    if (!c->head_begun) {
        c->head_begun = true;
        set_timer(c, c->http->opt.head_s);
    }
    return false;
}

/* Appends body bytes; false when a limit was hit (the request is answered then). */
static bool add_body(struct http_conn *c, const char *data, size_t len) {
    struct http *const h = c->http;
    if (c->req.body.len + len > h->opt.max_body) {
        refuse(c, 413, "the request body is larger than this server's limit");
        return false;
    }
    if (h->body_bytes + len > h->opt.max_body * BODIES_MAX) {
        refuse(c, 503, "too many large requests at once; try again");
        return false;
    }
    h->body_bytes += len;
    c->body_charged += len;
    strbuf_append(&c->req.body, data, len);
    if (!c->req.body.failed) return true;
    refuse(c, 503, "memory is short; try again");
    return false;
}

static bool step_body(struct http_conn *c) {
    struct evbuffer *const in = bufferevent_get_input(c->bev);
    size_t len, payload;
    char *const data = input_bytes(c, &len);
    int done;
    if (!data) return false;
    if (c->head.chunked) {
        done = http_parse_chunked(&c->chunked, data, len, &len, &payload);
        if (done < 0) {
            refuse(c, 400, "malformed chunked body");
            return false;
        }
    } else {
        const size_t left = (size_t)c->head.content_length - c->req.body.len;
        payload = len = len < left ? len : left;
        done = len == left;
    }
    if (!add_body(c, data, payload)) return false;
    evbuffer_drain(in, len);
    if (done) dispatch(c);
    return done;
}

/* Handles all the input that can be handled now. c may be freed by this. */
static void conn_process(struct http_conn *c) {
    if (c->processing) return;
    c->processing = true;
    for (bool more = true; more;) {
        /* A client that sends requests and reads no replies waits: on_write goes on. */
        if (c->state == ST_HEAD)
            more = output_len(c) <= REPLIES_MAX && step_head(c);
        else if (c->state == ST_BODY)
            more = step_body(c);
        else
            more = false;
    }
    c->processing = false;
    if (c->state == ST_FLUSH && output_len(c) == 0) begin_linger(c);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void on_read(struct bufferevent *bev, void *arg) {
    struct http_conn *const c = arg;
    if (c->state == ST_LINGER || c->state == ST_FLUSH) {
        struct evbuffer *const in = bufferevent_get_input(bev);
        evbuffer_drain(in, evbuffer_get_length(in));
        return;
    }
    conn_process(c);
}

static void on_write(struct bufferevent *bev, void *arg) {
    struct http_conn *const c = arg;
    (void)bev;
    if (c->state == ST_FLUSH && output_len(c) == 0)
        begin_linger(c);
    else if (c->state == ST_HEAD && c->http->draining && output_len(c) == 0)
        conn_free(c);
    else if (c->state == ST_HEAD)
        conn_process(c);
    else if (c->state == ST_WORK && c->req.on_drained)
        c->req.on_drained(c->req.hook_arg);
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    struct http_conn *const c = arg;
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) return; /* TLS handshake done */
    /* A half-closed client still gets a reply that is already written. An end and an error may come as one event. */
    const bool half_closed = (what & BEV_EVENT_EOF) && !(what & (BEV_EVENT_ERROR | BEV_EVENT_TIMEOUT));
    if (half_closed && c->state != ST_WORK && c->state != ST_LINGER && output_len(c) > 0) {
        c->peer_eof = true;
        c->state = ST_FLUSH;
        set_timer(c, c->http->opt.write_s);
        return;
    }
    conn_free(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    struct http_conn *const c = arg;
    (void)fd, (void)what;
    const bool partial = c->state == ST_BODY || (c->state == ST_HEAD && c->head_begun);
    const bool sending = c->state == ST_FLUSH || (c->state == ST_HEAD && !partial);
    if (sending && output_len(c) > 0) { /* the reader is slow; whether it stands still is the write timeout's to say */
        set_timer(c, c->http->opt.idle_s);
        return;
    }
    if (!partial || (c->http->opt.tls && c->state == ST_HEAD)) {
        conn_free(c);
        return;
    }
    if (c->state == ST_HEAD) c->head = (struct http_head){.path = "", .query = ""};
    c->head.keep_alive = false;
    refuse(c, 408, "the request did not arrive in time");
}

/* ---- Listening ------------------------------------------------------------------------------- */

static struct bufferevent *make_bufferevent(struct http *h, evutil_socket_t fd) {
    const int flags = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
    if (!h->opt.tls) return bufferevent_socket_new(h->base, fd, flags);
    SSL *const ssl = SSL_new(h->opt.tls);
    if (!ssl) return NULL;
    struct bufferevent *const bev = bufferevent_openssl_socket_new(h->base, fd, ssl, BUFFEREVENT_SSL_ACCEPTING, flags);
    if (bev)
        bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else
        SSL_free(ssl);
    return bev;
}

static struct http_conn *conn_create(struct http *h, evutil_socket_t fd) {
    struct http_conn *const c = mem_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->http = h;
    c->head_text = mem_alloc(h->opt.max_head);
    c->timer = evtimer_new(h->base, on_timer, c);
    c->bev = c->head_text && c->timer ? make_bufferevent(h, fd) : NULL;
    if (!c->bev) {
        if (c->timer) event_free(c->timer);
        mem_free(c->head_text);
        mem_free(c);
        return NULL;
    }
    c->next = h->conns;
    c->link = &h->conns;
    if (c->next) c->next->link = &c->next;
    h->conns = c;
    h->n_conns++;
    request_clear(c);
    return c;
}

static void on_accept(struct evconnlistener *l, evutil_socket_t fd, struct sockaddr *sa, int len, void *arg) {
    struct http *const h = arg;
    (void)l, (void)sa, (void)len;
    const int on = 1, notsent = NOTSENT_BYTES;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* What a slow reader has not taken waits here, where it is counted, and not in megabytes of the kernel's. */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &notsent, sizeof notsent);
    struct http_conn *const c = h->n_conns < h->opt.max_connections ? conn_create(h, fd) : NULL;
    if (!c) {
        static const char busy[] =
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        if (!h->opt.tls) (void)!send(fd, busy, sizeof busy - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        evutil_closesocket(fd);
        return;
    }
    const struct timeval stall = {.tv_sec = h->opt.write_s};
    bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, READ_MAX);
    bufferevent_setwatermark(c->bev, EV_WRITE, DRAINED, 0);
    bufferevent_set_timeouts(c->bev, NULL, &stall);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    set_timer(c, h->opt.idle_s);
}

static void on_accept_error(struct evconnlistener *l, void *arg) {
    struct http *const h = arg;
    const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};
    log_warn("http", "accept: %s", strerror(errno));
    evconnlistener_disable(l);
    evtimer_add(h->accept_timer, &pause);
}

static void on_accept_timer(evutil_socket_t fd, short what, void *arg) {
    struct http *const h = arg;
    (void)fd, (void)what;
    if (h->listener) evconnlistener_enable(h->listener);
}

struct http *http_create(struct event_base *base, const struct http_options *opt) {
    struct http *const h = mem_calloc(1, sizeof *h);
    if (h) {
        h->base = base;
        h->opt = *opt;
        h->accept_timer = evtimer_new(base, on_accept_timer, h);
        if (h->accept_timer)
            h->listener = evconnlistener_new(base, on_accept, h, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0,
                                             opt->listen_fd);
    }
    if (!h || !h->listener) {
        evutil_closesocket(opt->listen_fd);
        if (h && h->accept_timer) event_free(h->accept_timer);
        mem_free(h);
        return NULL;
    }
    evconnlistener_set_error_cb(h->listener, on_accept_error);
    return h;
}

void http_drain(struct http *h) {
    h->draining = true;
    if (h->listener) evconnlistener_free(h->listener);
    h->listener = NULL;
    for (struct http_conn *c = h->conns, *next; c; c = next) {
        next = c->next;
        if (c->state == ST_HEAD && output_len(c) == 0) conn_free(c);
        else if (c->state == ST_BODY) refuse(c, 503, "The server is shutting down.");
    }
}

void http_destroy(struct http *h) {
    if (!h) return;
    if (h->listener) evconnlistener_free(h->listener);
    while (h->conns)
        conn_free(h->conns);
    event_free(h->accept_timer);
    mem_free(h);
}

/* The watermark has stopped reading from this connection, so its end would not be seen. */
static bool left_unseen(const struct http_conn *c) {
    if (c->state != ST_WORK || evbuffer_get_length(bufferevent_get_input(c->bev)) < READ_MAX) return false;
    struct pollfd p = {.fd = bufferevent_getfd(c->bev), .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1;
}

void http_tick(struct http *h) {
    for (struct http_conn *c = h->conns, *next; c; c = next) {
        next = c->next;
        if (left_unseen(c)) conn_free(c);
    }
}

int http_n_connections(const struct http *h) {
    return h->n_conns;
}
