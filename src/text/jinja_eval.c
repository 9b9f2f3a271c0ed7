#include "text/jinja_eval.h"

#include "text/jinja_dict.h"
#include "text/jinja_repr.h"

/* ---- scopes ---- */

enum err jinja_eval_scope(struct jinja_run *r, struct jinja_scope *parent, struct jinja_scope **out) {
    struct jinja_scope *const s = jinja_run_alloc(r, sizeof *s);
    *out = s;
    if (!s) return jinja_run_nomem(r);
    *s = (struct jinja_scope){.parent = parent};
    return ERR_OK;
}

enum err jinja_eval_set(struct jinja_run *r, struct jinja_scope *s, int32_t sym, const struct jinja_value *v) {
    if (s->outermost) {
        s->slots[sym] = (struct jinja_slot){.sym = sym, .value = *v};
        return ERR_OK;
    }
    for (int32_t i = 0; i < s->n; i++) {
        if (s->slots[i].sym != sym) continue;
        s->slots[i].value = *v;
        return ERR_OK;
    }
    if (s->n == s->cap) {
        const int32_t cap = s->cap ? s->cap * 2 : 4;
        struct jinja_slot *const bigger = jinja_run_alloc(r, (size_t)cap * sizeof *bigger);
        if (!bigger) return jinja_run_nomem(r);
        if (s->n) memcpy(bigger, s->slots, (size_t)s->n * sizeof *bigger);
        s->slots = bigger;
        s->cap = cap;
    }
    s->slots[s->n++] = (struct jinja_slot){.sym = sym, .value = *v};
    return ERR_OK;
}

const struct jinja_value *jinja_eval_lookup(const struct jinja_scope *s, int32_t sym) {
    for (; s; s = s->parent) {
        if (s->outermost) return s->slots[sym].sym < 0 ? NULL : &s->slots[sym].value;
        for (int32_t i = 0; i < s->n; i++)
            if (s->slots[i].sym == sym) return &s->slots[i].value;
    }
    return NULL;
}

/* ---- assignment ---- */

static enum err assign_attr(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *target,
                            const struct jinja_value *v) {
    const struct jinja_value *const ns = jinja_eval_lookup(s, target->sym);
    if (!ns || ns->type != JINJA_NS) return jinja_run_fail(r, "cannot assign attribute on non-namespace object");
    if (target->value.len && target->value.s[0] == '_')
        return jinja_run_fail(r, "Chat templates cannot store underscore-prefixed attributes on a namespace");
    return jinja_dict_put(r, ns->dict, &target->value, v);
}

static enum err assign_tuple(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *target,
                             const struct jinja_value *v) {
    struct jinja_value *items = NULL;
    size_t n = 0;
    if (v->type == JINJA_UNDEF && v->kind != JINJA_UNDEF_UNSAFE && target->n > 0)
        return jinja_run_fail(r, "not enough values to unpack (expected %u, got 0)", target->n);
    TRY(jinja_value_iterate(r, v, &items, &n));
    if (n < target->n) return jinja_run_fail(r, "not enough values to unpack (expected %u, got %zu)", target->n, n);
    if (n > target->n) return jinja_run_fail(r, "too many values to unpack (expected %u)", target->n);
    for (uint32_t i = 0; i < target->n; i++)
        TRY(jinja_eval_assign(r, s, target->list[i], &items[i]));
    return ERR_OK;
}

enum err jinja_eval_assign(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *target,
                           const struct jinja_value *v) {
    if (target->kind == NODE_NAME) return jinja_eval_set(r, s, target->sym, v);
    return target->kind == NODE_NS_REF ? assign_attr(r, s, target, v) : assign_tuple(r, s, target, v);
}

/* ---- statements ---- */

enum err jinja_eval_capture(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *body,
                            struct jinja_value *out) {
    const size_t mark = r->out.len;
    const char *text = NULL;
    size_t len = 0;
    TRY(jinja_eval_node(r, s, body));
    TRY(jinja_run_cut(r, mark, &text, &len));
    *out = jinja_str(text, len);
    return ERR_OK;
}

static enum err run_output(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_value v;
    TRY(jinja_expr_eval(r, s, n->a, &v));
    if (v.type == JINJA_UNDEF && v.kind == JINJA_UNDEF_TEXT) return ERR_OK;
    return jinja_repr_text(r, &v);
}

static enum err run_body(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    for (uint32_t i = 0; i < n->n && r->flow == JINJA_FLOW_ON; i++)
        TRY(jinja_eval_node(r, s, n->list[i]));
    return ERR_OK;
}

static enum err run_if(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    for (; n && n->kind == NODE_IF; n = n->c) {
        struct jinja_value v;
        r->line = n->line;
        TRY(jinja_run_step(r, 1));
        TRY(jinja_expr_eval(r, s, n->a, &v));
        if (jinja_value_truth(&v)) return jinja_eval_node(r, s, n->b);
    }
    return n ? jinja_eval_node(r, s, n) : ERR_OK;
}

