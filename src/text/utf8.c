#include "text/utf8.h"

#include <string.h>

#include <utf8proc.h>

/* The range of the second byte after each lead byte of 3 and 4 (Unicode, table 3-7). */
static void second_range(unsigned char lead, unsigned char *lo, unsigned char *hi) {
    *lo = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *hi = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
}

int utf8_step(const char *s, size_t n, uint32_t *cp) {
    const unsigned char *const u = (const unsigned char *)s;
    const unsigned char lead = u[0];
    if (lead < 0x80) {
        *cp = lead;
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4) return -1;
    const size_t need = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    unsigned char lo, hi;
    second_range(lead, &lo, &hi);
    for (size_t i = 1; i < need; i++) {
        if (i >= n) return 0;
        if (u[i] < lo || u[i] > hi) return -(int)i;
        lo = 0x80;
        hi = 0xbf;
    }
    int len;
    *cp = utf8_get(s, &len);
    return (int)need;
}

size_t utf8_valid_prefix(const char *s, size_t n) {
    size_t i = 0;
    while (i < n) {
        uint64_t word;
        while (i + 8 <= n) {
            memcpy(&word, s + i, 8);
            if (word & 0x8080808080808080u) break;
            i += 8;
        }
        if (i >= n) break;
        uint32_t cp;
        const int step = utf8_step(s + i, n - i, &cp);
        if (step <= 0) return i;
        i += (size_t)step;
    }
    return n;
}

int utf8_put(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool utf8_is_word(uint32_t cp) {
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_ND) || c == UTF8PROC_CATEGORY_PC;
}

bool utf8_is_number(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool utf8_is_punct(uint32_t cp) {
    if (cp < 0x80)
        return (cp > 32 && cp < 48) || (cp > 57 && cp < 65) || (cp > 90 && cp < 97) || (cp > 122 && cp < 127);
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}
