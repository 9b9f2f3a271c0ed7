/* From the dialects of tokenizers to PCRE2's; see regex.h. A pattern is copied piece by piece; only escapes and
 * bracket expressions are looked into. */
#include <string.h>

#include "text/regex.h"

/* White_Space, to stand inside brackets. PCRE2's own \s has U+180E as well. */
#define SPACE_RANGES                                                                                                   \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD_CLASSES "\\p{L}\\p{M}\\p{N}\\p{Pc}"

/* The general categories; a mask of them is a set of code points, so intersections can be worked out. */
static const char *const categories[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                         "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                         "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};
enum { N_CATEGORIES = sizeof categories / sizeof *categories };

struct reader {
    const char *p; /* next byte */
    const char *end;
    const char *all;
    size_t all_len;
    struct err_msg *msg;
};

static enum err refuse(const struct reader *r, const char *what) {
    return err_set(r->msg, ERR_UNSUPPORTED, "tokenizer: regular expression \"%.*s\" is not supported: %s",
                   (int)(r->all_len < 120 ? r->all_len : 120), r->all, what);
}

/* The mask of a category name such as "L" or "Lu"; 0 when it is something else (a script). */
static uint32_t category_mask(const char *name, size_t len) {
    uint32_t mask = 0;
    if (len == 0 || len > 2) return 0;
    for (int i = 0; i < N_CATEGORIES; i++)
        if (categories[i][0] == name[0] && (len == 1 || categories[i][1] == name[1])) mask |= 1u << i;
    return mask;
}

/* Reads "{Name}" or one letter behind \p; the name without "sc=" and the like. */
static enum err property_name(struct reader *r, const char **name, size_t *len) {
    if (r->p >= r->end) return refuse(r, "\\p at the end");
    if (*r->p != '{') {
        *name = r->p++;
        *len = 1;
        return ERR_OK;
    }
    const char *const close = memchr(r->p, '}', (size_t)(r->end - r->p));
    if (!close) return refuse(r, "\\p{ without }");
    *name = r->p + 1;
    *len = (size_t)(close - *name);
    r->p = close + 1;
    return ERR_OK;
}

static enum err put_property(struct reader *r, struct strbuf *out, char letter) {
    const char *name = NULL;
    size_t len = 0;
    TRY(property_name(r, &name, &len));
    const bool negated = len && *name == '^';
    name += negated;
    len -= negated;
    const bool cased = len == 2 && (memcmp(name, "L&", 2) == 0 || memcmp(name, "LC", 2) == 0);
    const bool plain = category_mask(name, len) || memchr(name, '=', len) || memchr(name, ':', len) ||
                       (len == 3 && memcmp(name, "Any", 3) == 0);
    strbuf_printf(out, "\\%c{%s", letter, negated ? "^" : "");
    if (cased) strbuf_puts(out, "L&");
    else strbuf_printf(out, "%s%.*s", plain ? "" : "sc:", (int)len, name);
    strbuf_putc(out, '}');
    return ERR_OK;
}

/* An escape; r->p is behind the backslash. */
static enum err put_escape(struct reader *r, struct strbuf *out, bool in_class) {
    if (r->p >= r->end) return refuse(r, "a backslash at the end");
    const char c = *r->p++;
    switch (c) {
    case 's': strbuf_puts(out, in_class ? SPACE_RANGES : "[" SPACE_RANGES "]"); return ERR_OK;
    case 'S':
        if (in_class) return refuse(r, "\\S inside brackets");
        strbuf_puts(out, "[^" SPACE_RANGES "]");
        return ERR_OK;
    case 'w': strbuf_puts(out, in_class ? WORD_CLASSES : "[" WORD_CLASSES "]"); return ERR_OK;
    case 'W':
        if (in_class) return refuse(r, "\\W inside brackets");
        strbuf_puts(out, "[^" WORD_CLASSES "]");
        return ERR_OK;
    case 'h': strbuf_puts(out, in_class ? "0-9a-fA-F" : "[0-9a-fA-F]"); return ERR_OK;
    case 'p':
    case 'P': return put_property(r, out, c);
    case 'u': /* \u1234 of Oniguruma */
        if (r->end - r->p < 4) return refuse(r, "\\u needs four hexadecimal digits");
        strbuf_printf(out, "\\x{%.4s}", r->p);
        r->p += 4;
        return ERR_OK;
    default:
        strbuf_putc(out, '\\');
        strbuf_putc(out, c);
        return ERR_OK;
    }
}

