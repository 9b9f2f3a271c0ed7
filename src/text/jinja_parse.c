#include "text/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/mem.h"
#include "text/jinja_parse_int.h"

typedef enum err (*stmt_fn)(struct jinja_parser *p, const struct jinja_node **out);

static enum err parse_body(struct jinja_parser *p, const char *ends, const struct jinja_node **out);

/* ---- helpers ---- */

enum err jinja_parse_fail(struct jinja_parser *p, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(p->r->msg, ERR_FORMAT, "chat template, line %u: %s", p->tok->line, text);
}

enum err jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node **out) {
    struct jinja_node *const n = jinja_run_alloc(p->r, sizeof *n);
    *out = n;
    if (!n) return jinja_run_nomem(p->r);
    p->r->line = p->tok->line;
    *n = (struct jinja_node){.kind = (uint8_t)kind, .line = p->tok->line};
    return ERR_OK;
}

enum err jinja_parse_push(struct jinja_parser *p, struct jinja_nodes *l, const struct jinja_node *n) {
    if (l->n == l->cap) {
        const size_t cap = l->cap ? l->cap * 2 : 4;
        const struct jinja_node **const bigger = jinja_run_alloc(p->r, cap * sizeof *bigger);
        if (!bigger) return jinja_run_nomem(p->r);
        if (l->n) memcpy(bigger, l->v, l->n * sizeof *bigger);
        l->v = bigger;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return ERR_OK;
}

void jinja_parse_next(struct jinja_parser *p) {
    if (p->tok < p->last) p->tok++;
}

bool jinja_parse_skip(struct jinja_parser *p, enum jinja_tok kind) {
    if (p->tok->kind != kind) return false;
    jinja_parse_next(p);
    return true;
}

bool jinja_parse_at_name(const struct jinja_parser *p, const char *name) {
    return p->tok->kind == TOK_NAME && jinja_is_text(&p->tok->value, name);
}

bool jinja_parse_skip_name(struct jinja_parser *p, const char *name) {
    if (!jinja_parse_at_name(p, name)) return false;
    jinja_parse_next(p);
    return true;
}

enum err jinja_parse_expect(struct jinja_parser *p, enum jinja_tok kind) {
    if (jinja_parse_skip(p, kind)) return ERR_OK;
    if (p->tok->kind == TOK_EOF)
        return jinja_parse_fail(p, "unexpected end of template, expected '%s'.", jinja_lex_describe(kind));
    const bool named = p->tok->kind == TOK_NAME;
    return jinja_parse_fail(p, "expected token '%s', got '%.*s'", jinja_lex_describe(kind),
                            named ? (int)p->tok->value.len : 40,
                            named ? p->tok->value.s : jinja_lex_describe(p->tok->kind));
}

static enum err expect_name(struct jinja_parser *p, const char *name) {
    if (jinja_parse_skip_name(p, name)) return ERR_OK;
    return jinja_parse_fail(p, "expected token '%s', got '%s'", name, jinja_lex_describe(p->tok->kind));
}

enum err jinja_parse_sym(struct jinja_parser *p, const struct jinja_value *name, int32_t *out) {
    int64_t known;
    if (map_get(&p->syms, name->s, name->len, &known)) {
        *out = (int32_t)known;
        return ERR_OK;
    }
    if (p->n_names == p->cap_names) {
        const size_t cap = p->cap_names ? p->cap_names * 2 : 32;
        struct jinja_value *const bigger = jinja_run_alloc(p->r, cap * sizeof *bigger);
        if (!bigger) return jinja_run_nomem(p->r);
        if (p->n_names) memcpy(bigger, p->names, p->n_names * sizeof *bigger);
        p->names = bigger;
        p->cap_names = cap;
    }
    if (!map_put(&p->syms, name->s, name->len, (int64_t)p->n_names)) return jinja_run_nomem(p->r);
    p->names[p->n_names] = *name;
    *out = (int32_t)p->n_names++;
    return ERR_OK;
}

/* The list of words in `ends`, separated by blanks, has this one. */
static bool listed(const char *ends, const struct jinja_value *word) {
    for (const char *at = ends; at && *at;) {
        const size_t n = strcspn(at, " ");
        if (n == word->len && memcmp(at, word->s, n) == 0) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

/* Which tags were wanted, in the words of the reference. */
static enum err fail_tag(struct jinja_parser *p, const struct jinja_value *tag) {
    char text[200], wanted[120] = "";
    size_t n = 0;
    if (tag)
        snprintf(text, sizeof text, "Encountered unknown tag '%.*s'.", tag->len > 60 ? 60 : (int)tag->len, tag->s);
    else
        snprintf(text, sizeof text, "Unexpected end of template.");
    if (p->n_tags == 0) return jinja_parse_fail(p, "%s", text);
    const char *const ends = p->wanted[p->n_tags - 1];
    for (const char *at = ends; *at && n < sizeof wanted;) {
        const size_t len = strcspn(at, " ");
        n += (size_t)snprintf(wanted + n, sizeof wanted - n, "%s'%.*s'", n ? " or " : "", (int)len, at);
        at += len + (at[len] == ' ');
    }
    return jinja_parse_fail(p,
                            "%s Jinja was looking for the following tags: %s. The innermost block that needs to be "
                            "closed is '%s'.",
                            text, wanted, p->tags[p->n_tags - 1]);
}

/* Runs a part of the parser under the soft rule for unknown filters, or back under the strict one. */
static enum err with_soft(struct jinja_parser *p, bool soft,
                          enum err (*part)(struct jinja_parser *, struct jinja_node *), struct jinja_node *n) {
    const bool outer = p->soft;
    p->soft = soft;
    const enum err e = part(p, n);
    p->soft = outer;
    return e;
}

/* ---- statements ---- */

static enum err for_head(struct jinja_parser *p, struct jinja_node *n) {
    TRY(jinja_parse_expr_target(p, PARSE_END_IN, &n->a));
    TRY(expect_name(p, "in"));
    TRY(jinja_parse_expr_tuple(p, PARSE_NO_COND | PARSE_END_REC, &n->b));
    if (jinja_parse_skip_name(p, "if")) TRY(jinja_parse_expr(p, &n->c));
    n->flag = jinja_parse_skip_name(p, "recursive");
    return ERR_OK;
}

static enum err for_body(struct jinja_parser *p, struct jinja_node *n) {
    p->n_loops++;
    const enum err e = parse_body(p, "endfor else", &n->d);
    p->n_loops--;
    TRY(e);
    if (jinja_parse_skip_name(p, "endfor")) return ERR_OK;
    jinja_parse_next(p);
    TRY(parse_body(p, "endfor", &n->e));
    jinja_parse_next(p);
    return ERR_OK;
}

static enum err parse_for(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_FOR, &n));
    p->n_fors++;
    TRY(for_head(p, n));
    TRY(with_soft(p, false, for_body, n));
    p->n_fors--;
    *out = n;
    return ERR_OK;
}

/* Every branch of an if is soft. Branches are a chain: the else of one is the if of the next. */
static enum err if_branches(struct jinja_parser *p, struct jinja_node *n) {
    for (;;) {
        TRY(jinja_parse_expr_tuple(p, PARSE_NO_COND, &n->a));
        TRY(parse_body(p, "elif else endif", &n->b));
        if (jinja_parse_skip_name(p, "endif")) return ERR_OK;
        if (jinja_parse_skip_name(p, "else")) {
            TRY(parse_body(p, "endif", &n->c));
            jinja_parse_next(p);
            return ERR_OK;
        }
        jinja_parse_next(p);
        struct jinja_node *next;
        TRY(jinja_parse_node(p, NODE_IF, &next));
        n->c = next;
        n = next;
    }
}

static enum err parse_if(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_IF, &n));
    TRY(with_soft(p, true, if_branches, n));
    *out = n;
    return ERR_OK;
}

