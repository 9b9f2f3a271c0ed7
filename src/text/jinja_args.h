/* Arguments of a call, evaluated, and their binding to the parameters of a built-in.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_ARGS_H
#define TEXT_JINJA_ARGS_H

#include "text/jinja_value.h"

struct jinja_args {
    const struct jinja_value *pos;
    const struct jinja_pair *kw; /* names as strings, in order */
    size_t n_pos, n_kw;
};

enum { JINJA_ARGS_MAX = 8 };

/* Sorts args into out[] by the parameter list: names separated by blanks, those behind "|" optional, for example
 * "old new | count". An absent one is NULL. Errors as the reference's TypeErrors: too many, unknown, missing. */
enum err jinja_args_bind(struct jinja_run *r, const struct jinja_args *args, const char *function, const char *params,
                         const struct jinja_value *out[JINJA_ARGS_MAX]) ATTR_NODISCARD;

/* An integer argument: ints and booleans; NULL and none give fallback. */
enum err jinja_args_int(struct jinja_run *r, const struct jinja_value *v, int64_t fallback,
                        int64_t *out) ATTR_NODISCARD;

/* The truth of an argument; NULL gives fallback. */
bool jinja_args_bool(const struct jinja_value *v, bool fallback);

/* A string argument, or an error: "must be str, not int". */
enum err jinja_args_str(struct jinja_run *r, const struct jinja_value *v) ATTR_NODISCARD;

#endif
