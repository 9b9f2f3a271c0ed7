#include "text/jinja_access.h"

#include "text/jinja_dict.h"
#include "text/jinja_eval.h"
#include "text/jinja_methods.h"
#include "text/jinja_number.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

static struct jinja_value no_attr(const struct jinja_value *v, const struct jinja_value *name) {
    return jinja_undef(JINJA_UNDEF_ATTR, jinja_value_type_name(v), name->s, name->len);
}

/* The names that only some types have and that are not methods. */
static enum err special_attr(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *name,
                             struct jinja_value *out) {
    *out = no_attr(v, name);
    switch ((enum jinja_type)v->type) {
    case JINJA_LOOP:
        return jinja_loop_attr(r, v->loop, name, out);
    case JINJA_MACRO:
        if (jinja_is_text(name, "name")) *out = v->macro->sig->name;
        break;
    case JINJA_CYCLER:
        if (jinja_is_text(name, "current")) *out = v->cycle->v[v->cycle->pos];
        break;
    case JINJA_LIST:
        if (v->list->group && jinja_is_text(name, "grouper")) *out = v->list->v[0];
        if (v->list->group && jinja_is_text(name, "list")) *out = v->list->v[1];
        break;
    default:
        break;
    }
    return ERR_OK;
}

static bool is_dunder(const struct jinja_value *name) {
    return name->len > 4 && memcmp(name->s, "__", 2) == 0 && memcmp(name->s + name->len - 2, "__", 2) == 0;
}

enum err jinja_access_attr(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *name,
                           uint8_t method, struct jinja_value *out) {
    const struct jinja_value *item;
    bool found = false;
    if (v->type == JINJA_UNDEF) return jinja_value_fail_undef(r, v);
    if (method) TRY(jinja_methods_get(r, v, method, &found, out));
    if (found) return ERR_OK;
    if (v->type == JINJA_DICT || v->type == JINJA_NS) {
        item = jinja_dict_get_str(v->dict, name->s, name->len);
        *out = item ? *item : no_attr(v, name);
        if (item) return ERR_OK;
    } else {
        TRY(special_attr(r, v, name, out));
    }
    if (out->type == JINJA_UNDEF && is_dunder(name))
        *out = jinja_undef(JINJA_UNDEF_UNSAFE, jinja_value_type_name(v), name->s, name->len);
    return ERR_OK;
}

/* Undefined for a key that is no text: "list object has no element 9". */
static enum err no_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                        struct jinja_value *out) {
    const size_t mark = r->out.len;
    const char *s = NULL;
    size_t len = 0;
    TRY(jinja_repr_value(r, key));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_undef(JINJA_UNDEF_ITEM, jinja_value_type_name(v), s, len);
    return ERR_OK;
}

static bool index_in(__int128 i, size_t n, size_t *out) {
    if (i < 0) i += (__int128)n;
    if (i < 0 || i >= (__int128)n) return false;
    *out = (size_t)i;
    return true;
}

static enum err char_at(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key, bool *found,
                        struct jinja_value *out) {
    size_t i;
    TRY(jinja_run_walk(r, v->len));
    const __int128 wanted = jinja_as_int(key);
    const size_t n = wanted < 0 ? jinja_str_count(v->s, v->len) : v->len;
    *found = index_in(wanted, n, &i);
    if (!*found) return ERR_OK;
    const size_t at = jinja_str_offset(v->s, v->len, i);
    *found = at < v->len;
    if (*found) *out = jinja_str(v->s + at, jinja_str_next(v->s + at, v->len - at));
    return ERR_OK;
}

enum err jinja_access_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                           struct jinja_value *out) {
    bool found = false;
    if (v->type == JINJA_UNDEF) return jinja_value_fail_undef(r, v);
    if (v->type == JINJA_DICT) {
        const struct jinja_value *const item = jinja_dict_get(v->dict, key);
        if (item) *out = *item;
        found = item != NULL;
    } else if (v->type == JINJA_LIST && jinja_is_int(key) && v->list->kind <= JINJA_SEQ_RANGE) {
        size_t i;
        found = index_in(jinja_as_int(key), v->list->n, &i);
        if (found) *out = v->list->v[i];
    } else if (v->type == JINJA_STR && jinja_is_int(key)) {
        TRY(char_at(r, v, key, &found, out));
        if (found) out->kind = v->kind;
    }
    if (found) return ERR_OK;
    if (key->type != JINJA_STR) return no_item(r, v, key, out);
    if (v->type == JINJA_DICT) { /* a method, but no second look at the keys */
        const uint8_t method = jinja_methods_number(key->s, key->len);
        if (method) TRY(jinja_methods_get(r, v, method, &found, out));
        if (!found) *out = no_attr(v, key);
        return ERR_OK;
    }
    return jinja_access_attr(r, v, key, jinja_methods_number(key->s, key->len), out);
}

/* ---- slices ---- */

struct range {
    int64_t start, stop, step;
};