static enum err block_body(struct jinja_parser *p, const char *end, const struct jinja_node **out) {
    TRY(parse_body(p, end, out));
    jinja_parse_next(p);
    return ERR_OK;
}

static enum err set_body(struct jinja_parser *p, struct jinja_node *n) {
    TRY(jinja_parse_expr_filters(p, NULL, false, &n->b));
    return block_body(p, "endset", &n->d);
}

static enum err parse_set(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_SET, &n));
    TRY(jinja_parse_expr_target(p, PARSE_NS, &n->a));
    if (jinja_parse_skip(p, TOK_ASSIGN)) {
        TRY(jinja_parse_expr_tuple(p, 0, &n->b));
    } else {
        n->kind = NODE_SET_BLOCK;
        TRY(with_soft(p, false, set_body, n));
    }
    *out = n;
    return ERR_OK;
}

static enum err with_body(struct jinja_parser *p, struct jinja_node *n) {
    return block_body(p, "endwith", &n->d);
}

static enum err parse_with(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_WITH, &n));
    while (p->tok->kind != TOK_BLOCK_END) {
        const struct jinja_node *target, *value;
        if (l.n) TRY(jinja_parse_expect(p, TOK_COMMA));
        TRY(jinja_parse_expr_target(p, PARSE_PARAM, &target));
        TRY(jinja_parse_expect(p, TOK_ASSIGN));
        TRY(jinja_parse_expr(p, &value));
        TRY(jinja_parse_push(p, &l, target));
        TRY(jinja_parse_push(p, &l, value));
    }
    n->list = l.v;
    n->n = (uint32_t)l.n;
    TRY(with_soft(p, false, with_body, n));
    *out = n;
    return ERR_OK;
}

