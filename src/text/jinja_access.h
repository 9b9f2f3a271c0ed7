/* Attributes and items: v.name, v[index], v[a:b:c].
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_ACCESS_H
#define TEXT_JINJA_ACCESS_H

#include "text/jinja_value.h"

/* v.name: a method, else an item, else undefined. method: the name's number (jinja_methods_number). An attribute of an
 * undefined value is an error. */
enum err jinja_access_attr(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *name,
                           uint8_t method, struct jinja_value *out) ATTR_NODISCARD;

/* v[key]: an item, else a method of that name, else undefined. */
enum err jinja_access_item(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *key,
                           struct jinja_value *out) ATTR_NODISCARD;

/* v[part[0]:part[1]:part[2]], a part NULL where it is left out. */
enum err jinja_access_slice(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *part[3],
                            struct jinja_value *out) ATTR_NODISCARD;

/* The attribute path of map(attribute='a.0.b') and its like: path is a string or an integer; missing parts give
 * fallback when it is not NULL. */
enum err jinja_access_path(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *path,
                           const struct jinja_value *fallback, struct jinja_value *out) ATTR_NODISCARD;

#endif
