/* A growing byte string with a sticky failure: appends after a failed one do nothing, and the
 * caller looks at `failed` once at the end. data is always NUL-terminated when not NULL; the bytes
 * may contain NULs. A zeroed struct is an empty buffer.
 * Threads: one owner. Owns: data, freed by strbuf_deinit. */
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/attr.h"

struct strbuf {
    char *data;
    size_t len;
    size_t cap;
    bool failed; /* memory ran out; the content is a prefix of what was asked for */
};

void strbuf_append(struct strbuf *b, const void *bytes, size_t len);
void strbuf_puts(struct strbuf *b, const char *s);
void strbuf_putc(struct strbuf *b, char c);
void strbuf_printf(struct strbuf *b, const char *fmt, ...) ATTR_PRINTF(2, 3);

/* Makes room for len more bytes without changing the content. */
bool strbuf_reserve(struct strbuf *b, size_t len) ATTR_NODISCARD;

/* Drops the bytes behind len (which must not exceed the present length). */
void strbuf_truncate(struct strbuf *b, size_t len);

/* Empties, keeps the memory, forgets a failure. */
void strbuf_clear(struct strbuf *b);

/* Hands the bytes to the caller (free with mem_free; NULL when failed); the buffer is empty then. */
char *strbuf_take(struct strbuf *b) ATTR_NODISCARD;

/* The content as a C string, never NULL. */
const char *strbuf_cstr(const struct strbuf *b);

void strbuf_deinit(struct strbuf *b);

#endif
