#include "text/jinja_json.h"

#include <math.h>

#include "load/jsonio.h"
#include "text/jinja_dict.h"
#include "text/jinja_repr.h"
#include "text/jinja_sort.h"
#include "text/jinja_str.h"

/* ---- reading ---- */

static enum err from_json(struct jinja_run *r, json_t *j, struct jinja_value *out);

static enum err from_object(struct jinja_run *r, json_t *j, struct jinja_value *out) {
    TRY(jinja_dict_new(r, JINJA_DICT, out));
    for (void *it = json_object_iter(j); it; it = json_object_iter_next(j, it)) {
        struct jinja_value key, value;
        TRY(jinja_value_str(r, json_object_iter_key(it), json_object_iter_key_len(it), &key));
        TRY(from_json(r, json_object_iter_value(it), &value));
        TRY(jinja_dict_put(r, out->dict, &key, &value));
    }
    return ERR_OK;
}

static enum err from_array(struct jinja_run *r, json_t *j, struct jinja_value *out) {
    const size_t n = json_array_size(j);
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, n, out));
    for (size_t i = 0; i < n; i++)
        TRY(from_json(r, json_array_get(j, i), &out->list->v[i]));
    out->list->n = n;
    return ERR_OK;
}

static enum err from_json(struct jinja_run *r, json_t *j, struct jinja_value *out) {
    enum err e = ERR_OK;
    TRY(jinja_run_step(r, 1));
    TRY(jinja_run_enter(r));
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        e = from_object(r, j, out);
        break;
    case JSON_ARRAY:
        e = from_array(r, j, out);
        break;
    case JSON_STRING:
        e = jinja_value_str(r, json_string_value(j), json_string_length(j), out);
        break;
    case JSON_INTEGER:
        *out = jinja_int(json_integer_value(j));
        break;
    case JSON_REAL:
        *out = jinja_float(json_real_value(j));
        break;
    case JSON_TRUE:
        *out = jinja_bool(true);
        break;
    case JSON_FALSE:
        *out = jinja_bool(false);
        break;
    case JSON_NULL:
        *out = jinja_none();
        break;
    }
    jinja_run_leave(r);
    return e;
}

enum err jinja_json_parse(struct jinja_run *r, const char *what, const char *text, size_t len,
                          struct jinja_value *out) {
    json_t *j = NULL;
    const enum err bad = jsonio_parse(&j, text, len, false, what, r->msg);
    if (bad != ERR_OK) return bad == ERR_FORMAT ? ERR_ARG : bad;
    const enum err e = from_json(r, j, out);
    json_decref(j);
    return e;
}

/* ---- writing ---- */

struct writer {
    struct jinja_run *r;
    bool ascii, sort;
    const char *indent; /* NULL: on one line */
    size_t n_indent;
    struct jinja_value item_sep, key_sep;
    int level;
};

static enum err write_value(struct writer *w, const struct jinja_value *v);

static void put_escape(struct strbuf *b, uint32_t cp) {
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *const simple = cp && cp < 0x80 ? strchr(from, (int)cp) : NULL;
    if (simple)
        strbuf_printf(b, "\\%c", to[simple - from]);
    else if (cp < 0x10000)
        strbuf_printf(b, "\\u%04x", cp);
    else
        strbuf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + ((cp - 0x10000) & 0x3ff));
}

static enum err write_str(struct writer *w, const char *s, size_t len) {
    struct strbuf *const b = &w->r->out;
    TRY(jinja_run_walk(w->r, len * 2));
    strbuf_putc(b, '"');
    for (size_t i = 0, n, from = 0; i <= len; i += n) {
        n = 1;
        const uint32_t cp = i < len ? jinja_str_decode(s + i, len - i, &n) : 0;
        const bool plain = i < len && cp >= 0x20 && cp != '"' && cp != '\\' && !(w->ascii && cp >= 0x7f);
        if (plain) continue;
        strbuf_append(b, s + from, i - from);
        if (i < len) put_escape(b, cp);
        from = i + n;
    }
    strbuf_putc(b, '"');
    return jinja_run_check_out(w->r);
}

static enum err write_f64(struct writer *w, double f) {
    char text[JINJA_REPR_F64_MAX];
    if (isnan(f)) return jinja_run_emit(w->r, "NaN", 3);
    if (isinf(f)) return f < 0 ? jinja_run_emit(w->r, "-Infinity", 9) : jinja_run_emit(w->r, "Infinity", 8);
    return jinja_run_emit(w->r, text, jinja_repr_f64(text, f));
}

static enum err write_scalar(struct writer *w, const struct jinja_value *v) {
    char text[JINJA_REPR_INT_MAX];
    switch ((enum jinja_type)v->type) {
    case JINJA_NONE:
        return jinja_run_emit(w->r, "null", 4);
    case JINJA_BOOL:
        return v->b ? jinja_run_emit(w->r, "true", 4) : jinja_run_emit(w->r, "false", 5);
    case JINJA_INT:
        return jinja_run_emit(w->r, text, jinja_repr_int(text, v->i));
    case JINJA_FLOAT:
        return write_f64(w, v->f);
    case JINJA_STR:
        return write_str(w, v->s, v->len);
    case JINJA_UNDEF:
        if (v->kind == JINJA_UNDEF_UNSAFE) return jinja_value_fail_undef(w->r, v);
        break;
    default:
        break;
    }
    return jinja_run_fail(w->r, "Object of type %s is not JSON serializable", jinja_value_type_name(v));
}

