/* Rendering a syntax tree. The parts: jinja_eval.c runs statements, jinja_expr.c expressions, jinja_ops.c operators,
 * jinja_access.c attributes and items, jinja_loop.c loops, jinja_call.c calls.
 * Threads: a rendering has one owner; renderings share nothing but the immutable tree. */
#ifndef TEXT_JINJA_EVAL_H
#define TEXT_JINJA_EVAL_H

#include "text/jinja_args.h"
#include "text/jinja_ast.h"

struct jinja_slot {
    int32_t sym;
    struct jinja_value value;
};

/* Variables of one block. Macros keep the scope that they were defined in. */
struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_slot *slots; /* in the outermost scope: by number, sym < 0 where unset */
    int32_t n, cap;
    bool outermost;
    bool kept; /* a macro or a loop variable refers to it: it must not be used again */
};

struct jinja_macro {
    const struct jinja_signature *sig;
    const struct jinja_node *body;
    struct jinja_scope *scope;
};

/* Renders t into r->out with the variables of context, a dict. */
enum err jinja_eval_render(struct jinja_run *r, const struct jinja_template *t,
                           const struct jinja_value *context) ATTR_NODISCARD;

/* Runs a statement or a body. After break or continue r->flow is set and the rest of the body is left out. */
enum err jinja_eval_node(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) ATTR_NODISCARD;

/* The text that a body renders, as a string. */
enum err jinja_eval_capture(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *body,
                            struct jinja_value *out) ATTR_NODISCARD;

/* Assigns to a name, a tuple of targets or an attribute of a namespace. */
enum err jinja_eval_assign(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *target,
                           const struct jinja_value *v) ATTR_NODISCARD;

/* A new scope inside parent. */
enum err jinja_eval_scope(struct jinja_run *r, struct jinja_scope *parent, struct jinja_scope **out) ATTR_NODISCARD;
enum err jinja_eval_set(struct jinja_run *r, struct jinja_scope *s, int32_t sym,
                        const struct jinja_value *v) ATTR_NODISCARD;

/* NULL: not set anywhere. */
const struct jinja_value *jinja_eval_lookup(const struct jinja_scope *s, int32_t sym);

/* The value of an expression. */
enum err jinja_expr_eval(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n,
                         struct jinja_value *out) ATTR_NODISCARD;

/* Evaluates arguments; NULL means none. */
enum err jinja_expr_args(struct jinja_run *r, struct jinja_scope *s, const struct jinja_call_args *in,
                         struct jinja_args *out) ATTR_NODISCARD;

/* The call of a call block, which gets caller besides its own arguments. */
enum err jinja_expr_call_with(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *call,
                              const struct jinja_value *caller, struct jinja_value *out) ATTR_NODISCARD;

/* callee(args) */
enum err jinja_call_value(struct jinja_run *r, const struct jinja_value *callee, const struct jinja_args *args,
                          struct jinja_value *out) ATTR_NODISCARD;

/* A global function by name; false when there is none. */
bool jinja_call_global(const struct jinja_value *name, struct jinja_value *out);

/* A for statement; and loop(items) of a recursive one, which gives its text. */
enum err jinja_loop_for(struct jinja_run *r, struct jinja_scope *s, const struct jinja_node *n) ATTR_NODISCARD;
enum err jinja_loop_recurse(struct jinja_run *r, struct jinja_loop *l, const struct jinja_args *args,
                            struct jinja_value *out) ATTR_NODISCARD;

/* loop.name; an undefined value for what loops do not have. */
enum err jinja_loop_attr(struct jinja_run *r, struct jinja_loop *l, const struct jinja_value *name,
                         struct jinja_value *out) ATTR_NODISCARD;

/* loop.cycle(...) and loop.changed(...) */
enum err jinja_loop_cycle(struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args,
                          struct jinja_value *out) ATTR_NODISCARD;
enum err jinja_loop_changed(struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args,
                            struct jinja_value *out) ATTR_NODISCARD;

#endif
