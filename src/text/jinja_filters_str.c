/* Filters of texts. Each takes the text of whatever value it gets. */
#include <math.h>

#include "text/jinja_access.h"
#include "text/jinja_filters_int.h"
#include "text/jinja_methods_int.h"
#include "text/jinja_number.h"
#include "text/jinja_ops.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

#define FILTER(name)                                                                                                   \
    enum err jinja_filters_str_##name(struct jinja_run *r, const struct jinja_value *in, const struct jinja_value **p, \
                                      struct jinja_value *out)

static enum err cut(struct jinja_run *r, size_t mark, struct jinja_value *out) {
    const char *s = NULL;
    size_t len = 0;
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    return ERR_OK;
}

/* The method of the same name on the text. */
#define AS_METHOD(name)                                                                                                \
    FILTER(name) {                                                                                                     \
        struct jinja_value text;                                                                                       \
        TRY(jinja_repr_to_str(r, in, &text));                                                                          \
        return jinja_methods_str_##name(r, &text, p, out);                                                             \
    }

AS_METHOD(upper)
AS_METHOD(lower)
AS_METHOD(capitalize)

FILTER(trim) {
    struct jinja_value text;
    TRY(jinja_repr_to_str(r, in, &text));
    return jinja_methods_str_strip(r, &text, p, out);
}

FILTER(center) {
    const struct jinja_value width = jinja_int(80);
    const struct jinja_value *args[2] = {p[0] ? p[0] : &width, NULL};
    struct jinja_value text;
    TRY(jinja_repr_to_str(r, in, &text));
    return jinja_methods_str_center(r, &text, args, out);
}

FILTER(replace) {
    struct jinja_value text, old, new;
    TRY(jinja_repr_to_str(r, in, &text));
    TRY(jinja_repr_to_str(r, p[0], &old));
    TRY(jinja_repr_to_str(r, p[1], &new));
    text.kind = 0;
    const struct jinja_value *args[3] = {&old, &new, p[2]};
    return jinja_methods_str_replace(r, &text, args, out);
}

/* A capital after blanks, "-" and opening brackets. */
FILTER(title) {
    struct jinja_value text;
    const size_t mark = r->out.len;
    (void)p;
    TRY(jinja_repr_to_str(r, in, &text));
    TRY(jinja_run_walk(r, text.len * 8));
    for (size_t at = 0; at < text.len;) {
        size_t end = at, n;
        while (end < text.len) {
            const uint32_t cp = jinja_str_decode(text.s + end, text.len - end, &n);
            if (jinja_str_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp))) break;
            end += n;
        }
        if (end == at) {
            n = jinja_str_next(text.s + at, text.len - at);
            strbuf_append(&r->out, text.s + at, n);
            at += n;
            continue;
        }
        n = jinja_str_next(text.s + at, end - at);
        jinja_str_case(&r->out, text.s + at, n, JINJA_STR_UPPER);
        jinja_str_case(&r->out, text.s + at + n, end - at - n, JINJA_STR_LOWER);
        at = end;
    }
    return cut(r, mark, out);
}

FILTER(join) {
    struct jinja_value *items = NULL, sep = jinja_cstr("");
    size_t n = 0;
    const size_t mark = r->out.len;
    if (p[0]) TRY(jinja_repr_to_str(r, p[0], &sep));
    TRY(jinja_value_iterate(r, in, &items, &n));
    for (size_t i = 0; i < n; i++) {
        struct jinja_value v = items[i];
        TRY(jinja_run_step(r, 1));
        if (i) TRY(jinja_run_emit(r, sep.s, sep.len));
        if (p[1] && p[1]->type != JINJA_NONE) TRY(jinja_access_path(r, &items[i], p[1], NULL, &v));
        TRY(jinja_repr_text(r, &v));
    }
    return cut(r, mark, out);
}

static enum err emit_lines(struct jinja_run *r, const struct jinja_list *lines, const struct jinja_value *indent,
                           bool blank) {
    for (size_t i = 0; i < lines->n; i++) {
        const struct jinja_value *const line = &lines->v[i];
        if (i) TRY(jinja_run_emit(r, "\n", 1));
        if (i && (blank || line->len)) TRY(jinja_run_emit(r, indent->s, indent->len));
        TRY(jinja_run_emit(r, line->s, line->len));
    }
    return ERR_OK;
}

