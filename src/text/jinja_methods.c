#include "text/jinja_methods.h"

#include <math.h>

#include "text/jinja_dict.h"
#include "text/jinja_eval.h"
#include "text/jinja_methods_int.h"

typedef enum err (*method_fn)(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                              struct jinja_value *out);
typedef enum err (*free_fn)(struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args,
                            struct jinja_value *out);

/* ---- dicts, lists and the rest; strings are in jinja_methods_str.c ---- */

static enum err dict_get(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                         struct jinja_value *out) {
    TRY(jinja_dict_check_key(r, p[0]));
    const struct jinja_value *const v = jinja_dict_get(self->dict, p[0]);
    *out = v ? *v : p[1] ? *p[1] : jinja_none();
    return ERR_OK;
}

static enum err dict_items(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                           struct jinja_value *out) {
    (void)p;
    const struct jinja_dict *const d = self->dict;
    TRY(jinja_value_list(r, JINJA_SEQ_ITEMS, d->n, out));
    for (size_t i = 0; i < d->n; i++)
        TRY(jinja_value_pair(r, JINJA_SEQ_TUPLE, &d->pairs[i].key, &d->pairs[i].value, &out->list->v[i]));
    out->list->n = d->n;
    return ERR_OK;
}

static enum err dict_fromkeys(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                              struct jinja_value *out) {
    const struct jinja_value none = jinja_none();
    struct jinja_value *keys = NULL;
    size_t n = 0;
    (void)self;
    TRY(jinja_value_iterate(r, p[0], &keys, &n));
    TRY(jinja_dict_new(r, JINJA_DICT, out));
    for (size_t i = 0; i < n; i++)
        TRY(jinja_dict_put(r, out->dict, &keys[i], p[1] ? p[1] : &none));
    return ERR_OK;
}

static enum err dict_part(struct jinja_run *r, const struct jinja_dict *d, enum jinja_seq kind,
                          struct jinja_value *out) {
    TRY(jinja_value_list(r, kind, d->n, out));
    for (size_t i = 0; i < d->n; i++)
        out->list->v[i] = kind == JINJA_SEQ_KEYS ? d->pairs[i].key : d->pairs[i].value;
    out->list->n = d->n;
    return ERR_OK;
}

static enum err dict_keys(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                          struct jinja_value *out) {
    (void)p;
    return dict_part(r, self->dict, JINJA_SEQ_KEYS, out);
}

static enum err dict_values(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                            struct jinja_value *out) {
    (void)p;
    return dict_part(r, self->dict, JINJA_SEQ_VALUES, out);
}

/* Nothing changes a dict or a list, so a copy is the thing itself. */
static enum err any_copy(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                         struct jinja_value *out) {
    (void)p;
    *out = *self;
    return jinja_run_step(r, 1);
}

static enum err list_count(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                           struct jinja_value *out) {
    int64_t n = 0;
    for (size_t i = 0; i < self->list->n; i++) {
        bool same;
        TRY(jinja_value_equal(r, &self->list->v[i], p[0], &same));
        n += same;
    }
    *out = jinja_int(n);
    return jinja_run_step(r, (int64_t)self->list->n / 4);
}

static enum err list_index(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                           struct jinja_value *out) {
    for (size_t i = 0; i < self->list->n; i++) {
        bool same;
        TRY(jinja_run_step(r, 1));
        TRY(jinja_value_equal(r, &self->list->v[i], p[0], &same));
        *out = jinja_int((__int128)i);
        if (same) return ERR_OK;
    }
    return jinja_run_fail(r, "the value is not in the list");
}

static enum err float_is_integer(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                                 struct jinja_value *out) {
    (void)p;
    *out = jinja_bool(isfinite(self->f) && floor(self->f) == self->f);
    return jinja_run_step(r, 1);
}

static enum err cycler_next(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                            struct jinja_value *out) {
    (void)p;
    struct jinja_list *const l = self->cycle;
    *out = l->v[l->pos];
    l->pos = (l->pos + 1) % l->n;
    return jinja_run_step(r, 1);
}

static enum err cycler_reset(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p,
                             struct jinja_value *out) {
    (void)p;
    self->cycle->pos = 0;
    *out = jinja_none();
    return jinja_run_step(r, 1);
}

/* Rows of one name stand together: a name's number is that of its first row. call and any NULL: the sandbox forbids
 * the attribute, because it would change its object. */
