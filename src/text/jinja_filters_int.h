/* Filters by family, for the table in jinja_filters.c. in: the value before the bar; p: the bound arguments in the
 * order of the table's parameters, NULL for an absent one. Each does what the reference's filter of its name does.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_FILTERS_INT_H
#define TEXT_JINJA_FILTERS_INT_H

#include "text/jinja_args.h"

#define JINJA_FILTER(family, name)                                                                                     \
    enum err jinja_filters_##family##_##name(struct jinja_run *r, const struct jinja_value *in,                        \
                                             const struct jinja_value **p, struct jinja_value *out)

JINJA_FILTER(str, capitalize) ATTR_NODISCARD;
JINJA_FILTER(str, center) ATTR_NODISCARD;
JINJA_FILTER(str, filesizeformat) ATTR_NODISCARD;
JINJA_FILTER(str, indent) ATTR_NODISCARD;
JINJA_FILTER(str, join) ATTR_NODISCARD;
JINJA_FILTER(str, lower) ATTR_NODISCARD;
JINJA_FILTER(str, replace) ATTR_NODISCARD;
JINJA_FILTER(str, striptags) ATTR_NODISCARD;
JINJA_FILTER(str, title) ATTR_NODISCARD;
JINJA_FILTER(str, trim) ATTR_NODISCARD;
JINJA_FILTER(str, truncate) ATTR_NODISCARD;
JINJA_FILTER(str, upper) ATTR_NODISCARD;
JINJA_FILTER(str, urlencode) ATTR_NODISCARD;
JINJA_FILTER(str, wordcount) ATTR_NODISCARD;
JINJA_FILTER(str, wordwrap) ATTR_NODISCARD;

JINJA_FILTER(seq, batch) ATTR_NODISCARD;
JINJA_FILTER(seq, dictsort) ATTR_NODISCARD;
JINJA_FILTER(seq, first) ATTR_NODISCARD;
JINJA_FILTER(seq, groupby) ATTR_NODISCARD;
JINJA_FILTER(seq, items) ATTR_NODISCARD;
JINJA_FILTER(seq, last) ATTR_NODISCARD;
JINJA_FILTER(seq, list) ATTR_NODISCARD;
JINJA_FILTER(seq, max) ATTR_NODISCARD;
JINJA_FILTER(seq, min) ATTR_NODISCARD;
JINJA_FILTER(seq, reverse) ATTR_NODISCARD;
JINJA_FILTER(seq, slice) ATTR_NODISCARD;
JINJA_FILTER(seq, sort) ATTR_NODISCARD;
JINJA_FILTER(seq, sum) ATTR_NODISCARD;
JINJA_FILTER(seq, unique) ATTR_NODISCARD;

/* map, select and their family take a filter or test with its own arguments. */
#define JINJA_FILTER_ANY(name)                                                                                         \
    enum err jinja_filters_pick_##name(struct jinja_run *r, const struct jinja_value *in,                              \
                                       const struct jinja_args *args, struct jinja_value *out)

JINJA_FILTER_ANY(map) ATTR_NODISCARD;
JINJA_FILTER_ANY(reject) ATTR_NODISCARD;
JINJA_FILTER_ANY(rejectattr) ATTR_NODISCARD;
JINJA_FILTER_ANY(select) ATTR_NODISCARD;
JINJA_FILTER_ANY(selectattr) ATTR_NODISCARD;

#endif
