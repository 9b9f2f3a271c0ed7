#include "text/jinja_format.h"

#include <math.h>

#include "text/jinja_access.h"
#include "text/jinja_dict.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

enum { WIDTH_MAX = 100000, PRECISION_MAX = 500, FIELD_PARTS_MAX = 64 };

/* How one value is written. */
struct spec {
    char fill[4];
    size_t n_fill;
    char align; /* '<' '>' '^' '=', or 0 for the type's own */
    char sign;  /* '+', ' ', or 0 */
    char type;  /* 0: the value's own */
    bool alternate, comma;
    int64_t width, precision; /* precision -1: not given */
};

/* Characters behind mark are moved into a field of the spec's width. number: a sign may stay in front of the fill. */
static enum err pad(struct jinja_run *r, size_t mark, const struct spec *f, bool number) {
    const char *s = NULL;
    size_t len = 0;
    TRY(jinja_run_check_out(r));
    const int64_t missing = f->width - (int64_t)jinja_str_count(r->out.data + mark, r->out.len - mark);
    if (missing <= 0) return ERR_OK;
    TRY(jinja_run_cut(r, mark, &s, &len));
    const char align = f->align ? f->align : number ? '>' : '<';
    int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    const size_t sign = align == '=' && len > 0 && strchr("+- ", s[0]) ? 1 : 0;
    TRY(jinja_run_emit(r, s, sign));
    for (int64_t i = 0; i < left; i++)
        TRY(jinja_run_emit(r, f->fill, f->n_fill));
    TRY(jinja_run_emit(r, s + sign, len - sign));
    for (int64_t i = left; i < missing; i++)
        TRY(jinja_run_emit(r, f->fill, f->n_fill));
    return ERR_OK;
}

/* Commas between groups of three digits of the whole part behind mark. */
static enum err group_digits(struct jinja_run *r, size_t mark) {
    const char *s = NULL;
    size_t len = 0, whole = 0;
    TRY(jinja_run_cut(r, mark, &s, &len));
    while (whole < len && s[whole] >= '0' && s[whole] <= '9')
        whole++;
    for (size_t i = 0; i < len; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0) strbuf_putc(&r->out, ',');
        strbuf_putc(&r->out, s[i]);
    }
    return jinja_run_check_out(r);
}

static void put_sign(struct jinja_run *r, const struct spec *f, bool negative) {
    if (negative)
        strbuf_putc(&r->out, '-');
    else if (f->sign)
        strbuf_putc(&r->out, f->sign);
}

static void put_based(struct strbuf *b, unsigned __int128 u, unsigned base, bool upper) {
    char digits[128];
    int n = 0;
    do
        digits[n++] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[(unsigned)(u % base)];
    while ((u /= base) != 0);
    while (n > 0)
        strbuf_putc(b, digits[--n]);
}

static enum err format_int(struct jinja_run *r, const struct spec *f, __int128 i) {
    const size_t mark = r->out.len;
    const unsigned __int128 u = i < 0 ? -(unsigned __int128)i : (unsigned __int128)i;
    const char type = f->type ? f->type : 'd';
    const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    if (type == 'c') {
        jinja_str_put(&r->out, i < 0 || i > 0x10ffff ? 0xfffd : (uint32_t)i);
        return pad(r, mark, f, false);
    }
    put_sign(r, f, i < 0);
    if (f->alternate && base != 10) {
        strbuf_putc(&r->out, '0');
        strbuf_putc(&r->out, type);
    }
    const size_t digits = r->out.len;
    put_based(&r->out, u, base, type == 'X');
    TRY(jinja_run_check_out(r));
    if (f->comma) TRY(group_digits(r, digits));
    return pad(r, mark, f, true);
}