static enum err parameter(struct jinja_parser *p, struct jinja_signature *sig, struct jinja_nodes *params,
                          struct jinja_nodes *defaults) {
    struct jinja_node *name;
    const struct jinja_node *value;
    TRY(jinja_parse_node(p, NODE_NAME, &name));
    name->value = p->tok->value;
    TRY(jinja_parse_expect(p, TOK_NAME));
    TRY(jinja_parse_sym(p, &name->value, &name->sym));
    TRY(jinja_parse_push(p, params, name));
    sig->n++;
    if (jinja_parse_skip(p, TOK_ASSIGN)) {
        TRY(jinja_parse_expr(p, &value));
        return jinja_parse_push(p, defaults, value);
    }
    return defaults->n ? jinja_parse_fail(p, "non-default argument follows default argument") : ERR_OK;
}

/* (a, b=1) */
static enum err parse_signature(struct jinja_parser *p, struct jinja_signature *sig) {
    struct jinja_nodes params = {0}, defaults = {0};
    TRY(jinja_parse_expect(p, TOK_LPAREN));
    while (p->tok->kind != TOK_RPAREN) {
        if (params.n) TRY(jinja_parse_expect(p, TOK_COMMA));
        TRY(parameter(p, sig, &params, &defaults));
    }
    TRY(jinja_parse_expect(p, TOK_RPAREN));
    int32_t *const syms = jinja_run_alloc(p->r, params.n * sizeof *syms);
    struct jinja_value *const names = syms ? jinja_run_alloc(p->r, params.n * sizeof *names) : NULL;
    if (!names) return jinja_run_nomem(p->r);
    for (size_t i = 0; i < params.n; i++) {
        syms[i] = params.v[i]->sym;
        names[i] = params.v[i]->value;
    }
    sig->syms = syms;
    sig->names = names;
    sig->defaults = defaults.v;
    sig->n_defaults = defaults.n;
    return ERR_OK;
}

static enum err macro_node(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_value name,
                           struct jinja_node **n, struct jinja_signature **sig) {
    *sig = jinja_run_alloc(p->r, sizeof **sig);
    if (!*sig) return jinja_run_nomem(p->r);
    **sig = (struct jinja_signature){.name = name};
    TRY(jinja_parse_node(p, kind, n));
    (*n)->signature = *sig;
    return ERR_OK;
}

/* The body of a macro or a call block; which special names it uses is noted in its signature. */
static enum err macro_body(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_signature *const outer = p->macro;
    const int n_loops = p->n_loops;
    p->n_loops = 0;
    p->macro = p->sig;
    TRY(block_body(p, n->kind == NODE_MACRO ? "endmacro" : "endcall", &n->d));
    if (outer) { /* what an inner macro uses, the outer one may have to pass on */
        outer->uses_caller |= p->macro->uses_caller && n->kind == NODE_CALL_BLOCK;
        outer->uses_varargs |= p->macro->uses_varargs && n->kind == NODE_CALL_BLOCK;
        outer->uses_kwargs |= p->macro->uses_kwargs && n->kind == NODE_CALL_BLOCK;
    }
    p->macro = outer;
    p->n_loops = n_loops;
    return ERR_OK;
}

static enum err parse_macro(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    struct jinja_signature *sig;
    TRY(macro_node(p, NODE_MACRO, p->tok->value, &n, &sig));
    TRY(jinja_parse_expect(p, TOK_NAME));
    TRY(jinja_parse_sym(p, &sig->name, &n->sym));
    TRY(parse_signature(p, sig));
    p->sig = sig;
    TRY(with_soft(p, false, macro_body, n));
    *out = n;
    return ERR_OK;
}

static enum err parse_call_block(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    struct jinja_signature *sig;
    TRY(macro_node(p, NODE_CALL_BLOCK, jinja_cstr("caller"), &n, &sig));
    if (p->tok->kind == TOK_LPAREN) TRY(parse_signature(p, sig));
    TRY(jinja_parse_expr(p, &n->a));
    if (n->a->kind != NODE_CALL) return jinja_parse_fail(p, "expected call");
    p->sig = sig;
    TRY(with_soft(p, false, macro_body, n));
    *out = n;
    return ERR_OK;
}

