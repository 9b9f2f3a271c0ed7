/* UTF-8, strictly as Unicode defines it: no surrogates, no overlong forms, nothing above U+10FFFF.
 * Threads: any. */
#ifndef TEXT_UTF8_H
#define TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define UTF8_SPM_SPACE   "\xe2\x96\x81" /* U+2581, SentencePiece's visible space */

/* One step at s [n >= 1 bytes]. Positive: the length of a code point, which goes to *cp. Negative: that many bytes
 * can never start a code point (a maximal subpart, Unicode section 3.9, U+FFFD stands for all of them). Zero: the
 * bytes are the beginning of a code point whose end is not there. */
int utf8_step(const char *s, size_t n, uint32_t *cp);

/* The code point at s, which is known to be valid; *len is its length. */
static inline uint32_t utf8_get(const char *s, int *len) {
    const unsigned char *const u = (const unsigned char *)s;
    if (u[0] < 0x80) {
        *len = 1;
        return u[0];
    }
    if (u[0] < 0xe0) {
        *len = 2;
        return (uint32_t)(u[0] & 0x1f) << 6 | (u[1] & 0x3f);
    }
    if (u[0] < 0xf0) {
        *len = 3;
        return (uint32_t)(u[0] & 0x0f) << 12 | (uint32_t)(u[1] & 0x3f) << 6 | (u[2] & 0x3f);
    }
    *len = 4;
    return (uint32_t)(u[0] & 0x07) << 18 | (uint32_t)(u[1] & 0x3f) << 12 | (uint32_t)(u[2] & 0x3f) << 6 | (u[3] & 0x3f);
}

/* Bytes of the longest valid prefix; n when all of s is valid. */
size_t utf8_valid_prefix(const char *s, size_t n);

/* Writes cp (a valid scalar value) and returns its length, 1 to 4. */
int utf8_put(uint32_t cp, char out[4]);

/* Where the code point that ends right before s + at starts; at > 0, s valid. */
static inline size_t utf8_prev(const char *s, size_t at) {
    do at--;
    while (at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80);
    return at;
}

/* White_Space of the Unicode character database (26 code points; U+180E is not one of them). */
static inline bool utf8_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

/* Letters, marks, numbers and connectors: what \w means to the tokenizers' regular expressions. */
bool utf8_is_word(uint32_t cp);

/* Category N: Nd, Nl or No. */
bool utf8_is_number(uint32_t cp);

/* Category P, and the ASCII symbols that C calls punctuation. */
bool utf8_is_punct(uint32_t cp);

#endif
