#include "text/jinja_ops.h"

#include <math.h>

#include "text/jinja_dict.h"
#include "text/jinja_format.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

static enum err too_big(struct jinja_run *r) {
    return err_set(r->msg, ERR_LIMIT, "chat template, line %u: an integer has more than 127 bits", r->line);
}

static enum err unsupported(struct jinja_run *r, const char *sign, const struct jinja_value *a,
                            const struct jinja_value *b) {
    return jinja_run_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", sign, jinja_value_type_name(a),
                          jinja_value_type_name(b));
}

/* ---- strings and lists ---- */

static const char *entity(char c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&#34;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

enum err jinja_ops_escape(struct jinja_run *r, const struct jinja_value *v, bool force, struct jinja_value *out) {
    struct jinja_value text;
    const size_t mark = r->out.len;
    size_t len = 0;
    const char *s = NULL;
    TRY(jinja_repr_to_str(r, v, &text));
    *out = text;
    if (text.kind && !force) return ERR_OK;
    for (size_t i = 0; i < text.len; i++) {
        const char *const e = entity(text.s[i]);
        if (e)
            strbuf_puts(&r->out, e);
        else
            strbuf_putc(&r->out, text.s[i]);
    }
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    out->kind = 1;
    return ERR_OK;
}

static enum err add_strings(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                            struct jinja_value *out) {
    if (a->kind == b->kind) return jinja_value_concat(r, a, b->s, b->len, out);
    struct jinja_value left = *a, right = *b; /* markup + text escapes the text */
    TRY(jinja_ops_escape(r, a, false, &left));
    TRY(jinja_ops_escape(r, b, false, &right));
    return jinja_value_concat(r, &left, right.s, right.len, out);
}

/* Sums share their array while the left one is the longest that uses it, so building a list piece by piece is linear.
 */
static enum err add_lists(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                          struct jinja_value *out) {
    struct jinja_list *const sum = jinja_run_alloc(r, sizeof *sum);
    if (!sum) return jinja_run_nomem(r);
    *sum = *a;
    sum->group = false;
    sum->n = a->n + b->n;
    if (!a->used || *a->used != a->n || b->n > a->cap - a->n) {
        sum->cap = sum->n * 2 + 4;
        sum->used = jinja_run_alloc(r, sizeof *sum->used);
        sum->v = sum->used ? jinja_run_alloc(r, sum->cap * sizeof *sum->v) : NULL;
        if (!sum->v) return jinja_run_nomem(r);
        if (a->n) memcpy(sum->v, a->v, a->n * sizeof *sum->v);
        TRY(jinja_run_step(r, (int64_t)(a->n / 4)));
    }
    if (b->n) memcpy(sum->v + a->n, b->v, b->n * sizeof *sum->v);
    *sum->used = sum->n;
    *out = (struct jinja_value){.type = JINJA_LIST, .list = sum};
    return jinja_run_step(r, (int64_t)(b->n / 4));
}

static bool is_sequence(const struct jinja_value *v) {
    return v->type == JINJA_LIST && v->list->kind <= JINJA_SEQ_TUPLE;
}

static enum err repeat_text(struct jinja_run *r, const struct jinja_value *v, size_t times, struct jinja_value *out) {
    const size_t mark = r->out.len;
    const char *s = NULL;
    size_t len = 0;
    for (size_t i = 0; i < times; i++)
        TRY(jinja_run_emit(r, v->s, v->len));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    out->kind = v->kind;
    return ERR_OK;
}

static enum err repeat(struct jinja_run *r, const struct jinja_value *v, __int128 times, struct jinja_value *out) {
    const bool text = v->type == JINJA_STR;
    if (times < 0 || (text ? v->len : v->list->n) == 0) times = 0;
    TRY(jinja_run_step(r, times > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)times));
    if (text) return repeat_text(r, v, (size_t)times, out);
    TRY(jinja_value_list(r, v->list->kind, 0, out));
    for (size_t i = 0; i < (size_t)times; i++) {
        TRY(jinja_run_step(r, (int64_t)v->list->n));
        for (size_t k = 0; k < v->list->n; k++)
            TRY(jinja_value_push(r, out->list, &v->list->v[k]));
    }
    return ERR_OK;
}

/* ---- numbers ---- */

