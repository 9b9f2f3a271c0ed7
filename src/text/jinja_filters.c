#include "text/jinja_filters.h"

#include <math.h>

#include "text/jinja_access.h"
#include "text/jinja_filters_int.h"
#include "text/jinja_format.h"
#include "text/jinja_json.h"
#include "text/jinja_methods.h"
#include "text/jinja_number.h"
#include "text/jinja_ops.h"
#include "text/jinja_repr.h"

typedef enum err (*filter_fn)(struct jinja_run *r, const struct jinja_value *in, const struct jinja_value **p,
                              struct jinja_value *out);
typedef enum err (*free_fn)(struct jinja_run *r, const struct jinja_value *in, const struct jinja_args *args,
                            struct jinja_value *out);

struct jinja_filter {
    const char *name;
    const char *params;
    filter_fn apply;
    free_fn any; /* takes whatever arguments there are */
};

#define FILTER(name)                                                                                                   \
    static enum err filter_##name(struct jinja_run *r, const struct jinja_value *in, const struct jinja_value **p,     \
                                  struct jinja_value *out)

/* ---- filters of single values; those of texts and sequences have files of their own ---- */

FILTER(default) {
    *out = *in;
    const bool missing = in->type == JINJA_UNDEF || (jinja_args_bool(p[1], false) && !jinja_value_truth(in));
    if (missing) *out = p[0] ? *p[0] : jinja_cstr("");
    return jinja_run_step(r, 1);
}

FILTER(length) {
    int64_t n;
    (void)p;
    TRY(jinja_value_length(r, in, &n));
    *out = jinja_int(n);
    return ERR_OK;
}

FILTER(string) {
    (void)p;
    return jinja_repr_to_str(r, in, out);
}

FILTER(safe) {
    (void)p;
    TRY(jinja_repr_to_str(r, in, out));
    out->kind = 1;
    return ERR_OK;
}

FILTER(escape) {
    (void)p;
    return jinja_ops_escape(r, in, false, out);
}

FILTER(forceescape) {
    (void)p;
    return jinja_ops_escape(r, in, true, out);
}

FILTER(pprint) {
    const size_t mark = r->out.len;
    const char *s = NULL;
    size_t len = 0;
    (void)p;
    TRY(jinja_repr_value(r, in));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    return ERR_OK;
}

FILTER(tojson) {
    return jinja_json_filter(r, in, p, out);
}

FILTER(abs) {
    (void)p;
    if (in->type == JINJA_UNDEF) return jinja_value_fail_undef(r, in);
    if (!jinja_is_number(in)) return jinja_run_fail(r, "bad operand type for abs(): '%s'", jinja_value_type_name(in));
    if (in->type == JINJA_FLOAT) {
        *out = jinja_float(fabs(in->f));
        return ERR_OK;
    }
    const struct jinja_value i = jinja_int(jinja_as_int(in));
    return jinja_ops_unary(r, i.i < 0 ? NODE_NEG : NODE_POS, &i, out);
}

/* Only attributes, never items. */
FILTER(attr) {
    TRY(jinja_args_str(r, p[0]));
    if (in->type == JINJA_UNDEF) return jinja_value_fail_undef(r, in);
    const uint8_t method = jinja_methods_number(p[0]->s, p[0]->len);
    bool found = false;
    if (in->type != JINJA_DICT) return jinja_access_attr(r, in, p[0], method, out);
    if (method) TRY(jinja_methods_get(r, in, method, &found, out));
    if (!found) *out = jinja_undef(JINJA_UNDEF_ATTR, jinja_value_type_name(in), p[0]->s, p[0]->len);
    return ERR_OK;
}

static enum err int_of_f64(struct jinja_run *r, double f, const struct jinja_value *fallback, struct jinja_value *out) {
    *out = *fallback;
    if (!isfinite(f)) return ERR_OK;
    if (fabs(f) >= 0x1p126)
        return err_set(r->msg, ERR_LIMIT, "chat template, line %u: an integer has more than 127 bits", r->line);
    *out = jinja_int((__int128)f);
    return ERR_OK;
}

FILTER(int) {
    const struct jinja_value zero = jinja_int(0);
    const struct jinja_value *const fallback = p[0] ? p[0] : &zero;
    int64_t base;
    __int128 i;
    double f;
    TRY(jinja_args_int(r, p[1], 10, &base));
    if (in->type == JINJA_UNDEF) return jinja_value_fail_undef(r, in);
    if (jinja_is_int(in)) {
        *out = jinja_int(jinja_as_int(in));
        return ERR_OK;
    }
    if (in->type == JINJA_FLOAT) return int_of_f64(r, in->f, fallback, out);
    *out = *fallback;
    if (in->type != JINJA_STR) return ERR_OK;
    TRY(jinja_run_walk(r, in->len));
    if ((base == 0 || (base >= 2 && base <= 36)) && jinja_number_int(in->s, in->len, (int)base, &i))
        *out = jinja_int(i);
    else if (jinja_number_f64(in->s, in->len, &f))
        return int_of_f64(r, f, fallback, out);
    return ERR_OK;
}