/* indent(width=4, first=false, blank=false): width is a number of blanks or a text. */
FILTER(indent) {
    const struct jinja_value *const no_args[1] = {NULL};
    const struct jinja_value *keep[1] = {no_args[0]};
    struct jinja_value indent, text = *in, blanks = jinja_cstr(" "), lines;
    int64_t width;
    if (in->type == JINJA_UNDEF) return jinja_value_fail_undef(r, in);
    TRY(jinja_args_str(r, in));
    if (p[0] && p[0]->type == JINJA_STR) {
        indent = *p[0];
    } else {
        TRY(jinja_args_int(r, p[0], 4, &width));
        const struct jinja_value times = jinja_int(width);
        TRY(jinja_ops_binary(r, NODE_MUL, &blanks, &times, &indent));
    }
    text.tail = NULL;
    TRY(jinja_value_concat(r, &text, "\n", 1, &text)); /* a final line break is a line of its own */
    TRY(jinja_methods_split_splitlines(r, &text, keep, &lines));
    const size_t mark = r->out.len;
    if (jinja_args_bool(p[1], false)) TRY(jinja_run_emit(r, indent.s, indent.len));
    TRY(emit_lines(r, lines.list, &indent, jinja_args_bool(p[2], false)));
    TRY(cut(r, mark, out));
    out->kind = in->kind;
    return ERR_OK;
}

static bool is_word(uint32_t cp, const char *s, size_t n) {
    return cp == '_' || jinja_str_is(s, n, JINJA_STR_ALNUM);
}

FILTER(wordcount) {
    struct jinja_value text;
    int64_t count = 0;
    bool inside = false;
    (void)p;
    TRY(jinja_repr_to_str(r, in, &text));
    TRY(jinja_run_walk(r, text.len * 8));
    for (size_t i = 0, n; i < text.len; i += n) {
        const uint32_t cp = jinja_str_decode(text.s + i, text.len - i, &n);
        const bool word = is_word(cp, text.s + i, n);
        count += word && !inside;
        inside = word;
    }
    *out = jinja_int(count);
    return ERR_OK;
}

/* truncate(length=255, killwords=false, end='...', leeway=5) */
FILTER(truncate) {
    struct jinja_value text, end = jinja_cstr("...");
    int64_t length, leeway;
    TRY(jinja_repr_to_str(r, in, &text));
    if (p[2]) TRY(jinja_repr_to_str(r, p[2], &end));
    TRY(jinja_args_int(r, p[0], 255, &length));
    TRY(jinja_args_int(r, p[3], 5, &leeway));
    TRY(jinja_run_walk(r, text.len * 2));
    const int64_t n_end = (int64_t)jinja_str_count(end.s, end.len);
    if (length < n_end) return jinja_run_fail(r, "expected length >= %d", (int)n_end);
    if (leeway < 0) return jinja_run_fail(r, "expected leeway >= 0");
    *out = text;
    const int64_t n = (int64_t)jinja_str_count(text.s, text.len);
    if (n <= length || n - length <= leeway) return ERR_OK;
    struct jinja_value head = jinja_str(text.s, jinja_str_offset(text.s, text.len, (size_t)(length - n_end)));
    const int64_t blank = jinja_args_bool(p[1], false) ? -1 : jinja_str_rfind(head.s, head.len, " ", 1);
    if (blank >= 0) head.len = (size_t)blank;
    return jinja_value_concat(r, &head, end.s, end.len, out);
}

