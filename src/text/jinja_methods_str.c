#include "text/jinja_format.h"
#include "text/jinja_methods_int.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

/* Every method here has this shape. */
#define METHOD(name)                                                                                                   \
    enum err jinja_methods_str_##name(struct jinja_run *r, const struct jinja_value *self,                             \
                                      const struct jinja_value **p, struct jinja_value *out)

static struct jinja_value part(const struct jinja_value *of, size_t from, size_t len) {
    struct jinja_value v = jinja_str(of->s + from, len);
    v.kind = of->kind;
    return v;
}

/* What was written behind mark, as a string like self. */
static enum err cut(struct jinja_run *r, size_t mark, const struct jinja_value *self, struct jinja_value *out) {
    const char *s = NULL;
    size_t len = 0;
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    out->kind = self->kind;
    return ERR_OK;
}

/* ---- case ---- */

static enum err change_case(struct jinja_run *r, const struct jinja_value *self, enum jinja_str_case how,
                            struct jinja_value *out) {
    const size_t mark = r->out.len;
    TRY(jinja_run_walk(r, self->len * 8));
    jinja_str_case(&r->out, self->s, self->len, how);
    return cut(r, mark, self, out);
}

METHOD(upper) {
    (void)p;
    return change_case(r, self, JINJA_STR_UPPER, out);
}

METHOD(lower) {
    (void)p;
    return change_case(r, self, JINJA_STR_LOWER, out);
}

METHOD(casefold) {
    return jinja_methods_str_lower(r, self, p, out);
}

METHOD(title) {
    (void)p;
    return change_case(r, self, JINJA_STR_TITLE, out);
}

METHOD(capitalize) {
    (void)p;
    return change_case(r, self, JINJA_STR_CAPITALIZE, out);
}

METHOD(swapcase) {
    (void)p;
    return change_case(r, self, JINJA_STR_SWAP, out);
}

static enum err is_class(struct jinja_run *r, const struct jinja_value *self, enum jinja_str_class what,
                         struct jinja_value *out) {
    *out = jinja_bool(jinja_str_is(self->s, self->len, what));
    return jinja_run_walk(r, self->len * 8);
}

#define IS_CLASS(name, what)                                                                                           \
    METHOD(name) {                                                                                                     \
        (void)p;                                                                                                       \
        return is_class(r, self, what, out);                                                                           \
    }

IS_CLASS(isalpha, JINJA_STR_ALPHA)
IS_CLASS(isalnum, JINJA_STR_ALNUM)
IS_CLASS(isascii, JINJA_STR_ASCII)
IS_CLASS(isdecimal, JINJA_STR_DECIMAL)
IS_CLASS(isdigit, JINJA_STR_DIGIT)
IS_CLASS(isnumeric, JINJA_STR_NUMERIC)
IS_CLASS(isspace, JINJA_STR_SPACE)
IS_CLASS(islower, JINJA_STR_IS_LOWER)
IS_CLASS(isupper, JINJA_STR_IS_UPPER)
IS_CLASS(istitle, JINJA_STR_IS_TITLE)

METHOD(isprintable) {
    bool yes = true;
    (void)p;
    for (size_t i = 0, n; i < self->len && yes; i += n)
        yes = jinja_str_printable(jinja_str_decode(self->s + i, self->len - i, &n));
    *out = jinja_bool(yes);
    return jinja_run_walk(r, self->len * 8);
}

METHOD(isidentifier) {
    bool yes = self->len > 0 && !(self->s[0] >= '0' && self->s[0] <= '9');
    (void)p;
    for (size_t i = 0, n; i < self->len && yes; i += n) {
        n = jinja_str_next(self->s + i, self->len - i);
        yes = self->s[i] == '_' || jinja_str_is(self->s + i, n, JINJA_STR_ALNUM);
    }
    *out = jinja_bool(yes);
    return jinja_run_walk(r, self->len * 8);
}

/* ---- stripping and padding ---- */

static enum err strip(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value *chars, int sides,
                      struct jinja_value *out) {
    const bool given = chars && chars->type != JINJA_NONE;
    const char *s = self->s;
    size_t len = self->len;
    if (given) TRY(jinja_args_str(r, chars));
    jinja_str_strip(&s, &len, given ? chars->s : NULL, given ? chars->len : 0, sides);
    *out = part(self, (size_t)(s - self->s), len);
    if (s + len == self->s + self->len) out->tail = self->tail;
    return jinja_run_walk(r, (self->len - len) * (given ? chars->len + 1 : 1));
}

METHOD(strip) {
    return strip(r, self, p[0], JINJA_STR_LEFT | JINJA_STR_RIGHT, out);
}
METHOD(lstrip) {
    return strip(r, self, p[0], JINJA_STR_LEFT, out);
}
METHOD(rstrip) {
    return strip(r, self, p[0], JINJA_STR_RIGHT, out);
}

