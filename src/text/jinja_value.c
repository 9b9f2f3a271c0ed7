#include "text/jinja_value.h"

#include "text/jinja_dict.h"
#include "text/jinja_str.h"

const char *jinja_value_type_name(const struct jinja_value *v) {
    static const char *const seq[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator"};
    static const char *const names[] = {"Undefined", "NoneType", "bool",   "int",       "float",
                                        "str",       "list",     "dict",   "Namespace", "LoopContext",
                                        "Macro",     "function", "method", "Cycler",    "Joiner"};
    if (v->type == JINJA_LIST) return seq[v->list->kind];
    if (v->type == JINJA_STR && v->kind) return "Markup";
    return names[v->type];
}

enum err jinja_value_str(struct jinja_run *r, const char *s, size_t len, struct jinja_value *out) {
    TRY(jinja_run_walk(r, len));
    char *const copy = jinja_run_alloc(r, len);
    if (!copy) return jinja_run_nomem(r);
    if (len) memcpy(copy, s, len);
    *out = jinja_str(copy, len);
    return ERR_OK;
}

/* A buffer with as much room again, holding a. */
static enum err start_tail(struct jinja_run *r, const struct jinja_value *a, size_t more, struct jinja_value *out) {
    size_t room = a->len + more;
    room += room < 64 ? 64 : room;
    struct jinja_tail *const t = jinja_run_alloc(r, sizeof *t);
    char *const s = t ? jinja_run_alloc(r, room) : NULL;
    if (!s) return jinja_run_nomem(r);
    if (a->len) memcpy(s, a->s, a->len);
    *t = (struct jinja_tail){.end = s + a->len, .limit = s + room};
    *out = jinja_str(s, a->len);
    out->tail = t;
    return ERR_OK;
}

enum err jinja_value_concat(struct jinja_run *r, const struct jinja_value *a, const char *s, size_t len,
                            struct jinja_value *out) {
    const uint8_t kind = a->kind;
    if (len > r->limits.output_bytes || a->len > r->limits.output_bytes - len)
        return err_set(r->msg, ERR_LIMIT, "chat template, line %u: a text passes %zu bytes", r->line,
                       r->limits.output_bytes);
    TRY(jinja_run_walk(r, len));
    const bool in_place = a->tail && a->s + a->len == a->tail->end && len <= (size_t)(a->tail->limit - a->tail->end);
    struct jinja_value v = *a;
    if (!in_place) {
        TRY(jinja_run_walk(r, a->len));
        TRY(start_tail(r, a, len, &v));
    }
    if (len) memmove(v.tail->end, s, len);
    v.tail->end += len;
    v.len += len;
    v.kind = kind;
    *out = v;
    return ERR_OK;
}

enum err jinja_value_list(struct jinja_run *r, enum jinja_seq kind, size_t cap, struct jinja_value *out) {
    TRY(jinja_run_step(r, (int64_t)(cap / 8)));
    struct jinja_list *const l = jinja_run_alloc(r, sizeof *l);
    struct jinja_value *const v = l && cap < SIZE_MAX / sizeof *v ? jinja_run_alloc(r, cap * sizeof *v) : NULL;
    if (!v) return jinja_run_nomem(r);
    *l = (struct jinja_list){.kind = (uint8_t)kind, .cap = cap, .v = v};
    *out = (struct jinja_value){.type = JINJA_LIST, .list = l};
    return ERR_OK;
}

enum err jinja_value_push(struct jinja_run *r, struct jinja_list *l, const struct jinja_value *v) {
    if (l->n == l->cap) {
        const size_t cap = l->cap ? l->cap * 2 : 8;
        struct jinja_value *const bigger = jinja_run_alloc(r, cap * sizeof *bigger);
        if (!bigger) return jinja_run_nomem(r);
        if (l->n) memcpy(bigger, l->v, l->n * sizeof *bigger);
        l->v = bigger;
        l->cap = cap;
    }
    l->v[l->n++] = *v;
    return ERR_OK;
}

enum err jinja_value_pair(struct jinja_run *r, enum jinja_seq kind, const struct jinja_value *a,
                          const struct jinja_value *b, struct jinja_value *out) {
    TRY(jinja_value_list(r, kind, 2, out));
    out->list->v[0] = *a;
    out->list->v[1] = *b;
    out->list->n = 2;
    return ERR_OK;
}

bool jinja_value_truth(const struct jinja_value *v) {
    switch ((enum jinja_type)v->type) {
    case JINJA_UNDEF:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v->b;
    case JINJA_INT:
        return v->i != 0;
    case JINJA_FLOAT:
        return v->f != 0;
    case JINJA_STR:
        return v->len != 0;
    case JINJA_LIST:
        return v->list->kind == JINJA_SEQ_GENERATOR || v->list->n != 0;
    case JINJA_DICT:
        return v->dict->n != 0;
    case JINJA_LOOP:
    case JINJA_NS:
    case JINJA_MACRO:
    case JINJA_FUNC:
    case JINJA_METHOD:
    case JINJA_CYCLER:
    case JINJA_JOINER:
        return true;
    }
    return true;
}

static enum err equal_lists(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b, bool *out) {
    *out = a == b;
    if (*out || a->kind != b->kind || a->kind == JINJA_SEQ_GENERATOR || a->n != b->n) return ERR_OK;
    for (size_t i = 0; i < a->n; i++) {
        TRY(jinja_value_equal(r, &a->v[i], &b->v[i], out));
        if (!*out) return ERR_OK;
    }
    *out = true;
    return ERR_OK;
}

static enum err equal_dicts(struct jinja_run *r, const struct jinja_dict *a, const struct jinja_dict *b, bool *out) {
    *out = a == b;
    if (*out || a->n != b->n) return ERR_OK;
    for (size_t i = 0; i < a->n; i++) {
        const struct jinja_value *const other = jinja_dict_get(b, &a->pairs[i].key);
        *out = false;
        if (!other) return ERR_OK;
        TRY(jinja_value_equal(r, &a->pairs[i].value, other, out));
        if (!*out) return ERR_OK;
    }
    *out = true;
    return ERR_OK;
}

static bool equal_numbers(const struct jinja_value *a, const struct jinja_value *b) {
    if (jinja_is_int(a) && jinja_is_int(b)) return jinja_as_int(a) == jinja_as_int(b);
    return jinja_as_f64(a) == jinja_as_f64(b);
}

enum err jinja_value_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, bool *out) {
    *out = false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out = equal_numbers(a, b);
        return ERR_OK;
    }
    if (a->type != b->type) return ERR_OK;
    enum err e = ERR_OK;
    TRY(jinja_run_step(r, 1));
    TRY(jinja_run_enter(r));
    switch ((enum jinja_type)a->type) {
    case JINJA_UNDEF:
    case JINJA_NONE:
        *out = true;
        break;
    case JINJA_STR:
        *out = a->len == b->len && memcmp(a->s, b->s, a->len) == 0;
        if (*out) e = jinja_run_walk(r, a->len);
        break;
    case JINJA_LIST:
        e = equal_lists(r, a->list, b->list, out);
        break;
    case JINJA_DICT:
        e = equal_dicts(r, a->dict, b->dict, out);
        break;
    case JINJA_FUNC:
        *out = a->kind == b->kind;
        break;
    case JINJA_METHOD:
        *out = a->kind == b->kind && a->self == b->self;
        break;
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_NS:
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_CYCLER:
    case JINJA_JOINER:
        *out = a->list == b->list;
        break;
    }
    jinja_run_leave(r);
    return e;
}

