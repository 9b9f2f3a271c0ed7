#include "serve/route.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <string.h>

#include "serve/generation.h"

enum route_flags {
    OPEN = 1,   /* needs no key */
    LOADED = 2, /* 503 unless the engine can serve */
    PREFIX = 4, /* the path begins so */
};

struct route {
    enum http_method method;
    const char *path;
    int flags;
    route_fn *handler;
};

static const struct route routes[] = {
    {HTTP_POST, "/v1/chat/completions", LOADED, generation_chat},
    {HTTP_POST, "/v1/completions", LOADED, generation_completion},
    {HTTP_GET, "/v1/models", 0, api_models_list},
    {HTTP_GET, "/v1/models/", PREFIX, api_models_get},
    {HTTP_POST, "/tokenize", LOADED, api_tokenize_encode},
    {HTTP_POST, "/detokenize", LOADED, api_tokenize_decode},
    {HTTP_GET, "/tokenizer_info", LOADED, api_tokenize_info},
    {HTTP_GET, "/health", OPEN, health_live},
    {HTTP_GET, "/version", OPEN, health_version},
    {HTTP_GET, "/metrics", OPEN, health_metrics},
    {HTTP_GET, "/", OPEN, page_index},
};

/* Slashes written twice and at the end do not count: clients join base addresses carelessly. */
static bool path_matches(const struct route *t, const char *path) {
    const char *p = t->path;
    while (*p) {
        if (*p != *path) return false;
        while (*path == '/' && path[1] == '/')
            path++;
        p++, path++;
    }
    if (t->flags & PREFIX) return *path != '\0';
    while (*path == '/')
        path++;
    return *path == '\0';
}

/* All keys are compared, through digests of equal length, whatever the outcome: time tells nothing. */
static bool key_ok(const struct server *s, const struct http_request *r) {
    const char *const auth = http_parse_field(r->head, "authorization");
    unsigned char given[SHA256_DIGEST_LENGTH], want[SHA256_DIGEST_LENGTH];
    int found = 0;
    if (s->opt.n_api_keys == 0) return true;
    if (!auth || strncasecmp(auth, "Bearer ", 7) != 0) return false;
    const char *key = auth + 7;
    while (*key == ' ')
        key++;
    SHA256((const unsigned char *)key, strlen(key), given);
    for (int i = 0; i < s->opt.n_api_keys; i++) {
        SHA256((const unsigned char *)s->opt.api_keys[i], strlen(s->opt.api_keys[i]), want);
        found |= CRYPTO_memcmp(given, want, sizeof want) == 0;
    }
    return found != 0;
}

static void add_cors(const struct server *s, struct http_request *r) {
    if (!*s->opt.cors_origin || !http_parse_field(r->head, "origin")) return;
    http_add_header(r, "Access-Control-Allow-Origin", s->opt.cors_origin);
    http_add_header(r, "Access-Control-Expose-Headers", "x-request-id, openai-processing-ms, retry-after");
    if (strcmp(s->opt.cors_origin, "*") != 0) http_add_header(r, "Vary", "Origin");
}

/* A preflight never needs a key. */
static void answer_options(const struct server *s, struct http_request *r) {
    if (*s->opt.cors_origin) {
        http_add_header(r, "Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
        const char *const wanted = http_parse_field(r->head, "access-control-request-headers");
        http_add_header(r, "Access-Control-Allow-Headers",
                        wanted ? wanted : "authorization, content-type, x-request-id");
        http_add_header(r, "Access-Control-Max-Age", "86400");
    }
    http_add_header(r, "Allow", "GET, HEAD, POST, OPTIONS");
    http_reply(r, 204, NULL, NULL, 0);
}

static void dispatch(struct server *s, struct http_request *r, const struct route *t) {
    struct openai_error e;
    r->label = t->path;
    if (!(t->flags & OPEN) && !key_ok(s, r)) {
        http_add_header(r, "WWW-Authenticate", "Bearer");
        openai_error_set(&e, 401, "invalid_api_key", NULL,
                         "A valid API key is needed: send 'Authorization: Bearer KEY'.");
        server_reply_error(r, &e);
    } else if ((t->flags & LOADED) && !server_ready(s, &e, true)) {
        server_reply_error(r, &e);
    } else {
        t->handler(s, r);
    }
}

void route_request(struct server *s, struct http_request *r) {
    const struct http_head *const h = r->head;
    const enum http_method method = h->method == HTTP_HEAD ? HTTP_GET : h->method;
    const struct route *other = NULL;
    struct openai_error e;
    add_cors(s, r);
    if (h->method == HTTP_OPTIONS) {
        r->label = "options";
        answer_options(s, r);
        return;
    }
    for (size_t i = 0; i < N_ELEMENTS(routes); i++) {
        if (!path_matches(&routes[i], h->path)) continue;
        if (routes[i].method == method) {
            dispatch(s, r, &routes[i]);
            return;
        }
        other = &routes[i];
    }
    if (other) {
        r->label = other->path;
        http_add_header(r, "Allow", other->method == HTTP_GET ? "GET, HEAD, OPTIONS" : "POST, OPTIONS");
        openai_error_set(&e, 405, "method_not_allowed", NULL, "This route answers %s only.",
                         other->method == HTTP_GET ? "GET" : "POST");
    } else {
        openai_error_set(&e, 404, "not_found", NULL, "There is no such route here.");
    }
    server_reply_error(r, &e);
}
