/* The syntax tree of a template. Nodes live in the template's arena and never change after parsing.
 * Threads: immutable. */
#ifndef TEXT_JINJA_AST_H
#define TEXT_JINJA_AST_H

#include "text/jinja_value.h"

enum jinja_node_kind {
    /* statements */
    NODE_DATA,         /* value: text */
    NODE_OUTPUT,       /* a: expression */
    NODE_BODY,         /* list */
    NODE_FOR,          /* a: target, b: iterable, c: test or NULL, d: body, e: else or NULL; flag: recursive */
    NODE_IF,           /* a: test, b: body, c: else or NULL (an NODE_IF for elif) */
    NODE_SET,          /* a: target, b: expression */
    NODE_SET_BLOCK,    /* a: target, b: filter chain or NULL, d: body */
    NODE_FILTER_BLOCK, /* b: filter chain, d: body */
    NODE_MACRO,        /* signature, sym; d: body */
    NODE_CALL_BLOCK,   /* a: call; signature; d: body */
    NODE_WITH,         /* list: target, value, target, value ...; d: body */
    NODE_SCOPE,        /* d: body in a scope of its own; flag: inside the outermost one (block) */
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_NO_LOADER, /* include, import, extends: there is nothing to load from */
    /* expressions */
    NODE_CONST,
    NODE_NAME,    /* sym */
    NODE_NS_REF,  /* target only: sym.value */
    NODE_GETATTR, /* a.value; method: its number or 0 */
    NODE_GETITEM, /* a[b] */
    NODE_SLICE,   /* a:b:c, each may be NULL */
    NODE_CALL,    /* a(args) */
    NODE_FILTER,  /* a | name(args); a NULL: what the block rendered */
    NODE_TEST,    /* a is name(args) */
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT, /* list: key, value, key, value ... */
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_NEG,
    NODE_POS,
    NODE_ADD,
    NODE_SUB,
    NODE_MUL,
    NODE_DIV,
    NODE_FLOORDIV,
    NODE_MOD,
    NODE_POW,
    NODE_CONCAT,  /* list */
    NODE_COMPARE, /* a, then list of operands with op */
    NODE_OPERAND, /* op, a */
    NODE_COND,    /* b if a else c; c may be NULL */
};

enum jinja_cmp { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

struct jinja_filter;
struct jinja_test;

/* Arguments of a call, filter or test. */
struct jinja_call_args {
    const struct jinja_node **pos;
    const struct jinja_node **kw;
    const struct jinja_value *kw_names;
    size_t n_pos, n_kw;
    const struct jinja_node *star, *star_star; /* or NULL */
};

/* Parameters of a macro; the last n_defaults have defaults. */
struct jinja_signature {
    const int32_t *syms;
    const struct jinja_value *names;
    const struct jinja_node **defaults;
    size_t n, n_defaults;
    struct jinja_value name; /* the macro's, "caller" for a call block */
    bool uses_varargs, uses_kwargs, uses_caller;
};

struct jinja_node {
    uint8_t kind; /* enum jinja_node_kind */
    uint8_t op;   /* OPERAND: enum jinja_cmp */
    bool flag;
    uint8_t method; /* GETATTR */
    uint32_t line;
    int32_t sym; /* number of a variable name */
    uint32_t n;  /* of list */
    const struct jinja_node *a, *b, *c, *d, *e;
    const struct jinja_node **list;
    union {
        const struct jinja_call_args *args;
        const struct jinja_signature *signature;
    };
    union {
        const struct jinja_filter *filter; /* NULL: none of that name, an error when reached */
        const struct jinja_test *test;
    };
    struct jinja_value value; /* CONST, DATA; the name of GETATTR, NS_REF, FILTER, TEST */
};

/* Variable names that functions and loops bind themselves. */
enum { SYM_LOOP, SYM_CALLER, SYM_VARARGS, SYM_KWARGS, SYM_N };

/* A parsed template. */
struct jinja_template {
    struct jinja_arena arena;
    const struct jinja_node *root;
    const struct jinja_value *names; /* of variables, by number */
    int32_t n_names;
};

#endif