static enum err less_lists(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                           const char *op, bool *out) {
    const struct jinja_list *const x = a->list, *const y = b->list;
    for (size_t i = 0; i < x->n && i < y->n; i++) {
        bool same;
        TRY(jinja_value_equal(r, &x->v[i], &y->v[i], &same));
        if (!same) return jinja_value_less(r, &x->v[i], &y->v[i], op, out);
    }
    *out = x->n < y->n;
    return ERR_OK;
}

/* Byte order of UTF-8 is the order of code points. */
static bool less_str(const struct jinja_value *a, const struct jinja_value *b) {
    const size_t n = a->len < b->len ? a->len : b->len;
    const int c = n ? memcmp(a->s, b->s, n) : 0;
    return c < 0 || (c == 0 && a->len < b->len);
}

enum err jinja_value_less(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, const char *op,
                          bool *out) {
    *out = false;
    TRY(jinja_run_step(r, 1));
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *out =
            jinja_is_int(a) && jinja_is_int(b) ? jinja_as_int(a) < jinja_as_int(b) : jinja_as_f64(a) < jinja_as_f64(b);
        return ERR_OK;
    }
    if (a->type == JINJA_STR && b->type == JINJA_STR) {
        *out = less_str(a, b);
        return jinja_run_walk(r, a->len < b->len ? a->len : b->len);
    }
    if (a->type == JINJA_LIST && b->type == JINJA_LIST && a->list->kind == b->list->kind &&
        a->list->kind <= JINJA_SEQ_TUPLE) {
        TRY(jinja_run_enter(r));
        const enum err e = less_lists(r, a, b, op, out);
        jinja_run_leave(r);
        return e;
    }
    if (a->type == JINJA_UNDEF) return jinja_value_fail_undef(r, a);
    if (b->type == JINJA_UNDEF) return jinja_value_fail_undef(r, b);
    const bool swapped = op[0] == '>'; /* a > b is asked as b < a */
    return jinja_run_fail(r, "'%s' not supported between instances of '%s' and '%s'", op,
                          jinja_value_type_name(swapped ? b : a), jinja_value_type_name(swapped ? a : b));
}

