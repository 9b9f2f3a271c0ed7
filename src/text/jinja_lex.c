#include "text/jinja_lex.h"

#include <stdlib.h>

#include "text/jinja_number.h"
#include "text/jinja_str.h"

enum { BALANCE_MAX = 400 };

struct lexer {
    struct jinja_run *r;
    const char *s;
    size_t len, at;
    uint32_t line;
    bool line_start; /* the last match ended with a newline */
    char balance[BALANCE_MAX];
    int n_balance;
    struct jinja_token *tokens;
    size_t n, cap;
};

static const struct {
    const char *text;
    enum jinja_tok kind;
} operators[] = {
    /* Longest first. */
    {"//", TOK_FLOORDIV}, {"**", TOK_POW},   {"==", TOK_EQ},      {"!=", TOK_NE},      {">=", TOK_GE},
    {"<=", TOK_LE},       {"+", TOK_ADD},    {"-", TOK_SUB},      {"/", TOK_DIV},      {"*", TOK_MUL},
    {"%", TOK_MOD},       {"~", TOK_TILDE},  {"[", TOK_LBRACKET}, {"]", TOK_RBRACKET}, {"(", TOK_LPAREN},
    {")", TOK_RPAREN},    {"{", TOK_LBRACE}, {"}", TOK_RBRACE},   {">", TOK_GT},       {"<", TOK_LT},
    {"=", TOK_ASSIGN},    {".", TOK_DOT},    {":", TOK_COLON},    {"|", TOK_PIPE},     {",", TOK_COMMA},
    {";", TOK_SEMICOLON},
};

const char *jinja_lex_describe(enum jinja_tok kind) {
    static const char *const names[] = {"end of template",
                                        "template data / text",
                                        "begin of print statement",
                                        "end of print statement",
                                        "begin of statement block",
                                        "end of statement block",
                                        "name",
                                        "string",
                                        "number"};
    if (kind < N_ELEMENTS(names)) return names[kind];
    for (size_t i = 0; i < N_ELEMENTS(operators); i++)
        if (operators[i].kind == kind) return operators[i].text;
    return "?";
}

static enum err fail(struct lexer *l, const char *text) {
    return err_set(l->r->msg, ERR_FORMAT, "chat template, line %u: %s", l->line, text);
}

static enum err add(struct lexer *l, enum jinja_tok kind, struct jinja_value value) {
    if (l->n == l->cap) {
        const size_t cap = l->cap ? l->cap * 2 : 256;
        struct jinja_token *const bigger = jinja_run_alloc(l->r, cap * sizeof *bigger);
        if (!bigger) return jinja_run_nomem(l->r);
        if (l->n) memcpy(bigger, l->tokens, l->n * sizeof *bigger);
        l->tokens = bigger;
        l->cap = cap;
    }
    l->tokens[l->n++] = (struct jinja_token){.kind = kind, .line = l->line, .value = value};
    return ERR_OK;
}

