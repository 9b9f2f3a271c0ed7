/* Expressions. */
#include "text/jinja_access.h"
#include "text/jinja_dict.h"
#include "text/jinja_eval.h"
#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_repr.h"
#include "text/jinja_tests.h"

static enum err eval_list(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    TRY(jinja_value_list(r, n->kind == NODE_LIST ? JINJA_SEQ_LIST : JINJA_SEQ_TUPLE, n->n, out));
    for (uint32_t i = 0; i < n->n; i++)
        TRY(jinja_expr_eval(r, s, n->list[i], &out->list->v[i]));
    out->list->n = n->n;
    return ERR_OK;
}

static enum err eval_dict(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    TRY(jinja_dict_new(r, JINJA_DICT, out));
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct jinja_value key, value;
        TRY(jinja_expr_eval(r, s, n->list[i], &key));
        TRY(jinja_expr_eval(r, s, n->list[i + 1], &value));
        TRY(jinja_dict_put(r, out->dict, &key, &value));
    }
    return ERR_OK;
}

static enum err eval_item(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    struct jinja_value of, key, part[3];
    const struct jinja_value *given[3] = {NULL, NULL, NULL};
    TRY(jinja_expr_eval(r, s, n->a, &of));
    if (n->b->kind != NODE_SLICE) {
        TRY(jinja_expr_eval(r, s, n->b, &key));
        return jinja_access_item(r, &of, &key, out);
    }
    const struct jinja_node *const nodes[3] = {n->b->a, n->b->b, n->b->c};
    for (int i = 0; i < 3; i++) {
        if (!nodes[i]) continue;
        TRY(jinja_expr_eval(r, s, nodes[i], &part[i]));
        given[i] = &part[i];
    }
    return jinja_access_slice(r, &of, given, out);
}

/* a ~ b ~ c: everything as text. */
static enum err eval_concat(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                            struct jinja_value *out) {
    struct jinja_value sum, part, text;
    TRY(jinja_expr_eval(r, s, n->list[0], &part));
    TRY(jinja_repr_to_str(r, &part, &sum));
    sum.kind = 0;
    for (uint32_t i = 1; i < n->n; i++) {
        TRY(jinja_expr_eval(r, s, n->list[i], &part));
        TRY(jinja_repr_to_str(r, &part, &text));
        TRY(jinja_value_concat(r, &sum, text.s, text.len, &sum));
    }
    *out = sum;
    return ERR_OK;
}

static enum err eval_compare(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                             struct jinja_value *out) {
    struct jinja_value left, right;
    bool yes = true;
    TRY(jinja_expr_eval(r, s, n->a, &left));
    for (uint32_t i = 0; i < n->n && yes; i++) {
        TRY(jinja_expr_eval(r, s, n->list[i]->a, &right));
        TRY(jinja_ops_compare(r, (enum jinja_cmp)n->list[i]->op, &left, &right, &yes));
        left = right;
    }
    *out = jinja_bool(yes);
    return ERR_OK;
}

static enum err eval_cond(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    static const char missing[] = "the inline if-expression evaluated to false and no else section was defined.";
    struct jinja_value test;
    TRY(jinja_expr_eval(r, s, n->a, &test));
    if (jinja_value_truth(&test)) return jinja_expr_eval(r, s, n->b, out);
    if (n->c) return jinja_expr_eval(r, s, n->c, out);
    *out = jinja_undef(JINJA_UNDEF_TEXT, NULL, missing, sizeof missing - 1);
    return ERR_OK;
}

/* ---- arguments ---- */

static enum err push_star(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *star,
                          struct jinja_list *pos) {
    struct jinja_value v, *items = NULL;
    size_t n = 0;
    TRY(jinja_expr_eval(r, s, star, &v));
    TRY(jinja_value_iterate(r, &v, &items, &n));
    for (size_t i = 0; i < n; i++)
        TRY(jinja_value_push(r, pos, &items[i]));
    return ERR_OK;
}

static enum err keywords(struct jinja_run *r, struct jinja_scope *s, const struct jinja_call_args *in,
                         const struct jinja_value *caller, struct jinja_args *out) {
    struct jinja_value kw, v;
    TRY(jinja_dict_new(r, JINJA_DICT, &kw));
    for (size_t i = 0; i < in->n_kw; i++) {
        TRY(jinja_expr_eval(r, s, in->kw[i], &v));
        TRY(jinja_dict_put(r, kw.dict, &in->kw_names[i], &v));
    }
    if (caller) {
        const struct jinja_value name = jinja_cstr("caller");
        TRY(jinja_dict_put(r, kw.dict, &name, caller));
    }
    if (in->star_star) {
        TRY(jinja_expr_eval(r, s, in->star_star, &v));
        if (v.type != JINJA_DICT) return jinja_run_fail(r, "argument after ** must be a mapping");
        for (size_t i = 0; i < v.dict->n; i++)
            if (v.dict->pairs[i].key.type != JINJA_STR) return jinja_run_fail(r, "keywords must be strings");
        TRY(jinja_dict_update(r, kw.dict, &v));
    }
    out->kw = kw.dict->pairs;
    out->n_kw = kw.dict->n;
    return ERR_OK;
}

