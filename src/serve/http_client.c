#include "serve/http_client.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "serve/http_parse.h"

enum { HEAD_MAX = 64 * 1024 };

enum reply_state { REPLY_HEAD, REPLY_BODY };

/* A connection, idle or with one request on its way. */
struct client_conn {
    struct http_client *client;
    struct client_conn *next, **link; /* in client->busy or client->idle */
    struct bufferevent *bev;
    const struct http_client_hooks *hooks; /* NULL: idle */
    void *user;
    struct strbuf request; /* kept until the reply begins, for another try */
    bool reused;           /* the request went out on an old connection */
    bool any;              /* bytes of the reply have come */
    enum reply_state state;
    int status;
    bool keep_alive, is_chunked, has_length;
    uint64_t left; /* of a body with a length */
    struct http_chunked chunked;
};

struct http_client {
    struct event_base *base;
    SSL_CTX *tls; /* NULL: plain */
    struct sockaddr_storage addr;
    socklen_t addr_len;
    char host[256], authority[300], prefix[256];
    char *authorization; /* whole header line, or "" */
    int silence_s;
    struct client_conn *busy, *idle;
    struct event *timer;
    void (*timer_fn)(void *user);
    void *timer_user;
};

/* ---- Connections ----------------------------------------------------------------------------- */

static void unlink_conn(struct client_conn *k) {
    if (!k->link) return;
    *k->link = k->next;
    if (k->next) k->next->link = k->link;
    k->link = NULL;
}

static void link_conn(struct client_conn *k, struct client_conn **list) {
    unlink_conn(k);
    k->next = *list;
    k->link = list;
    if (k->next) k->next->link = &k->next;
    *list = k;
}

static void conn_free(struct client_conn *k) {
    unlink_conn(k);
    if (k->bev) bufferevent_free(k->bev);
    strbuf_deinit(&k->request);
    mem_free(k);
}