static const struct method {
    const char *name;
    enum jinja_type type;
    const char *params;
    method_fn call;
    free_fn any; /* takes whatever arguments there are */
} methods[] = {
    /* clang-format off */
    {"append",       JINJA_LIST, NULL, NULL, NULL},
    {"capitalize",   JINJA_STR, "", jinja_methods_str_capitalize, NULL},
    {"casefold",     JINJA_STR, "", jinja_methods_str_casefold, NULL},
    {"center",       JINJA_STR, "width | fillchar", jinja_methods_str_center, NULL},
    {"changed",      JINJA_LOOP, NULL, NULL, jinja_loop_changed},
    {"clear",        JINJA_LIST, NULL, NULL, NULL},
    {"clear",        JINJA_DICT, NULL, NULL, NULL},
    {"copy",         JINJA_LIST, "", any_copy, NULL},
    {"copy",         JINJA_DICT, "", any_copy, NULL},
    {"count",        JINJA_LIST, "value", list_count, NULL},
    {"count",        JINJA_STR, "sub | start end", jinja_methods_str_count, NULL},
    {"cycle",        JINJA_LOOP, NULL, NULL, jinja_loop_cycle},
    {"endswith",     JINJA_STR, "suffix | start end", jinja_methods_str_endswith, NULL},
    {"expandtabs",   JINJA_STR, "| tabsize", jinja_methods_str_expandtabs, NULL},
    {"extend",       JINJA_LIST, NULL, NULL, NULL},
    {"find",         JINJA_STR, "sub | start end", jinja_methods_str_find, NULL},
    {"format",       JINJA_STR, NULL, NULL, jinja_methods_str_format},
    {"format_map",   JINJA_STR, "mapping", jinja_methods_str_format_map, NULL},
    {"fromkeys",     JINJA_DICT, "iterable | value", dict_fromkeys, NULL},
    {"get",          JINJA_DICT, "key | default", dict_get, NULL},
    {"index",        JINJA_LIST, "value", list_index, NULL},
    {"index",        JINJA_STR, "sub | start end", jinja_methods_str_index, NULL},
    {"insert",       JINJA_LIST, NULL, NULL, NULL},
    {"is_integer",   JINJA_FLOAT, "", float_is_integer, NULL},
    {"isalnum",      JINJA_STR, "", jinja_methods_str_isalnum, NULL},
    {"isalpha",      JINJA_STR, "", jinja_methods_str_isalpha, NULL},
    {"isascii",      JINJA_STR, "", jinja_methods_str_isascii, NULL},
    {"isdecimal",    JINJA_STR, "", jinja_methods_str_isdecimal, NULL},
    {"isdigit",      JINJA_STR, "", jinja_methods_str_isdigit, NULL},
    {"islower",      JINJA_STR, "", jinja_methods_str_islower, NULL},
    {"isnumeric",    JINJA_STR, "", jinja_methods_str_isnumeric, NULL},
    {"isidentifier", JINJA_STR, "", jinja_methods_str_isidentifier, NULL},
    {"isprintable",  JINJA_STR, "", jinja_methods_str_isprintable, NULL},
    {"isspace",      JINJA_STR, "", jinja_methods_str_isspace, NULL},
    {"istitle",      JINJA_STR, "", jinja_methods_str_istitle, NULL},
    {"isupper",      JINJA_STR, "", jinja_methods_str_isupper, NULL},
    {"items",        JINJA_DICT, "", dict_items, NULL},
    {"join",         JINJA_STR, "iterable", jinja_methods_split_join, NULL},
    {"keys",         JINJA_DICT, "", dict_keys, NULL},
    {"ljust",        JINJA_STR, "width | fillchar", jinja_methods_str_ljust, NULL},
    {"lower",        JINJA_STR, "", jinja_methods_str_lower, NULL},
    {"lstrip",       JINJA_STR, "| chars", jinja_methods_str_lstrip, NULL},
    {"next",         JINJA_CYCLER, "", cycler_next, NULL},
    {"partition",    JINJA_STR, "sep", jinja_methods_split_partition, NULL},
    {"pop",          JINJA_LIST, NULL, NULL, NULL},
    {"pop",          JINJA_DICT, NULL, NULL, NULL},
    {"popitem",      JINJA_DICT, NULL, NULL, NULL},
    {"remove",       JINJA_LIST, NULL, NULL, NULL},
    {"removeprefix", JINJA_STR, "prefix", jinja_methods_str_removeprefix, NULL},
    {"removesuffix", JINJA_STR, "suffix", jinja_methods_str_removesuffix, NULL},
    {"replace",      JINJA_STR, "old new | count", jinja_methods_str_replace, NULL},
    {"reset",        JINJA_CYCLER, "", cycler_reset, NULL},
    {"reverse",      JINJA_LIST, NULL, NULL, NULL},
    {"rfind",        JINJA_STR, "sub | start end", jinja_methods_str_rfind, NULL},
    {"rindex",       JINJA_STR, "sub | start end", jinja_methods_str_rindex, NULL},
    {"rjust",        JINJA_STR, "width | fillchar", jinja_methods_str_rjust, NULL},
    {"rpartition",   JINJA_STR, "sep", jinja_methods_split_rpartition, NULL},
    {"rsplit",       JINJA_STR, "| sep maxsplit", jinja_methods_split_rsplit, NULL},
    {"rstrip",       JINJA_STR, "| chars", jinja_methods_str_rstrip, NULL},
    {"setdefault",   JINJA_DICT, NULL, NULL, NULL},
    {"sort",         JINJA_LIST, NULL, NULL, NULL},
    {"split",        JINJA_STR, "| sep maxsplit", jinja_methods_split_split, NULL},
    {"splitlines",   JINJA_STR, "| keepends", jinja_methods_split_splitlines, NULL},
    {"startswith",   JINJA_STR, "prefix | start end", jinja_methods_str_startswith, NULL},
    {"strip",        JINJA_STR, "| chars", jinja_methods_str_strip, NULL},
    {"swapcase",     JINJA_STR, "", jinja_methods_str_swapcase, NULL},
    {"title",        JINJA_STR, "", jinja_methods_str_title, NULL},
    {"update",       JINJA_DICT, NULL, NULL, NULL},
    {"upper",        JINJA_STR, "", jinja_methods_str_upper, NULL},
    {"values",       JINJA_DICT, "", dict_values, NULL},
    {"zfill",        JINJA_STR, "width", jinja_methods_str_zfill, NULL},
    /* clang-format on */
};