static enum err run_set(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_value v;
    TRY(jinja_expr_eval(r, s, n->b, &v));
    return jinja_eval_assign(r, s, n->a, &v);
}

/* A body rendered in a scope of its own, then through the filters behind the tag. */
static enum err filtered_body(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                              struct jinja_value *out) {
    struct jinja_scope *inner;
    TRY(jinja_eval_scope(r, s, &inner));
    TRY(jinja_eval_capture(r, inner, n->d, out));
    if (!n->b || r->flow != JINJA_FLOW_ON) return ERR_OK;
    r->block_text = out->s;
    r->block_len = out->len;
    return jinja_expr_eval(r, inner, n->b, out);
}

static enum err run_set_block(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_value v;
    TRY(filtered_body(r, s, n, &v));
    return r->flow == JINJA_FLOW_ON ? jinja_eval_assign(r, s, n->a, &v) : ERR_OK;
}

static enum err run_filter_block(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_value v;
    TRY(filtered_body(r, s, n, &v));
    return jinja_repr_text(r, &v);
}

static enum err new_macro(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                          struct jinja_value *out) {
    struct jinja_macro *const m = jinja_run_alloc(r, sizeof *m);
    if (!m) return jinja_run_nomem(r);
    *m = (struct jinja_macro){.sig = n->signature, .body = n->d, .scope = s};
    for (struct jinja_scope *up = s; up && !up->kept; up = up->parent)
        up->kept = true;
    *out = (struct jinja_value){.type = JINJA_MACRO, .macro = m};
    return ERR_OK;
}

static enum err run_macro(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_value v;
    TRY(new_macro(r, s, n, &v));
    return jinja_eval_set(r, s, n->sym, &v);
}

static enum err run_call_block(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_value caller, v;
    TRY(new_macro(r, s, n, &caller));
    TRY(jinja_expr_call_with(r, s, n->a, &caller, &v));
    return jinja_repr_text(r, &v);
}

static enum err run_with(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_scope *inner;
    TRY(jinja_eval_scope(r, s, &inner));
    for (uint32_t i = 0; i < n->n; i += 2) {
        struct jinja_value v;
        TRY(jinja_expr_eval(r, s, n->list[i + 1], &v)); /* values see the variables outside */
        TRY(jinja_eval_assign(r, inner, n->list[i], &v));
    }
    return jinja_eval_node(r, inner, n->d);
}

static enum err run_scope(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_scope *inner;
    while (n->flag && !s->outermost)
        s = s->parent;
    TRY(jinja_eval_scope(r, s, &inner));
    return jinja_eval_node(r, inner, n->d);
}

static enum err run_statement(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    switch ((enum jinja_node_kind)n->kind) {
    case NODE_DATA:
        return jinja_run_emit(r, n->value.s, n->value.len);
    case NODE_OUTPUT:
        return run_output(r, s, n);
    case NODE_BODY:
        return run_body(r, s, n);
    case NODE_FOR:
        return jinja_loop_for(r, s, n);
    case NODE_IF:
        return run_if(r, s, n);
    case NODE_SET:
        return run_set(r, s, n);
    case NODE_SET_BLOCK:
        return run_set_block(r, s, n);
    case NODE_FILTER_BLOCK:
        return run_filter_block(r, s, n);
    case NODE_MACRO:
        return run_macro(r, s, n);
    case NODE_CALL_BLOCK:
        return run_call_block(r, s, n);
    case NODE_WITH:
        return run_with(r, s, n);
    case NODE_SCOPE:
        return run_scope(r, s, n);
    case NODE_BREAK:
        r->flow = JINJA_FLOW_BREAK;
        return ERR_OK;
    case NODE_CONTINUE:
        r->flow = JINJA_FLOW_CONTINUE;
        return ERR_OK;
    default:
        return jinja_run_fail(r, "no loader for this environment specified");
    }
}

enum err jinja_eval_node(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    r->line = n->line;
    TRY(jinja_run_step(r, 1));
    TRY(jinja_run_enter(r));
    const enum err e = run_statement(r, s, n);
    jinja_run_leave(r);
    return e;
}

enum err jinja_eval_render(struct jinja_run *r, const struct jinja_template *t, const struct jinja_value *context) {
    struct jinja_scope *s;
    TRY(jinja_eval_scope(r, NULL, &s));
    s->outermost = true;
    s->n = t->n_names;
    s->slots = jinja_run_alloc(r, (size_t)t->n_names * sizeof *s->slots);
    if (!s->slots) return jinja_run_nomem(r);
    for (int32_t i = 0; i < t->n_names; i++) {
        const struct jinja_value *const v = jinja_dict_get(context->dict, &t->names[i]);
        s->slots[i].sym = i;
        if (v)
            s->slots[i].value = *v;
        else if (!jinja_call_global(&t->names[i], &s->slots[i].value))
            s->slots[i].sym = -1;
    }
    return jinja_eval_node(r, s, t->root);
}
