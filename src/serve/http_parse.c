#include "serve/http_parse.h"

#include <string.h>

enum { CHUNK_LINE_MAX = 256, TRAILERS_MAX = 8192, TARGET_MAX = 8192 };

size_t http_parse_find_head(const char *data, size_t len) {
    const char *const end = memmem(data, len, "\r\n\r\n", 4);
    if (end) return (size_t)(end - data) + 4;
    /* Two bare LFs would end the head for a lax parser: stop there, so that http_parse_head refuses it. */
    const char *const lax = memmem(data, len, "\n\n", 2);
    return lax ? (size_t)(lax - data) + 2 : 0;
}

/* RFC 9110 5.6.2: the characters of a method or a field name. */
static bool is_token_char(unsigned char c) {
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) return true;
    return c && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decodes %XX in place; false for a broken or NUL escape. */
static bool percent_decode(char *s) {
    char *to = s;
    for (; *s; s++) {
        if (*s != '%') {
            *to++ = *s;
            continue;
        }
        const int hi = hex_digit(s[1]), lo = hi < 0 ? -1 : hex_digit(s[2]);
        if (lo < 0 || (hi | lo) == 0) return false;
        *to++ = (char)(hi * 16 + lo);
        s += 2;
    }
    *to = '\0';
    return true;
}

static enum http_method method_of(const char *s) {
    static const char *const names[] = {"GET", "HEAD", "POST", "OPTIONS"};
    for (int i = 0; i < HTTP_OTHER_METHOD; i++)
        if (strcmp(s, names[i]) == 0) return (enum http_method)i;
    return HTTP_OTHER_METHOD;
}

/* Splits the target into path and query; absolute form ("http://host/path") is cut to its path. */
static bool parse_target(struct http_head *h, char *target) {
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p <= 0x20 || *p == 0x7f) return false;
    char *path = target;
    if (strncmp(target, "http://", 7) == 0 || strncmp(target, "https://", 8) == 0) {
        path = strchr(strchr(target, ':') + 3, '/');
        if (!path) return false;
    }
    if (path[0] != '/' && !(h->method == HTTP_OPTIONS && strcmp(path, "*") == 0)) return false;
    char *const q = strchr(path, '?');
    if (q) *q = '\0';
    h->query = q ? q + 1 : "";
    h->path = path;
    return percent_decode(path);
}

static int parse_request_line(struct http_head *h, char *line, const char **why) {
    *why = "malformed request line";
    char *const target = strchr(line, ' ');
    char *const version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || target == line) return 400;
    *target = *version = '\0';
    for (const char *p = line; *p; p++)
        if (!is_token_char((unsigned char)*p)) return 400;
    if (strncmp(version + 1, "HTTP/", 5) != 0) return 400;
    h->http10 = strcmp(version + 1, "HTTP/1.0") == 0;
    if (!h->http10 && strcmp(version + 1, "HTTP/1.1") != 0) {
        *why = "only HTTP/1.0 and HTTP/1.1 are spoken here";
        return 505;
    }
    if (version - target > TARGET_MAX) {
        *why = "the request target is too long";
        return 414;
    }
    h->method = method_of(line);
    return parse_target(h, target + 1) ? 0 : 400;
}

static int parse_field_line(struct http_head *h, char *line, const char **why) {
    char *const colon = strchr(line, ':');
    *why = "malformed header line";
    if (!colon || colon == line) return 400;
    for (char *p = line; p < colon; p++) {
        if (!is_token_char((unsigned char)*p)) return 400; /* folded lines and spaces before ':' too */
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + 32);
    }
    *colon = '\0';
    char *value = colon + 1, *end = value + strlen(value);
    while (*value == ' ' || *value == '\t')
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        *--end = '\0';
    for (const char *p = value; *p; p++)
        if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f) return 400;
    if (h->n_fields == HTTP_HEADERS_MAX) {
        *why = "too many header fields";
        return 431;
    }
    h->fields[h->n_fields++] = (struct http_field){line, value};
    return 0;
}

const char *http_parse_field(const struct http_head *h, const char *name) {
    for (int i = 0; i < h->n_fields; i++)
        if (strcmp(h->fields[i].name, name) == 0) return h->fields[i].value;
    return NULL;
}

static int count_fields(const struct http_head *h, const char *name) {
    int n = 0;
    for (int i = 0; i < h->n_fields; i++)
        n += strcmp(h->fields[i].name, name) == 0;
    return n;
}

/* Whether the comma-separated list holds the word, ignoring case. */
static bool list_has(const char *list, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = list; p && *p;) {
        p += strspn(p, " \t,");
        const size_t len = strcspn(p, " \t,;");
        if (len == n && strncasecmp(p, word, n) == 0) return true;
        p += strcspn(p, ",");
    }
    return false;
}

static bool parse_length(const char *text, uint64_t *out) {
    uint64_t v = 0;
    if (!*text || strlen(text) > 18) return false;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9') return false;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    *out = v;
    return true;
}