static enum err format_f64(struct jinja_run *r, const struct spec *f, double x) {
    const size_t mark = r->out.len;
    const int precision = f->precision < 0 ? 6 : (int)f->precision;
    char text[JINJA_REPR_F64_MAX];
    put_sign(r, f, signbit(x) && !isnan(x));
    const size_t digits = r->out.len;
    if (isnan(x) || isinf(x)) {
        strbuf_puts(&r->out, isnan(x) ? "nan" : "inf");
        return pad(r, mark, f, true);
    }
    const double a = fabs(x);
    switch (f->type) {
    case 'f':
    case 'F':
        strbuf_printf(&r->out, "%.*f", precision, a);
        break;
    case 'e':
        strbuf_printf(&r->out, "%.*e", precision, a);
        break;
    case 'E':
        strbuf_printf(&r->out, "%.*E", precision, a);
        break;
    case 'G':
        strbuf_printf(&r->out, "%.*G", precision, a);
        break;
    case '%':
        strbuf_printf(&r->out, "%.*f%%", precision, a * 100);
        break;
    case 'g':
        strbuf_printf(&r->out, "%.*g", precision, a);
        break;
    default:
        if (f->precision >= 0)
            strbuf_printf(&r->out, "%.*g", precision, a);
        else
            strbuf_append(&r->out, text, jinja_repr_f64(text, a));
    }
    TRY(jinja_run_check_out(r));
    if (f->comma) TRY(group_digits(r, digits));
    return pad(r, mark, f, true);
}

/* Text, cut to the precision. */
static enum err format_text(struct jinja_run *r, const struct spec *f, const struct jinja_value *v, bool repr) {
    const size_t mark = r->out.len;
    TRY(repr ? jinja_repr_value(r, v) : jinja_repr_text(r, v));
    if (f->precision >= 0 && r->out.data)
        strbuf_truncate(&r->out, mark + jinja_str_offset(r->out.data + mark, r->out.len - mark, (size_t)f->precision));
    return pad(r, mark, f, false);
}

/* ---- '...' % values ---- */

struct percent {
    struct jinja_run *r;
    const struct jinja_value *format, *values;
    size_t at;
    size_t i_value;
};

static enum err next_value(struct percent *p, const struct jinja_value **out) {
    const bool tuple = p->values->type == JINJA_LIST && p->values->list->kind == JINJA_SEQ_TUPLE;
    const size_t n = tuple ? p->values->list->n : 1;
    if (p->i_value >= n) return jinja_run_fail(p->r, "not enough arguments for format string");
    *out = tuple ? &p->values->list->v[p->i_value] : p->values;
    p->i_value++;
    return ERR_OK;
}

static int64_t read_digits(const struct jinja_value *f, size_t *at) {
    int64_t n = 0;
    for (; *at < f->len && f->s[*at] >= '0' && f->s[*at] <= '9'; ++*at)
        if (n < WIDTH_MAX * 10) n = n * 10 + (f->s[*at] - '0');
    return n;
}

static enum err percent_width(struct percent *p, int64_t *out) {
    if (p->at >= p->format->len || p->format->s[p->at] != '*') {
        *out = read_digits(p->format, &p->at);
        return ERR_OK;
    }
    const struct jinja_value *v = NULL;
    p->at++;
    TRY(next_value(p, &v));
    return jinja_args_int(p->r, v, 0, out);
}

static enum err check_spec(struct jinja_run *r, const struct spec *f) {
    if (f->width > WIDTH_MAX || f->precision > PRECISION_MAX)
        return err_set(r->msg, ERR_LIMIT, "chat template, line %u: a format width or precision is too large", r->line);
    return ERR_OK;
}

/* Flags, width and precision behind a percent sign. */
static enum err percent_spec(struct percent *p, struct spec *f) {
    *f = (struct spec){.fill = " ", .n_fill = 1, .align = '>', .precision = -1};
    for (; p->at < p->format->len && strchr("-+ #0", p->format->s[p->at]) && p->format->s[p->at]; p->at++) {
        const char c = p->format->s[p->at];
        if (c == '-') f->align = '<';
        if (c == '0' && f->align != '<') {
            f->align = '=';
            f->fill[0] = '0';
        }
        if (c == '+' || (c == ' ' && !f->sign)) f->sign = c;
        if (c == '#') f->alternate = true;
    }
    if (f->align == '<') f->fill[0] = ' ';
    TRY(percent_width(p, &f->width));
    if (f->width < 0) {
        f->width = -f->width;
        f->align = '<';
    }
    if (p->at < p->format->len && p->format->s[p->at] == '.') {
        p->at++;
        TRY(percent_width(p, &f->precision));
    }
    while (p->at < p->format->len && strchr("hlL", p->format->s[p->at]) && p->format->s[p->at])
        p->at++;
    return check_spec(p->r, f);
}

