/* Template source to tokens, with white-space control already done: trim_blocks and lstrip_blocks on, "-" and "+"
 * obeyed, newlines normalised, one final newline dropped. Threads: any. Owns nothing: tokens and their text live in the
 * run's arena. */
#ifndef TEXT_JINJA_LEX_H
#define TEXT_JINJA_LEX_H

#include "text/jinja_value.h"

enum jinja_tok {
    TOK_EOF,
    TOK_DATA,
    TOK_VAR_BEGIN,
    TOK_VAR_END,
    TOK_BLOCK_BEGIN,
    TOK_BLOCK_END,
    TOK_NAME,
    TOK_STRING,
    TOK_NUMBER, /* value is a JINJA_INT or a JINJA_FLOAT */
    TOK_ADD,
    TOK_SUB,
    TOK_MUL,
    TOK_DIV,
    TOK_FLOORDIV,
    TOK_MOD,
    TOK_POW,
    TOK_TILDE,
    TOK_EQ,
    TOK_NE,
    TOK_LT,
    TOK_LE,
    TOK_GT,
    TOK_GE,
    TOK_ASSIGN,
    TOK_DOT,
    TOK_COLON,
    TOK_COMMA,
    TOK_PIPE,
    TOK_SEMICOLON,
    TOK_LPAREN,
    TOK_RPAREN,
    TOK_LBRACKET,
    TOK_RBRACKET,
    TOK_LBRACE,
    TOK_RBRACE,
    TOK_N
};

struct jinja_token {
    enum jinja_tok kind;
    uint32_t line;
    struct jinja_value value; /* DATA, NAME, STRING: the text; NUMBER: the number */
};

/* *out has *n tokens, the last of them TOK_EOF. ERR_FORMAT with the line for what is no template. */
enum err jinja_lex(struct jinja_run *r, const char *source, size_t len, struct jinja_token **out,
                   size_t *n) ATTR_NODISCARD;

/* The kind in words, for messages: "end of print statement", "','". */
const char *jinja_lex_describe(enum jinja_tok kind);

#endif
