/* Filters of sequences. */
#include "text/jinja_access.h"
#include "text/jinja_dict.h"
#include "text/jinja_filters.h"
#include "text/jinja_filters_int.h"
#include "text/jinja_ops.h"
#include "text/jinja_repr.h"
#include "text/jinja_sort.h"
#include "text/jinja_str.h"

#define FILTER(name)                                                                                                   \
    enum err jinja_filters_seq_##name(struct jinja_run *r, const struct jinja_value *in, const struct jinja_value **p, \
                                      struct jinja_value *out)

struct items {
    struct jinja_value *v;
    size_t n;
};

static enum err items_of(struct jinja_run *r, const struct jinja_value *v, struct items *out) {
    *out = (struct items){0};
    return jinja_value_iterate(r, v, &out->v, &out->n);
}

static struct jinja_value empty(const char *text) {
    return jinja_undef(JINJA_UNDEF_TEXT, NULL, text, strlen(text));
}

FILTER(first) {
    struct items it;
    (void)p;
    if (in->type == JINJA_STR && in->len) {
        *out = jinja_str(in->s, jinja_str_next(in->s, in->len));
        return ERR_OK;
    }
    TRY(items_of(r, in, &it));
    *out = it.n ? it.v[0] : empty("No first item, sequence was empty.");
    return ERR_OK;
}

FILTER(last) {
    struct items it;
    (void)p;
    if (in->type == JINJA_LIST && in->list->kind == JINJA_SEQ_GENERATOR)
        return jinja_run_fail(r, "'generator' object is not reversible");
    TRY(items_of(r, in, &it));
    *out = it.n ? it.v[it.n - 1] : empty("No last item, sequence was empty.");
    return ERR_OK;
}

FILTER(list) {
    (void)p;
    return jinja_value_to_list(r, in, JINJA_SEQ_LIST, out);
}

static enum err reverse_text(struct jinja_run *r, const struct jinja_value *in, struct jinja_value *out) {
    struct items it;
    const size_t mark = r->out.len;
    const char *s = NULL;
    size_t len = 0;
    TRY(items_of(r, in, &it));
    for (size_t i = it.n; i-- > 0;)
        TRY(jinja_run_emit(r, it.v[i].s, it.v[i].len));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    return ERR_OK;
}

FILTER(reverse) {
    (void)p;
    if (in->type == JINJA_STR) return reverse_text(r, in, out);
    TRY(jinja_value_to_list(r, in, JINJA_SEQ_GENERATOR, out));
    struct jinja_list *const l = out->list;
    for (size_t i = 0; i < l->n / 2; i++) {
        const struct jinja_value v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
    return ERR_OK;
}

FILTER(items) {
    (void)p;
    if (in->type == JINJA_UNDEF) return jinja_value_list(r, JINJA_SEQ_GENERATOR, 0, out);
    if (in->type != JINJA_DICT) return jinja_run_fail(r, "Can only get item pairs from a mapping.");
    const struct jinja_dict *const d = in->dict;
    TRY(jinja_value_list(r, JINJA_SEQ_GENERATOR, d->n, out));
    for (size_t i = 0; i < d->n; i++)
        TRY(jinja_value_pair(r, JINJA_SEQ_TUPLE, &d->pairs[i].key, &d->pairs[i].value, &out->list->v[i]));
    out->list->n = d->n;
    return ERR_OK;
}

/* ---- sorting ---- */

/* A text without its case; anything else as it is. */
static enum err fold(struct jinja_run *r, bool case_sensitive, struct jinja_value *v) {
    const size_t mark = r->out.len;
    if (case_sensitive || v->type != JINJA_STR) return ERR_OK;
    jinja_str_case(&r->out, v->s, v->len, JINJA_STR_LOWER);
    return jinja_run_cut(r, mark, &v->s, &v->len);
}

static bool given(const struct jinja_value *v) {
    return v && v->type != JINJA_NONE;
}

/* "a,b" sorts by a, then by b: the key is a list of both. */
static enum err key_by(struct jinja_run *r, const struct jinja_value *item, const struct jinja_value *path,
                       bool case_sensitive, struct jinja_value *out) {
    if (path->type != JINJA_STR || !memchr(path->s, ',', path->len)) {
        TRY(jinja_access_path(r, item, path, NULL, out));
        return fold(r, case_sensitive, out);
    }
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, 2, out));
    for (size_t at = 0; at <= path->len;) {
        const char *const comma = memchr(path->s + at, ',', path->len - at);
        const size_t len = comma ? (size_t)(comma - path->s) - at : path->len - at;
        const struct jinja_value one = jinja_str(path->s + at, len);
        struct jinja_value key;
        TRY(jinja_access_path(r, item, &one, NULL, &key));
        TRY(fold(r, case_sensitive, &key));
        TRY(jinja_value_push(r, out->list, &key));
        at += len + 1;
    }
    return ERR_OK;
}

