#include "text/jinja_str.h"

#include <string.h>
#include <utf8proc.h>

/* Bytes of the well-formed character at s, or 0: no overlong forms, no surrogates, nothing above U+10FFFF. */
static size_t well_formed(const unsigned char *s, size_t len) {
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    const size_t n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n > len) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

size_t jinja_str_next(const char *s, size_t len) {
    const size_t n = well_formed((const unsigned char *)s, len);
    return n ? n : 1;
}

uint32_t jinja_str_decode(const char *s, size_t len, size_t *n_bytes) {
    const unsigned char *const u = (const unsigned char *)s;
    const size_t n = well_formed(u, len);
    *n_bytes = n ? n : 1;
    if (n == 0) return 0xdc00u + u[0];
    if (n == 1) return u[0];
    if (n == 2) return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    if (n == 3) return (u[0] & 0xfu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    return (u[0] & 7u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
}

size_t jinja_str_count(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; n++)
        i += jinja_str_next(s + i, len - i);
    return n;
}

size_t jinja_str_offset(const char *s, size_t len, size_t n) {
    size_t i = 0;
    for (; n > 0 && i < len; n--)
        i += jinja_str_next(s + i, len - i);
    return i;
}

void jinja_str_put(struct strbuf *b, uint32_t cp) {
    if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff)) cp = 0xfffd;
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)cp, bytes);
    strbuf_append(b, bytes, (size_t)n);
}

bool jinja_str_valid(const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        const size_t n = well_formed((const unsigned char *)s + i, len - i);
        if (n == 0) return false;
        i += n;
    }
    return true;
}

int64_t jinja_str_find(const char *s, size_t len, const char *needle, size_t n_needle, size_t from) {
    if (from > len) return -1;
    if (n_needle == 0) return (int64_t)from;
    const char *const at = memmem(s + from, len - from, needle, n_needle);
    return at ? at - s : -1;
}

int64_t jinja_str_rfind(const char *s, size_t len, const char *needle, size_t n_needle) {
    if (n_needle > len) return -1;
    for (size_t i = len - n_needle + 1; i-- > 0;)
        if (n_needle == 0 || (s[i] == needle[0] && memcmp(s + i, needle, n_needle) == 0)) return (int64_t)i;
    return -1;
}

bool jinja_str_is_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x1f);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static bool in_set(const char *s, size_t n, const char *set, size_t n_set) {
    if (!set) {
        size_t n_bytes;
        return jinja_str_is_space(jinja_str_decode(s, n, &n_bytes));
    }
    for (size_t i = 0; i < n_set;) {
        const size_t len = jinja_str_next(set + i, n_set - i);
        if (len == n && memcmp(set + i, s, n) == 0) return true;
        i += len;
    }
    return false;
}

/* Bytes of the last character of s. */
static size_t last_char(const char *s, size_t len) {
    for (size_t n = 2; n <= 4 && n <= len; n++)
        if (jinja_str_next(s + len - n, n) == n) return n;
    return 1;
}

void jinja_str_strip(const char **s, size_t *len, const char *set, size_t n_set, int sides) {
    while ((sides & JINJA_STR_LEFT) && *len) {
        const size_t n = jinja_str_next(*s, *len);
        if (!in_set(*s, n, set, n_set)) break;
        *s += n;
        *len -= n;
    }
    while ((sides & JINJA_STR_RIGHT) && *len) {
        const size_t n = last_char(*s, *len);
        if (!in_set(*s + *len - n, n, set, n_set)) break;
        *len -= n;
    }
}

static const utf8proc_property_t *property(uint32_t cp) {
    return utf8proc_get_property((utf8proc_int32_t)cp);
}

static bool cased(uint32_t cp) {
    const utf8proc_property_t *const p = property(cp);
    return p->category == UTF8PROC_CATEGORY_LU || p->category == UTF8PROC_CATEGORY_LL ||
           p->category == UTF8PROC_CATEGORY_LT;
}

/* The few full mappings that grow: sharp s, the ligatures, n with apostrophe. Others map one to one. */
static const char *special_upper(uint32_t cp, bool title) {
    switch (cp) {
    case 0xdf:
        return title ? "Ss" : "SS";
    case 0x149:
        return "\xca\xbcN";
    case 0xfb00:
        return title ? "Ff" : "FF";
    case 0xfb01:
        return title ? "Fi" : "FI";
    case 0xfb02:
        return title ? "Fl" : "FL";
    case 0xfb03:
        return title ? "Ffi" : "FFI";
    case 0xfb04:
        return title ? "Ffl" : "FFL";
    case 0xfb05:
    case 0xfb06:
        return title ? "St" : "ST";
    default:
        return NULL;
    }
}

