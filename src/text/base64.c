#include "text/base64.h"

#include <stdint.h>

static int value_of(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct strbuf *out, const char *s, size_t len) {
    uint32_t bits = 0;
    int n_bits = 0;
    size_t i = 0;
    for (; i < len && s[i] != '='; i++) {
        const int v = value_of(s[i]);
        if (v < 0) return false;
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits < 8) continue;
        n_bits -= 8;
        strbuf_putc(out, (char)(bits >> n_bits));
    }
    for (; i < len; i++)
        if (s[i] != '=') return false;
    return n_bits < 6; /* a lone digit at the end holds no byte */
}
