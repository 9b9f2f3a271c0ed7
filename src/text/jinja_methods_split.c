/* Methods of strings that take them apart or put them together. */
#include "text/jinja_methods_int.h"
#include "text/jinja_ops.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

#define METHOD(name)                                                                                                   \
    enum err jinja_methods_split_##name(struct jinja_run *r, const struct jinja_value *self,                           \
                                        const struct jinja_value **p, struct jinja_value *out)

static enum err push_part(struct jinja_run *r, struct jinja_list *l, const struct jinja_value *of, size_t from,
                          size_t to) {
    struct jinja_value v = jinja_str(of->s + from, to - from);
    v.kind = of->kind;
    return jinja_value_push(r, l, &v);
}

static void turn_around(struct jinja_list *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        const struct jinja_value v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

/* At runs of white space, none at the ends. */
static enum err split_space(struct jinja_run *r, const struct jinja_value *self, int64_t left, struct jinja_list *l) {
    size_t at = 0, n;
    for (;;) {
        while (at < self->len && jinja_str_is_space(jinja_str_decode(self->s + at, self->len - at, &n)))
            at += n;
        if (at == self->len) return ERR_OK;
        if (left-- == 0) return push_part(r, l, self, at, self->len);
        const size_t from = at;
        while (at < self->len && !jinja_str_is_space(jinja_str_decode(self->s + at, self->len - at, &n)))
            at += n;
        TRY(push_part(r, l, self, from, at));
    }
}

/* The same from the right; pieces in reverse order. */
static enum err rsplit_space(struct jinja_run *r, const struct jinja_value *self, int64_t left, struct jinja_list *l) {
    size_t len = self->len;
    for (;;) {
        const char *s = self->s;
        jinja_str_strip(&s, &len, NULL, 0, JINJA_STR_RIGHT);
        if (len == 0) return ERR_OK;
        if (left-- == 0) return push_part(r, l, self, 0, len);
        size_t from = 0, n;
        for (size_t i = 0; i < len; i += n)
            if (jinja_str_is_space(jinja_str_decode(self->s + i, len - i, &n))) from = i + n;
        TRY(jinja_run_walk(r, len + JINJA_STEP_BYTES));
        TRY(push_part(r, l, self, from, len));
        len = from;
    }
}

static enum err split_at(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value *sep,
                         int64_t left, struct jinja_list *l) {
    size_t at = 0;
    while (left-- != 0) {
        const int64_t hit = jinja_str_find(self->s, self->len, sep->s, sep->len, at);
        if (hit < 0) break;
        TRY(push_part(r, l, self, at, (size_t)hit));
        at = (size_t)hit + sep->len;
    }
    return push_part(r, l, self, at, self->len);
}

static enum err rsplit_at(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value *sep,
                          int64_t left, struct jinja_list *l) {
    size_t end = self->len;
    while (left-- != 0) {
        const int64_t hit = jinja_str_rfind(self->s, end, sep->s, sep->len);
        if (hit < 0) break;
        TRY(push_part(r, l, self, (size_t)hit + sep->len, end));
        end = (size_t)hit;
    }
    return push_part(r, l, self, 0, end);
}

static enum err split(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value **p, bool right,
                      struct jinja_value *out) {
    int64_t left;
    const bool space = !p[0] || p[0]->type == JINJA_NONE;
    TRY(jinja_args_int(r, p[1], -1, &left));
    TRY(jinja_run_walk(r, self->len));
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, 4, out));
    if (!space) TRY(jinja_args_str(r, p[0]));
    if (!space && p[0]->len == 0) return jinja_run_fail(r, "empty separator");
    if (!right) return space ? split_space(r, self, left, out->list) : split_at(r, self, p[0], left, out->list);
    TRY(space ? rsplit_space(r, self, left, out->list) : rsplit_at(r, self, p[0], left, out->list));
    turn_around(out->list);
    return ERR_OK;
}

METHOD(split) {
    return split(r, self, p, false, out);
}
METHOD(rsplit) {
    return split(r, self, p, true, out);
}

/* Bytes of the line end at s, 0 when there is none: the boundaries of str.splitlines. */
static size_t line_end(const char *s, size_t len) {
    size_t n;
    const uint32_t cp = jinja_str_decode(s, len, &n);
    if (cp == '\r') return len > 1 && s[1] == '\n' ? 2 : 1;
    return (cp >= '\n' && cp <= '\f') || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029 ? n
                                                                                                                  : 0;
}

METHOD(splitlines) {
    const bool keep = jinja_args_bool(p[0], false);
    size_t from = 0;
    TRY(jinja_run_walk(r, self->len));
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, 4, out));
    for (size_t i = 0; i < self->len;) {
        const size_t n = line_end(self->s + i, self->len - i);
        if (n == 0) {
            i += jinja_str_next(self->s + i, self->len - i);
            continue;
        }
        TRY(push_part(r, out->list, self, from, keep ? i + n : i));
        i += n;
        from = i;
    }
    return from < self->len ? push_part(r, out->list, self, from, self->len) : ERR_OK;
}

static enum err cut_at(struct jinja_run *r, const struct jinja_value *self, const struct jinja_value *sep, bool right,
                       struct jinja_value *out) {
    TRY(jinja_args_str(r, sep));
    if (sep->len == 0) return jinja_run_fail(r, "empty separator");
    TRY(jinja_run_walk(r, self->len));
    const int64_t hit = right ? jinja_str_rfind(self->s, self->len, sep->s, sep->len)
                              : jinja_str_find(self->s, self->len, sep->s, sep->len, 0);
    const size_t none = right ? 0 : self->len; /* without a separator: everything on one side */
    const size_t before = hit < 0 ? none : (size_t)hit, after = hit < 0 ? none : before + sep->len;
    TRY(jinja_value_list(r, JINJA_SEQ_TUPLE, 3, out));
    TRY(push_part(r, out->list, self, 0, before));
    TRY(push_part(r, out->list, self, before, after));
    return push_part(r, out->list, self, after, self->len);
}

METHOD(partition) {
    return cut_at(r, self, p[0], false, out);
}
METHOD(rpartition) {
    return cut_at(r, self, p[0], true, out);
}

METHOD(join) {
    struct jinja_value *items = NULL;
    size_t n = 0, len = 0;
    const size_t mark = r->out.len;
    const char *s = NULL;
    TRY(jinja_value_iterate(r, p[0], &items, &n));
    for (size_t i = 0; i < n; i++) {
        if (items[i].type != JINJA_STR)
            return jinja_run_fail(r, "sequence item %zu: expected str instance, %s found", i,
                                  jinja_value_type_name(&items[i]));
        TRY(jinja_run_step(r, 1));
        if (i) TRY(jinja_run_emit(r, self->s, self->len));
        TRY(jinja_run_emit(r, items[i].s, items[i].len));
    }
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    out->kind = self->kind;
    return ERR_OK;
}