/* The keys to compare items by: an attribute or the items themselves. */
static enum err keys_of(struct jinja_run *r, const struct items *it, const struct jinja_value *path,
                        bool case_sensitive, struct jinja_value **out) {
    struct jinja_value keys;
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, it->n, &keys));
    for (size_t i = 0; i < it->n; i++) {
        struct jinja_value *const key = &keys.list->v[i];
        TRY(jinja_run_step(r, 1));
        *key = it->v[i];
        if (given(path))
            TRY(key_by(r, &it->v[i], path, case_sensitive, key));
        else
            TRY(fold(r, case_sensitive, key));
    }
    *out = keys.list->v;
    return ERR_OK;
}

static enum err ordered(struct jinja_run *r, const struct items *it, const struct jinja_value *keys, bool reverse,
                        struct jinja_value *out) {
    size_t *order = NULL;
    TRY(jinja_sort_order(r, keys, it->n, reverse, &order));
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, it->n, out));
    for (size_t i = 0; i < it->n; i++)
        out->list->v[i] = it->v[order[i]];
    out->list->n = it->n;
    return ERR_OK;
}

FILTER(sort) {
    struct items it;
    struct jinja_value *keys = NULL;
    TRY(items_of(r, in, &it));
    TRY(keys_of(r, &it, p[2], jinja_args_bool(p[1], false), &keys));
    return ordered(r, &it, keys, jinja_args_bool(p[0], false), out);
}

FILTER(dictsort) {
    struct jinja_value pairs, *keys = NULL;
    struct items it;
    const bool by_value = p[1] && jinja_is_text(p[1], "value");
    if (p[1] && !by_value && !jinja_is_text(p[1], "key"))
        return jinja_run_fail(r, "You can only sort by either \"key\" or \"value\"");
    if (in->type == JINJA_UNDEF) return jinja_value_fail_undef(r, in);
    if (in->type != JINJA_DICT)
        return jinja_run_fail(r, "'%s' object has no attribute 'items'", jinja_value_type_name(in));
    TRY(jinja_filters_seq_items(r, in, p, &pairs));
    TRY(items_of(r, &pairs, &it));
    const struct jinja_value index = jinja_int(by_value);
    TRY(keys_of(r, &it, &index, jinja_args_bool(p[0], false), &keys));
    return ordered(r, &it, keys, jinja_args_bool(p[2], false), out);
}

FILTER(unique) {
    struct items it;
    struct jinja_value *keys = NULL, seen;
    TRY(items_of(r, in, &it));
    TRY(keys_of(r, &it, p[1], jinja_args_bool(p[0], false), &keys));
    TRY(jinja_dict_new(r, JINJA_DICT, &seen));
    TRY(jinja_value_list(r, JINJA_SEQ_GENERATOR, 0, out));
    for (size_t i = 0; i < it.n; i++) {
        if (jinja_dict_get(seen.dict, &keys[i])) continue;
        TRY(jinja_dict_put(r, seen.dict, &keys[i], &keys[i]));
        TRY(jinja_value_push(r, out->list, &it.v[i]));
    }
    return ERR_OK;
}

static enum err extreme(struct jinja_run *r, const struct jinja_value *in, const struct jinja_value **p, bool max,
                        struct jinja_value *out) {
    struct items it;
    struct jinja_value *keys = NULL;
    size_t best = 0;
    TRY(items_of(r, in, &it));
    *out = empty("No aggregated item, sequence was empty.");
    if (it.n == 0) return ERR_OK;
    TRY(keys_of(r, &it, p[1], jinja_args_bool(p[0], false), &keys));
    for (size_t i = 1; i < it.n; i++) {
        bool better;
        if (max)
            TRY(jinja_value_less(r, &keys[best], &keys[i], ">", &better));
        else
            TRY(jinja_value_less(r, &keys[i], &keys[best], "<", &better));
        if (better) best = i;
    }
    *out = it.v[best];
    return ERR_OK;
}

FILTER(min) {
    return extreme(r, in, p, false, out);
}
FILTER(max) {
    return extreme(r, in, p, true, out);
}