/* A slice of n elements with the reference's clamping. False: a part is neither an integer nor none, or step is 0. */
static bool slice_range(const struct jinja_value *part[3], int64_t n, struct range *out) {
    int64_t v[3];
    bool given[3];
    for (int i = 0; i < 3; i++) {
        given[i] = part[i] && part[i]->type != JINJA_NONE;
        if (given[i] && !jinja_is_int(part[i])) return false;
        const __int128 x = given[i] ? jinja_as_int(part[i]) : 1;
        v[i] = x > INT32_MAX ? INT32_MAX * (int64_t)64 : x < INT32_MIN ? INT32_MIN * (int64_t)64 : (int64_t)x;
    }
    const int64_t step = v[2], low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    if (step == 0) return false;
    for (int i = 0; i < 2; i++) {
        if (!given[i])
            v[i] = (i == 0) == (step > 0) ? low : high;
        else if (v[i] < 0)
            v[i] = v[i] + n < low ? low : v[i] + n;
        else if (v[i] > high)
            v[i] = high;
    }
    *out = (struct range){v[0], v[1], step};
    return true;
}

static enum err bad_slice(struct jinja_run *r, const struct jinja_value *part[3]) {
    if (part[2] && jinja_is_int(part[2])) return jinja_run_fail(r, "slice step cannot be zero");
    return jinja_run_fail(r, "slice indices must be integers or None or have an __index__ method");
}

static enum err slice_text(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *part[3],
                           struct jinja_value *out) {
    struct range g;
    TRY(jinja_run_walk(r, v->len * 2));
    const int64_t n = (int64_t)jinja_str_count(v->s, v->len);
    if (!slice_range(part, n, &g)) return bad_slice(r, part);
    if (g.step == 1) {
        const size_t from = jinja_str_offset(v->s, v->len, (size_t)g.start);
        const size_t chars = g.stop > g.start ? (size_t)(g.stop - g.start) : 0;
        *out = jinja_str(v->s + from, jinja_str_offset(v->s + from, v->len - from, chars));
        out->tail = v->tail; /* a slice to the end may be extended in place */
        out->kind = v->kind;
        return ERR_OK;
    }
    struct jinja_value *chars = NULL;
    size_t n_chars = 0, len = 0;
    const size_t mark = r->out.len;
    const char *s = NULL;
    TRY(jinja_value_iterate(r, v, &chars, &n_chars));
    for (int64_t i = g.start; g.step > 0 ? i < g.stop : i > g.stop; i += g.step)
        TRY(jinja_run_emit(r, chars[i].s, chars[i].len));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    out->kind = v->kind;
    return ERR_OK;
}

enum err jinja_access_slice(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *part[3],
                            struct jinja_value *out) {
    struct range g;
    if (v->type == JINJA_UNDEF) return jinja_value_fail_undef(r, v);
    if (v->type == JINJA_STR) return slice_text(r, v, part, out);
    if (v->type == JINJA_DICT) return jinja_run_fail(r, "unhashable type: 'slice'");
    if (v->type != JINJA_LIST || v->list->kind > JINJA_SEQ_RANGE)
        return jinja_run_fail(r, "'%s' object is not subscriptable", jinja_value_type_name(v));
    if (!slice_range(part, (int64_t)v->list->n, &g)) return bad_slice(r, part);
    TRY(jinja_value_list(r, v->list->kind, 0, out));
    struct jinja_list *const l = out->list;
    if (g.step == 1) { /* a view: nobody changes either */
        l->v = v->list->v + g.start;
        l->n = g.stop > g.start ? (size_t)(g.stop - g.start) : 0;
        l->cap = l->n;
        return ERR_OK;
    }
    for (int64_t i = g.start; g.step > 0 ? i < g.stop : i > g.stop; i += g.step) {
        TRY(jinja_run_step(r, 1));
        TRY(jinja_value_push(r, l, &v->list->v[i]));
    }
    return ERR_OK;
}

/* ---- paths ---- */

enum err jinja_access_path(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *path,
                           const struct jinja_value *fallback, struct jinja_value *out) {
    *out = *v;
    if (path->type != JINJA_STR) {
        TRY(jinja_access_item(r, v, path, out));
        if (out->type == JINJA_UNDEF && fallback) *out = *fallback;
        return ERR_OK;
    }
    for (size_t at = 0; at <= path->len;) {
        const char *const dot = memchr(path->s + at, '.', path->len - at);
        const size_t len = dot ? (size_t)(dot - path->s) - at : path->len - at;
        const struct jinja_value name = jinja_str(path->s + at, len), of = *out;
        __int128 index;
        const bool number =
            len > 0 && jinja_str_is(name.s, len, JINJA_STR_DIGIT) && jinja_number_int(name.s, len, 10, &index);
        const struct jinja_value key = number ? jinja_int(index) : name;
        TRY(jinja_access_item(r, &of, &key, out));
        if (out->type == JINJA_UNDEF && fallback) {
            *out = *fallback;
            return ERR_OK;
        }
        at += len + 1;
    }
    return ERR_OK;
}
