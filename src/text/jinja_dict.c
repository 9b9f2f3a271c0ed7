#include "text/jinja_dict.h"

#include <math.h>

#include "base/hash.h"

enum { UNINDEXED_MAX = 8, TUPLE_DEPTH_MAX = 32 };

static bool key_hash(const struct jinja_value *v, int depth, uint64_t *out);

static bool tuple_hash(const struct jinja_list *l, int depth, uint64_t *out) {
    if (l->kind != JINJA_SEQ_TUPLE || depth == 0) return false;
    uint64_t sum = l->n;
    for (size_t i = 0; i < l->n; i++) {
        uint64_t h;
        if (!key_hash(&l->v[i], depth - 1, &h)) return false;
        sum = hash_mix(sum ^ h) + i;
    }
    *out = sum;
    return true;
}

/* False for what cannot be a key. Equal numbers of different types share a hash. */
static bool key_hash(const struct jinja_value *v, int depth, uint64_t *out) {
    if (v->type == JINJA_STR) {
        *out = hash_bytes(v->s, v->len, 0);
    } else if (jinja_is_int(v)) {
        *out = hash_mix((uint64_t)jinja_as_int(v));
    } else if (v->type == JINJA_FLOAT) {
        const bool whole = fabs(v->f) < 0x1p62 && floor(v->f) == v->f;
        *out = hash_mix(whole ? (uint64_t)(int64_t)v->f : hash_bytes(&v->f, sizeof v->f, 0));
    } else if (v->type == JINJA_LIST) {
        return tuple_hash(v->list, depth, out);
    } else {
        *out = v->type;
        return v->type != JINJA_DICT;
    }
    return true;
}

static bool key_equal(const struct jinja_value *a, const struct jinja_value *b) {
    if (a->type == JINJA_STR || b->type == JINJA_STR)
        return a->type == b->type && a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        if (jinja_is_int(a) && jinja_is_int(b)) return jinja_as_int(a) == jinja_as_int(b);
        return jinja_as_f64(a) == jinja_as_f64(b);
    }
    if (a->type != b->type) return false;
    if (a->type == JINJA_NONE || a->type == JINJA_UNDEF) return true;
    if (a->type == JINJA_FUNC) return a->kind == b->kind;
    if (a->type != JINJA_LIST || a->list == b->list) return a->list == b->list;
    if (a->list->n != b->list->n) return false;
    for (size_t i = 0; i < a->list->n; i++)
        if (!key_equal(&a->list->v[i], &b->list->v[i])) return false;
    return true;
}

enum err jinja_dict_new(struct jinja_run *r, enum jinja_type type, struct jinja_value *out) {
    struct jinja_dict *const d = jinja_run_alloc(r, sizeof *d);
    if (!d) return jinja_run_nomem(r);
    *d = (struct jinja_dict){0};
    *out = (struct jinja_value){.type = (uint8_t)type, .dict = d};
    return ERR_OK;
}

static void index_add(struct jinja_dict *d, uint64_t hash, size_t i_pair) {
    size_t i = hash & (d->n_index - 1);
    while (d->index[i])
        i = (i + 1) & (d->n_index - 1);
    d->index[i] = (uint32_t)i_pair + 1;
}

/* Doubles the pairs, and rebuilds the index at half load. */
static enum err grow(struct jinja_run *r, struct jinja_dict *d) {
    const size_t cap = d->cap ? d->cap * 2 : 4;
    if (cap > UINT32_MAX / 4) return jinja_run_nomem(r);
    struct jinja_pair *const pairs = jinja_run_alloc(r, cap * sizeof *pairs);
    if (!pairs) return jinja_run_nomem(r);
    if (d->n) memcpy(pairs, d->pairs, d->n * sizeof *pairs);
    d->pairs = pairs;
    d->cap = cap;
    if (cap <= UNINDEXED_MAX) return ERR_OK;
    uint32_t *const index = jinja_run_alloc(r, cap * 2 * sizeof *index);
    if (!index) return jinja_run_nomem(r);
    memset(index, 0, cap * 2 * sizeof *index);
    d->index = index;
    d->n_index = cap * 2;
    for (size_t i = 0; i < d->n; i++) {
        uint64_t hash = 0;
        (void)key_hash(&d->pairs[i].key, TUPLE_DEPTH_MAX, &hash); /* it was a key before */
        index_add(d, hash, i);
    }
    return ERR_OK;
}

static struct jinja_pair *find(const struct jinja_dict *d, const struct jinja_value *key, uint64_t hash) {
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++)
            if (key_equal(&d->pairs[i].key, key)) return &d->pairs[i];
        return NULL;
    }
    for (size_t i = hash & (d->n_index - 1); d->index[i]; i = (i + 1) & (d->n_index - 1)) {
        struct jinja_pair *const p = &d->pairs[d->index[i] - 1];
        if (key_equal(&p->key, key)) return p;
    }
    return NULL;
}

enum err jinja_dict_check_key(struct jinja_run *r, const struct jinja_value *v) {
    uint64_t hash;
    if (v->type == JINJA_UNDEF && v->kind == JINJA_UNDEF_UNSAFE) return jinja_value_fail_undef(r, v);
    if (key_hash(v, TUPLE_DEPTH_MAX, &hash)) return ERR_OK;
    return jinja_run_fail(r, "unhashable type: '%s'", jinja_value_type_name(v));
}

enum err jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, const struct jinja_value *key,
                        const struct jinja_value *value) {
    uint64_t hash;
    if (!key_hash(key, TUPLE_DEPTH_MAX, &hash)) return jinja_dict_check_key(r, key);
    TRY(jinja_run_step(r, 1));
    struct jinja_pair *const old = find(d, key, hash);
    if (old) {
        old->value = *value;
        return ERR_OK;
    }
    if (d->n == d->cap) TRY(grow(r, d));
    d->pairs[d->n] = (struct jinja_pair){.key = *key, .value = *value};
    if (d->index) index_add(d, hash, d->n);
    d->n++;
    return ERR_OK;
}

const struct jinja_value *jinja_dict_get(const struct jinja_dict *d, const struct jinja_value *key) {
    uint64_t hash = 0;
    if (d->n == 0) return NULL;
    if ((d->index || key->type == JINJA_LIST || key->type == JINJA_DICT) && !key_hash(key, TUPLE_DEPTH_MAX, &hash))
        return NULL;
    const struct jinja_pair *const p = find(d, key, hash);
    return p ? &p->value : NULL;
}

const struct jinja_value *jinja_dict_get_str(const struct jinja_dict *d, const char *s, size_t len) {
    const struct jinja_value key = jinja_str(s, len);
    return jinja_dict_get(d, &key);
}

enum err jinja_dict_update(struct jinja_run *r, struct jinja_dict *d, const struct jinja_value *from) {
    if (from->type == JINJA_DICT || from->type == JINJA_NS) {
        const struct jinja_dict *const f = from->dict;
        for (size_t i = 0; i < f->n; i++)
            TRY(jinja_dict_put(r, d, &f->pairs[i].key, &f->pairs[i].value));
        return ERR_OK;
    }
    struct jinja_value *items;
    size_t n;
    TRY(jinja_value_iterate(r, from, &items, &n));
    for (size_t i = 0; i < n; i++) {
        struct jinja_value *pair;
        size_t n_pair;
        TRY(jinja_value_iterate(r, &items[i], &pair, &n_pair));
        if (n_pair != 2)
            return jinja_run_fail(r, "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                                  n_pair);
        TRY(jinja_dict_put(r, d, &pair[0], &pair[1]));
    }
    return ERR_OK;
}