static enum err filter_body(struct jinja_parser *p, struct jinja_node *n) {
    TRY(jinja_parse_expr_filters(p, NULL, true, &n->b));
    return block_body(p, "endfilter", &n->d);
}

static enum err parse_filter_block(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_FILTER_BLOCK, &n));
    TRY(with_soft(p, false, filter_body, n));
    *out = n;
    return ERR_OK;
}

static enum err generation_body(struct jinja_parser *p, struct jinja_node *n) {
    return block_body(p, "endgeneration", &n->d);
}

/* The tag is for tools that train models: its content counts, the tag does not. It is a scope of its own. */
static enum err parse_generation(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_SCOPE, &n));
    TRY(with_soft(p, false, generation_body, n));
    *out = n;
    return ERR_OK;
}

static enum err named_body(struct jinja_parser *p, struct jinja_node *n) {
    return block_body(p, "endblock", &n->d);
}

/* A block is rendered where it stands; it sees the variables of the top level only. */
static enum err parse_block(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_SCOPE, &n));
    const struct jinja_value name = p->tok->value;
    TRY(jinja_parse_expect(p, TOK_NAME));
    (void)jinja_parse_skip_name(p, "scoped");
    (void)jinja_parse_skip_name(p, "required");
    n->flag = true;
    TRY(with_soft(p, false, named_body, n));
    if (p->tok->kind == TOK_NAME && p->tok->value.len == name.len && memcmp(p->tok->value.s, name.s, name.len) == 0)
        jinja_parse_next(p);
    *out = n;
    return ERR_OK;
}

static enum err parse_autoescape(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    const struct jinja_node *on;
    TRY(jinja_parse_node(p, NODE_SCOPE, &n));
    TRY(jinja_parse_expr(p, &on));
    if (on->kind != NODE_CONST || jinja_value_truth(&on->value))
        return jinja_parse_fail(p, "autoescape is not supported: chat templates are not HTML");
    TRY(block_body(p, "endautoescape", &n->d));
    *out = n;
    return ERR_OK;
}

static enum err parse_print(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_BODY, &n));
    while (p->tok->kind != TOK_BLOCK_END) {
        struct jinja_node *item;
        if (l.n) TRY(jinja_parse_expect(p, TOK_COMMA));
        TRY(jinja_parse_node(p, NODE_OUTPUT, &item));
        TRY(jinja_parse_expr(p, &item->a));
        TRY(jinja_parse_push(p, &l, item));
    }
    n->list = l.v;
    n->n = (uint32_t)l.n;
    *out = n;
    return ERR_OK;
}

static enum err parse_loop_control(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    const bool is_break = jinja_is_text(&p->tok[-1].value, "break");
    if (p->n_loops == 0) return jinja_parse_fail(p, "'%s' outside loop", is_break ? "break" : "continue");
    TRY(jinja_parse_node(p, is_break ? NODE_BREAK : NODE_CONTINUE, &n));
    *out = n;
    return ERR_OK;
}

/* include, import, from, extends: read to the end of the tag; reaching one is the error. */
static enum err parse_no_loader(struct jinja_parser *p, const struct jinja_node **out) {
    struct jinja_node *n;
    const struct jinja_node *ignored;
    TRY(jinja_parse_node(p, NODE_NO_LOADER, &n));
    TRY(jinja_parse_expr(p, &ignored));
    while (p->tok->kind != TOK_BLOCK_END && p->tok->kind != TOK_EOF)
        jinja_parse_next(p);
    *out = n;
    return ERR_OK;
}

static const struct {
    const char *tag;
    stmt_fn parse;
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
    {"print", parse_print},
    {"block", parse_block},
    {"autoescape", parse_autoescape},
    {"include", parse_no_loader},
    {"import", parse_no_loader},
    {"from", parse_no_loader},
    {"extends", parse_no_loader},
};

static enum err parse_statement(struct jinja_parser *p, const struct jinja_node **out) {
    if (p->tok->kind != TOK_NAME) return jinja_parse_fail(p, "tag name expected");
    for (size_t i = 0; i < N_ELEMENTS(statements); i++) {
        if (!jinja_parse_at_name(p, statements[i].tag)) continue;
        if (p->n_tags == (int)N_ELEMENTS(p->tags))
            return err_set(p->r->msg, ERR_LIMIT, "chat template, line %u: blocks nested too deep", p->tok->line);
        p->tags[p->n_tags] = statements[i].tag;
        p->wanted[p->n_tags] = "";
        p->n_tags++;
        jinja_parse_next(p);
        TRY(statements[i].parse(p, out));
        p->n_tags--;
        return jinja_parse_expect(p, TOK_BLOCK_END);
    }
    return fail_tag(p, &p->tok->value);
}

