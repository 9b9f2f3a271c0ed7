/* Expressions, in the reference's order of precedence: if-else, or, and, not, comparison, + -, ~, * / // %, **, unary,
 * postfix, filters and tests. */
#include "text/jinja_filters.h"
#include "text/jinja_methods.h"
#include "text/jinja_parse_int.h"
#include "text/jinja_tests.h"

typedef enum err (*level_fn)(struct jinja_parser *p, const struct jinja_node **out);

static enum err parse_unary(struct jinja_parser *p, bool with_filter, const struct jinja_node **out);
static enum err parse_or(struct jinja_parser *p, const struct jinja_node **out);

static enum err binary(struct jinja_parser *p, enum jinja_node_kind kind, const struct jinja_node *a,
                       const struct jinja_node *b, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, kind, &n));
    n->line = a->line;
    n->a = a;
    n->b = b;
    *out = n;
    return ERR_OK;
}

static enum err list_node(struct jinja_parser *p, enum jinja_node_kind kind, const struct jinja_nodes *l,
                          struct jinja_node **out) {
    TRY(jinja_parse_node(p, kind, out));
    (*out)->list = l->v;
    (*out)->n = (uint32_t)l->n;
    return ERR_OK;
}

static enum err const_node(struct jinja_parser *p, struct jinja_value v, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_CONST, &n));
    n->value = v;
    *out = n;
    return ERR_OK;
}

/* ---- primaries ---- */

static enum err parse_name(struct jinja_parser *p, bool with_ns, const struct jinja_node **out) {
    const struct jinja_value name = p->tok->value;
    struct jinja_node *n;
    if (jinja_is_text(&name, "true") || jinja_is_text(&name, "True")) {
        TRY(const_node(p, jinja_bool(true), out));
    } else if (jinja_is_text(&name, "false") || jinja_is_text(&name, "False")) {
        TRY(const_node(p, jinja_bool(false), out));
    } else if (jinja_is_text(&name, "none") || jinja_is_text(&name, "None")) {
        TRY(const_node(p, jinja_none(), out));
    } else {
        TRY(jinja_parse_node(p, NODE_NAME, &n));
        TRY(jinja_parse_sym(p, &name, &n->sym));
        n->value = name;
        *out = n;
        jinja_parse_next(p);
        if (!with_ns || !jinja_parse_skip(p, TOK_DOT)) {
            if (p->macro && n->sym == SYM_VARARGS) p->macro->uses_varargs = true;
            if (p->macro && n->sym == SYM_KWARGS) p->macro->uses_kwargs = true;
            if (p->macro && n->sym == SYM_CALLER) p->macro->uses_caller = true;
            return ERR_OK;
        }
        n->kind = NODE_NS_REF;
        n->value = p->tok->value;
        return jinja_parse_expect(p, TOK_NAME);
    }
    jinja_parse_next(p);
    return ERR_OK;
}

/* One or more string literals side by side. */
static enum err parse_strings(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_value text = p->tok->value;
    const struct jinja_token *const first = p->tok;
    jinja_parse_next(p);
    for (; p->tok->kind == TOK_STRING; jinja_parse_next(p))
        TRY(jinja_value_concat(p->r, &text, p->tok->value.s, p->tok->value.len, &text));
    text.tail = NULL; /* renderings in several threads share the tree: nobody may grow its strings in place */
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_CONST, &n));
    n->line = first->line;
    n->value = text;
    *out = n;
    return ERR_OK;
}

static enum err parse_list(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    struct jinja_node *n;
    TRY(jinja_parse_expect(p, TOK_LBRACKET));
    while (p->tok->kind != TOK_RBRACKET) {
        if (l.n) TRY(jinja_parse_expect(p, TOK_COMMA));
        if (p->tok->kind == TOK_RBRACKET) break;
        const struct jinja_node *item;
        TRY(jinja_parse_expr(p, &item));
        TRY(jinja_parse_push(p, &l, item));
    }
    TRY(jinja_parse_expect(p, TOK_RBRACKET));
    TRY(list_node(p, NODE_LIST, &l, &n));
    *out = n;
    return ERR_OK;
}