FILTER(float) {
    double f;
    *out = p[0] ? *p[0] : jinja_float(0);
    if (in->type == JINJA_UNDEF) return jinja_value_fail_undef(r, in);
    if (jinja_is_number(in))
        *out = jinja_float(jinja_as_f64(in));
    else if (in->type == JINJA_STR && jinja_number_f64(in->s, in->len, &f))
        *out = jinja_float(f);
    return ERR_OK;
}

/* Half to even, as printf rounds; below the point by an exact division. */
static enum err round_common(struct jinja_run *r, const struct jinja_value *in, int64_t digits,
                             struct jinja_value *out) {
    char text[400];
    if (jinja_is_int(in) && digits >= 0) {
        *out = jinja_int(jinja_as_int(in));
        return ERR_OK;
    }
    if (jinja_is_int(in)) {
        __int128 scale = 1;
        for (int64_t i = 0; i > digits && scale < INT64_MAX; i--)
            scale *= 10;
        const __int128 x = jinja_as_int(in);
        __int128 q = x / scale;
        const __int128 rest = x < 0 ? -(x % scale) : x % scale;
        if (rest > scale - rest || (rest == scale - rest && (q & 1))) q += x < 0 ? -1 : 1;
        *out = jinja_int(q * scale);
        return ERR_OK;
    }
    *out = *in;
    if (!isfinite(in->f) || digits > 300) return ERR_OK;
    if (digits < 0) {
        const double scale = pow(10, (double)-digits);
        *out = jinja_float(isinf(scale) ? 0 : nearbyint(in->f / scale) * scale);
        return ERR_OK;
    }
    struct strbuf *const b = &r->out;
    const size_t mark = b->len;
    double f = in->f;
    strbuf_printf(b, "%.*f", (int)digits, in->f);
    TRY(jinja_run_check_out(r));
    const size_t len = b->len - mark;
    if (len < sizeof text) {
        memcpy(text, b->data + mark, len);
        (void)jinja_number_f64(text, len, &f);
    }
    strbuf_truncate(b, mark);
    *out = jinja_float(f);
    return ERR_OK;
}

FILTER(round) {
    int64_t digits;
    TRY(jinja_args_int(r, p[0], 0, &digits));
    if (in->type == JINJA_UNDEF) return jinja_value_fail_undef(r, in);
    if (!jinja_is_number(in))
        return jinja_run_fail(r, "type %s doesn't define __round__ method", jinja_value_type_name(in));
    const bool ceiling = p[1] && jinja_is_text(p[1], "ceil"), flooring = p[1] && jinja_is_text(p[1], "floor");
    if (!p[1] || jinja_is_text(p[1], "common")) return round_common(r, in, digits, out);
    if (!ceiling && !flooring) return jinja_run_fail(r, "method must be common, ceil or floor");
    const double scale = pow(10, (double)digits), x = jinja_as_f64(in) * scale;
    *out = jinja_float((ceiling ? ceil(x) : floor(x)) / scale);
    return ERR_OK;
}

/* '%s' | format(a) or '%(x)s' | format(x=a) */
static enum err filter_format(struct jinja_run *r, const struct jinja_value *in, const struct jinja_args *args,
                              struct jinja_value *out) {
    struct jinja_value text, values;
    if (args->n_pos && args->n_kw)
        return jinja_run_fail(r, "can't handle positional and keyword arguments at the same time");
    TRY(jinja_repr_to_str(r, in, &text));
    if (args->n_kw) {
        struct jinja_dict named = {.n = args->n_kw};
        struct jinja_pair *const pairs = jinja_run_alloc(r, args->n_kw * sizeof *pairs);
        if (!pairs) return jinja_run_nomem(r);
        memcpy(pairs, args->kw, args->n_kw * sizeof *pairs);
        named.pairs = pairs;
        values = (struct jinja_value){.type = JINJA_DICT, .dict = &named};
        return jinja_format_percent(r, &text, &values, out);
    }
    TRY(jinja_value_list(r, JINJA_SEQ_TUPLE, args->n_pos, &values));
    if (args->n_pos) memcpy(values.list->v, args->pos, args->n_pos * sizeof *args->pos);
    values.list->n = args->n_pos;
    return jinja_format_percent(r, &text, &values, out);
}

