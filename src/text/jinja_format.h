/* String formatting: '%s is %d' % (a, b), '{} {x:>5}'.format(a, x=b).
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_FORMAT_H
#define TEXT_JINJA_FORMAT_H

#include "text/jinja_args.h"

/* format % values: values is a tuple, a dict for %(name)s, or a single value. */
enum err jinja_format_percent(struct jinja_run *r, const struct jinja_value *format, const struct jinja_value *values,
                              struct jinja_value *out) ATTR_NODISCARD;

/* format.format(args) */
enum err jinja_format_braces(struct jinja_run *r, const struct jinja_value *format, const struct jinja_args *args,
                             struct jinja_value *out) ATTR_NODISCARD;

#endif
