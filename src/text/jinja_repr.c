#include "text/jinja_repr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/jinja_str.h"

size_t jinja_repr_int(char out[JINJA_REPR_INT_MAX], __int128 i) {
    char digits[JINJA_REPR_INT_MAX];
    size_t n = 0, len = 0;
    unsigned __int128 u = i < 0 ? -(unsigned __int128)i : (unsigned __int128)i;
    do
        digits[n++] = (char)('0' + (int)(u % 10));
    while ((u /= 10) != 0);
    if (i < 0) out[len++] = '-';
    while (n > 0)
        out[len++] = digits[--n];
    out[len] = '\0';
    return len;
}

/* Digits d0.d1d2... and the exponent of the shortest form that reads back. */
static int shortest(double f, char digits[24], int *exponent) {
    char text[40];
    int precision = 0;
    do
        snprintf(text, sizeof text, "%.*e", precision, f);
    while (strtod(text, NULL) != f && ++precision < 17);
    char *const e = strchr(text, 'e');
    int n = 0;
    for (const char *p = text; p < e && n < 20; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    *exponent = (int)strtol(e + 1, NULL, 10);
    return n;
}

size_t jinja_repr_f64(char out[JINJA_REPR_F64_MAX], double f) {
    if (isnan(f)) return (size_t)snprintf(out, JINJA_REPR_F64_MAX, "nan");
    if (isinf(f)) return (size_t)snprintf(out, JINJA_REPR_F64_MAX, f < 0 ? "-inf" : "inf");
    char digits[24];
    int exponent;
    const int n = shortest(fabs(f), digits, &exponent);
    const char *const sign = signbit(f) ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, JINJA_REPR_F64_MAX, "%s%c%s%.*se%c%02d", sign, digits[0], n > 1 ? "." : "", n - 1,
                                digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    if (exponent < 0)
        return (size_t)snprintf(out, JINJA_REPR_F64_MAX, "%s0.%.*s%.*s", sign, -exponent - 1, "0000", n, digits);
    if (n <= exponent + 1)
        return (size_t)snprintf(out, JINJA_REPR_F64_MAX, "%s%.*s%.*s.0", sign, n, digits, exponent + 1 - n,
                                "0000000000000000");
    return (size_t)snprintf(out, JINJA_REPR_F64_MAX, "%s%.*s.%.*s", sign, exponent + 1, digits, n - exponent - 1,
                            digits + exponent + 1);
}

static void put_escape(struct strbuf *b, uint32_t cp, char quote) {
    if (cp == (uint32_t)quote || cp == '\\')
        strbuf_printf(b, "\\%c", (int)cp);
    else if (cp == '\n')
        strbuf_puts(b, "\\n");
    else if (cp == '\r')
        strbuf_puts(b, "\\r");
    else if (cp == '\t')
        strbuf_puts(b, "\\t");
    else if (cp < 0x100)
        strbuf_printf(b, "\\x%02x", cp);
    else if (cp < 0x10000)
        strbuf_printf(b, "\\u%04x", cp);
    else
        strbuf_printf(b, "\\U%08x", cp);
}

static enum err repr_str(struct jinja_run *r, const struct jinja_value *v) {
    const bool single = memchr(v->s, '\'', v->len) && !memchr(v->s, '"', v->len);
    const char quote = single ? '"' : '\'';
    TRY(jinja_run_walk(r, v->len * 4));
    if (v->kind) TRY(jinja_run_emit(r, "Markup(", 7));
    strbuf_putc(&r->out, quote);
    for (size_t i = 0, n; i < v->len; i += n) {
        const uint32_t cp = jinja_str_decode(v->s + i, v->len - i, &n);
        if (cp == (uint32_t)quote || cp == '\\' || !jinja_str_printable(cp))
            put_escape(&r->out, cp, quote);
        else
            strbuf_append(&r->out, v->s + i, n);
    }
    strbuf_putc(&r->out, quote);
    if (v->kind) strbuf_putc(&r->out, ')');
    return jinja_run_check_out(r);
}

static enum err repr_range(struct jinja_run *r, const struct jinja_list *l) {
    const long long first = l->n ? (long long)l->v[0].i : 0;
    const long long step = l->n > 1 ? (long long)l->v[1].i - first : 1;
    const long long stop = l->n ? (long long)l->v[l->n - 1].i + (step < 0 ? -1 : 1) : 0;
    if (step == 1)
        strbuf_printf(&r->out, "range(%lld, %lld)", first, stop);
    else
        strbuf_printf(&r->out, "range(%lld, %lld, %lld)", first, stop, step);
    return jinja_run_check_out(r);
}

static enum err repr_list(struct jinja_run *r, const struct jinja_list *l) {
    static const char *const open[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items([", ""};
    static const char *const close[] = {"]", ")", "", "])", "])", "])", ""};
    if (l->kind == JINJA_SEQ_GENERATOR) return jinja_run_emit(r, "<generator object>", 18);
    if (l->kind == JINJA_SEQ_RANGE) return repr_range(r, l);
    TRY(jinja_run_emit(r, open[l->kind], strlen(open[l->kind])));
    for (size_t i = 0; i < l->n; i++) {
        if (i) TRY(jinja_run_emit(r, ", ", 2));
        TRY(jinja_repr_value(r, &l->v[i]));
    }
    if (l->kind == JINJA_SEQ_TUPLE && l->n == 1) TRY(jinja_run_emit(r, ",", 1));
    return jinja_run_emit(r, close[l->kind], strlen(close[l->kind]));
}

static enum err repr_dict(struct jinja_run *r, const struct jinja_dict *d) {
    TRY(jinja_run_emit(r, "{", 1));
    for (size_t i = 0; i < d->n; i++) {
        if (i) TRY(jinja_run_emit(r, ", ", 2));
        TRY(jinja_repr_value(r, &d->pairs[i].key));
        TRY(jinja_run_emit(r, ": ", 2));
        TRY(jinja_repr_value(r, &d->pairs[i].value));
    }
    return jinja_run_emit(r, "}", 1);
}

static enum err repr_nested(struct jinja_run *r, const struct jinja_value *v) {
    TRY(jinja_run_enter(r));
    enum err e = ERR_OK;
    if (v->type == JINJA_NS) e = jinja_run_emit(r, "<Namespace ", 11);
    if (e == ERR_OK) e = v->type == JINJA_LIST ? repr_list(r, v->list) : repr_dict(r, v->dict);
    if (e == ERR_OK && v->type == JINJA_NS) e = jinja_run_emit(r, ">", 1);
    jinja_run_leave(r);
    return e;
}

enum err jinja_repr_value(struct jinja_run *r, const struct jinja_value *v) {
    char text[JINJA_REPR_INT_MAX];
    TRY(jinja_run_step(r, 1));
    switch ((enum jinja_type)v->type) {
    case JINJA_UNDEF:
        return jinja_run_emit(r, "Undefined", 9);
    case JINJA_NONE:
        return jinja_run_emit(r, "None", 4);
    case JINJA_BOOL:
        return v->b ? jinja_run_emit(r, "True", 4) : jinja_run_emit(r, "False", 5);
    case JINJA_INT:
        return jinja_run_emit(r, text, jinja_repr_int(text, v->i));
    case JINJA_FLOAT:
        return jinja_run_emit(r, text, jinja_repr_f64(text, v->f));
    case JINJA_STR:
        return repr_str(r, v);
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_NS:
        return repr_nested(r, v);
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_FUNC:
    case JINJA_METHOD:
    case JINJA_CYCLER:
    case JINJA_JOINER:
        break;
    }
    const char *const name = jinja_value_type_name(v);
    strbuf_printf(&r->out, "<%s>", name);
    return jinja_run_check_out(r);
}

enum err jinja_repr_text(struct jinja_run *r, const struct jinja_value *v) {
    if (v->type == JINJA_STR) {
        TRY(jinja_run_walk(r, v->len));
        return jinja_run_emit(r, v->s, v->len);
    }
    if (v->type == JINJA_UNDEF) return ERR_OK;
    return jinja_repr_value(r, v);
}

enum err jinja_repr_to_str(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *out) {
    if (v->type == JINJA_STR) {
        *out = *v;
        return ERR_OK;
    }
    const size_t mark = r->out.len;
    const char *s;
    size_t len;
    TRY(jinja_repr_text(r, v));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    return ERR_OK;
}
