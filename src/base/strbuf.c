#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

bool strbuf_reserve(struct strbuf *b, size_t len) {
    size_t need;
    if (b->failed) return false;
    if (!mem_add_ok(b->len, len, &need) || !mem_add_ok(need, 1, &need) ||
        !mem_grow(&b->data, &b->cap, need, 1)) {
        b->failed = true;
        return false;
    }
    b->data[b->len] = '\0';
    return true;
}

void strbuf_append(struct strbuf *b, const void *bytes, size_t len) {
    if (!strbuf_reserve(b, len)) return;
    if (len) memcpy(b->data + b->len, bytes, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void strbuf_puts(struct strbuf *b, const char *s) { strbuf_append(b, s, strlen(s)); }

void strbuf_putc(struct strbuf *b, char c) { strbuf_append(b, &c, 1); }

void strbuf_printf(struct strbuf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
        return;
    }
    if (!strbuf_reserve(b, (size_t)n)) return;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

void strbuf_truncate(struct strbuf *b, size_t len) {
    CHECK(len <= b->len);
    b->len = len;
    if (b->data) b->data[len] = '\0';
}

void strbuf_clear(struct strbuf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data) b->data[0] = '\0';
}

char *strbuf_take(struct strbuf *b) {
    char *const data = !b->failed && strbuf_reserve(b, 0) ? b->data : NULL;
    if (!data) mem_free(b->data);
    *b = (struct strbuf){0};
    return data;
}

const char *strbuf_cstr(const struct strbuf *b) { return b->data ? b->data : ""; }

void strbuf_deinit(struct strbuf *b) {
    mem_free(b->data);
    *b = (struct strbuf){0};
}