METHOD(removeprefix) {
    TRY(jinja_args_str(r, p[0]));
    const bool has = p[0]->len <= self->len && memcmp(self->s, p[0]->s, p[0]->len) == 0;
    *out = has ? part(self, p[0]->len, self->len - p[0]->len) : *self;
    return jinja_run_walk(r, p[0]->len);
}

METHOD(removesuffix) {
    TRY(jinja_args_str(r, p[0]));
    const size_t n = p[0]->len;
    const bool has = n <= self->len && memcmp(self->s + self->len - n, p[0]->s, n) == 0;
    *out = has ? part(self, 0, self->len - n) : *self;
    return jinja_run_walk(r, n);
}

static enum err pad(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p, int left_of_3,
                    struct jinja_value *out) {
    int64_t width;
    TRY(jinja_args_int(r, p[0], 0, &width));
    if (p[1]) TRY(jinja_args_str(r, p[1]));
    const struct jinja_value fill = p[1] ? *p[1] : jinja_cstr(" ");
    if (jinja_str_count(fill.s, fill.len) != 1)
        return jinja_run_fail(r, "The fill character must be exactly one character long");
    const int64_t missing = width - (int64_t)jinja_str_count(self->s, self->len);
    if (missing <= 0) {
        *out = *self;
        return ERR_OK;
    }
    /* center puts the odd blank at the left when the width is odd */
    const int64_t left = left_of_3 == 1 ? missing / 2 + (missing & width & 1) : left_of_3 == 0 ? 0 : missing;
    const size_t mark = r->out.len;
    for (int64_t i = 0; i < left; i++)
        TRY(jinja_run_emit(r, fill.s, fill.len));
    TRY(jinja_run_emit(r, self->s, self->len));
    for (int64_t i = left; i < missing; i++)
        TRY(jinja_run_emit(r, fill.s, fill.len));
    return cut(r, mark, self, out);
}

METHOD(ljust) {
    return pad(r, self, p, 0, out);
}
METHOD(center) {
    return pad(r, self, p, 1, out);
}
METHOD(rjust) {
    return pad(r, self, p, 2, out);
}

METHOD(zfill) {
    const struct jinja_value zero = jinja_cstr("0");
    const struct jinja_value *args[2] = {p[0], &zero};
    const bool sign = self->len > 0 && (self->s[0] == '-' || self->s[0] == '+');
    if (!sign) return pad(r, self, args, 2, out);
    int64_t width;
    struct jinja_value digits = part(self, 1, self->len - 1), padded;
    TRY(jinja_args_int(r, p[0], 0, &width));
    const struct jinja_value less = jinja_int(width - 1);
    args[0] = &less;
    TRY(pad(r, &digits, args, 2, &padded));
    struct jinja_value first = part(self, 0, 1);
    return jinja_value_concat(r, &first, padded.s, padded.len, out);
}

METHOD(expandtabs) {
    int64_t size, column = 0;
    const size_t mark = r->out.len;
    TRY(jinja_args_int(r, p[0], 8, &size));
    if (size > 1000) size = 1000;
    for (size_t i = 0, n; i < self->len; i += n) {
        n = jinja_str_next(self->s + i, self->len - i);
        if (self->s[i] == '\t') {
            for (int64_t k = size > 0 ? size - column % size : 0; k > 0; k--, column++)
                TRY(jinja_run_emit(r, " ", 1));
            continue;
        }
        TRY(jinja_run_emit(r, self->s + i, n));
        column = self->s[i] == '\n' || self->s[i] == '\r' ? 0 : column + 1;
    }
    return cut(r, mark, self, out);
}

/* ---- searching ---- */

/* The part of self that the arguments start and end (characters) name; *from is its first byte. */
static enum err window(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value *start,
                       const struct jinja_value *end, size_t *from, size_t *to) {
    *from = 0;
    *to = self->len;
    if (!start && !end) return ERR_OK;
    int64_t a, b;
    TRY(jinja_run_walk(r, self->len * 2));
    const int64_t n = (int64_t)jinja_str_count(self->s, self->len);
    TRY(jinja_args_int(r, start, 0, &a));
    TRY(jinja_args_int(r, end, n, &b));
    if (a < 0) a = a + n < 0 ? 0 : a + n;
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    if (b > n) b = n;
    *from = a > n ? self->len + 1 : jinja_str_offset(self->s, self->len, (size_t)a);
    *to = jinja_str_offset(self->s, self->len, (size_t)b);
    return ERR_OK;
}