static enum err floor_div(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, bool mod,
                          struct jinja_value *out) {
    if (!jinja_is_int(a) || !jinja_is_int(b)) {
        const double x = jinja_as_f64(a), y = jinja_as_f64(b);
        if (y == 0) return jinja_run_fail(r, mod ? "float modulo" : "float floor division by zero");
        double m = fmod(x, y);
        if (m != 0 && (m < 0) != (y < 0)) m += y;
        *out = jinja_float(mod ? m : floor((x - m) / y + 0.5));
        return ERR_OK;
    }
    const __int128 x = jinja_as_int(a), y = jinja_as_int(b);
    if (y == 0) return jinja_run_fail(r, "integer division or modulo by zero");
    if (y == -1) { /* the quotient of the smallest number does not fit */
        __int128 q;
        if (__builtin_sub_overflow((__int128)0, x, &q)) return too_big(r);
        *out = jinja_int(mod ? 0 : q);
        return ERR_OK;
    }
    __int128 q = x / y, m = x % y;
    if (m != 0 && (m < 0) != (y < 0)) {
        m += y;
        q--;
    }
    *out = jinja_int(mod ? m : q);
    return ERR_OK;
}

static enum err power(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                      struct jinja_value *out) {
    if (!jinja_is_int(a) || !jinja_is_int(b) || jinja_as_int(b) < 0) {
        const double x = jinja_as_f64(a), y = jinja_as_f64(b);
        if (x == 0 && y < 0) return jinja_run_fail(r, "0.0 cannot be raised to a negative power");
        const double f = pow(x, y);
        if (isinf(f) && !isinf(x) && !isinf(y)) return jinja_run_fail(r, "(34, 'Numerical result out of range')");
        *out = jinja_float(f);
        return ERR_OK;
    }
    __int128 base = jinja_as_int(a), e = jinja_as_int(b), product = 1;
    if (base == 0 || base == 1) e = e > 0; /* no matter how large */
    if (base == -1) e &= 1;
    for (; e > 0; e--)
        if (__builtin_mul_overflow(product, base, &product)) return too_big(r);
    *out = jinja_int(product);
    return ERR_OK;
}

static enum err int_op(struct jinja_run *r, enum jinja_node_kind op, __int128 x, __int128 y, struct jinja_value *out) {
    __int128 i;
    const bool over = op == NODE_ADD   ? __builtin_add_overflow(x, y, &i)
                      : op == NODE_SUB ? __builtin_sub_overflow(x, y, &i)
                                       : __builtin_mul_overflow(x, y, &i);
    if (over) return too_big(r);
    *out = jinja_int(i);
    return ERR_OK;
}

static enum err number_op(struct jinja_run *r, enum jinja_node_kind op, const struct jinja_value *a,
                          const struct jinja_value *b, struct jinja_value *out) {
    const double x = jinja_as_f64(a), y = jinja_as_f64(b);
    switch (op) {
    case NODE_DIV:
        if (y == 0)
            return jinja_run_fail(r,
                                  jinja_is_int(a) && jinja_is_int(b) ? "division by zero" : "float division by zero");
        *out = jinja_float(x / y);
        return ERR_OK;
    case NODE_FLOORDIV:
        return floor_div(r, a, b, false, out);
    case NODE_MOD:
        return floor_div(r, a, b, true, out);
    case NODE_POW:
        return power(r, a, b, out);
    default:
        break;
    }
    if (jinja_is_int(a) && jinja_is_int(b)) return int_op(r, op, jinja_as_int(a), jinja_as_int(b), out);
    *out = jinja_float(op == NODE_ADD ? x + y : op == NODE_SUB ? x - y : x * y);
    return ERR_OK;
}

static enum err add_other(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b) {
    if (a->type == JINJA_STR)
        return jinja_run_fail(r, "can only concatenate str (not \"%s\") to str", jinja_value_type_name(b));
    if (is_sequence(a))
        return jinja_run_fail(r, "can only concatenate %s (not \"%s\") to %s", jinja_value_type_name(a),
                              jinja_value_type_name(b), jinja_value_type_name(a));
    return unsupported(r, "+", a, b);
}

