/* Numbers from text: the literals of templates and what int() and float() read.
 * Threads: any. */
#ifndef TEXT_JINJA_NUMBER_H
#define TEXT_JINJA_NUMBER_H

#include "text/jinja_value.h"

/* A literal at s, which starts with a digit: decimal, 0x, 0o, 0b, with underscores, or a float; *n bytes of it. After a
 * dot (a.0) only integers are literals. False: an integer that does not fit in 127 bits. */
bool jinja_number_literal(const char *s, size_t len, bool after_dot, struct jinja_value *out, size_t *n);

/* int(s, base), white space and underscores allowed; base 0 takes a prefix, 2 to 36. False: not a number, or too big.
 */
bool jinja_number_int(const char *s, size_t len, int base, __int128 *out);

/* float(s). False: not a number. */
bool jinja_number_f64(const char *s, size_t len, double *out);

#endif