static enum err eval_args(struct jinja_run *r, struct jinja_scope *s, const struct jinja_call_args *in,
                          const struct jinja_value *caller, struct jinja_args *out) {
    static const struct jinja_call_args none = {0};
    struct jinja_value pos;
    *out = (struct jinja_args){0};
    if (!in) in = &none;
    if (in->n_pos || in->star) {
        TRY(jinja_value_list(r, JINJA_SEQ_LIST, in->n_pos, &pos));
        for (size_t i = 0; i < in->n_pos; i++)
            TRY(jinja_expr_eval(r, s, in->pos[i], &pos.list->v[i]));
        pos.list->n = in->n_pos;
        if (in->star) TRY(push_star(r, s, in->star, pos.list));
        out->pos = pos.list->v;
        out->n_pos = pos.list->n;
    }
    return in->n_kw || in->star_star || caller ? keywords(r, s, in, caller, out) : ERR_OK;
}

enum err jinja_expr_args(struct jinja_run *r, struct jinja_scope *s, const struct jinja_call_args *in,
                         struct jinja_args *out) {
    return eval_args(r, s, in, NULL, out);
}

enum err jinja_expr_call_with(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *call,
                              const struct jinja_value *caller, struct jinja_value *out) {
    struct jinja_value callee;
    struct jinja_args args;
    TRY(jinja_expr_eval(r, s, call->a, &callee));
    TRY(eval_args(r, s, call->args, caller, &args));
    r->line = call->line;
    return jinja_call_value(r, &callee, &args, out);
}

static enum err eval_filter(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                            struct jinja_value *out) {
    struct jinja_value in = jinja_str(r->block_text, r->block_len);
    struct jinja_args args;
    if (n->a) TRY(jinja_expr_eval(r, s, n->a, &in));
    r->line = n->line;
    if (!n->filter) return jinja_run_fail(r, "No filter named '%.*s' found.", (int)n->value.len, n->value.s);
    TRY(jinja_expr_args(r, s, n->args, &args));
    r->line = n->line;
    return jinja_filters_apply(r, n->filter, &in, &args, out);
}

static enum err eval_test(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    struct jinja_value v;
    struct jinja_args args;
    bool yes = false;
    TRY(jinja_expr_eval(r, s, n->a, &v));
    if (!n->test) return jinja_run_fail(r, "No test named '%.*s' found.", (int)n->value.len, n->value.s);
    TRY(jinja_expr_args(r, s, n->args, &args));
    TRY(jinja_tests_apply(r, n->test, &v, &args, &yes));
    *out = jinja_bool(yes);
    return ERR_OK;
}

/* ---- the rest ---- */

static enum err eval_logic(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                           struct jinja_value *out) {
    TRY(jinja_expr_eval(r, s, n->a, out));
    if (n->kind == NODE_NOT) {
        *out = jinja_bool(!jinja_value_truth(out));
        return ERR_OK;
    }
    if (jinja_value_truth(out) == (n->kind == NODE_OR)) return ERR_OK;
    return jinja_expr_eval(r, s, n->b, out);
}

static enum err eval_math(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    struct jinja_value a, b;
    TRY(jinja_expr_eval(r, s, n->a, &a));
    if (n->kind == NODE_NEG || n->kind == NODE_POS) return jinja_ops_unary(r, (enum jinja_node_kind)n->kind, &a, out);
    TRY(jinja_expr_eval(r, s, n->b, &b));
    r->line = n->line;
    return jinja_ops_binary(r, (enum jinja_node_kind)n->kind, &a, &b, out);
}

static enum err eval_attr(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    struct jinja_value of;
    TRY(jinja_expr_eval(r, s, n->a, &of));
    r->line = n->line;
    return jinja_access_attr(r, &of, &n->value, n->method, out);
}

static enum err eval_expr(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    switch ((enum jinja_node_kind)n->kind) {
    case NODE_GETATTR:
        return eval_attr(r, s, n, out);
    case NODE_GETITEM:
        return eval_item(r, s, n, out);
    case NODE_CALL:
        return jinja_expr_call_with(r, s, n, NULL, out);
    case NODE_FILTER:
        return eval_filter(r, s, n, out);
    case NODE_TEST:
        return eval_test(r, s, n, out);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(r, s, n, out);
    case NODE_DICT:
        return eval_dict(r, s, n, out);
    case NODE_AND:
    case NODE_OR:
    case NODE_NOT:
        return eval_logic(r, s, n, out);
    case NODE_CONCAT:
        return eval_concat(r, s, n, out);
    case NODE_COMPARE:
        return eval_compare(r, s, n, out);
    case NODE_COND:
        return eval_cond(r, s, n, out);
    case NODE_NEG:
    case NODE_POS:
    case NODE_ADD:
    case NODE_SUB:
    case NODE_MUL:
    case NODE_DIV:
    case NODE_FLOORDIV:
    case NODE_MOD:
    case NODE_POW:
        return eval_math(r, s, n, out);
    default:
        break;
    }
    *out = jinja_none(); /* a slice outside brackets, in a tuple of subscripts */
    return ERR_OK;
}

enum err jinja_expr_eval(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                         struct jinja_value *out) {
    TRY(jinja_run_step(r, 1));
    if (n->kind == NODE_CONST) {
        *out = n->value;
        return ERR_OK;
    }
    if (n->kind == NODE_NAME) {
        const struct jinja_value *const v = jinja_eval_lookup(s, n->sym);
        *out = v ? *v : jinja_undef(JINJA_UNDEF_NAME, NULL, n->value.s, n->value.len);
        return ERR_OK;
    }
    TRY(jinja_run_enter(r));
    const enum err e = eval_expr(r, s, n, out);
    jinja_run_leave(r);
    return e;
}
