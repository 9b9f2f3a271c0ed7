#include "text/regex.h"

#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/mem.h"
#include "text/utf8.h"

enum {
    PATTERN_LEN_MAX = 64 * 1024,
    MATCH_LIMIT = 20 * 1000 * 1000,
    HEAP_LIMIT_KIB = 64 * 1024,
    GIVE_UP_BYTES = 4096, /* what a match over the limit is taken to be */
};

struct regex {
    pcre2_code *code;
    pcre2_match_context *context;
    bool jit;
    bool trailing_space; /* the expression is \s+$, which needs no engine (and costs quadratic time in one) */
};

static void *pcre_alloc(size_t size, void *unused) {
    (void)unused;
    return mem_alloc(size);
}
static void pcre_free(void *p, void *unused) {
    (void)unused;
    mem_free(p);
}

static enum err compile(struct regex *r, const struct strbuf *p, const char *pattern, size_t len, struct err_msg *msg) {
    pcre2_general_context *const g = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *const c = g ? pcre2_compile_context_create(g) : NULL;
    enum err e = ERR_OK;
    int code = 0;
    PCRE2_SIZE at = 0;
    if (c) r->context = pcre2_match_context_create(g);
    if (!r->context) {
        e = err_set(msg, ERR_NOMEM, "tokenizer: out of memory for a regular expression");
        goto out;
    }
    (void)pcre2_set_match_limit(r->context, MATCH_LIMIT);
    (void)pcre2_set_heap_limit(r->context, HEAP_LIMIT_KIB);
    (void)pcre2_set_parens_nest_limit(c, 100);
    r->code =
        pcre2_compile((PCRE2_SPTR)p->data, p->len, PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, c);
    if (!r->code && code == PCRE2_ERROR_HEAP_FAILED) {
        e = err_set(msg, ERR_NOMEM, "tokenizer: out of memory for a regular expression");
        goto out;
    }
    if (!r->code) {
        PCRE2_UCHAR text[160] = "";
        (void)pcre2_get_error_message(code, text, sizeof text);
        e = err_set(msg, ERR_UNSUPPORTED, "tokenizer: regular expression \"%.*s\" is not supported: %s",
                    (int)(len < 120 ? len : 120), pattern, (const char *)text);
        goto out;
    }
    r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
out:
    pcre2_compile_context_free(c);
    pcre2_general_context_free(g);
    return e;
}

enum err regex_compile(struct regex **out, const char *pattern, size_t len, struct err_msg *msg) {
    *out = NULL;
    if (len > PATTERN_LEN_MAX)
        return err_set(msg, ERR_LIMIT, "tokenizer: a regular expression of %zu bytes; at most %d are allowed", len,
                       PATTERN_LEN_MAX);
    struct regex *const r = mem_calloc(1, sizeof *r);
    struct strbuf p = {0};
    enum err e = r ? regex_translate(&p, pattern, len, msg) : ERR_NOMEM;
    if (e == ERR_OK && p.failed) e = ERR_NOMEM;
    if (e == ERR_NOMEM) e = err_set(msg, ERR_NOMEM, "tokenizer: out of memory for a regular expression");
    if (e == ERR_OK) {
        r->trailing_space = len == 4 && memcmp(pattern, "\\s+$", 4) == 0;
        e = compile(r, &p, pattern, len, msg);
    }
    strbuf_deinit(&p);
    if (e != ERR_OK) {
        regex_free(r);
        return e;
    }
    *out = r;
    return ERR_OK;
}

void regex_free(struct regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    pcre2_match_context_free(r->context);
    mem_free(r);
}

static bool next_trailing_space(const char *text, size_t n, size_t from, size_t *start, size_t *end) {
    size_t at = n;
    while (at > from) {
        const size_t prev = utf8_prev(text, at);
        int len;
        if (!utf8_is_space(utf8_get(text + prev, &len))) break;
        at = prev;
    }
    *start = at;
    *end = n;
    return at < n;
}

bool regex_next(const struct regex *r, struct regex_run *run, const char *text, size_t n, size_t from, size_t *start,
                size_t *end) {
    if (r->trailing_space) return next_trailing_space(text, n, from, start, end);
    if (!run->match_data) run->match_data = pcre2_match_data_create(1, NULL);
    if (!run->match_data) goto give_up;
    pcre2_match_data *const md = run->match_data;
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    const size_t first = from;
    while (from < n) {
        int rc = r->jit ? pcre2_jit_match(r->code, subject, n, from, PCRE2_NO_UTF_CHECK, md, r->context)
                        : pcre2_match(r->code, subject, n, from, PCRE2_NO_UTF_CHECK, md, r->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(r->code, subject, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, md, r->context);
        if (rc == PCRE2_ERROR_NOMATCH) return false;
        if (rc < 0) goto give_up;
        const PCRE2_SIZE *const ov = pcre2_get_ovector_pointer(md);
        /* \K inside a lookahead can turn a match around or move it back; such a match counts as an empty one. */
        const bool sane = ov[0] >= from && ov[1] >= ov[0];
        if (sane && (ov[1] > ov[0] || ov[0] > first)) {
            *start = ov[0];
            *end = ov[1];
            return true;
        }
        from++; /* an empty match where the search began: go on behind the next code point */
        while (from < n && ((unsigned char)text[from] & 0xc0) == 0x80) from++;
    }
    return false;
give_up:
    if (from >= n) return false;
    *start = from;
    *end = n - from > GIVE_UP_BYTES ? from + GIVE_UP_BYTES : n;
    while (*end < n && ((unsigned char)text[*end] & 0xc0) == 0x80) ++*end;
    return true;
}

void regex_run_deinit(struct regex_run *run) {
    pcre2_match_data_free(run->match_data);
    run->match_data = NULL;
}
