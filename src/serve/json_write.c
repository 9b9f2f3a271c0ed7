#include "serve/json_write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t json_write_utf8_len(const char *s, size_t len) {
    const unsigned char *const u = (const unsigned char *)s;
    if (len == 0) return 0;
    if (u[0] < 0x80) return 1;
    const size_t n = u[0] >= 0xc2 && u[0] <= 0xdf   ? 2
                     : (u[0] & 0xf0) == 0xe0        ? 3
                     : u[0] >= 0xf0 && u[0] <= 0xf4 ? 4
                                                    : 0;
    if (n == 0 || len < n) return 0;
    for (size_t i = 1; i < n; i++)
        if ((u[i] & 0xc0) != 0x80) return 0;
    if (u[0] == 0xe0 && u[1] < 0xa0) return 0; /* overlong */
    if (u[0] == 0xed && u[1] > 0x9f) return 0; /* surrogates */
    if (u[0] == 0xf0 && u[1] < 0x90) return 0; /* overlong */
    if (u[0] == 0xf4 && u[1] > 0x8f) return 0; /* above U+10FFFF */
    return n;
}

static void write_ascii(struct strbuf *b, unsigned char c) {
    switch (c) {
    case '"':
        strbuf_puts(b, "\\\"");
        return;
    case '\\':
        strbuf_puts(b, "\\\\");
        return;
    case '\n':
        strbuf_puts(b, "\\n");
        return;
    case '\r':
        strbuf_puts(b, "\\r");
        return;
    case '\t':
        strbuf_puts(b, "\\t");
        return;
    default:
        strbuf_printf(b, "\\u%04x", c);
        return;
    }
}

static bool is_plain(unsigned char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

void json_write_string(struct strbuf *b, const char *s, size_t len) {
    strbuf_putc(b, '"');
    for (size_t i = 0; i < len;) {
        size_t plain = i;
        while (plain < len && is_plain((unsigned char)s[plain]))
            plain++;
        strbuf_append(b, s + i, plain - i);
        i = plain;
        if (i == len) break;
        const size_t n = json_write_utf8_len(s + i, len - i);
        if (n == 1)
            write_ascii(b, (unsigned char)s[i]);
        else if (n == 0)
            strbuf_puts(b, "\xef\xbf\xbd");
        else if (memcmp(s + i, "\xc2\x85", 2) == 0)
            strbuf_puts(b, "\\u0085");
        else if (n == 3 && memcmp(s + i, "\xe2\x80\xa8", 3) == 0)
            strbuf_puts(b, "\\u2028");
        else if (n == 3 && memcmp(s + i, "\xe2\x80\xa9", 3) == 0)
            strbuf_puts(b, "\\u2029");
        else
            strbuf_append(b, s + i, n);
        i += n ? n : 1;
    }
    strbuf_putc(b, '"');
}

void json_write_cstr(struct strbuf *b, const char *s) {
    if (s)
        json_write_string(b, s, strlen(s));
    else
        strbuf_puts(b, "null");
}

void json_write_float(struct strbuf *b, float v) {
    if (!isfinite(v)) {
        strbuf_puts(b, "-9999.0");
        return;
    }
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    strbuf_puts(b, text);
    if (!strpbrk(text, ".e")) strbuf_puts(b, ".0");
}

void json_write_bytes(struct strbuf *b, const char *s, size_t len) {
    strbuf_putc(b, '[');
    for (size_t i = 0; i < len; i++)
        strbuf_printf(b, "%s%u", i ? "," : "", (unsigned char)s[i]);
    strbuf_putc(b, ']');
}
