/* Values as text, the way the reference's str() and repr() print them. Everything is appended to the rendering's
 * output; jinja_repr_to_str cuts it off again as a string value. Threads: those of their rendering. */
#ifndef TEXT_JINJA_REPR_H
#define TEXT_JINJA_REPR_H

#include "text/jinja_value.h"

/* str(v): strings as they are, undefined as nothing. */
enum err jinja_repr_text(struct jinja_run *r, const struct jinja_value *v) ATTR_NODISCARD;

/* repr(v): strings quoted. */
enum err jinja_repr_value(struct jinja_run *r, const struct jinja_value *v) ATTR_NODISCARD;

/* str(v) as a string value; v itself when it is one. */
enum err jinja_repr_to_str(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *out) ATTR_NODISCARD;

enum { JINJA_REPR_F64_MAX = 32, JINJA_REPR_INT_MAX = 44 };

/* repr(f): the shortest digits that read back as f; "1e+16", "2.0", "nan". Returns the length. */
size_t jinja_repr_f64(char out[JINJA_REPR_F64_MAX], double f);

/* Decimal digits. Returns the length. */
size_t jinja_repr_int(char out[JINJA_REPR_INT_MAX], __int128 i);

#endif
