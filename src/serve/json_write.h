/* Writing JSON by hand: replies are many and small, and their numbers must print the same digits everywhere.
 * Threads: any. Owns: nothing. */
#ifndef SERVE_JSON_WRITE_H
#define SERVE_JSON_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* A quoted string. Bytes that are no UTF-8 become U+FFFD; controls and the line ends U+0085, U+2028, U+2029 (which some
 * clients split SSE lines at) are escaped. */
void json_write_string(struct strbuf *b, const char *s, size_t len);

/* The same for a C string; NULL becomes null. */
void json_write_cstr(struct strbuf *b, const char *s);

/* The shortest digits that read back as the same float. JSON has no infinities: they and NaN become -9999.0, the
 * value OpenAI gives for a very unlikely token. */
void json_write_float(struct strbuf *b, float v);

/* [1,2,3] of the bytes. */
void json_write_bytes(struct strbuf *b, const char *s, size_t len);

/* Length in bytes of the valid UTF-8 sequence at s (RFC 3629); 0 when there is none. */
size_t json_write_utf8_len(const char *s, size_t len);

#endif