/* A socket on its way to the server; -1 with errno. */
static int open_socket(const struct http_client *c) {
    const int on = 1, fd = socket(c->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (const struct sockaddr *)&c->addr, c->addr_len) == 0 || errno == EINPROGRESS) return fd;
    const int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static struct bufferevent *wrap_socket(struct http_client *c, int fd) {
    if (!c->tls) return bufferevent_socket_new(c->base, fd, BEV_OPT_CLOSE_ON_FREE);
    SSL *const ssl = SSL_new(c->tls);
    if (!ssl) return NULL;
    SSL_set_tlsext_host_name(ssl, c->host);
    SSL_set1_host(ssl, c->host);
    struct bufferevent *const bev =
        bufferevent_openssl_socket_new(c->base, fd, ssl, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
    if (bev) bufferevent_openssl_set_allow_dirty_shutdown(bev, 1);
    else SSL_free(ssl);
    return bev;
}

static void on_read(struct bufferevent *bev, void *arg);
static void on_event(struct bufferevent *bev, short what, void *arg);

/* Gives k a new connection in place of the old one. */
static bool conn_open(struct client_conn *k) {
    if (k->bev) bufferevent_free(k->bev);
    k->bev = NULL;
    const int fd = open_socket(k->client);
    if (fd < 0) return false;
    k->bev = wrap_socket(k->client, fd);
    if (!k->bev) {
        close(fd);
        errno = ENOMEM;
        return false;
    }
    bufferevent_setcb(k->bev, on_read, NULL, on_event, k);
    return true;
}

static void arm(struct client_conn *k) {
    const struct timeval silence = {.tv_sec = k->client->silence_s};
    const struct timeval *const t = k->hooks && k->client->silence_s > 0 ? &silence : NULL;
    bufferevent_set_timeouts(k->bev, t, t);
    bufferevent_enable(k->bev, EV_READ | EV_WRITE);
}

static bool transmit(struct client_conn *k) {
    k->any = false;
    k->state = REPLY_HEAD;
    k->chunked = (struct http_chunked){0};
    arm(k);
    return bufferevent_write(k->bev, k->request.data, k->request.len) == 0;
}

/* The reply is complete, or will never be: tells the owner. k is idle or gone after this. */
static void finish(struct client_conn *k, int status, const char *why) {
    const struct http_client_hooks *const hooks = k->hooks;
    struct evbuffer *const in = k->bev ? bufferevent_get_input(k->bev) : NULL;
    void *const user = k->user;
    k->hooks = NULL;
    strbuf_clear(&k->request);
    /* Bytes behind the reply belong to nothing: such a connection is not used again. */
    if (status > 0 && k->keep_alive && in && evbuffer_get_length(in) == 0) {
        link_conn(k, &k->client->idle);
        arm(k);
    } else {
        conn_free(k);
    }
    hooks->on_end(user, status, why);
}

/* ---- Replies --------------------------------------------------------------------------------- */

static bool field_is(const char *line, size_t len, const char *name, const char **value) {
    const size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') return false;
    *value = line + n + 1 + strspn(line + n + 1, " \t");
    return true;
}

/* Reads the head, whose last byte is followed by a NUL. False: no HTTP. */
static bool parse_head(struct client_conn *k, const char *head, size_t len) {
    const char *value;
    if (len < 13 || strncmp(head, "HTTP/1.", 7) != 0 || head[8] != ' ') return false;
    k->status = (int)strtol(head + 9, NULL, 10);
    k->keep_alive = head[7] != '0';
    k->is_chunked = k->has_length = false;
    for (const char *line = strstr(head, "\r\n"); line && line[2] != '\r'; line = strstr(line, "\r\n")) {
        line += 2;
        const size_t n = strcspn(line, "\r");
        if (field_is(line, n, "content-length", &value)) {
            char *end;
            k->has_length = true;
            k->left = strtoull(value, &end, 10);
            if (end == value || *value == '-') return false;
        }
        if (field_is(line, n, "transfer-encoding", &value)) k->is_chunked = strncasecmp(value, "chunked", 7) == 0;
        if (field_is(line, n, "connection", &value) && strncasecmp(value, "close", 5) == 0) k->keep_alive = false;
    }
    if (!k->is_chunked && !k->has_length) k->keep_alive = false;
    return k->status >= 100 && k->status <= 599;
}

/* Takes a head if it is complete; true when there may be more to take. */
static bool take_head(struct client_conn *k, struct evbuffer *in) {
    const char *const data = (const char *)evbuffer_pullup(in, -1);
    const size_t len = evbuffer_get_length(in), head_len = len ? http_parse_find_head(data, len) : 0;
    if (head_len == 0 && len < HEAD_MAX) return false;
    char *const head = head_len ? mem_strndup(data, head_len) : NULL;
    const bool ok = head && parse_head(k, head, head_len);
    mem_free(head);
    if (!ok) {
        k->keep_alive = false;
        finish(k, 0, "the reply is no HTTP/1.1");
        return false;
    }
    evbuffer_drain(in, head_len);
    if (k->status >= 200) k->state = REPLY_BODY;
    if (k->status == 204 || (k->state == REPLY_BODY && !k->is_chunked && k->has_length && k->left == 0)) {
        k->keep_alive = k->keep_alive && k->status != 204;
        finish(k, k->status, NULL);
        return false;
    }
    return true;
}

/* Hands on what there is of the body. */
static void take_body(struct client_conn *k, struct evbuffer *in) {
    size_t len = evbuffer_get_length(in), payload = len;
    if (len == 0) return;
    char *const data = (char *)evbuffer_pullup(in, -1);
    int done = 0;
    if (k->is_chunked) {
        done = http_parse_chunked(&k->chunked, data, len, &len, &payload);
    } else if (k->has_length) {
        if (len > k->left) payload = len = (size_t)k->left;
        k->left -= len;
        done = k->left == 0;
    }
    if (payload > 0) k->hooks->on_body(k->user, data, payload);
    evbuffer_drain(in, len);
    if (done) finish(k, done > 0 ? k->status : 0, done > 0 ? NULL : "the reply has a malformed chunk");
}

static void on_read(struct bufferevent *bev, void *arg) {
    struct client_conn *const k = arg;
    struct evbuffer *const in = bufferevent_get_input(bev);
    if (!k->hooks) { /* nobody asked */
        conn_free(k);
        return;
    }
    k->any = true;
    while (k->state == REPLY_HEAD)
        if (!take_head(k, in)) return;
    take_body(k, in);
}

/* Why a connection ended, in words. */
static const char *describe(const struct client_conn *k, short what, int error) {
    const unsigned long tls = k->client->tls ? bufferevent_get_openssl_error(k->bev) : 0;
    const char *const reason = tls ? ERR_reason_error_string(tls) : NULL;
    if (what & BEV_EVENT_TIMEOUT) return "the server was silent for too long";
    if (reason) return reason;
    if ((what & BEV_EVENT_EOF) || error == 0) return "the connection was closed before the end of the reply";
    return evutil_socket_error_to_string(error);
}

static void on_event(struct bufferevent *bev, short what, void *arg) {
    struct client_conn *const k = arg;
    const int error = EVUTIL_SOCKET_ERROR();
    (void)bev;
    if (what & BEV_EVENT_CONNECTED) return;
    if (!k->hooks) { /* an idle connection that the server closed */
        conn_free(k);
        return;
    }
    if (k->reused && !k->any && !(what & BEV_EVENT_TIMEOUT)) { /* it was closed while the request was on its way */
        k->reused = false;
        if (conn_open(k) && transmit(k)) return;
    }
    k->keep_alive = false;
    if (!k->bev)
        finish(k, 0, "no memory or descriptor for another connection");
    else if ((what & BEV_EVENT_EOF) && k->state == REPLY_BODY && !k->is_chunked && !k->has_length)
        finish(k, k->status, NULL); /* a reply without a length ends with the connection */
    else
        finish(k, 0, describe(k, what, error));
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void write_request(struct client_conn *k, const char *path, const void *body, size_t len) {
    const struct http_client *const c = k->client;
    struct strbuf *const b = &k->request;
    strbuf_printf(b, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: xenon\r\nAccept: */*\r\n", body ? "POST" : "GET",
                  c->prefix, path, c->authority);
    strbuf_puts(b, c->authorization);
    if (body) strbuf_printf(b, "Content-Type: application/json\r\nContent-Length: %zu\r\n", len);
    strbuf_puts(b, "\r\n");
    if (body) strbuf_append(b, body, len);
}

bool http_client_send(struct http_client *c, const char *path, const void *body, size_t len,
                      const struct http_client_hooks *hooks, void *user) {
    struct client_conn *k = c->idle;
    if (!k) k = mem_calloc(1, sizeof *k);
    if (!k) return false;
    k->client = c;
    k->reused = k->bev != NULL;
    k->hooks = hooks;
    k->user = user;
    link_conn(k, &c->busy);
    strbuf_clear(&k->request);
    write_request(k, path, body, len);
    if (!k->request.failed && (k->bev || conn_open(k)) && transmit(k)) return true;
    conn_free(k);
    return false;
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
    struct http_client *const c = arg;
    (void)fd, (void)what;
    c->timer_fn(c->timer_user);
}

void http_client_after(struct http_client *c, int64_t delay_ns, void (*fn)(void *user), void *user) {
    const int64_t us = delay_ns > 0 ? delay_ns / 1000 : 0;
    const struct timeval tv = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    c->timer_fn = fn;
    c->timer_user = user;
    evtimer_add(c->timer, &tv);
}

void http_client_run(struct http_client *c) {
    while (c->busy || evtimer_pending(c->timer, NULL)) {
        if (event_base_loop(c->base, EVLOOP_ONCE) != 0 || event_base_got_break(c->base)) return;
    }
}

void http_client_stop(struct http_client *c) {
    event_base_loopbreak(c->base);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* "[::1]:8000/path" or "host:8000/path" behind the scheme. */
static enum err parse_url(struct http_client *c, const char *url, char *port, size_t port_size, struct err_msg *msg) {
    const bool tls = strncasecmp(url, "https://", 8) == 0;
    if (!tls && strncasecmp(url, "http://", 7) != 0)
        return err_set(msg, ERR_ARG, "%.200s: a URL begins with http:// or https://", url);
    const char *const at = url + (tls ? 8 : 7);
    const size_t n = strcspn(at, "/?#"), path = strcspn(at + n, "?#");
    const char *host = at, *rest;
    size_t host_len;
    if (*at == '[') {
        host = at + 1;
        host_len = strcspn(host, "]/");
        rest = host[host_len] == ']' ? host + host_len + 1 : "";
    } else {
        host_len = strcspn(at, ":/?#");
        rest = at + host_len;
    }
    const size_t port_len = *rest == ':' ? (size_t)(at + n - rest - 1) : 0;
    if (host_len == 0 || host_len >= sizeof c->host || n >= sizeof c->authority || path >= sizeof c->prefix ||
        port_len >= port_size || strcspn(at, "\r\n\t @") < n)
        return err_set(msg, ERR_ARG, "%.200s: no URL of the form http://host:port", url);
    snprintf(c->host, sizeof c->host, "%.*s", (int)host_len, host);
    snprintf(c->authority, sizeof c->authority, "%.*s", (int)n, at);
    snprintf(c->prefix, sizeof c->prefix, "%.*s", (int)path, at + n);
    snprintf(port, port_size, "%.*s", (int)port_len, rest + 1);
    if (port_len == 0) snprintf(port, port_size, "%s", tls ? "443" : "80");
    for (size_t m = strlen(c->prefix); m > 0 && c->prefix[m - 1] == '/'; m--) c->prefix[m - 1] = '\0';
    if (tls) c->tls = SSL_CTX_new(TLS_client_method());
    if (tls && !c->tls) return err_set(msg, ERR_NOMEM, "TLS: no memory");
    if (c->tls) SSL_CTX_set_verify(c->tls, SSL_VERIFY_PEER, NULL);
    if (c->tls) SSL_CTX_set_default_verify_paths(c->tls);
    return ERR_OK;
}

/* A name may stand for addresses that nobody listens at, as localhost does. */
static bool answers(const struct addrinfo *a) {
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool yes = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (fd >= 0) close(fd);
    return yes;
}

static enum err resolve(struct http_client *c, const char *port, struct err_msg *msg) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *list = NULL;
    const int rc = getaddrinfo(c->host, port, &hints, &list);
    if (rc != 0) return err_set(msg, ERR_IO, "%s port %s: %s", c->host, port, gai_strerror(rc));
    const struct addrinfo *best = NULL;
    for (const struct addrinfo *a = list; a && !best; a = a->ai_next)
        if (answers(a)) best = a;
    if (!best) best = list;
    memcpy(&c->addr, best->ai_addr, best->ai_addrlen);
    c->addr_len = best->ai_addrlen;
    freeaddrinfo(list);
    return ERR_OK;
}

/* Timers finer than a millisecond, so that arrivals come when they are due. */
static struct event_base *new_base(void) {
    struct event_config *const config = event_config_new();
    if (!config) return NULL;
    event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
    struct event_base *const base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

static enum err create(struct http_client *c, const struct http_client_options *opt, struct err_msg *msg) {
    struct strbuf line = {0};
    char port[8];
    TRY(parse_url(c, opt->url, port, sizeof port, msg));
    TRY(resolve(c, port, msg));
    if (opt->api_key && strpbrk(opt->api_key, "\r\n")) return err_set(msg, ERR_ARG, "the API key has a line end");
    if (opt->api_key) strbuf_printf(&line, "Authorization: Bearer %s\r\n", opt->api_key);
    strbuf_puts(&line, "");
    c->authorization = line.data ? strbuf_take(&line) : mem_strdup("");
    c->silence_s = opt->silence_s;
    c->base = new_base();
    c->timer = c->base ? evtimer_new(c->base, on_timer, c) : NULL;
    return c->timer && c->authorization ? ERR_OK : err_set(msg, ERR_NOMEM, "no memory for the client");
}

enum err http_client_create(struct http_client **out, const struct http_client_options *opt, struct err_msg *msg) {
    struct http_client *const c = mem_calloc(1, sizeof *c);
    if (!c) return err_set(msg, ERR_NOMEM, "no memory for the client");
    const enum err e = create(c, opt, msg);
    if (e) http_client_destroy(c);
    else *out = c;
    return e;
}

void http_client_destroy(struct http_client *c) {
    if (!c) return;
    while (c->busy) conn_free(c->busy);
    while (c->idle) conn_free(c->idle);
    if (c->timer) event_free(c->timer);
    if (c->base) event_base_free(c->base);
    SSL_CTX_free(c->tls);
    mem_free(c->authorization);
    mem_free(c);
}