static enum err parse_dict(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    struct jinja_node *n;
    TRY(jinja_parse_expect(p, TOK_LBRACE));
    while (p->tok->kind != TOK_RBRACE) {
        if (l.n) TRY(jinja_parse_expect(p, TOK_COMMA));
        if (p->tok->kind == TOK_RBRACE) break;
        const struct jinja_node *key, *value;
        TRY(jinja_parse_expr(p, &key));
        TRY(jinja_parse_expect(p, TOK_COLON));
        TRY(jinja_parse_expr(p, &value));
        TRY(jinja_parse_push(p, &l, key));
        TRY(jinja_parse_push(p, &l, value));
    }
    TRY(jinja_parse_expect(p, TOK_RBRACE));
    TRY(list_node(p, NODE_DICT, &l, &n));
    *out = n;
    return ERR_OK;
}

static enum err parse_primary(struct jinja_parser *p, bool with_ns, const struct jinja_node **out) {
    switch (p->tok->kind) {
    case TOK_NAME:
        return parse_name(p, with_ns, out);
    case TOK_STRING:
        return parse_strings(p, out);
    case TOK_NUMBER:
        TRY(const_node(p, p->tok->value, out));
        jinja_parse_next(p);
        return ERR_OK;
    case TOK_LPAREN:
        jinja_parse_next(p);
        TRY(jinja_parse_expr_tuple(p, PARSE_PARENS, out));
        return jinja_parse_expect(p, TOK_RPAREN);
    case TOK_LBRACKET:
        return parse_list(p, out);
    case TOK_LBRACE:
        return parse_dict(p, out);
    default:
        return jinja_parse_fail(p, "unexpected '%s'", jinja_lex_describe(p->tok->kind));
    }
}

/* ---- subscripts, calls, filters, tests ---- */

static enum err parse_subscribed(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *slice;
    const struct jinja_node *part[3] = {NULL, NULL, NULL};
    if (p->tok->kind != TOK_COLON) {
        TRY(jinja_parse_expr(p, &part[0]));
        if (p->tok->kind != TOK_COLON) {
            *out = part[0];
            return ERR_OK;
        }
    }
    for (int i = 1; i < 3 && jinja_parse_skip(p, TOK_COLON); i++) {
        const enum jinja_tok kind = p->tok->kind;
        if (kind != TOK_COLON && kind != TOK_RBRACKET && kind != TOK_COMMA) TRY(jinja_parse_expr(p, &part[i]));
    }
    TRY(jinja_parse_node(p, NODE_SLICE, &slice));
    slice->a = part[0];
    slice->b = part[1];
    slice->c = part[2];
    *out = slice;
    return ERR_OK;
}

static enum err parse_dot(struct jinja_parser *p, const struct jinja_node *of, const struct jinja_node **out) {
    struct jinja_node *n;
    const struct jinja_value key = p->tok->value;
    if (p->tok->kind == TOK_NUMBER && key.type == JINJA_INT) {
        const struct jinja_node *index;
        TRY(const_node(p, key, &index));
        jinja_parse_next(p);
        return binary(p, NODE_GETITEM, of, index, out);
    }
    if (p->tok->kind != TOK_NAME) return jinja_parse_fail(p, "expected name or number");
    TRY(jinja_parse_node(p, NODE_GETATTR, &n));
    jinja_parse_next(p);
    n->a = of;
    n->value = key;
    n->method = jinja_methods_number(key.s, key.len);
    *out = n;
    return ERR_OK;
}

static enum err parse_brackets(struct jinja_parser *p, const struct jinja_node *of, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    const struct jinja_node *index = NULL;
    struct jinja_node *tuple;
    while (p->tok->kind != TOK_RBRACKET) {
        if (l.n) TRY(jinja_parse_expect(p, TOK_COMMA));
        TRY(parse_subscribed(p, &index));
        TRY(jinja_parse_push(p, &l, index));
    }
    TRY(jinja_parse_expect(p, TOK_RBRACKET));
    if (l.n != 1) {
        TRY(list_node(p, NODE_TUPLE, &l, &tuple));
        index = tuple;
    }
    return binary(p, NODE_GETITEM, of, index, out);
}

static enum err push_keyword(struct jinja_parser *p, struct jinja_call_args *args, struct jinja_nodes *kw) {
    struct jinja_value *const names = jinja_run_alloc(p->r, (kw->n + 1) * sizeof *names);
    if (!names) return jinja_run_nomem(p->r);
    const struct jinja_value *const key = &p->tok->value;
    for (size_t i = 0; i < kw->n; i++)
        if (args->kw_names[i].len == key->len && memcmp(args->kw_names[i].s, key->s, key->len) == 0)
            return jinja_parse_fail(p, "keyword argument repeated: %.*s", key->len > 60 ? 60 : (int)key->len, key->s);
    if (kw->n) memcpy(names, args->kw_names, kw->n * sizeof *names);
    names[kw->n] = p->tok->value;
    args->kw_names = names;
    jinja_parse_next(p);
    jinja_parse_next(p);
    const struct jinja_node *value;
    TRY(jinja_parse_expr(p, &value));
    return jinja_parse_push(p, kw, value);
}

