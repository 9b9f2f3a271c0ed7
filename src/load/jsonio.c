#include "load/jsonio.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "load/quote.h"

/* jansson's lexer ignores a failure to grow its token buffer and would then run past the token's end. So a failed
 * growth is served from a reserve that fits the longest token, and the text ends with the byte being read: the parser
 * gives up at the next one. Bytes are handed over singly for that reason.
 * Its allocation functions have no context argument, hence the thread-local pointer. */
struct guard {
    char *reserve;
    size_t reserve_bytes;
    bool reserve_used;
    bool failed;
};

static _Thread_local struct guard *guard;

static void *json_alloc(size_t size) {
    void *const p = mem_alloc(size);
    struct guard *const g = guard;
    if (p || !g) return p;
    g->failed = true;
    if (g->reserve_used || size > g->reserve_bytes) return NULL;
    g->reserve_used = true;
    return g->reserve;
}

static void json_release(void *p) {
    if (guard && p == guard->reserve) return;
    mem_free(p);
}

static void init_once(void) { json_set_alloc_funcs(json_alloc, json_release); }

void jsonio_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, init_once);
}

/* A light pass over the text: nesting, the longest token, integers too long for int64. It need not understand more
 * than that, because the parser checks everything else. */
struct scan {
    const char *text;
    size_t len, pos;
    int depth;
    size_t token_max; /* bytes of the longest token so far */
};

static bool is_delimiter(char c) { return memchr(" \t\r\n,:[]{}\"", c, 11) != NULL; }

static void skip_string(struct scan *s) {
    const size_t begin = s->pos++;
    while (s->pos < s->len && s->text[s->pos] != '"') s->pos += s->text[s->pos] == '\\' ? 2 : 1;
    s->pos = s->pos < s->len ? s->pos + 1 : s->len;
    if (s->pos - begin > s->token_max) s->token_max = s->pos - begin;
}

/* True when the token is a decimal integer outside int64. */
static bool is_long_integer(const char *p, size_t n) {
    static const char limit[] = "9223372036854775807";
    const size_t n_limit = sizeof limit - 1;
    if (n && *p == '-') p++, n--;
    if (n < n_limit) return false;
    for (size_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9') return false;
    return n > n_limit || memcmp(p, limit, n_limit) > 0;
}

/* Goes on to the end of the next long integer and returns that position, or len at the end of the text (also for one
 * that ends there: alone it is no configuration). Stops early where the nesting is too deep. */
static size_t scan_next(struct scan *s) {
    while (s->pos < s->len) {
        const char c = s->text[s->pos];
        if (c == '"') {
            skip_string(s);
        } else if (is_delimiter(c)) {
            s->depth += (c == '[' || c == '{') - (c == ']' || c == '}');
            if (s->depth > JSONIO_DEPTH_MAX) return s->pos;
            s->pos++;
        } else {
            const size_t begin = s->pos;
            while (s->pos < s->len && !is_delimiter(s->text[s->pos])) s->pos++;
            if (s->pos - begin > s->token_max) s->token_max = s->pos - begin;
            if (is_long_integer(s->text + begin, s->pos - begin)) return s->pos;
        }
    }
    return s->len;
}

struct feed {
    const char *text;
    size_t len, pos;
    struct scan ahead;
    size_t next_long;   /* where ".0" is put in; len: nowhere */
    const char *suffix; /* what is left of it */
};

static size_t feed_byte(void *buffer, size_t size, void *arg) {
    struct feed *const f = arg;
    char *const out = buffer;
    if (size == 0 || guard->failed) return (size_t)-1;
    if (*f->suffix) {
        *out = *f->suffix++;
        return 1;
    }
    if (f->pos == f->len) return 0;
    if (f->pos == f->next_long) {
        f->next_long = scan_next(&f->ahead);
        f->suffix = "0";
        *out = '.';
        return 1;
    }
    *out = f->text[f->pos++];
    return 1;
}

static enum err parse_guarded(json_t **out, struct feed *f, bool unique, const char *source, struct err_msg *msg) {
    json_error_t error;
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_ANY | (unique ? JSON_REJECT_DUPLICATES : 0);
    json_t *const root = json_load_callback(feed_byte, f, flags, &error);
    if (guard->failed) {
        json_decref(root);
        return err_set(msg, ERR_NOMEM, "%s: no memory for its %zu bytes of JSON", source, f->len);
    }
    if (!root) {
        struct quote q;
        return err_set(msg, ERR_FORMAT, "%s: is not valid JSON: %s (line %d, column %d)", source,
                       quote_name(&q, error.text, strlen(error.text)), error.line, error.column);
    }
    *out = root;
    return ERR_OK;
}

enum err jsonio_parse(json_t **out, const char *text, size_t len, bool unique, const char *source,
                      struct err_msg *msg) {
    *out = NULL;
    jsonio_init();
    struct scan s = {.text = text, .len = len};
    bool any_long = false;
    while (s.pos < len && s.depth <= JSONIO_DEPTH_MAX) any_long |= scan_next(&s) < len;
    if (s.depth > JSONIO_DEPTH_MAX)
        return err_set(msg, ERR_LIMIT, "%s: nested deeper than %d levels at byte %zu", source, JSONIO_DEPTH_MAX, s.pos);
    struct guard g = {.reserve_bytes = 2 * s.token_max + 64};
    g.reserve = mem_alloc(g.reserve_bytes);
    if (!g.reserve) return err_set(msg, ERR_NOMEM, "%s: no memory for its %zu bytes of JSON", source, len);
    struct feed f = {.text = text, .len = len, .ahead = {.text = text, .len = len}, .suffix = ""};
    f.next_long = any_long ? scan_next(&f.ahead) : len;
    guard = &g;
    const enum err e = parse_guarded(out, &f, unique, source, msg);
    guard = NULL;
    mem_free(g.reserve);
    return e;
}
