#include "text/jinja_number.h"

#include <math.h>
#include <stdlib.h>

#include "text/jinja_str.h"

enum { TEXT_MAX = 400 };

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'z') return c - 'a' + 10;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/* Digits with single underscores between them; the bytes used, 0 for none. */
static size_t digits(const char *s, size_t len, int base, __int128 *out, bool *fits) {
    size_t n = 0;
    __int128 v = 0;
    *fits = true;
    while (n < len) {
        const size_t at = s[n] == '_' && n > 0 && n + 1 < len ? n + 1 : n;
        const int digit = digit_of(s[at]);
        if (digit >= base) break;
        if (__builtin_mul_overflow(v, (__int128)base, &v) || __builtin_add_overflow(v, (__int128)digit, &v))
            *fits = false;
        n = at + 1;
    }
    *out = v;
    return n;
}

/* "0x", "0o", "0b": the base, or 10. */
static int prefix_base(const char *s, size_t len) {
    if (len < 2 || s[0] != '0') return 10;
    const char c = (char)(s[1] | 0x20);
    return c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
}

static size_t decimal_run(const char *s, size_t len, size_t at) {
    __int128 ignored;
    bool fits;
    return at < len ? digits(s + at, len - at, 10, &ignored, &fits) : 0;
}

/* Bytes of a float literal at s, 0 when it is an integer. */
static size_t float_len(const char *s, size_t len) {
    size_t n = decimal_run(s, len, 0);
    const size_t whole = n;
    if (n < len && s[n] == '.') {
        const size_t k = decimal_run(s, len, n + 1);
        if (k) n += 1 + k;
    }
    if (n < len && (s[n] | 0x20) == 'e') {
        const size_t sign = n + 1 < len && (s[n + 1] == '+' || s[n + 1] == '-');
        const size_t k = decimal_run(s, len, n + 1 + sign);
        if (k) n += 1 + sign + k;
    }
    return n > whole ? n : 0;
}

/* strtod over a copy without underscores; texts too long to be anybody's number are refused. */
static bool read_f64(const char *s, size_t len, double *out) {
    char text[TEXT_MAX];
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '_') continue;
        if (n + 1 == sizeof text) return false;
        text[n++] = s[i];
    }
    text[n] = '\0';
    char *end;
    *out = strtod(text, &end);
    return end == text + n && n > 0;
}

bool jinja_number_literal(const char *s, size_t len, bool after_dot, struct jinja_value *out, size_t *n) {
    const int base = prefix_base(s, len);
    const size_t f = after_dot || base != 10 ? 0 : float_len(s, len);
    double value;
    if (f && read_f64(s, f, &value)) {
        *out = jinja_float(value);
        *n = f;
        return true;
    }
    __int128 i;
    bool fits;
    const size_t skip = base == 10 ? 0 : 2;
    size_t used = digits(s + skip, len - skip, base, &i, &fits);
    if (base == 10 && s[0] == '0') { /* zeros only: 0777 is two literals, and so an error of syntax */
        for (used = 1; used < len && (s[used] == '0' || (s[used] == '_' && used + 1 < len && s[used + 1] == '0'));)
            used++;
        i = 0;
        fits = true;
    }
    if (used == 0) { /* "0x" alone is a zero and a name */
        i = 0;
        fits = true;
    }
    *n = used ? skip + used : 1;
    *out = jinja_int(i);
    return fits;
}

bool jinja_number_int(const char *s, size_t len, int base, __int128 *out) {
    jinja_str_strip(&s, &len, NULL, 0, JINJA_STR_LEFT | JINJA_STR_RIGHT);
    const bool minus = len > 0 && s[0] == '-';
    if (len > 0 && (s[0] == '-' || s[0] == '+')) {
        s++;
        len--;
    }
    const int prefix = prefix_base(s, len);
    if (prefix != 10 && (base == 0 || base == prefix)) {
        s += 2;
        len -= 2;
        if (len > 0 && *s == '_') {
            s++;
            len--;
        }
        base = prefix;
    }
    if (base == 0) base = 10;
    __int128 v;
    bool fits;
    const size_t n = digits(s, len, base, &v, &fits);
    if (len == 0 || n != len || !fits) return false;
    *out = minus ? -v : v;
    return true;
}

bool jinja_number_f64(const char *s, size_t len, double *out) {
    jinja_str_strip(&s, &len, NULL, 0, JINJA_STR_LEFT | JINJA_STR_RIGHT);
    /* strtod also takes hexadecimal and nan(...), which the reference does not. */
    for (size_t i = 0; i < len; i++)
        if (s[i] == 'x' || s[i] == 'X' || s[i] == '(' || s[i] == '\0') return false;
    return read_f64(s, len, out);
}