static enum err parse_argument(struct jinja_parser *p, struct jinja_call_args *args, struct jinja_nodes *pos,
                               struct jinja_nodes *kw) {
    static const char wrong[] = "invalid syntax for function call expression";
    if (p->tok->kind == TOK_MUL) {
        if (args->star || args->star_star) return jinja_parse_fail(p, wrong);
        jinja_parse_next(p);
        return jinja_parse_expr(p, &args->star);
    }
    if (p->tok->kind == TOK_POW) {
        if (args->star_star) return jinja_parse_fail(p, wrong);
        jinja_parse_next(p);
        return jinja_parse_expr(p, &args->star_star);
    }
    if (p->tok->kind == TOK_NAME && p->tok < p->last && p->tok[1].kind == TOK_ASSIGN) {
        if (args->star_star) return jinja_parse_fail(p, wrong);
        return push_keyword(p, args, kw);
    }
    if (args->star || args->star_star || kw->n) return jinja_parse_fail(p, wrong);
    const struct jinja_node *value;
    TRY(jinja_parse_expr(p, &value));
    return jinja_parse_push(p, pos, value);
}

static enum err parse_args(struct jinja_parser *p, const struct jinja_call_args **out) {
    struct jinja_nodes pos = {0}, kw = {0};
    struct jinja_call_args *const args = jinja_run_alloc(p->r, sizeof *args);
    if (!args) return jinja_run_nomem(p->r);
    *args = (struct jinja_call_args){0};
    TRY(jinja_parse_expect(p, TOK_LPAREN));
    for (bool first = true; p->tok->kind != TOK_RPAREN; first = false) {
        if (!first) TRY(jinja_parse_expect(p, TOK_COMMA));
        if (p->tok->kind == TOK_RPAREN && !first) break;
        TRY(parse_argument(p, args, &pos, &kw));
    }
    TRY(jinja_parse_expect(p, TOK_RPAREN));
    args->pos = pos.v;
    args->n_pos = pos.n;
    args->kw = kw.v;
    args->n_kw = kw.n;
    *out = args;
    return ERR_OK;
}

static enum err parse_call(struct jinja_parser *p, const struct jinja_node *of, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_CALL, &n));
    n->a = of;
    TRY(parse_args(p, &n->args));
    *out = n;
    return ERR_OK;
}

/* The reference counts every postfix as a level of nesting, and so does evaluation here. */
static enum err count_level(struct jinja_parser *p, int *levels) {
    if (++*levels > 200)
        return err_set(p->r->msg, ERR_LIMIT, "chat template, line %u: expression too long", p->tok->line);
    return ERR_OK;
}

static enum err parse_postfix(struct jinja_parser *p, const struct jinja_node *n, const struct jinja_node **out) {
    for (int levels = 0;;) {
        TRY(count_level(p, &levels));
        if (jinja_parse_skip(p, TOK_DOT))
            TRY(parse_dot(p, n, &n));
        else if (jinja_parse_skip(p, TOK_LBRACKET))
            TRY(parse_brackets(p, n, &n));
        else if (p->tok->kind == TOK_LPAREN)
            TRY(parse_call(p, n, &n));
        else
            break;
    }
    *out = n;
    return ERR_OK;
}

/* name.name.name, as one name. */
static enum err dotted_name(struct jinja_parser *p, struct jinja_value *out) {
    *out = p->tok->value;
    TRY(jinja_parse_expect(p, TOK_NAME));
    while (jinja_parse_skip(p, TOK_DOT)) {
        const struct jinja_value more = p->tok->value;
        TRY(jinja_parse_expect(p, TOK_NAME));
        TRY(jinja_value_concat(p->r, out, ".", 1, out));
        TRY(jinja_value_concat(p->r, out, more.s, more.len, out));
    }
    return ERR_OK;
}