FILTER(sum) {
    struct items it;
    struct jinja_value total = p[1] ? *p[1] : jinja_int(0);
    TRY(items_of(r, in, &it));
    for (size_t i = 0; i < it.n; i++) {
        struct jinja_value v = it.v[i];
        const struct jinja_value before = total;
        TRY(jinja_run_step(r, 1));
        if (given(p[0])) TRY(jinja_access_path(r, &it.v[i], p[0], NULL, &v));
        TRY(jinja_ops_binary(r, NODE_ADD, &before, &v, &total));
    }
    *out = total;
    return ERR_OK;
}

/* ---- groups ---- */

static enum err group_of(struct jinja_run *r, const struct jinja_value *name, const struct jinja_value *members,
                         struct jinja_value *out) {
    TRY(jinja_value_pair(r, JINJA_SEQ_TUPLE, name, members, out));
    out->list->group = true;
    return ERR_OK;
}

/* Pairs of a value of the attribute and the list of items that have it, in order of the values. */
FILTER(groupby) {
    struct items it;
    struct jinja_value keys, members = jinja_none(), group;
    const bool case_sensitive = jinja_args_bool(p[2], false);
    size_t *order = NULL;
    TRY(items_of(r, in, &it));
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, it.n, &keys));
    for (size_t i = 0; i < it.n; i++) {
        TRY(jinja_access_path(r, &it.v[i], p[0], given(p[1]) ? p[1] : NULL, &keys.list->v[i]));
        TRY(fold(r, case_sensitive, &keys.list->v[i]));
    }
    TRY(jinja_sort_order(r, keys.list->v, it.n, false, &order));
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, 0, out));
    for (size_t i = 0; i < it.n; i++) {
        bool same = false;
        if (i) TRY(jinja_value_equal(r, &keys.list->v[order[i - 1]], &keys.list->v[order[i]], &same));
        if (!same) {
            struct jinja_value name;
            TRY(jinja_access_path(r, &it.v[order[i]], p[0], given(p[1]) ? p[1] : NULL, &name));
            TRY(jinja_value_list(r, JINJA_SEQ_LIST, 0, &members));
            TRY(group_of(r, &name, &members, &group));
            TRY(jinja_value_push(r, out->list, &group));
        }
        TRY(jinja_value_push(r, members.list, &it.v[order[i]]));
    }
    return ERR_OK;
}

static enum err count_argument(struct jinja_run *r, const struct jinja_value *v, int64_t *out) {
    TRY(jinja_args_int(r, v, 0, out));
    return *out > 0 ? ERR_OK : jinja_run_fail(r, "the number of items must be positive");
}

/* Lists of n items each. */
FILTER(batch) {
    struct items it;
    int64_t n;
    TRY(count_argument(r, p[0], &n));
    TRY(items_of(r, in, &it));
    TRY(jinja_value_list(r, JINJA_SEQ_GENERATOR, 0, out));
    for (size_t i = 0; i < it.n; i += (size_t)n) {
        struct jinja_value part;
        TRY(jinja_value_list(r, JINJA_SEQ_LIST, 0, &part));
        for (size_t k = i; k < it.n && k - i < (size_t)n; k++)
            TRY(jinja_value_push(r, part.list, &it.v[k]));
        while (given(p[1]) && part.list->n < (size_t)n) {
            TRY(jinja_run_step(r, 1));
            TRY(jinja_value_push(r, part.list, p[1]));
        }
        TRY(jinja_value_push(r, out->list, &part));
        if ((size_t)n >= it.n - i) break;
    }
    return ERR_OK;
}

/* n lists, the first ones longer by one where the items do not divide. */
FILTER(slice) {
    struct items it;
    int64_t n;
    TRY(count_argument(r, p[0], &n));
    TRY(items_of(r, in, &it));
    TRY(jinja_value_list(r, JINJA_SEQ_GENERATOR, 0, out));
    const size_t each = it.n / (size_t)n, longer = it.n % (size_t)n;
    for (size_t i = 0, at = 0; i < (size_t)n; i++) {
        struct jinja_value part;
        const size_t len = each + (i < longer);
        TRY(jinja_run_step(r, 1));
        TRY(jinja_value_list(r, JINJA_SEQ_LIST, len, &part));
        for (size_t k = 0; k < len; k++)
            TRY(jinja_value_push(r, part.list, &it.v[at + k]));
        if (given(p[1]) && i >= longer) TRY(jinja_value_push(r, part.list, p[1]));
        TRY(jinja_value_push(r, out->list, &part));
        at += len;
    }
    return ERR_OK;
}
