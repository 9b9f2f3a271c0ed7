/* Stable sorting of values.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_SORT_H
#define TEXT_JINJA_SORT_H

#include "text/jinja_value.h"

/* order[0..n): the numbers of keys[0..n) in ascending order, equal ones in their own order; reverse: descending, equal
 * ones still in their own order. The error of "<" for keys that do not compare. */
enum err jinja_sort_order(struct jinja_run *r, const struct jinja_value *keys, size_t n, bool reverse,
                          size_t **order) ATTR_NODISCARD;

#endif
