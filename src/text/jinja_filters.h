/* The filters.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_FILTERS_H
#define TEXT_JINJA_FILTERS_H

#include "text/jinja_args.h"

struct jinja_filter;

/* NULL when there is none of that name. */
const struct jinja_filter *jinja_filters_find(const char *name, size_t len);

/* in | filter(args) */
enum err jinja_filters_apply(struct jinja_run *r, const struct jinja_filter *f, const struct jinja_value *in,
                             const struct jinja_args *args, struct jinja_value *out) ATTR_NODISCARD;

/* A filter by name that is known at run time only: map('upper'). */
enum err jinja_filters_apply_name(struct jinja_run *r, const struct jinja_value *name, const struct jinja_value *in,
                                  const struct jinja_args *args, struct jinja_value *out) ATTR_NODISCARD;

#endif
