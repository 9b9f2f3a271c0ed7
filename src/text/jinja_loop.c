/* For loops and the variable loop. */
#include "text/jinja_eval.h"
#include "text/jinja_ops.h"

/* A loop with a test reads ahead only when its body asks for what comes next, so that a test may depend on what the
 * body has set, as in the reference. */
struct jinja_loop {
    const struct jinja_node *node;
    struct jinja_scope *outer;
    const struct jinja_value *items;
    size_t n, at; /* at: the next item that was not looked at */
    bool tested;  /* items before the end may still fail the test */
    bool peeked;  /* next is valid */
    struct jinja_value prev, now, next;
    int64_t index0;
    int64_t length; /* -1: not known yet */
    int depth0;
    struct jinja_value changed;
    bool has_changed;
};

static enum err passes(struct jinja_run *r, struct jinja_loop *l, const struct jinja_value *item, bool *out) {
    *out = true;
    if (!l->tested) return ERR_OK;
    struct jinja_scope *s;
    struct jinja_value v;
    TRY(jinja_eval_scope(r, l->outer, &s));
    TRY(jinja_eval_assign(r, s, l->node->a, item));
    TRY(jinja_expr_eval(r, s, l->node->c, &v));
    *out = jinja_value_truth(&v);
    return ERR_OK;
}

/* Looks for the next item that passes; l->peeked says whether there is one. */
static enum err peek(struct jinja_run *r, struct jinja_loop *l) {
    while (!l->peeked && l->at < l->n) {
        TRY(jinja_run_step(r, 1));
        TRY(passes(r, l, &l->items[l->at], &l->peeked));
        if (l->peeked) l->next = l->items[l->at];
        l->at++;
    }
    return ERR_OK;
}

/* Counts the rest, which settles every test. */
static enum err measure(struct jinja_run *r, struct jinja_loop *l) {
    if (l->length >= 0) return ERR_OK;
    struct jinja_value rest;
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, 0, &rest));
    for (; l->at < l->n; l->at++) {
        bool yes;
        TRY(jinja_run_step(r, 1));
        TRY(passes(r, l, &l->items[l->at], &yes));
        if (yes) TRY(jinja_value_push(r, rest.list, &l->items[l->at]));
    }
    l->items = rest.list->v;
    l->n = rest.list->n;
    l->at = 0;
    l->tested = false;
    l->length = l->index0 + 1 + l->peeked + (int64_t)l->n;
    return ERR_OK;
}

/* One pass through the body. */
static enum err iterate(struct jinja_run *r, struct jinja_loop *l, struct jinja_scope **scope) {
    struct jinja_scope *s = *scope;
    if (!s || s->kept) TRY(jinja_eval_scope(r, l->outer, &s));
    *scope = s;
    s->n = 0;
    const struct jinja_value loop = {.type = JINJA_LOOP, .loop = l};
    TRY(jinja_eval_set(r, s, SYM_LOOP, &loop));
    TRY(jinja_eval_assign(r, s, l->node->a, &l->now));
    return jinja_eval_node(r, s, l->node->d);
}

static enum err run_loop(struct jinja_run *r, struct jinja_loop *l) {
    struct jinja_scope *scope = NULL;
    for (;;) {
        TRY(peek(r, l));
        if (!l->peeked) break;
        l->index0++;
        l->prev = l->now;
        l->now = l->next;
        l->peeked = false;
        TRY(iterate(r, l, &scope));
        const enum jinja_flow flow = r->flow;
        r->flow = JINJA_FLOW_ON;
        if (flow == JINJA_FLOW_BREAK) break;
    }
    if (l->index0 >= 0 || !l->node->e) return ERR_OK;
    TRY(jinja_eval_scope(r, l->outer, &scope));
    return jinja_eval_node(r, scope, l->node->e);
}

static enum err start(struct jinja_run *r, const struct jinja_node *n, struct jinja_scope *s,
                      const struct jinja_value *over, int depth0) {
    struct jinja_value *items = NULL;
    size_t n_items = 0;
    struct jinja_loop *const l = jinja_run_alloc(r, sizeof *l);
    if (!l) return jinja_run_nomem(r);
    TRY(jinja_value_iterate(r, over, &items, &n_items));
    *l = (struct jinja_loop){.node = n,
                             .outer = s,
                             .items = items,
                             .n = n_items,
                             .tested = n->c != NULL,
                             .index0 = -1,
                             .length = n->c ? -1 : (int64_t)n_items,
                             .depth0 = depth0};
    return run_loop(r, l);
}

