/* What the two halves of the parser share: jinja_parse.c has the statements, jinja_parse_expr.c the expressions.
 * Threads: one owner. */
#ifndef TEXT_JINJA_PARSE_INT_H
#define TEXT_JINJA_PARSE_INT_H

#include "base/map.h"
#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

struct jinja_nodes { /* a growing list */
    const struct jinja_node **v;
    size_t n, cap;
};

struct jinja_parser {
    struct jinja_run *r;
    const struct jinja_token *tok; /* the current one */
    const struct jinja_token *last;
    struct map syms;
    struct jinja_value *names;
    size_t n_names, cap_names;
    const struct jinja_node *unknown; /* the first use of an unknown filter or test */
    bool soft;                        /* inside an if: an unknown filter is an error only when it is reached */
    int n_fors;                       /* open loops, macros or not */
    int n_loops;                      /* open loops of the innermost macro */
    struct jinja_signature *sig;      /* of the macro whose body comes next */
    struct jinja_signature *macro;    /* the innermost one being parsed, or NULL */
    const char *tags[64];             /* open blocks, for messages */
    const char *wanted[64];           /* the tags that may come next in each */
    int n_tags;
};

/* statements */
enum err jinja_parse_fail(struct jinja_parser *p, const char *fmt, ...) ATTR_PRINTF(2, 3) ATTR_COLD;
enum err jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **out) ATTR_NODISCARD;
enum err jinja_parse_push(struct jinja_parser *p, struct jinja_nodes *l, const struct jinja_node *n) ATTR_NODISCARD;
enum err jinja_parse_expect(struct jinja_parser *p, enum jinja_tok kind) ATTR_NODISCARD;
enum err jinja_parse_sym(struct jinja_parser *p, const struct jinja_value *name, int32_t *out) ATTR_NODISCARD;

/* Moves on when the current token is this one. */
bool jinja_parse_skip(struct jinja_parser *p, enum jinja_tok kind);
bool jinja_parse_skip_name(struct jinja_parser *p, const char *name);
bool jinja_parse_at_name(const struct jinja_parser *p, const char *name);
void jinja_parse_next(struct jinja_parser *p);

/* How a tuple without brackets is read. */
enum {
    PARSE_NO_COND = 1,  /* no "a if b else c" */
    PARSE_TARGET = 2,   /* names only */
    PARSE_NS = 4,       /* and ns.attr */
    PARSE_PARENS = 8,   /* inside brackets: () is a tuple */
    PARSE_END_IN = 16,  /* ends before "in" */
    PARSE_END_REC = 32, /* ends before "recursive" */
    PARSE_PARAM = 64,   /* the target is bound by the block itself */
};

/* expressions */
enum err jinja_parse_expr(struct jinja_parser *p, const struct jinja_node **out) ATTR_NODISCARD;
enum err jinja_parse_expr_tuple(struct jinja_parser *p, int how, const struct jinja_node **out) ATTR_NODISCARD;
enum err jinja_parse_expr_target(struct jinja_parser *p, int how, const struct jinja_node **out) ATTR_NODISCARD;
enum err jinja_parse_expr_filters(struct jinja_parser *p, const struct jinja_node *in, bool inline_first,
                                  const struct jinja_node **out) ATTR_NODISCARD;

#endif