/* Blanks fold to one; tags and comments go; the five entities come back. */
FILTER(striptags) {
    static const struct {
        const char *entity;
        char c;
    } entities[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&#39;", '\''}, {"&#34;", '"'}, {"&quot;", '"'}, {"&amp;", '&'}};
    struct jinja_value text;
    const size_t mark = r->out.len;
    bool blank = false;
    (void)p;
    TRY(jinja_repr_to_str(r, in, &text));
    TRY(jinja_run_walk(r, text.len * 4));
    for (size_t i = 0, n; i < text.len; i += n) {
        const char *const s = text.s + i;
        const size_t left = text.len - i;
        const uint32_t cp = jinja_str_decode(s, left, &n);
        const bool comment = left >= 4 && memcmp(s, "<!--", 4) == 0;
        const char *const end = comment ? memmem(s, left, "-->", 3) : cp == '<' ? memchr(s, '>', left) : NULL;
        if (end) n = (size_t)(end - s) + (comment ? 3 : 1);
        if (end) continue;
        if (jinja_str_is_space(cp)) {
            blank = true;
            continue;
        }
        if (blank && r->out.len > mark) strbuf_putc(&r->out, ' ');
        blank = false;
        char plain = '\0';
        for (size_t k = 0; cp == '&' && k < N_ELEMENTS(entities) && !plain; k++) {
            const size_t len = strlen(entities[k].entity);
            if (left < len || memcmp(s, entities[k].entity, len) != 0) continue;
            plain = entities[k].c;
            n = len;
        }
        if (plain)
            strbuf_putc(&r->out, plain);
        else
            strbuf_append(&r->out, s, n);
    }
    return cut(r, mark, out);
}

/* Percent signs for all but letters, digits, "_.-~" and "/". */
static void put_url(struct strbuf *b, const struct jinja_value *text, bool query) {
    for (size_t i = 0; i < text->len; i++) {
        const char c = text->s[i];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           (c && strchr(query ? "_.-~" : "_.-~/", c));
        if (plain)
            strbuf_putc(b, c);
        else if (query && c == ' ')
            strbuf_putc(b, '+');
        else
            strbuf_printf(b, "%%%02X", (unsigned)(unsigned char)c);
    }
}

FILTER(urlencode) {
    struct jinja_value text, *keys = NULL;
    size_t n = 0;
    const size_t mark = r->out.len;
    (void)p;
    if (in->type != JINJA_DICT) {
        TRY(jinja_repr_to_str(r, in, &text));
        TRY(jinja_run_walk(r, text.len * 4));
        put_url(&r->out, &text, false);
        return cut(r, mark, out);
    }
    TRY(jinja_value_iterate(r, in, &keys, &n));
    struct strbuf query = {0};
    enum err e = ERR_OK;
    for (size_t i = 0; i < n && e == ERR_OK; i++) {
        if (i) strbuf_putc(&query, '&');
        e = jinja_repr_to_str(r, &keys[i], &text);
        if (e == ERR_OK) put_url(&query, &text, true);
        strbuf_putc(&query, '=');
        if (e == ERR_OK) e = jinja_repr_to_str(r, &in->dict->pairs[i].value, &text);
        if (e == ERR_OK) put_url(&query, &text, true);
    }
    if (e == ERR_OK && query.failed) e = jinja_run_nomem(r);
    if (e == ERR_OK) e = jinja_run_emit(r, strbuf_cstr(&query), query.len);
    strbuf_deinit(&query);
    TRY(e);
    return cut(r, mark, out);
}

/* One line, broken at blanks into pieces of at most width characters; longer words are cut when cut_words. */
static enum err wrap_line(struct jinja_run *r, const struct jinja_value *line, size_t width, bool cut_words,
                          const struct jinja_value *eol) {
    size_t column = 0, pending = 0; /* blanks not written yet */
    for (size_t i = 0; i < line->len;) {
        size_t end = i, chars = 0;
        const bool blank = line->s[i] == ' ';
        while (end < line->len && (line->s[end] == ' ') == blank) {
            end += jinja_str_next(line->s + end, line->len - end);
            chars++;
        }
        if (blank) {
            pending = chars;
            i = end;
            continue;
        }
        if (column && column + pending + chars > width && !(cut_words && chars > width)) {
            TRY(jinja_run_emit(r, eol->s, eol->len));
            column = pending = 0;
        }
        if (column == 0 && i != pending) pending = 0;
        for (; pending > 0; pending--, column++)
            TRY(jinja_run_emit(r, " ", 1));
        for (size_t n; i < end; i += n, column++) {
            n = jinja_str_next(line->s + i, end - i);
            if (cut_words && column >= width) {
                TRY(jinja_run_emit(r, eol->s, eol->len));
                column = 0;
            }
            TRY(jinja_run_emit(r, line->s + i, n));
        }
    }
    return ERR_OK;
}

FILTER(wordwrap) {
    const struct jinja_value *keep[1] = {NULL};
    struct jinja_value text, lines, eol = jinja_cstr("\n");
    int64_t width;
    const size_t mark = r->out.len;
    TRY(jinja_repr_to_str(r, in, &text));
    TRY(jinja_args_int(r, p[0], 79, &width));
    if (width <= 0) return jinja_run_fail(r, "invalid width %d (must be > 0)", width < -9999 ? -9999 : (int)width);
    if (p[2] && p[2]->type != JINJA_NONE) TRY(jinja_repr_to_str(r, p[2], &eol));
    TRY(jinja_methods_split_splitlines(r, &text, keep, &lines));
    for (size_t i = 0; i < lines.list->n; i++) {
        if (i) TRY(jinja_run_emit(r, eol.s, eol.len));
        TRY(wrap_line(r, &lines.list->v[i], (size_t)width, jinja_args_bool(p[1], true), &eol));
    }
    return cut(r, mark, out);
}

/* 13 Bytes, 1.2 kB; binary: KiB. */
FILTER(filesizeformat) {
    const bool binary = jinja_args_bool(p[0], false);
    const double base = binary ? 1024 : 1000;
    const size_t mark = r->out.len;
    double bytes = jinja_is_number(in) ? jinja_as_f64(in) : 0;
    static const char prefixes[] = "kMGTPEZY";
    if (in->type == JINJA_STR && !jinja_number_f64(in->s, in->len, &bytes))
        return jinja_run_fail(r, "could not convert string to float");
    if (in->type != JINJA_STR && !jinja_is_number(in))
        return jinja_run_fail(r, "float() argument must be a string or a number, not '%s'", jinja_value_type_name(in));
    if (bytes == 1) {
        strbuf_puts(&r->out, "1 Byte");
    } else if (bytes < base) {
        strbuf_printf(&r->out, "%.0f Bytes", trunc(bytes));
    } else {
        double unit = base * base;
        int i = 0;
        for (; i < 7 && bytes >= unit; i++)
            unit *= base;
        const char prefix = binary && i == 0 ? 'K' : prefixes[i];
        strbuf_printf(&r->out, "%.1f %c%s", base * bytes / unit, prefix, binary ? "iB" : "B");
    }
    return cut(r, mark, out);
}