/* Text, prints and statements up to one of the tags in `ends`, whose name is then the current token; NULL: to the end.
 */
static enum err parse_until(struct jinja_parser *p, const char *ends, struct jinja_nodes *l) {
    while (p->tok->kind != TOK_EOF) {
        struct jinja_node *n;
        const struct jinja_node *statement;
        if (p->tok->kind == TOK_BLOCK_BEGIN) {
            jinja_parse_next(p);
            if (p->tok->kind == TOK_NAME && listed(ends, &p->tok->value)) return ERR_OK;
            TRY(parse_statement(p, &statement));
            TRY(jinja_parse_push(p, l, statement));
            continue;
        }
        TRY(jinja_parse_node(p, p->tok->kind == TOK_DATA ? NODE_DATA : NODE_OUTPUT, &n));
        n->value = p->tok->value;
        jinja_parse_next(p);
        if (n->kind == NODE_OUTPUT) {
            TRY(jinja_parse_expr_tuple(p, 0, &n->a));
            TRY(jinja_parse_expect(p, TOK_VAR_END));
        }
        TRY(jinja_parse_push(p, l, n));
    }
    return ends ? fail_tag(p, NULL) : ERR_OK;
}

static enum err parse_body(struct jinja_parser *p, const char *ends, const struct jinja_node **out) {
    struct jinja_nodes l = {0};
    struct jinja_node *n;
    TRY(jinja_parse_node(p, NODE_BODY, &n));
    if (ends) {
        (void)jinja_parse_skip(p, TOK_COLON);
        TRY(jinja_parse_expect(p, TOK_BLOCK_END));
        p->wanted[p->n_tags - 1] = ends;
    }
    TRY(jinja_run_enter(p->r));
    TRY(parse_until(p, ends, &l));
    jinja_run_leave(p->r);
    n->list = l.v;
    n->n = (uint32_t)l.n;
    *out = n;
    return ERR_OK;
}

static enum err parse_all(struct jinja_parser *p, const char *source, size_t len, struct jinja_template *t) {
    static const char *const reserved[SYM_N] = {"loop", "caller", "varargs", "kwargs"};
    struct jinja_token *tokens = NULL;
    size_t n = 0;
    for (int i = 0; i < SYM_N; i++) {
        const struct jinja_value name = jinja_cstr(reserved[i]);
        int32_t sym;
        TRY(jinja_parse_sym(p, &name, &sym));
    }
    TRY(jinja_lex(p->r, source, len, &tokens, &n));
    p->tok = tokens;
    p->last = tokens + n - 1;
    TRY(parse_body(p, NULL, &t->root));
    if (p->unknown)
        return err_set(p->r->msg, ERR_FORMAT, "chat template, line %u: No %s named '%.*s'.", p->unknown->line,
                       p->unknown->kind == NODE_FILTER ? "filter" : "test", (int)p->unknown->value.len,
                       p->unknown->value.s);
    t->names = p->names;
    t->n_names = (int32_t)p->n_names;
    return ERR_OK;
}

enum err jinja_parse(struct jinja_template **out, const char *source, size_t len, struct err_msg *msg) {
    const struct jinja_limits limits = {.depth = JINJA_PARSE_DEPTH_MAX};
    struct jinja_run r;
    *out = NULL;
    if (len > JINJA_SOURCE_MAX)
        return err_set(msg, ERR_LIMIT, "the chat template has %zu bytes, more than %d", len, JINJA_SOURCE_MAX);
    struct jinja_template *const t = mem_calloc(1, sizeof *t);
    if (!t) return err_set(msg, ERR_NOMEM, "out of memory for the chat template");
    jinja_run_init(&r, &limits, msg);
    struct jinja_parser p = {.r = &r};
    const enum err e = parse_all(&p, source, len, t);
    t->arena = r.arena;
    r.arena = (struct jinja_arena){0};
    jinja_run_deinit(&r);
    map_deinit(&p.syms);
    if (e == ERR_OK)
        *out = t;
    else
        jinja_parse_free(t);
    return e;
}

void jinja_parse_free(struct jinja_template *t) {
    if (!t) return;
    jinja_run_arena_deinit(&t->arena);
    mem_free(t);
}
