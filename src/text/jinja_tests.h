/* The tests: what may follow "is".
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_TESTS_H
#define TEXT_JINJA_TESTS_H

#include "text/jinja_args.h"

struct jinja_test;

/* NULL when there is none of that name. */
const struct jinja_test *jinja_tests_find(const char *name, size_t len);

/* v is test(args) */
enum err jinja_tests_apply(struct jinja_run *r, const struct jinja_test *t, const struct jinja_value *v,
                           const struct jinja_args *args, bool *out) ATTR_NODISCARD;

/* A test by name that is known at run time only: select('odd'). */
enum err jinja_tests_apply_name(struct jinja_run *r, const struct jinja_value *name, const struct jinja_value *v,
                                const struct jinja_args *args, bool *out) ATTR_NODISCARD;

#endif