static enum err percent_number(struct percent *p, struct spec *f, const struct jinja_value *v, char c) {
    if (v->type == JINJA_UNDEF) return jinja_value_fail_undef(p->r, v);
    if (!jinja_is_number(v))
        return jinja_run_fail(p->r, "%%%c format: a real number is required, not %s", c, jinja_value_type_name(v));
    if (strchr("eEfFgG", c)) return format_f64(p->r, f, jinja_as_f64(v));
    if (v->type == JINJA_FLOAT && !(fabs(v->f) < 0x1p126))
        return jinja_run_fail(p->r, "cannot convert float to integer");
    if (c == 'i' || c == 'u') f->type = 'd';
    f->precision = -1;
    return format_int(p->r, f, v->type == JINJA_FLOAT ? (__int128)v->f : jinja_as_int(v));
}

static enum err percent_field(struct percent *p) {
    const struct jinja_value *const format = p->format, *v = NULL;
    struct spec f;
    if (p->at < format->len && format->s[p->at] == '(') {
        const char *const close = memchr(format->s + p->at, ')', format->len - p->at);
        if (!close || p->values->type != JINJA_DICT) return jinja_run_fail(p->r, "format requires a mapping");
        const char *const key = format->s + p->at + 1;
        v = jinja_dict_get_str(p->values->dict, key, (size_t)(close - key));
        if (!v) return jinja_run_fail(p->r, "format: no key '%.*s'", (int)(close - key > 60 ? 60 : close - key), key);
        p->at = (size_t)(close - format->s) + 1;
        p->i_value = 1;
    }
    TRY(percent_spec(p, &f));
    if (p->at >= format->len) return jinja_run_fail(p->r, "incomplete format");
    const char c = format->s[p->at++];
    if (c == '%') return jinja_run_emit(p->r, "%", 1);
    if (!v) TRY(next_value(p, &v));
    f.type = c;
    if (c == 's' || c == 'r' || c == 'a' || (c == 'c' && v->type == JINJA_STR)) {
        f.fill[0] = ' ';
        if (f.align == '=') f.align = '>';
        return format_text(p->r, &f, v, c == 'r' || c == 'a');
    }
    if (!c || !strchr("diueEfFgGxXoc", c)) return jinja_run_fail(p->r, "unsupported format character '%c'", c);
    return percent_number(p, &f, v, c);
}

enum err jinja_format_percent(struct jinja_run *r, const struct jinja_value *format, const struct jinja_value *values,
                              struct jinja_value *out) {
    struct percent p = {.r = r, .format = format, .values = values};
    const size_t mark = r->out.len;
    const char *s = NULL;
    size_t len = 0;
    while (p.at < format->len) {
        const char *const sign = memchr(format->s + p.at, '%', format->len - p.at);
        const size_t end = sign ? (size_t)(sign - format->s) : format->len;
        TRY(jinja_run_emit(r, format->s + p.at, end - p.at));
        p.at = end + 1;
        TRY(jinja_run_step(r, 1));
        if (sign) TRY(percent_field(&p));
    }
    const bool tuple = values->type == JINJA_LIST && values->list->kind == JINJA_SEQ_TUPLE;
    const bool loose = values->type == JINJA_DICT || (values->type == JINJA_LIST && !tuple);
    if (!loose && p.i_value < (tuple ? values->list->n : 1))
        return jinja_run_fail(r, "not all arguments converted during string formatting");
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    out->kind = format->kind;
    return ERR_OK;
}