/* Characters before the match, or -1. */
static enum err find(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p, bool last,
                     struct jinja_value *out) {
    size_t from, to;
    TRY(jinja_args_str(r, p[0]));
    TRY(window(r, self, p[1], p[2], &from, &to));
    TRY(jinja_run_walk(r, self->len * 2));
    int64_t at = -1;
    if (from <= to && last)
        at = jinja_str_rfind(self->s + from, to - from, p[0]->s, p[0]->len);
    else if (from <= to)
        at = jinja_str_find(self->s + from, to - from, p[0]->s, p[0]->len, 0);
    *out = jinja_int(at < 0 ? -1 : (__int128)jinja_str_count(self->s, from + (size_t)at));
    return ERR_OK;
}

METHOD(find) {
    return find(r, self, p, false, out);
}
METHOD(rfind) {
    return find(r, self, p, true, out);
}

METHOD(index) {
    TRY(find(r, self, p, false, out));
    return out->i < 0 ? jinja_run_fail(r, "substring not found") : ERR_OK;
}

METHOD(rindex) {
    TRY(find(r, self, p, true, out));
    return out->i < 0 ? jinja_run_fail(r, "substring not found") : ERR_OK;
}

METHOD(count) {
    size_t from, to;
    int64_t n = 0;
    TRY(jinja_args_str(r, p[0]));
    TRY(window(r, self, p[1], p[2], &from, &to));
    TRY(jinja_run_walk(r, self->len));
    if (p[0]->len == 0) {
        n = from <= to ? (int64_t)jinja_str_count(self->s + from, to - from) + 1 : 0;
    } else if (from <= to) {
        for (int64_t at = (int64_t)from; (at = jinja_str_find(self->s, to, p[0]->s, p[0]->len, (size_t)at)) >= 0;
             at += (int64_t)p[0]->len)
            n++;
    }
    *out = jinja_int(n);
    return ERR_OK;
}

static bool affix(const char *s, size_t len, const struct jinja_value *what, bool end) {
    if (what->len > len) return false;
    return memcmp(end ? s + len - what->len : s, what->s, what->len) == 0;
}

/* startswith, endswith: a string or a tuple of them. */
static enum err has_affix(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p, bool end,
                          struct jinja_value *out) {
    size_t from, to;
    bool yes = false;
    const bool tuple = p[0]->type == JINJA_LIST && p[0]->list->kind == JINJA_SEQ_TUPLE;
    const struct jinja_value *const options = tuple ? p[0]->list->v : p[0];
    TRY(window(r, self, p[1], p[2], &from, &to));
    for (size_t i = 0; i < (tuple ? p[0]->list->n : 1) && !yes; i++) {
        if (options[i].type != JINJA_STR)
            return jinja_run_fail(r, "%s first arg must be str or a tuple of str, not %s",
                                  end ? "endswith" : "startswith", jinja_value_type_name(&options[i]));
        TRY(jinja_run_walk(r, options[i].len + JINJA_STEP_BYTES));
        yes = from <= to && affix(self->s + from, to - from, &options[i], end);
    }
    *out = jinja_bool(yes);
    return ERR_OK;
}

METHOD(startswith) {
    return has_affix(r, self, p, false, out);
}
METHOD(endswith) {
    return has_affix(r, self, p, true, out);
}

METHOD(replace) {
    int64_t left;
    const size_t mark = r->out.len;
    TRY(jinja_args_str(r, p[0]));
    TRY(jinja_args_str(r, p[1]));
    TRY(jinja_args_int(r, p[2], -1, &left));
    TRY(jinja_run_walk(r, self->len));
    size_t at = 0;
    while (left != 0 && at <= self->len) {
        const int64_t hit = jinja_str_find(self->s, self->len, p[0]->s, p[0]->len, at);
        if (hit < 0) break;
        TRY(jinja_run_emit(r, self->s + at, (size_t)hit - at));
        TRY(jinja_run_emit(r, p[1]->s, p[1]->len));
        at = (size_t)hit + p[0]->len;
        left--;
        if (p[0]->len) continue;
        if (at == self->len) return cut(r, mark, self, out); /* an empty needle is also found at the end */
        const size_t n = jinja_str_next(self->s + at, self->len - at);
        TRY(jinja_run_emit(r, self->s + at, n));
        at += n;
    }
    if (at < self->len) TRY(jinja_run_emit(r, self->s + at, self->len - at));
    return cut(r, mark, self, out);
}

METHOD(format_map) {
    if (p[0]->type != JINJA_DICT) return jinja_run_fail(r, "format_map() argument must be a mapping");
    const struct jinja_args args = {.kw = p[0]->dict->pairs, .n_kw = p[0]->dict->n};
    return jinja_format_braces(r, self, &args, out);
}

enum err jinja_methods_str_format(struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args,
                                  struct jinja_value *out) {
    return jinja_format_braces(r, self, args, out);
}