enum err jinja_parse_expr_filters(struct jinja_parser *p, const struct jinja_node *in, bool inline_first,
                                  const struct jinja_node **out) {
    for (int levels = 0; inline_first || jinja_parse_skip(p, TOK_PIPE); inline_first = false) {
        struct jinja_node *n;
        TRY(count_level(p, &levels));
        TRY(jinja_parse_node(p, NODE_FILTER, &n));
        TRY(dotted_name(p, &n->value));
        n->filter = jinja_filters_find(n->value.s, n->value.len);
        if (!n->filter && !p->soft && !p->unknown) p->unknown = n;
        n->a = in;
        if (p->tok->kind == TOK_LPAREN) TRY(parse_args(p, &n->args));
        in = n;
    }
    *out = in;
    return ERR_OK;
}

static bool starts_test_argument(const struct jinja_parser *p) {
    switch (p->tok->kind) {
    case TOK_NAME:
        return !jinja_parse_at_name(p, "else") && !jinja_parse_at_name(p, "or") && !jinja_parse_at_name(p, "and");
    case TOK_STRING:
    case TOK_NUMBER:
    case TOK_LBRACKET:
    case TOK_LBRACE:
        return true;
    default:
        return false;
    }
}

static enum err test_argument(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_call_args *const args = jinja_run_alloc(p->r, sizeof *args);
    struct jinja_nodes pos = {0};
    const struct jinja_node *value;
    if (!args) return jinja_run_nomem(p->r);
    if (jinja_parse_at_name(p, "is")) return jinja_parse_fail(p, "You cannot chain multiple tests with is");
    TRY(parse_primary(p, false, &value));
    TRY(parse_postfix(p, value, &value));
    TRY(jinja_parse_push(p, &pos, value));
    *args = (struct jinja_call_args){.pos = pos.v, .n_pos = 1};
    n->args = args;
    return ERR_OK;
}

/* Behind "is". */
static enum err parse_test(struct jinja_parser *p, const struct jinja_node *of, const struct jinja_node **out) {
    struct jinja_node *n, *not_node;
    const bool negated = jinja_parse_skip_name(p, "not");
    TRY(jinja_parse_node(p, NODE_TEST, &n));
    n->a = of;
    TRY(dotted_name(p, &n->value));
    n->test = jinja_tests_find(n->value.s, n->value.len);
    if (!n->test && !p->soft && !p->unknown) p->unknown = n;
    if (p->tok->kind == TOK_LPAREN)
        TRY(parse_args(p, &n->args));
    else if (starts_test_argument(p))
        TRY(test_argument(p, n));
    *out = n;
    if (!negated) return ERR_OK;
    TRY(jinja_parse_node(p, NODE_NOT, &not_node));
    not_node->a = n;
    *out = not_node;
    return ERR_OK;
}

static enum err parse_filter_expr(struct jinja_parser *p, const struct jinja_node *n, const struct jinja_node **out) {
    for (int levels = 0;;) {
        TRY(count_level(p, &levels));
        if (p->tok->kind == TOK_PIPE)
            TRY(jinja_parse_expr_filters(p, n, false, &n));
        else if (jinja_parse_skip_name(p, "is"))
            TRY(parse_test(p, n, &n));
        else if (p->tok->kind == TOK_LPAREN)
            TRY(parse_call(p, n, &n));
        else
            break;
    }
    *out = n;
    return ERR_OK;
}

/* ---- operators ---- */

static enum err parse_unary_inner(struct jinja_parser *p, bool with_filter, const struct jinja_node **out) {
    const enum jinja_tok kind = p->tok->kind;
    if (kind == TOK_SUB || kind == TOK_ADD) {
        struct jinja_node *n;
        TRY(jinja_parse_node(p, kind == TOK_SUB ? NODE_NEG : NODE_POS, &n));
        jinja_parse_next(p);
        TRY(parse_unary(p, false, &n->a));
        *out = n;
    } else {
        TRY(parse_primary(p, false, out));
    }
    TRY(parse_postfix(p, *out, out));
    return with_filter ? parse_filter_expr(p, *out, out) : ERR_OK;
}

static enum err parse_unary(struct jinja_parser *p, bool with_filter, const struct jinja_node **out) {
    TRY(jinja_run_enter(p->r));
    const enum err e = parse_unary_inner(p, with_filter, out);
    jinja_run_leave(p->r);
    return e;
}

struct op {
    enum jinja_tok tok;
    enum jinja_node_kind node;
};

