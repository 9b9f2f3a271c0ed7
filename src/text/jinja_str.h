/* Text as the template language sees it: sequences of code points, stored as UTF-8 and found again byte by byte. Bytes
 * that are not UTF-8 count as one character each, so that no text, whatever it is, goes out of bounds.
 * Threads: any. */
#ifndef TEXT_JINJA_STR_H
#define TEXT_JINJA_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Bytes of the first character of s, 1 to len; len is at least 1. */
size_t jinja_str_next(const char *s, size_t len);

/* The code point of the first character and its bytes; a stray byte b is 0xdc00 + b. */
uint32_t jinja_str_decode(const char *s, size_t len, size_t *n_bytes);

/* Characters in s. */
size_t jinja_str_count(const char *s, size_t len);

/* Byte offset of the character number n; len when there are fewer. */
size_t jinja_str_offset(const char *s, size_t len, size_t n);

/* Appends a code point; one that UTF-8 cannot hold becomes U+FFFD. */
void jinja_str_put(struct strbuf *b, uint32_t cp);

/* True when all of s is UTF-8. */
bool jinja_str_valid(const char *s, size_t len);

/* First place of needle at or behind from, or -1. */
int64_t jinja_str_find(const char *s, size_t len, const char *needle, size_t n_needle, size_t from);

/* Last place of needle, or -1. */
int64_t jinja_str_rfind(const char *s, size_t len, const char *needle, size_t n_needle);

/* White space as the reference has it (str.isspace). */
bool jinja_str_is_space(uint32_t cp);

enum { JINJA_STR_LEFT = 1, JINJA_STR_RIGHT = 2 };

/* Narrows s, len by the characters of set (NULL: white space) at the sides named. */
void jinja_str_strip(const char **s, size_t *len, const char *set, size_t n_set, int sides);

enum jinja_str_case { JINJA_STR_UPPER, JINJA_STR_LOWER, JINJA_STR_TITLE, JINJA_STR_CAPITALIZE, JINJA_STR_SWAP };

/* Appends s in another case: str.upper, lower, title, capitalize, swapcase. */
void jinja_str_case(struct strbuf *b, const char *s, size_t len, enum jinja_str_case how);

enum jinja_str_class {
    JINJA_STR_ALPHA,
    JINJA_STR_DIGIT,
    JINJA_STR_DECIMAL,
    JINJA_STR_NUMERIC,
    JINJA_STR_ALNUM,
    JINJA_STR_SPACE,
    JINJA_STR_IS_LOWER,
    JINJA_STR_IS_UPPER,
    JINJA_STR_IS_TITLE,
    JINJA_STR_ASCII,
};

/* str.isalpha and its family. */
bool jinja_str_is(const char *s, size_t len, enum jinja_str_class what);

/* True for code points that repr() prints as they are. */
bool jinja_str_printable(uint32_t cp);

#endif