/* How the body is framed, RFC 9112 6.3. */
static int parse_framing(struct http_head *h, const char **why) {
    const char *const length = http_parse_field(h, "content-length");
    const char *const coding = http_parse_field(h, "transfer-encoding");
    *why = "ambiguous body length";
    if (count_fields(h, "content-length") > 1 || count_fields(h, "transfer-encoding") > 1) return 400;
    if (length && coding) return 400;
    if (coding) {
        *why = "only the transfer coding \"chunked\" is understood";
        if (h->http10) return 400;
        if (strcasecmp(coding, "chunked") != 0) return 501;
        h->chunked = true;
    }
    *why = "malformed Content-Length";
    if (length && !parse_length(length, &h->content_length)) return 400;
    h->has_length = length != NULL;
    *why = "a body needs Content-Length or chunked coding";
    return h->method == HTTP_POST && !length && !coding ? 411 : 0;
}

static int parse_connection(struct http_head *h, const char **why) {
    const char *const connection = http_parse_field(h, "connection");
    const char *const expect = http_parse_field(h, "expect");
    h->keep_alive =
        h->http10 ? connection && list_has(connection, "keep-alive") : !connection || !list_has(connection, "close");
    h->expect_continue = expect && !h->http10 && strcasecmp(expect, "100-continue") == 0;
    *why = "exactly one Host header is needed";
    const int n_hosts = count_fields(h, "host");
    return n_hosts > 1 || (n_hosts == 0 && !h->http10) ? 400 : 0;
}

int http_parse_head(struct http_head *h, char *data, size_t len, const char **why) {
    *h = (struct http_head){.path = "", .query = ""};
    *why = "a NUL byte in the request head";
    if (len < 4 || memchr(data, '\0', len)) return 400;
    bool first = true;
    for (char *line = data, *const end = data + len; line < end;) {
        char *const lf = memchr(line, '\n', (size_t)(end - line));
        *why = "lines of the request head must end with CRLF";
        if (!lf || lf == line || lf[-1] != '\r') return 400;
        lf[-1] = '\0';
        if (line[0] == '\0' && !first) break;
        const int status = first ? parse_request_line(h, line, why) : parse_field_line(h, line, why);
        if (status) return status;
        first = false;
        line = lf + 1;
    }
    const int status = parse_framing(h, why);
    return status ? status : parse_connection(h, why);
}

/* ---- Chunked bodies -------------------------------------------------------------------------- */

enum { AT_SIZE, AT_EXTENSION, AT_SIZE_LF, AT_DATA, AT_DATA_CR, AT_DATA_LF, AT_TRAILER, AT_TRAILER_LF, AT_END };

/* A byte of "1a;name=value\r\n". */
static bool step_size(struct http_chunked *c, char ch) {
    const int digit = hex_digit(ch);
    if (++c->n_line > CHUNK_LINE_MAX) return false;
    if (c->state == AT_SIZE && digit >= 0) {
        if (c->left >> 56) return false;
        c->left = c->left * 16 + (uint64_t)digit;
        c->last_size_digit = true;
        return true;
    }
    if (!c->last_size_digit) return false;
    if (ch == '\r') {
        c->state = AT_SIZE_LF;
        return true;
    }
    if (c->state == AT_SIZE && ch != ';' && ch != ' ' && ch != '\t') return false;
    c->state = AT_EXTENSION;
    return ch != '\n' && ch != '\0';
}

/* A byte of the trailer section, which is read and dropped. */
static bool step_trailer(struct http_chunked *c, char ch) {
    if (++c->n_trailer > TRAILERS_MAX) return false;
    if (c->state == AT_TRAILER_LF) {
        if (ch != '\n') return false;
        c->state = c->n_line == 0 ? AT_END : AT_TRAILER;
        c->n_line = 0;
        return true;
    }
    if (ch == '\n' || ch == '\0') return false;
    if (ch == '\r')
        c->state = AT_TRAILER_LF;
    else
        c->n_line++;
    return true;
}

static bool step_control(struct http_chunked *c, char ch) {
    switch (c->state) {
    case AT_SIZE:
    case AT_EXTENSION:
        return step_size(c, ch);
    case AT_SIZE_LF:
        c->state = c->left ? AT_DATA : AT_TRAILER;
        c->n_line = 0;
        return ch == '\n';
    case AT_DATA_CR:
        c->state = AT_DATA_LF;
        return ch == '\r';
    case AT_DATA_LF:
        c->state = AT_SIZE;
        c->last_size_digit = false;
        return ch == '\n';
    default:
        return step_trailer(c, ch);
    }
}

int http_parse_chunked(struct http_chunked *c, char *data, size_t len, size_t *n_consumed, size_t *n_payload) {
    size_t i = 0, out = 0;
    bool ok = true;
    while (ok && i < len && c->state != AT_END) {
        if (c->state != AT_DATA) {
            ok = step_control(c, data[i++]);
            continue;
        }
        const size_t n = c->left < len - i ? (size_t)c->left : len - i;
        memmove(data + out, data + i, n);
        out += n;
        i += n;
        c->left -= n;
        if (c->left == 0) c->state = AT_DATA_CR;
    }
    *n_consumed = i;
    *n_payload = out;
    return !ok ? -1 : c->state == AT_END ? 1 : 0;
}