/* Left-associative operators of one level. */
static enum err parse_level(struct jinja_parser *p, const struct op *ops, size_t n_ops, level_fn below,
                            const struct jinja_node **out) {
    const struct jinja_node *left, *right;
    int levels = 0;
    TRY(below(p, &left));
    for (size_t i = 0; i < n_ops;) {
        if (!jinja_parse_skip(p, ops[i].tok)) {
            i++;
            continue;
        }
        TRY(count_level(p, &levels));
        TRY(below(p, &right));
        TRY(binary(p, ops[i].node, left, right, &left));
        i = 0;
    }
    *out = left;
    return ERR_OK;
}

static enum err parse_operand(struct jinja_parser *p, const struct jinja_node **out) {
    return parse_unary(p, true, out);
}

static enum err parse_pow(struct jinja_parser *p, const struct jinja_node **out) {
    static const struct op ops[] = {{TOK_POW, NODE_POW}};
    return parse_level(p, ops, N_ELEMENTS(ops), parse_operand, out);
}

static enum err parse_product(struct jinja_parser *p, const struct jinja_node **out) {
    static const struct op ops[] = {
        {TOK_MUL, NODE_MUL}, {TOK_DIV, NODE_DIV}, {TOK_FLOORDIV, NODE_FLOORDIV}, {TOK_MOD, NODE_MOD}};
    return parse_level(p, ops, N_ELEMENTS(ops), parse_pow, out);
}

static enum err parse_concat(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    const struct jinja_node *part;
    TRY(parse_product(p, &part));
    if (p->tok->kind != TOK_TILDE) {
        *out = part;
        return ERR_OK;
    }
    TRY(jinja_parse_push(p, &l, part));
    while (jinja_parse_skip(p, TOK_TILDE)) {
        TRY(parse_product(p, &part));
        TRY(jinja_parse_push(p, &l, part));
    }
    struct jinja_node *n;
    TRY(list_node(p, NODE_CONCAT, &l, &n));
    *out = n;
    return ERR_OK;
}

static enum err parse_sum(struct jinja_parser *p, const struct jinja_node **out) {
    static const struct op ops[] = {{TOK_ADD, NODE_ADD}, {TOK_SUB, NODE_SUB}};
    return parse_level(p, ops, N_ELEMENTS(ops), parse_concat, out);
}

static bool compare_operator(struct jinja_parser *p, enum jinja_cmp *op) {
    static const struct {
        enum jinja_tok tok;
        enum jinja_cmp op;
    } ops[] = {{TOK_EQ, CMP_EQ}, {TOK_NE, CMP_NE}, {TOK_LT, CMP_LT},
               {TOK_LE, CMP_LE}, {TOK_GT, CMP_GT}, {TOK_GE, CMP_GE}};
    for (size_t i = 0; i < N_ELEMENTS(ops); i++) {
        *op = ops[i].op;
        if (jinja_parse_skip(p, ops[i].tok)) return true;
    }
    *op = CMP_IN;
    if (jinja_parse_skip_name(p, "in")) return true;
    *op = CMP_NOT_IN;
    if (!jinja_parse_at_name(p, "not") || p->tok[1].kind != TOK_NAME || !jinja_is_text(&p->tok[1].value, "in"))
        return false;
    jinja_parse_next(p);
    jinja_parse_next(p);
    return true;
}

static enum err parse_compare(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    struct jinja_node *n;
    enum jinja_cmp op;
    const struct jinja_node *first;
    TRY(parse_sum(p, &first));
    while (compare_operator(p, &op)) {
        TRY(jinja_parse_node(p, NODE_OPERAND, &n));
        n->op = (uint8_t)op;
        TRY(parse_sum(p, &n->a));
        TRY(jinja_parse_push(p, &l, n));
    }
    *out = first;
    if (l.n == 0) return ERR_OK;
    TRY(list_node(p, NODE_COMPARE, &l, &n));
    n->a = first;
    *out = n;
    return ERR_OK;
}

static enum err parse_not(struct jinja_parser *p, const struct jinja_node **out) {
    if (!jinja_parse_at_name(p, "not")) return parse_compare(p, out);
    struct jinja_node *n;
    TRY(jinja_run_enter(p->r));
    TRY(jinja_parse_node(p, NODE_NOT, &n));
    jinja_parse_next(p);
    TRY(parse_not(p, &n->a));
    jinja_run_leave(p->r);
    *out = n;
    return ERR_OK;
}

