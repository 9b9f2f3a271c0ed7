/* Methods of strings, dicts, lists and the rest, and which attributes the sandbox forbids.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_METHODS_H
#define TEXT_JINJA_METHODS_H

#include "text/jinja_args.h"

/* The number of a method or forbidden name, whatever its type; 0: no type has it. */
uint8_t jinja_methods_number(const char *name, size_t len);

/* v.name, for the number of a name: *out is a bound method, or the undefined value of a forbidden one. False: values of
 * this type have no such method. */
enum err jinja_methods_get(struct jinja_run *r, const struct jinja_value *v, uint8_t number, bool *found,
                           struct jinja_value *out) ATTR_NODISCARD;

/* Calls a bound method. */
enum err jinja_methods_call(struct jinja_run *r, const struct jinja_value *method, const struct jinja_args *args,
                            struct jinja_value *out) ATTR_NODISCARD;

#endif