static enum err write_key(struct writer *w, const struct jinja_value *key) {
    if (key->type == JINJA_STR) return write_str(w, key->s, key->len);
    if (key->type != JINJA_NONE && !jinja_is_number(key))
        return jinja_run_fail(w->r, "keys must be str, int, float, bool or None, not %s", jinja_value_type_name(key));
    TRY(jinja_run_emit(w->r, "\"", 1));
    TRY(write_scalar(w, key));
    return jinja_run_emit(w->r, "\"", 1);
}

static enum err new_line(struct writer *w) {
    if (!w->indent) return ERR_OK;
    TRY(jinja_run_emit(w->r, "\n", 1));
    for (int i = 0; i < w->level; i++)
        TRY(jinja_run_emit(w->r, w->indent, w->n_indent));
    return ERR_OK;
}

/* Before element i: the separator and the line break. */
static enum err before(struct writer *w, size_t i) {
    if (i) TRY(jinja_run_emit(w->r, w->item_sep.s, w->item_sep.len));
    return new_line(w);
}

static enum err write_list(struct writer *w, const struct jinja_list *l) {
    if (l->n == 0) return jinja_run_emit(w->r, "[]", 2);
    TRY(jinja_run_emit(w->r, "[", 1));
    w->level++;
    for (size_t i = 0; i < l->n; i++) {
        TRY(before(w, i));
        TRY(write_value(w, &l->v[i]));
    }
    w->level--;
    TRY(new_line(w));
    return jinja_run_emit(w->r, "]", 1);
}

/* The pairs as sorted(d.items()) would give them. */
static enum err sorted_pairs(struct jinja_run *r, const struct jinja_dict *d, const struct jinja_pair **out) {
    struct jinja_value keys;
    struct jinja_pair *const pairs = jinja_run_alloc(r, (d->n + 1) * sizeof *pairs);
    if (!pairs) return jinja_run_nomem(r);
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, d->n, &keys));
    for (size_t i = 0; i < d->n; i++)
        keys.list->v[keys.list->n++] = d->pairs[i].key;
    size_t *order;
    TRY(jinja_sort_order(r, keys.list->v, d->n, false, &order));
    for (size_t i = 0; i < d->n; i++)
        pairs[i] = d->pairs[order[i]];
    *out = pairs;
    return ERR_OK;
}

static enum err write_dict(struct writer *w, const struct jinja_dict *d) {
    const struct jinja_pair *pairs = d->pairs;
    if (d->n == 0) return jinja_run_emit(w->r, "{}", 2);
    if (w->sort) TRY(sorted_pairs(w->r, d, &pairs));
    TRY(jinja_run_emit(w->r, "{", 1));
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        TRY(before(w, i));
        TRY(write_key(w, &pairs[i].key));
        TRY(jinja_run_emit(w->r, w->key_sep.s, w->key_sep.len));
        TRY(write_value(w, &pairs[i].value));
    }
    w->level--;
    TRY(new_line(w));
    return jinja_run_emit(w->r, "}", 1);
}

static enum err write_value(struct writer *w, const struct jinja_value *v) {
    TRY(jinja_run_step(w->r, 1));
    const bool list = v->type == JINJA_LIST && v->list->kind <= JINJA_SEQ_TUPLE;
    if (!list && v->type != JINJA_DICT) return write_scalar(w, v);
    TRY(jinja_run_enter(w->r));
    const enum err e = list ? write_list(w, v->list) : write_dict(w, v->dict);
    jinja_run_leave(w->r);
    return e;
}

/* indent: a number of blanks or a string; none keeps one line. */
static enum err set_indent(struct writer *w, const struct jinja_value *v) {
    int64_t n;
    if (!v || v->type == JINJA_NONE) return ERR_OK;
    if (v->type == JINJA_STR) {
        w->indent = v->s;
        w->n_indent = v->len;
        return ERR_OK;
    }
    TRY(jinja_args_int(w->r, v, 0, &n));
    if (n > 1000) return jinja_run_fail(w->r, "tojson: an indent of more than 1000");
    w->n_indent = n > 0 ? (size_t)n : 0;
    char *const blanks = jinja_run_alloc(w->r, w->n_indent);
    if (!blanks) return jinja_run_nomem(w->r);
    memset(blanks, ' ', w->n_indent);
    w->indent = blanks;
    return ERR_OK;
}

static enum err set_separators(struct writer *w, const struct jinja_value *v) {
    w->item_sep = jinja_cstr(w->indent ? "," : ", ");
    w->key_sep = jinja_cstr(": ");
    if (!v || v->type == JINJA_NONE) return ERR_OK;
    if (v->type != JINJA_LIST || v->list->n != 2)
        return jinja_run_fail(w->r, "tojson: separators must be a pair of strings");
    TRY(jinja_args_str(w->r, &v->list->v[0]));
    TRY(jinja_args_str(w->r, &v->list->v[1]));
    w->item_sep = v->list->v[0];
    w->key_sep = v->list->v[1];
    return ERR_OK;
}

enum err jinja_json_filter(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p,
                           struct jinja_value *out) {
    struct writer w = {.r = r, .ascii = jinja_args_bool(p[0], false), .sort = jinja_args_bool(p[3], false)};
    const size_t mark = r->out.len;
    const char *s = NULL;
    size_t len = 0;
    TRY(set_indent(&w, p[1]));
    TRY(set_separators(&w, p[2]));
    TRY(write_value(&w, v));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    return ERR_OK;
}