static void put_upper(struct strbuf *b, uint32_t cp, bool title) {
    const char *const special = special_upper(cp, title);
    if (special)
        strbuf_puts(b, special);
    else
        jinja_str_put(
            b, (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)cp) : utf8proc_toupper((utf8proc_int32_t)cp)));
}

static void put_lower(struct strbuf *b, uint32_t cp, bool word_end) {
    if (cp == 0x130)
        strbuf_puts(b, "i\xcc\x87");
    else if (cp == 0x3a3 && word_end)
        strbuf_puts(b, "\xcf\x82"); /* final sigma */
    else
        jinja_str_put(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

static bool next_is_cased(const char *s, size_t len) {
    size_t n;
    return len > 0 && cased(jinja_str_decode(s, len, &n));
}

void jinja_str_case(struct strbuf *b, const char *s, size_t len, enum jinja_str_case how) {
    bool after_cased = false;
    for (size_t i = 0, n; i < len; i += n) {
        const uint32_t cp = jinja_str_decode(s + i, len - i, &n);
        const bool is_cased = cased(cp);
        const bool word_end = after_cased && !next_is_cased(s + i + n, len - i - n);
        if (cp >= 0xdc00 && cp <= 0xdcff)
            strbuf_append(b, s + i, n);
        else if (how == JINJA_STR_UPPER)
            put_upper(b, cp, false);
        else if (how == JINJA_STR_LOWER)
            put_lower(b, cp, word_end);
        else if (how == JINJA_STR_SWAP && utf8proc_islower((utf8proc_int32_t)cp))
            put_upper(b, cp, false);
        else if (how == JINJA_STR_SWAP)
            put_lower(b, cp, word_end);
        else if (how == JINJA_STR_TITLE ? !after_cased : i == 0)
            put_upper(b, cp, true);
        else
            put_lower(b, cp, word_end);
        after_cased = is_cased;
    }
}

static bool is_alpha(uint32_t cp) {
    const int c = property(cp)->category;
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_number(uint32_t cp, enum jinja_str_class what) {
    const int c = property(cp)->category;
    if (c == UTF8PROC_CATEGORY_ND) return true;
    if (what == JINJA_STR_DECIMAL) return false;
    if (what == JINJA_STR_DIGIT)
        return cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || cp == 0x2070 || (cp >= 0x2074 && cp <= 0x2079) ||
               (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x2460 && cp <= 0x2468);
    return c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

static bool char_is(uint32_t cp, enum jinja_str_class what) {
    switch (what) {
    case JINJA_STR_ALPHA:
        return is_alpha(cp);
    case JINJA_STR_DIGIT:
    case JINJA_STR_DECIMAL:
    case JINJA_STR_NUMERIC:
        return is_number(cp, what);
    case JINJA_STR_ALNUM:
        return is_alpha(cp) || is_number(cp, JINJA_STR_NUMERIC);
    case JINJA_STR_SPACE:
        return jinja_str_is_space(cp);
    case JINJA_STR_IS_LOWER:
    case JINJA_STR_IS_UPPER:
    case JINJA_STR_IS_TITLE:
    case JINJA_STR_ASCII:
        break;
    }
    return cp < 0x80;
}

/* islower, isupper, istitle: at least one cased character, none of the wrong case. */
static bool case_is(const char *s, size_t len, enum jinja_str_class what) {
    bool any = false, after_cased = false;
    for (size_t i = 0, n; i < len; i += n) {
        const uint32_t cp = jinja_str_decode(s + i, len - i, &n);
        const bool is_cased = cased(cp), upper = is_cased && !utf8proc_islower((utf8proc_int32_t)cp);
        if (is_cased) {
            const bool want_upper = what == JINJA_STR_IS_UPPER || (what == JINJA_STR_IS_TITLE && !after_cased);
            if (upper != want_upper) return false;
            any = true;
        }
        after_cased = is_cased;
    }
    return any;
}

bool jinja_str_is(const char *s, size_t len, enum jinja_str_class what) {
    if (what == JINJA_STR_IS_LOWER || what == JINJA_STR_IS_UPPER || what == JINJA_STR_IS_TITLE)
        return case_is(s, len, what);
    for (size_t i = 0, n; i < len; i += n)
        if (!char_is(jinja_str_decode(s + i, len - i, &n), what)) return false;
    return len > 0 || what == JINJA_STR_ASCII;
}

bool jinja_str_printable(uint32_t cp) {
    if (cp < 0x80) return cp >= 0x20 && cp < 0x7f;
    const int c = property(cp)->category;
    return c != UTF8PROC_CATEGORY_CN && c != UTF8PROC_CATEGORY_CC && c != UTF8PROC_CATEGORY_CF &&
           c != UTF8PROC_CATEGORY_CS && c != UTF8PROC_CATEGORY_CO && c != UTF8PROC_CATEGORY_ZL &&
           c != UTF8PROC_CATEGORY_ZP && c != UTF8PROC_CATEGORY_ZS;
}
