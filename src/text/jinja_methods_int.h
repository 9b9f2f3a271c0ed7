/* Methods of strings, for the table in jinja_methods.c. p has the bound arguments in the order of the table's
 * parameters, NULL for an absent one. Each does what the reference's str method of its name does. Threads: those of
 * their rendering. */
#ifndef TEXT_JINJA_METHODS_INT_H
#define TEXT_JINJA_METHODS_INT_H

#include "text/jinja_args.h"

#define JINJA_METHOD_OF(file, name)                                                                                    \
    enum err jinja_methods_##file##_##name(struct jinja_run *r, const struct jinja_value *self,                        \
                                           const struct jinja_value **p, struct jinja_value *out) ATTR_NODISCARD
#define JINJA_METHOD(name) JINJA_METHOD_OF(str, name)

JINJA_METHOD(capitalize);
JINJA_METHOD(casefold);
JINJA_METHOD(center);
JINJA_METHOD(count);
JINJA_METHOD(endswith);
JINJA_METHOD(expandtabs);
JINJA_METHOD(find);
JINJA_METHOD(format_map);
JINJA_METHOD(index);
JINJA_METHOD(isalnum);
JINJA_METHOD(isalpha);
JINJA_METHOD(isascii);
JINJA_METHOD(isdecimal);
JINJA_METHOD(isdigit);
JINJA_METHOD(islower);
JINJA_METHOD(isnumeric);
JINJA_METHOD(isidentifier);
JINJA_METHOD(isprintable);
JINJA_METHOD(isspace);
JINJA_METHOD(istitle);
JINJA_METHOD(isupper);
JINJA_METHOD(ljust);
JINJA_METHOD(lower);
JINJA_METHOD(lstrip);
JINJA_METHOD(removeprefix);
JINJA_METHOD(removesuffix);
JINJA_METHOD(replace);
JINJA_METHOD(rfind);
JINJA_METHOD(rindex);
JINJA_METHOD(rjust);
JINJA_METHOD(rstrip);
JINJA_METHOD(startswith);
JINJA_METHOD(strip);
JINJA_METHOD(swapcase);
JINJA_METHOD(title);
JINJA_METHOD(upper);
JINJA_METHOD(zfill);

JINJA_METHOD_OF(split, split);
JINJA_METHOD_OF(split, rsplit);
JINJA_METHOD_OF(split, splitlines);
JINJA_METHOD_OF(split, partition);
JINJA_METHOD_OF(split, rpartition);
JINJA_METHOD_OF(split, join);

#undef JINJA_METHOD
#undef JINJA_METHOD_OF

enum err jinja_methods_str_format(struct jinja_run *r, const struct jinja_value *self, const struct jinja_args *args,
                                  struct jinja_value *out) ATTR_NODISCARD;

#endif
