/* Operators on values, with the reference's results and errors.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_OPS_H
#define TEXT_JINJA_OPS_H

#include "text/jinja_ast.h"

/* a op b for NODE_ADD to NODE_POW. */
enum err jinja_ops_binary(struct jinja_run *r, enum jinja_node_kind op, const struct jinja_value *a,
                          const struct jinja_value *b, struct jinja_value *out) ATTR_NODISCARD;

/* -a for NODE_NEG, +a for NODE_POS. */
enum err jinja_ops_unary(struct jinja_run *r, enum jinja_node_kind op, const struct jinja_value *a,
                         struct jinja_value *out) ATTR_NODISCARD;

/* a op b, one link of a comparison. */
enum err jinja_ops_compare(struct jinja_run *r, enum jinja_cmp op, const struct jinja_value *a,
                           const struct jinja_value *b, bool *out) ATTR_NODISCARD;

/* item in container */
enum err jinja_ops_in(struct jinja_run *r, const struct jinja_value *item, const struct jinja_value *container,
                      bool *out) ATTR_NODISCARD;

/* The characters < > & ' " of v's text as entities; markup stays as it is. The result is markup. */
enum err jinja_ops_escape(struct jinja_run *r, const struct jinja_value *v, bool force,
                          struct jinja_value *out) ATTR_NODISCARD;

#endif