enum err jinja_loop_for(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) {
    struct jinja_value over;
    TRY(jinja_expr_eval(r, s, n->b, &over));
    return start(r, n, s, &over, 0);
}

enum err jinja_loop_recurse(struct jinja_run *r, struct jinja_loop *l, const struct jinja_args *args,
                            struct jinja_value *out) {
    const struct jinja_value *over[JINJA_ARGS_MAX];
    const char *s = NULL;
    size_t len = 0;
    const size_t mark = r->out.len;
    if (!l->node->flag) return jinja_run_fail(r, "The loop must have the 'recursive' marker to be called recursively.");
    TRY(jinja_args_bind(r, args, "loop", "iterable", over));
    TRY(start(r, l->node, l->outer, over[0], l->depth0 + 1));
    TRY(jinja_run_cut(r, mark, &s, &len));
    *out = jinja_str(s, len);
    return ERR_OK;
}

/* ---- attributes ---- */

static enum err ahead_attr(struct jinja_run *r, struct jinja_loop *l, const struct jinja_value *name,
                           struct jinja_value *out) {
    TRY(peek(r, l));
    if (jinja_is_text(name, "last"))
        *out = jinja_bool(!l->peeked);
    else if (l->peeked)
        *out = l->next;
    else
        *out = jinja_undef(JINJA_UNDEF_TEXT, NULL, "there is no next item", 21);
    return ERR_OK;
}

static enum err length_attr(struct jinja_run *r, struct jinja_loop *l, const struct jinja_value *name,
                            struct jinja_value *out) {
    TRY(measure(r, l));
    if (jinja_is_text(name, "length"))
        *out = jinja_int(l->length);
    else
        *out = jinja_int(l->length - l->index0 - jinja_is_text(name, "revindex0"));
    return ERR_OK;
}

enum err jinja_loop_attr(struct jinja_run *r, struct jinja_loop *l, const struct jinja_value *name,
                         struct jinja_value *out) {
    if (jinja_is_text(name, "index0"))
        *out = jinja_int(l->index0);
    else if (jinja_is_text(name, "index"))
        *out = jinja_int(l->index0 + 1);
    else if (jinja_is_text(name, "first"))
        *out = jinja_bool(l->index0 == 0);
    else if (jinja_is_text(name, "depth0"))
        *out = jinja_int(l->depth0);
    else if (jinja_is_text(name, "depth"))
        *out = jinja_int(l->depth0 + 1);
    else if (jinja_is_text(name, "last") || jinja_is_text(name, "nextitem"))
        return ahead_attr(r, l, name, out);
    else if (jinja_is_text(name, "length") || jinja_is_text(name, "revindex") || jinja_is_text(name, "revindex0"))
        return length_attr(r, l, name, out);
    else if (jinja_is_text(name, "previtem"))
        *out = l->index0 > 0 ? l->prev : jinja_undef(JINJA_UNDEF_TEXT, NULL, "there is no previous item", 25);
    return ERR_OK;
}

enum err jinja_loop_cycle(struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args,
                          struct jinja_value *out) {
    if (args->n_pos == 0) return jinja_run_fail(r, "no items for cycling given");
    *out = args->pos[(size_t)self->loop->index0 % args->n_pos];
    return ERR_OK;
}

enum err jinja_loop_changed(struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args,
                            struct jinja_value *out) {
    struct jinja_loop *const l = self->loop;
    struct jinja_value values;
    bool same = false;
    TRY(jinja_value_list(r, JINJA_SEQ_TUPLE, args->n_pos, &values));
    if (args->n_pos) memcpy(values.list->v, args->pos, args->n_pos * sizeof *args->pos);
    values.list->n = args->n_pos;
    if (l->has_changed) TRY(jinja_value_equal(r, &l->changed, &values, &same));
    l->changed = values;
    l->has_changed = true;
    *out = jinja_bool(!same);
    return ERR_OK;
}