uint8_t jinja_methods_number(const char *name, size_t len) {
    for (size_t i = 0; i < N_ELEMENTS(methods); i++)
        if (strlen(methods[i].name) == len && memcmp(methods[i].name, name, len) == 0) return (uint8_t)(i + 1);
    return 0;
}

/* Tuples, ranges and views have the harmless methods of lists only. */
static bool has(const struct method *m, const struct jinja_value *v) {
    if (m->type != (enum jinja_type)v->type) return false;
    if (v->type != JINJA_LIST || v->list->kind == JINJA_SEQ_LIST) return true;
    return v->list->kind <= JINJA_SEQ_RANGE && m->call && m->call != any_copy;
}

enum err jinja_methods_get(struct jinja_run *r, const struct jinja_value *v, uint8_t number, bool *found,
                           struct jinja_value *out) {
    *found = false;
    for (size_t i = number - 1u; i < N_ELEMENTS(methods); i++) {
        const struct method *const m = &methods[i];
        if (strcmp(m->name, methods[number - 1].name) != 0) break;
        if (!has(m, v)) continue;
        *found = true;
        if (!m->call && !m->any) {
            *out = jinja_undef(JINJA_UNDEF_UNSAFE, jinja_value_type_name(v), m->name, strlen(m->name));
            return ERR_OK;
        }
        struct jinja_value *const self = jinja_run_alloc(r, sizeof *self);
        if (!self) return jinja_run_nomem(r);
        *self = *v;
        *out = (struct jinja_value){.type = JINJA_METHOD, .kind = (uint8_t)i, .self = self};
        return ERR_OK;
    }
    return ERR_OK;
}

enum err jinja_methods_call(struct jinja_run *r, const struct jinja_value *method, const struct jinja_args *args,
                            struct jinja_value *out) {
    const struct method *const m = &methods[method->kind];
    const struct jinja_value *p[JINJA_ARGS_MAX];
    if (m->any) return m->any(r, method->self, args, out);
    TRY(jinja_args_bind(r, args, m->name, m->params, p));
    return m->call(r, method->self, p, out);
}