/* ---- '...'.format() ---- */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static enum err brace_spec(struct jinja_run *r, const struct jinja_value *text, struct spec *f) {
    size_t at = 0;
    *f = (struct spec){.fill = " ", .n_fill = 1, .precision = -1};
    const size_t first = text->len ? jinja_str_next(text->s, text->len) : 0;
    if (first && first < text->len && strchr("<>^=", text->s[first]) && text->s[first]) {
        memcpy(f->fill, text->s, first);
        f->n_fill = first;
        f->align = text->s[first];
        at = first + 1;
    } else if (first && strchr("<>^=", text->s[0]) && text->s[0]) {
        f->align = text->s[at++];
    }
    if (at < text->len && strchr("+- ", text->s[at]) && text->s[at]) {
        f->sign = text->s[at] == '-' ? '\0' : text->s[at];
        at++;
    }
    if (at < text->len && text->s[at] == '#') f->alternate = text->s[at++] == '#';
    if (at < text->len && text->s[at] == '0') {
        if (!f->align) f->align = '=';
        if (f->fill[0] == ' ') f->fill[0] = '0';
    }
    f->width = read_digits(text, &at);
    if (at < text->len && text->s[at] == ',') f->comma = text->s[at++] == ',';
    if (at < text->len && text->s[at] == '.') {
        at++;
        f->precision = read_digits(text, &at);
    }
    if (at < text->len) f->type = text->s[at++];
    if (at < text->len) return jinja_run_fail(r, "Invalid format specifier");
    return check_spec(r, f);
}

static enum err format_value(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *spec) {
    struct spec f;
    TRY(brace_spec(r, spec, &f));
    const bool floats = f.type && strchr("eEfFgG%", f.type), ints = f.type && strchr("dxXobc", f.type);
    if (spec->len == 0) return jinja_repr_text(r, v);
    if (f.type && f.type != 's' && !floats && !ints)
        return jinja_run_fail(r, "Unknown format code '%c' for object of type '%s'", f.type, jinja_value_type_name(v));
    if (v->type == JINJA_FLOAT && !ints && f.type != 's') return format_f64(r, &f, v->f);
    if (jinja_is_int(v) && floats) return format_f64(r, &f, jinja_as_f64(v));
    if (jinja_is_int(v) && f.type != 's') return format_int(r, &f, jinja_as_int(v));
    if (floats || ints || f.align == '=' || jinja_is_number(v))
        return jinja_run_fail(r, "Unknown format code '%c' for object of type '%s'", f.type ? f.type : '=',
                              jinja_value_type_name(v));
    if (v->type == JINJA_UNDEF || v->type == JINJA_NONE || v->type >= JINJA_LIST)
        return jinja_run_fail(r, "unsupported format string passed to %s.__format__", jinja_value_type_name(v));
    return format_text(r, &f, v, false);
}

/* name.attr[item]... : the value of a field; an empty name takes the next argument. */
static enum err field_value(struct jinja_run *r, const struct jinja_value *name, const struct jinja_args *args,
                            size_t *next, struct jinja_value *out) {
    size_t at = 0;
    while (at < name->len && name->s[at] != '.' && name->s[at] != '[')
        at++;
    __int128 i = (__int128)*next;
    const struct jinja_value *v = NULL;
    if (at == 0) ++*next;
    if (at == 0 || jinja_number_int(name->s, at, 10, &i)) {
        if (i >= 0 && i < (__int128)args->n_pos) v = &args->pos[i];
        if (!v)
            return jinja_run_fail(r, "Replacement index %d out of range for positional args tuple",
                                  i > 9999 ? 9999 : (int)i);
    }
    for (size_t k = 0; k < args->n_kw && !v; k++)
        if (args->kw[k].key.len == at && memcmp(args->kw[k].key.s, name->s, at) == 0) v = &args->kw[k].value;
    if (!v) return jinja_run_fail(r, "format: no argument '%.*s'", at > 60 ? 60 : (int)at, name->s);
    *out = *v;
    for (int parts = 0; at < name->len; parts++) {
        const bool item = name->s[at] == '[';
        size_t end = at + 1;
        while (end < name->len && (item ? name->s[end] != ']' : name->s[end] != '.' && name->s[end] != '['))
            end++;
        if (parts == FIELD_PARTS_MAX || (item && end == name->len))
            return jinja_run_fail(r, "bad field in format string");
        const struct jinja_value part = jinja_str(name->s + at + 1, end - at - 1), of = *out;
        const bool number = item && jinja_number_int(part.s, part.len, 10, &i);
        const struct jinja_value key = number ? jinja_int(i) : part;
        TRY(item ? jinja_access_item(r, &of, &key, out) : jinja_access_attr(r, &of, &key, 0, out));
        if (out->type == JINJA_UNDEF) return jinja_value_fail_undef(r, out);
        at = item ? end + 1 : end;
    }
    return ERR_OK;
}