static bool starts(const struct lexer *l, size_t at, const char *text) {
    const size_t n = strlen(text);
    return at <= l->len && n <= l->len - at && memcmp(l->s + at, text, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at) {
    while (at < l->len) {
        size_t n;
        if (!jinja_str_is_space(jinja_str_decode(l->s + at, l->len - at, &n))) break;
        at += n;
    }
    return at;
}

static void move_to(struct lexer *l, size_t at) {
    for (size_t i = l->at; i < at; i++)
        l->line += l->s[i] == '\n';
    l->line_start = at > l->at ? l->s[at - 1] == '\n' : l->line_start;
    l->at = at;
}

/* The end of a tag at `at`: "+%}", "-%}" with the space behind it, "%}" with one newline. 0: none there. */
static size_t tag_end(const struct lexer *l, size_t at, const char *close, bool trim) {
    if (starts(l, at, close)) {
        at += 2;
        return trim && at < l->len && l->s[at] == '\n' ? at + 1 : at;
    }
    if (at >= l->len || !starts(l, at + 1, close)) return 0;
    if (l->s[at] == '-') return skip_space(l, at + 3);
    return l->s[at] == '+' && trim ? at + 3 : 0;
}

/* Text before a tag: stripped by "-", or its last line when that is blank (lstrip_blocks). */
static enum err add_data(struct lexer *l, size_t end, char sign, bool lstrip) {
    const char *const s = l->s + l->at;
    size_t len = end - l->at;
    if (sign == '-') {
        const char *from = s;
        jinja_str_strip(&from, &len, NULL, 0, JINJA_STR_RIGHT);
    } else if (sign != '+' && lstrip) {
        size_t line = len;
        while (line > 0 && s[line - 1] != '\n')
            line--;
        if ((line > 0 || l->line_start) && skip_space(l, l->at + line) >= end) len = line;
    }
    return len ? add(l, TOK_DATA, jinja_str(s, len)) : ERR_OK;
}

static char sign_at(const struct lexer *l, size_t at) {
    return at < l->len && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : '\0';
}

/* "{%" sign "raw" "%}" at `at`: where the raw text starts; 0: another tag. */
static size_t raw_begin(const struct lexer *l, size_t at) {
    at += 2;
    if (sign_at(l, at)) at++;
    at = skip_space(l, at);
    if (!starts(l, at, "raw")) return 0;
    at = skip_space(l, at + 3);
    if (starts(l, at, "-%}")) return skip_space(l, at + 3);
    return starts(l, at, "%}") ? at + 2 : 0;
}

static enum err lex_raw(struct lexer *l, size_t start) {
    move_to(l, start);
    for (size_t at = start; at < l->len; at++) {
        if (!starts(l, at, "{%")) continue;
        const char sign = sign_at(l, at + 2);
        size_t end = skip_space(l, at + 2 + (sign != '\0'));
        if (!starts(l, end, "endraw")) continue;
        end = tag_end(l, skip_space(l, end + 6), "%}", true);
        if (end == 0) continue;
        TRY(add_data(l, at, sign, true));
        move_to(l, end);
        return ERR_OK;
    }
    return start >= l->len ? ERR_OK : fail(l, "Missing end of raw directive"); /* at the very end it counts as closed */
}

static enum err lex_comment(struct lexer *l, size_t at) {
    at += 2;
    if (sign_at(l, at)) at++;
    const size_t start = at;
    move_to(l, start);
    for (; at < l->len; at++) {
        const size_t end = tag_end(l, at, "#}", true);
        if (end == 0) continue;
        move_to(l, end);
        return ERR_OK;
    }
    return start >= l->len ? ERR_OK : fail(l, "Missing end of comment tag"); /* likewise */
}

static enum err balance(struct lexer *l, enum jinja_tok kind) {
    if (kind == TOK_LPAREN || kind == TOK_LBRACKET || kind == TOK_LBRACE) {
        if (l->n_balance == BALANCE_MAX)
            return err_set(l->r->msg, ERR_LIMIT, "chat template, line %u: brackets nested too deep", l->line);
        l->balance[l->n_balance++] = kind == TOK_LPAREN ? ')' : kind == TOK_LBRACKET ? ']' : '}';
    } else if (kind == TOK_RPAREN || kind == TOK_RBRACKET || kind == TOK_RBRACE) {
        const char c = *jinja_lex_describe(kind);
        if (l->n_balance == 0)
            return err_set(l->r->msg, ERR_FORMAT, "chat template, line %u: unexpected '%c'", l->line, c);
        const char want = l->balance[--l->n_balance];
        if (c != want)
            return err_set(l->r->msg, ERR_FORMAT, "chat template, line %u: unexpected '%c', expected '%c'", l->line, c,
                           want);
    }
    return ERR_OK;
}

static enum err lex_operator(struct lexer *l) {
    for (size_t i = 0; i < N_ELEMENTS(operators); i++) {
        if (!starts(l, l->at, operators[i].text)) continue;
        TRY(balance(l, operators[i].kind));
        TRY(add(l, operators[i].kind, jinja_none()));
        move_to(l, l->at + strlen(operators[i].text));
        return ERR_OK;
    }
    const size_t n = jinja_str_next(l->s + l->at, l->len - l->at);
    return err_set(l->r->msg, ERR_FORMAT, "chat template, line %u: unexpected char '%.*s' at %zu", l->line, (int)n,
                   l->s + l->at, l->at);
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* \xhh, \uhhhh, \Uhhhhhhhh: digits behind `at`. */
static enum err hex_escape(struct lexer *l, const char *s, size_t len, size_t n_digits) {
    uint32_t cp = 0;
    for (size_t i = 0; i < n_digits; i++) {
        const int digit = i < len ? hex(s[i]) : -1;
        if (digit < 0) return fail(l, "truncated \\x, \\u or \\U escape in a string");
        cp = cp << 4 | (uint32_t)digit;
    }
    if (cp > 0x10ffff) return fail(l, "illegal Unicode character in a string");
    jinja_str_put(&l->r->out, cp);
    return ERR_OK;
}

/* One escape whose backslash is at s[0], len > 1; *n bytes are used. Unknown ones stay as they are. */
static enum err escape(struct lexer *l, const char *s, size_t len, size_t *n) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    struct strbuf *const b = &l->r->out;
    const char c = s[1];
    const char *const simple = memchr(from, c, sizeof from - 1);
    *n = 2;
    if (simple) {
        strbuf_putc(b, to[simple - from]);
    } else if (c >= '0' && c <= '7') {
        uint32_t cp = 0;
        for (*n = 1; *n < 4 && *n < len && s[*n] >= '0' && s[*n] <= '7'; ++*n)
            cp = cp << 3 | (uint32_t)(s[*n] - '0');
        jinja_str_put(b, cp);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        *n = 2 + digits;
        return hex_escape(l, s + 2, len - 2, digits);
    } else if (c == 'N') {
        return fail(l, "characters by name (\\N{...}) are not supported; write \\uXXXX");
    } else if (c != '\n') {
        strbuf_append(b, s, 2);
    }
    return ERR_OK;
}

static enum err lex_string(struct lexer *l) {
    const char quote = l->s[l->at];
    size_t end = l->at + 1;
    while (end < l->len && l->s[end] != quote)
        end += l->s[end] == '\\' ? 2 : 1;
    if (end >= l->len) return lex_operator(l); /* no closing quote: an unexpected character */
    const char *s = l->s + l->at + 1;
    size_t len = end - l->at - 1;
    if (memchr(s, '\\', len)) {
        const size_t mark = l->r->out.len;
        for (size_t i = 0, n; i < len; i += n) {
            n = 1;
            if (s[i] == '\\' && i + 1 < len)
                TRY(escape(l, s + i, len - i, &n));
            else
                strbuf_putc(&l->r->out, s[i]);
        }
        TRY(jinja_run_cut(l->r, mark, &s, &len));
    }
    TRY(add(l, TOK_STRING, jinja_str(s, len)));
    move_to(l, end + 1);
    return ERR_OK;
}

static size_t name_len(const struct lexer *l) {
    size_t at = l->at;
    while (at < l->len) {
        size_t n;
        const uint32_t cp = jinja_str_decode(l->s + at, l->len - at, &n);
        if (cp != '_' && !jinja_str_is(l->s + at, n, JINJA_STR_ALNUM)) break;
        at += n;
    }
    return at - l->at;
}

static enum err lex_number(struct lexer *l) {
    struct jinja_value v;
    size_t n;
    const bool after_dot = l->at > 0 && l->s[l->at - 1] == '.';
    if (!jinja_number_literal(l->s + l->at, l->len - l->at, after_dot, &v, &n))
        return fail(l, "an integer with more than 127 bits");
    TRY(add(l, TOK_NUMBER, v));
    move_to(l, l->at + n);
    return ERR_OK;
}

/* The inside of a {{ }} or {% %} tag, up to and with its end. */
static enum err lex_tag(struct lexer *l, bool variable) {
    l->n_balance = 0;
    while (l->at < l->len) {
        const size_t end = l->n_balance ? 0 : tag_end(l, l->at, variable ? "}}" : "%}", !variable);
        if (end) {
            TRY(add(l, variable ? TOK_VAR_END : TOK_BLOCK_END, jinja_none()));
            move_to(l, end);
            return ERR_OK;
        }
        const size_t past = skip_space(l, l->at);
        const char c = l->s[l->at];
        if (past > l->at) {
            move_to(l, past);
        } else if (c >= '0' && c <= '9') {
            TRY(lex_number(l));
        } else if (c == '\'' || c == '"') {
            TRY(lex_string(l));
        } else {
            const size_t n = name_len(l);
            if (n) TRY(add(l, TOK_NAME, jinja_str(l->s + l->at, n)));
            if (n)
                move_to(l, l->at + n);
            else
                TRY(lex_operator(l));
        }
    }
    return ERR_OK;
}

/* One piece of text and the tag behind it. */
static enum err lex_piece(struct lexer *l) {
    size_t at = l->at;
    while (at + 1 < l->len && !(l->s[at] == '{' && strchr("{%#", l->s[at + 1]) && l->s[at + 1]))
        at++;
    if (at + 1 >= l->len) {
        TRY(add(l, TOK_DATA, jinja_str(l->s + l->at, l->len - l->at)));
        move_to(l, l->len);
        return ERR_OK;
    }
    const bool variable = l->s[at + 1] == '{', comment = l->s[at + 1] == '#';
    const char sign = sign_at(l, at + 2);
    TRY(add_data(l, at, sign, !variable));
    const size_t raw = variable || comment ? 0 : raw_begin(l, at);
    if (raw) return lex_raw(l, raw);
    if (comment) return lex_comment(l, at);
    move_to(l, at + 2 + (sign != '\0'));
    TRY(add(l, variable ? TOK_VAR_BEGIN : TOK_BLOCK_BEGIN, jinja_none()));
    return lex_tag(l, variable);
}

/* A copy with \r\n and \r as \n, without one newline at the end. */
static enum err normalise(struct jinja_run *r, const char *source, size_t len, char **out, size_t *n) {
    char *const s = jinja_run_alloc(r, len);
    if (!s) return jinja_run_nomem(r);
    size_t k = 0;
    for (size_t i = 0; i < len; i++) {
        s[k++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n') i++;
    }
    if (k > 0 && s[k - 1] == '\n') k--;
    *out = s;
    *n = k;
    return ERR_OK;
}

enum err jinja_lex(struct jinja_run *r, const char *source, size_t len, struct jinja_token **out, size_t *n) {
    struct lexer l = {.r = r, .line = 1, .line_start = true};
    char *s = NULL;
    if (!jinja_str_valid(source, len)) return err_set(r->msg, ERR_FORMAT, "the chat template is not valid UTF-8");
    TRY(normalise(r, source, len, &s, &l.len));
    l.s = s;
    while (l.at < l.len)
        TRY(lex_piece(&l));
    TRY(add(&l, TOK_EOF, jinja_none()));
    *out = l.tokens;
    *n = l.n;
    return ERR_OK;
}