static enum err parse_words(struct jinja_parser *p, const char *word, enum jinja_node_kind kind, level_fn below,
                            const struct jinja_node **out) {
    const struct jinja_node *left, *right;
    int levels = 0;
    TRY(below(p, &left));
    while (jinja_parse_skip_name(p, word)) {
        TRY(count_level(p, &levels));
        TRY(below(p, &right));
        TRY(binary(p, kind, left, right, &left));
    }
    *out = left;
    return ERR_OK;
}

static enum err parse_and(struct jinja_parser *p, const struct jinja_node **out) {
    return parse_words(p, "and", NODE_AND, parse_not, out);
}

static enum err parse_or(struct jinja_parser *p, const struct jinja_node **out) {
    return parse_words(p, "or", NODE_OR, parse_and, out);
}

/* An unknown filter or test counts at once unless its expression turns out to be part of a conditional one: then, as
 * inside an if block, it is an error only when it is reached. */
static enum err parse_cond(struct jinja_parser *p, const struct jinja_node **out) {
    const struct jinja_node *const unknown = p->unknown;
    TRY(parse_or(p, out));
    if (!jinja_parse_at_name(p, "if")) return ERR_OK;
    for (int levels = 0; jinja_parse_skip_name(p, "if");) {
        struct jinja_node *n;
        TRY(count_level(p, &levels));
        TRY(jinja_parse_node(p, NODE_COND, &n));
        n->b = *out;
        TRY(parse_or(p, &n->a));
        if (jinja_parse_skip_name(p, "else")) TRY(jinja_parse_expr(p, &n->c));
        *out = n;
    }
    p->unknown = unknown;
    return ERR_OK;
}

enum err jinja_parse_expr(struct jinja_parser *p, const struct jinja_node **out) {
    TRY(jinja_run_enter(p->r));
    const enum err e = parse_cond(p, out);
    jinja_run_leave(p->r);
    return e;
}

static bool tuple_ends(const struct jinja_parser *p, int how) {
    const enum jinja_tok kind = p->tok->kind;
    return kind == TOK_VAR_END || kind == TOK_BLOCK_END || kind == TOK_RPAREN ||
           ((how & PARSE_END_IN) && jinja_parse_at_name(p, "in")) ||
           ((how & PARSE_END_REC) && jinja_parse_at_name(p, "recursive"));
}

static enum err tuple_part(struct jinja_parser *p, int how, const struct jinja_node **out) {
    if (how & PARSE_NO_COND) return parse_or(p, out);
    return how & PARSE_TARGET ? parse_primary(p, how & PARSE_NS, out) : jinja_parse_expr(p, out);
}

enum err jinja_parse_expr_tuple(struct jinja_parser *p, int how, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    bool is_tuple = false;
    while (!tuple_ends(p, how)) {
        const struct jinja_node *part;
        TRY(tuple_part(p, how, &part));
        TRY(jinja_parse_push(p, &l, part));
        if (!jinja_parse_skip(p, TOK_COMMA)) break;
        is_tuple = true;
    }
    if (!is_tuple && l.n == 1) {
        *out = l.v[0];
        return ERR_OK;
    }
    if (l.n == 0 && !(how & PARSE_PARENS))
        return jinja_parse_fail(p, "Expected an expression, got '%s'", jinja_lex_describe(p->tok->kind));
    struct jinja_node *n;
    TRY(list_node(p, NODE_TUPLE, &l, &n));
    *out = n;
    return ERR_OK;
}

static enum err check_target(struct jinja_parser *p, int how, const struct jinja_node *n) {
    if (n->kind == NODE_NAME && n->sym == SYM_LOOP && p->n_fors && !(how & PARSE_PARAM))
        return jinja_parse_fail(p, "Can't assign to special loop variable in for-loop target");
    if (n->kind == NODE_NAME || n->kind == NODE_NS_REF) return ERR_OK;
    if (n->kind != NODE_TUPLE) return jinja_parse_fail(p, "can't assign to this expression");
    for (uint32_t i = 0; i < n->n; i++)
        TRY(check_target(p, how, n->list[i]));
    return ERR_OK;
}

enum err jinja_parse_expr_target(struct jinja_parser *p, int how, const struct jinja_node **out) {
    TRY(jinja_run_enter(p->r));
    TRY(jinja_parse_expr_tuple(p, how | PARSE_TARGET, out));
    jinja_run_leave(p->r);
    return check_target(p, how, *out);
}