enum err jinja_ops_binary(struct jinja_run *r, enum jinja_node_kind op, const struct jinja_value *a,
                          const struct jinja_value *b, struct jinja_value *out) {
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    if (jinja_is_number(a) && jinja_is_number(b)) return number_op(r, op, a, b, out);
    if (op == NODE_MOD && a->type == JINJA_STR) return jinja_format_percent(r, a, b, out);
    if (a->type == JINJA_UNDEF) return jinja_value_fail_undef(r, a);
    if (b->type == JINJA_UNDEF) return jinja_value_fail_undef(r, b);
    if (op == NODE_ADD) {
        if (a->type == JINJA_STR && b->type == JINJA_STR) return add_strings(r, a, b, out);
        if (is_sequence(a) && is_sequence(b) && a->list->kind == b->list->kind)
            return add_lists(r, a->list, b->list, out);
        return add_other(r, a, b);
    }
    if (op == NODE_MUL) {
        if (jinja_is_int(b) && (a->type == JINJA_STR || is_sequence(a))) return repeat(r, a, jinja_as_int(b), out);
        if (jinja_is_int(a) && (b->type == JINJA_STR || is_sequence(b))) return repeat(r, b, jinja_as_int(a), out);
    }
    return unsupported(r, signs[op - NODE_ADD], a, b);
}

enum err jinja_ops_unary(struct jinja_run *r, enum jinja_node_kind op, const struct jinja_value *a,
                         struct jinja_value *out) {
    if (a->type == JINJA_UNDEF) return jinja_value_fail_undef(r, a);
    if (!jinja_is_number(a))
        return jinja_run_fail(r, "bad operand type for unary %s: '%s'", op == NODE_NEG ? "-" : "+",
                              jinja_value_type_name(a));
    if (a->type == JINJA_FLOAT) {
        *out = jinja_float(op == NODE_NEG ? -a->f : a->f);
        return ERR_OK;
    }
    return int_op(r, op == NODE_NEG ? NODE_SUB : NODE_ADD, 0, jinja_as_int(a), out);
}

/* ---- comparison ---- */

static enum err in_text(struct jinja_run *r, const struct jinja_value *item, const struct jinja_value *text,
                        bool *out) {
    if (item->type != JINJA_STR)
        return jinja_run_fail(r, "'in <string>' requires string as left operand, not %s", jinja_value_type_name(item));
    *out = jinja_str_find(text->s, text->len, item->s, item->len, 0) >= 0;
    return jinja_run_walk(r, text->len);
}

enum err jinja_ops_in(struct jinja_run *r, const struct jinja_value *item, const struct jinja_value *container,
                      bool *out) {
    struct jinja_value *items;
    size_t n;
    *out = false;
    if (container->type == JINJA_STR) return in_text(r, item, container, out);
    if (container->type == JINJA_DICT) {
        *out = jinja_dict_get(container->dict, item) != NULL;
        return jinja_dict_check_key(r, item);
    }
    if (container->type != JINJA_LIST && container->type != JINJA_UNDEF)
        return jinja_run_fail(r, "argument of type '%s' is not iterable", jinja_value_type_name(container));
    TRY(jinja_value_iterate(r, container, &items, &n));
    for (size_t i = 0; i < n && !*out; i++)
        TRY(jinja_value_equal(r, &items[i], item, out));
    return ERR_OK;
}

enum err jinja_ops_compare(struct jinja_run *r, enum jinja_cmp op, const struct jinja_value *a,
                           const struct jinja_value *b, bool *out) {
    static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
    const bool swap = op == CMP_GT || op == CMP_GE;
    switch (op) {
    case CMP_EQ:
        return jinja_value_equal(r, a, b, out);
    case CMP_NE:
        TRY(jinja_value_equal(r, a, b, out));
        break;
    case CMP_IN:
        return jinja_ops_in(r, a, b, out);
    case CMP_NOT_IN:
        TRY(jinja_ops_in(r, a, b, out));
        break;
    case CMP_LT:
    case CMP_LE:
    case CMP_GT:
    case CMP_GE:
        TRY(swap ? jinja_value_less(r, b, a, signs[op], out) : jinja_value_less(r, a, b, signs[op], out));
        if (!*out && (op == CMP_LE || op == CMP_GE)) return jinja_value_equal(r, a, b, out);
        return ERR_OK;
    }
    *out = !*out;
    return ERR_OK;
}