static enum err braces(struct jinja_run *r, const struct jinja_value *format, const struct jinja_args *args,
                       size_t *next, struct jinja_value *out);

/* The inside of one pair of braces. Its specification may have fields of its own. */
static enum err brace_field(struct jinja_run *r, const struct jinja_value *field, const struct jinja_args *args,
                            size_t *next) {
    size_t name = 0;
    while (name < field->len && field->s[name] != '!' && field->s[name] != ':')
        name++;
    size_t at = name;
    bool repr = false;
    if (at < field->len && field->s[at] == '!') {
        repr = at + 1 < field->len && field->s[at + 1] == 'r';
        at = at + 2 < field->len ? at + 2 : field->len;
    }
    const size_t from = at < field->len ? at + 1 : at, mark = r->out.len;
    const struct jinja_value path = jinja_str(field->s, name), raw = jinja_str(field->s + from, field->len - from);
    struct jinja_value v, spec = raw;
    const char *s = NULL;
    size_t len = 0;
    TRY(field_value(r, &path, args, next, &v));
    if (memchr(raw.s, '{', raw.len)) TRY(braces(r, &raw, args, next, &spec));
    if (!repr) return format_value(r, &v, &spec);
    TRY(jinja_repr_value(r, &v));
    TRY(jinja_run_cut(r, mark, &s, &len));
    const struct jinja_value text = jinja_str(s, len);
    return format_value(r, &text, &spec);
}

/* Offset of the brace that closes the field which starts at `at`; the length when there is none. */
static size_t field_end(const struct jinja_value *format, size_t at) {
    for (int depth = 1; at < format->len; at++) {
        depth += format->s[at] == '{' ? 1 : format->s[at] == '}' ? -1 : 0;
        if (depth == 0) break;
    }
    return at;
}

static enum err braces_text(struct jinja_run *r, const struct jinja_value *format, const struct jinja_args *args,
                            size_t *next) {
    for (size_t i = 0; i < format->len; i++) {
        const char c = format->s[i];
        const bool twice = i + 1 < format->len && format->s[i + 1] == c;
        TRY(jinja_run_step(r, 1));
        if ((c != '{' && c != '}') || twice) {
            TRY(jinja_run_emit(r, &format->s[i], 1));
            i += (c == '{' || c == '}') && twice;
            continue;
        }
        if (c == '}') return jinja_run_fail(r, "Single '}' encountered in format string");
        const size_t close = field_end(format, i + 1);
        if (close == format->len) return jinja_run_fail(r, "Single '{' encountered in format string");
        const struct jinja_value field = jinja_str(format->s + i + 1, close - i - 1);
        TRY(brace_field(r, &field, args, next));
        i = close;
    }
    return ERR_OK;
}

static enum err braces(struct jinja_run *r, const struct jinja_value *format, const struct jinja_args *args,
                       size_t *next, struct jinja_value *out) {
    const size_t mark = r->out.len;
    const char *s = NULL;
    size_t len = 0;
    TRY(jinja_run_enter(r));
    TRY(jinja_run_walk(r, format->len * 8));
    TRY(braces_text(r, format, args, next));
    jinja_run_leave(r);
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    return ERR_OK;
}

enum err jinja_format_braces(struct jinja_run *r, const struct jinja_value *format, const struct jinja_args *args,
                             struct jinja_value *out) {
    size_t next = 0;
    const uint8_t kind = format->kind;
    TRY(braces(r, format, args, &next, out));
    out->kind = kind;
    return ERR_OK;
}