static enum err characters(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **items, size_t *n) {
    struct jinja_value list;
    const size_t count = jinja_str_count(v->s, v->len);
    TRY(jinja_run_walk(r, v->len));
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, count, &list));
    for (size_t i = 0; i < v->len;) {
        const size_t len = jinja_str_next(v->s + i, v->len - i);
        list.list->v[list.list->n++] = jinja_str(v->s + i, len);
        i += len;
    }
    *items = list.list->v;
    *n = list.list->n;
    return ERR_OK;
}

enum err jinja_value_iterate(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **items, size_t *n) {
    *items = NULL;
    *n = 0;
    struct jinja_value list;
    switch ((enum jinja_type)v->type) {
    case JINJA_UNDEF:
        if (v->kind == JINJA_UNDEF_UNSAFE) return jinja_value_fail_undef(r, v);
        return ERR_OK;
    case JINJA_STR:
        return characters(r, v, items, n);
    case JINJA_LIST:
        *items = v->list->v + v->list->pos;
        *n = v->list->n - v->list->pos;
        if (v->list->kind == JINJA_SEQ_GENERATOR) v->list->pos = v->list->n;
        return ERR_OK;
    case JINJA_DICT:
        TRY(jinja_value_list(r, JINJA_SEQ_LIST, v->dict->n, &list));
        for (size_t i = 0; i < v->dict->n; i++)
            list.list->v[i] = v->dict->pairs[i].key;
        *items = list.list->v;
        *n = v->dict->n;
        return ERR_OK;
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_NS:
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_FUNC:
    case JINJA_METHOD:
    case JINJA_CYCLER:
    case JINJA_JOINER:
        break;
    }
    return jinja_run_fail(r, "'%s' object is not iterable", jinja_value_type_name(v));
}

enum err jinja_value_to_list(struct jinja_run *r, const struct jinja_value *v, enum jinja_seq kind,
                             struct jinja_value *out) {
    struct jinja_value *items;
    size_t n;
    TRY(jinja_value_iterate(r, v, &items, &n));
    TRY(jinja_value_list(r, kind, n, out));
    if (n) memcpy(out->list->v, items, n * sizeof *items);
    out->list->n = n;
    return ERR_OK;
}

enum err jinja_value_length(struct jinja_run *r, const struct jinja_value *v, int64_t *out) {
    *out = 0;
    if (v->type == JINJA_UNDEF && v->kind != JINJA_UNDEF_UNSAFE) return ERR_OK;
    if (v->type == JINJA_UNDEF) return jinja_value_fail_undef(r, v);
    if (v->type == JINJA_STR) {
        *out = (int64_t)jinja_str_count(v->s, v->len);
        return jinja_run_walk(r, v->len);
    }
    if (v->type == JINJA_LIST && v->list->kind != JINJA_SEQ_GENERATOR)
        *out = (int64_t)v->list->n;
    else if (v->type == JINJA_DICT)
        *out = (int64_t)v->dict->n;
    else if (v->type == JINJA_LOOP)
        return jinja_run_fail(r, "len(loop) is written loop.length");
    else
        return jinja_run_fail(r, "object of type '%s' has no len()", jinja_value_type_name(v));
    return ERR_OK;
}

enum err jinja_value_fail_undef(struct jinja_run *r, const struct jinja_value *v) {
    const int len = v->len > 200 ? 200 : (int)v->len;
    switch ((enum jinja_undef)v->kind) {
    case JINJA_UNDEF_NAME:
        return jinja_run_fail(r, "'%.*s' is undefined", len, v->s);
    case JINJA_UNDEF_ATTR:
        if (strcmp(v->owner, "NoneType") == 0) return jinja_run_fail(r, "'None' has no attribute '%.*s'", len, v->s);
        return jinja_run_fail(r, "'%s object' has no attribute '%.*s'", v->owner, len, v->s);
    case JINJA_UNDEF_ITEM:
        return jinja_run_fail(r, "%s object has no element %.*s", v->owner, len, v->s);
    case JINJA_UNDEF_UNSAFE:
        return jinja_run_fail(r, "access to attribute '%.*s' of '%s' object is unsafe.", len, v->s, v->owner);
    case JINJA_UNDEF_TEXT:
        break;
    }
    return jinja_run_fail(r, "%.*s", len, v->s);
}