static const struct jinja_filter filters[] = {
    /* clang-format off */
    {"abs", "", filter_abs, NULL},
    {"attr", "name", filter_attr, NULL},
    {"batch", "linecount | fill_with", jinja_filters_seq_batch, NULL},
    {"capitalize", "", jinja_filters_str_capitalize, NULL},
    {"center", "| width", jinja_filters_str_center, NULL},
    {"count", "", filter_length, NULL},
    {"d", "| default_value boolean", filter_default, NULL},
    {"default", "| default_value boolean", filter_default, NULL},
    {"dictsort", "| case_sensitive by reverse", jinja_filters_seq_dictsort, NULL},
    {"e", "", filter_escape, NULL},
    {"escape", "", filter_escape, NULL},
    {"filesizeformat", "| binary", jinja_filters_str_filesizeformat, NULL},
    {"first", "", jinja_filters_seq_first, NULL},
    {"float", "| default", filter_float, NULL},
    {"forceescape", "", filter_forceescape, NULL},
    {"format", NULL, NULL, filter_format},
    {"groupby", "attribute | default case_sensitive", jinja_filters_seq_groupby, NULL},
    {"indent", "| width first blank", jinja_filters_str_indent, NULL},
    {"int", "| default base", filter_int, NULL},
    {"items", "", jinja_filters_seq_items, NULL},
    {"join", "| d attribute", jinja_filters_str_join, NULL},
    {"last", "", jinja_filters_seq_last, NULL},
    {"length", "", filter_length, NULL},
    {"list", "", jinja_filters_seq_list, NULL},
    {"lower", "", jinja_filters_str_lower, NULL},
    {"map", NULL, NULL, jinja_filters_pick_map},
    {"max", "| case_sensitive attribute", jinja_filters_seq_max, NULL},
    {"min", "| case_sensitive attribute", jinja_filters_seq_min, NULL},
    {"pprint", "", filter_pprint, NULL},
    {"reject", NULL, NULL, jinja_filters_pick_reject},
    {"rejectattr", NULL, NULL, jinja_filters_pick_rejectattr},
    {"replace", "old new | count", jinja_filters_str_replace, NULL},
    {"reverse", "", jinja_filters_seq_reverse, NULL},
    {"round", "| precision method", filter_round, NULL},
    {"safe", "", filter_safe, NULL},
    {"select", NULL, NULL, jinja_filters_pick_select},
    {"selectattr", NULL, NULL, jinja_filters_pick_selectattr},
    {"slice", "slices | fill_with", jinja_filters_seq_slice, NULL},
    {"sort", "| reverse case_sensitive attribute", jinja_filters_seq_sort, NULL},
    {"string", "", filter_string, NULL},
    {"striptags", "", jinja_filters_str_striptags, NULL},
    {"sum", "| attribute start", jinja_filters_seq_sum, NULL},
    {"title", "", jinja_filters_str_title, NULL},
    {"tojson", "| ensure_ascii indent separators sort_keys", filter_tojson, NULL},
    {"trim", "| chars", jinja_filters_str_trim, NULL},
    {"truncate", "| length killwords end leeway", jinja_filters_str_truncate, NULL},
    {"unique", "| case_sensitive attribute", jinja_filters_seq_unique, NULL},
    {"upper", "", jinja_filters_str_upper, NULL},
    {"urlencode", "", jinja_filters_str_urlencode, NULL},
    {"wordcount", "", jinja_filters_str_wordcount, NULL},
    {"wordwrap", "| width break_long_words wrapstring break_on_hyphens", jinja_filters_str_wordwrap, NULL},
    /* clang-format on */
};

const struct jinja_filter *jinja_filters_find(const char *name, size_t len) {
    for (size_t i = 0; i < N_ELEMENTS(filters); i++)
        if (strlen(filters[i].name) == len && memcmp(filters[i].name, name, len) == 0) return &filters[i];
    return NULL;
}

enum err jinja_filters_apply(struct jinja_run *r, const struct jinja_filter *f, const struct jinja_value *in,
                             const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_value *p[JINJA_ARGS_MAX];
    if (in->type == JINJA_UNDEF && in->kind == JINJA_UNDEF_UNSAFE && f->apply != filter_default)
        return jinja_value_fail_undef(r, in);
    if (f->any) return f->any(r, in, args, out);
    TRY(jinja_args_bind(r, args, f->name, f->params, p));
    return f->apply(r, in, p, out);
}

enum err jinja_filters_apply_name(struct jinja_run *r, const struct jinja_value *name, const struct jinja_value *in,
                                  const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_filter *const f = name->type == JINJA_STR ? jinja_filters_find(name->s, name->len) : NULL;
    if (f) return jinja_filters_apply(r, f, in, args, out);
    return jinja_run_fail(r, "No filter named '%.*s'.", name->type == JINJA_STR && name->len < 60 ? (int)name->len : 1,
                          name->type == JINJA_STR ? name->s : "?");
}