/* The end of the bracket expression at p (on '['): behind its ']'. NULL: none. */
static const char *class_end(const char *p, const char *end) {
    int depth = 0;
    for (; p < end; p++) {
        if (*p == '\\') p++;
        else if (*p == '[') depth++;
        else if (*p == ']' && --depth == 0) return p + 1;
    }
    return NULL;
}

/* The && of the bracket expression [p, end) at its own level; NULL: none. */
static const char *class_and(const char *p, const char *end) {
    int depth = 0;
    for (; p + 1 < end; p++) {
        if (*p == '\\') p++;
        else if (*p == '[') depth++;
        else if (*p == ']') depth--;
        else if (depth == 1 && p[0] == '&' && p[1] == '&') return p;
    }
    return NULL;
}

/* The union of the categories in [p, end) when it holds nothing else; 0 otherwise. */
static uint32_t only_categories(const char *p, const char *end) {
    uint32_t mask = 0;
    while (p < end) {
        if (end - p < 3 || p[0] != '\\' || p[1] != 'p') return 0;
        const bool braces = p[2] == '{';
        const char *const name = braces ? p + 3 : p + 2;
        const char *const stop = braces ? memchr(name, '}', (size_t)(end - name)) : name + 1;
        const uint32_t m = stop ? category_mask(name, (size_t)(stop - name)) : 0;
        if (!m) return 0;
        mask |= m;
        p = braces ? stop + 1 : stop;
    }
    return mask;
}

static enum err put_class_body(struct reader *r, struct strbuf *out, const char *stop) {
    while (r->p < stop) {
        const char c = *r->p++;
        if (c == '[' && r->p < stop && *r->p != ':') strbuf_puts(out, "\\[");
        else if (c == '\\') TRY(put_escape(r, out, true));
        else strbuf_putc(out, c);
    }
    return ERR_OK;
}

/* [A&&[^B]]: of categories A alone it is [^ (every other category) B ], else (?:(?![B])[A]). */
static enum err put_intersection(struct reader *r, struct strbuf *out, const char *and, const char *stop) {
    const char *const a = r->p + 1;
    const char *const b = and + 2;
    if (stop - b < 5 || b[0] != '[' || b[1] != '^' || class_end(b, stop) != stop - 1 || class_and(b, stop - 1))
        return refuse(r, "only [A&&[^B]] is known of the intersections");
    const uint32_t mask = only_categories(a, and);
    if (!mask) strbuf_puts(out, "(?:(?![");
    else {
        strbuf_puts(out, "[^");
        for (int i = 0; i < N_CATEGORIES; i++)
            if (!(mask >> i & 1)) strbuf_printf(out, "\\p{%s}", categories[i]);
    }
    struct reader sub = *r;
    sub.p = b + 2;
    TRY(put_class_body(&sub, out, stop - 2));
    if (!mask) {
        strbuf_puts(out, "])[");
        sub.p = a;
        TRY(put_class_body(&sub, out, and));
    }
    strbuf_puts(out, mask ? "]" : "])");
    r->p = stop;
    return ERR_OK;
}

static enum err put_class(struct reader *r, struct strbuf *out) {
    const char *const stop = class_end(r->p, r->end);
    if (!stop) return refuse(r, "[ without ]");
    const char *const and = class_and(r->p, stop);
    if (and) return put_intersection(r, out, and, stop);
    r->p++;
    strbuf_putc(out, '[');
    if (r->p < stop && *r->p == '^') {
        strbuf_putc(out, '^');
        r->p++;
    }
    TRY(put_class_body(r, out, stop - 1));
    strbuf_putc(out, ']');
    r->p = stop;
    return ERR_OK;
}

enum err regex_translate(struct strbuf *out, const char *pattern, size_t len, struct err_msg *msg) {
    struct reader r = {pattern, pattern + len, pattern, len, msg};
    while (r.p < r.end) {
        if (*r.p == '[') {
            TRY(put_class(&r, out));
            continue;
        }
        const char c = *r.p++;
        if (c == '\\') TRY(put_escape(&r, out, false));
        else if (c == '(' && r.end - r.p > 1 && *r.p == '*') return refuse(&r, "(* verbs");
        else strbuf_putc(out, c);
    }
    return ERR_OK;
}
