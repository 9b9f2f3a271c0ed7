/* HTTP/1.1 request heads and chunked bodies, strictly (RFC 9110, 9112): whatever two parsers could read differently
 * is refused, because a proxy in front may read it the other way (request smuggling). Pure functions on bytes.
 *
 * Refused: bare LF, folded lines, space before a colon, two different Content-Length, Content-Length together with
 * Transfer-Encoding, any coding but chunked, HTTP/1.1 without exactly one Host, control characters.
 * Threads: any. Owns: nothing; the parsed strings point into the head, whose separators become NULs. */
#ifndef SERVE_HTTP_PARSE_H
#define SERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEADERS_MAX = 100 };

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OPTIONS, HTTP_OTHER_METHOD };

struct http_field {
    const char *name; /* lower case */
    const char *value;
};

struct http_head {
    enum http_method method;
    const char *path;  /* percent-decoded, without the query; starts with '/' */
    const char *query; /* behind '?', not decoded; "" when absent */
    bool http10;
    bool keep_alive;   /* what the client wants */
    bool chunked;
    bool expect_continue;
    bool has_length;
    uint64_t content_length;
    int n_fields;
    struct http_field fields[HTTP_HEADERS_MAX];
};

/* Bytes of the head including its blank line when it is complete within `data`; 0 when more must come. */
size_t http_parse_find_head(const char *data, size_t len);

/* Parses a complete head in place. Returns 0, or the status to answer (400, 411, 414, 431, 501, 505) with *why
 * set to a constant text; the connection is to be closed then. */
int http_parse_head(struct http_head *h, char *data, size_t len, const char **why);

/* The value of a field (name in lower case); NULL when absent. */
const char *http_parse_field(const struct http_head *h, const char *name);

/* A decoder for chunked bodies. Zeroed: at the start. */
struct http_chunked {
    int state;
    uint64_t left;    /* bytes of the present chunk still to come */
    int n_line;       /* bytes of the present line */
    size_t n_trailer; /* bytes of trailer lines so far */
    bool last_size_digit;
};

/* Consumes from data, moving the payload to its front: *n_consumed bytes are used up, *n_payload of them are body.
 * Returns 1 at the end of the body, 0 when more must come, -1 on a malformed body. */
int http_parse_chunked(struct http_chunked *c, char *data, size_t len, size_t *n_consumed, size_t *n_payload);

#endif
