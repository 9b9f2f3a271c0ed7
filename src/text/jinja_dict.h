/* Dicts of the template language: in order of insertion, with an index from nine keys on. Nothing is ever removed.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_DICT_H
#define TEXT_JINJA_DICT_H

#include "text/jinja_value.h"

/* An empty dict; type is JINJA_DICT or JINJA_NS. */
enum err jinja_dict_new(struct jinja_run *r, enum jinja_type type, struct jinja_value *out) ATTR_NODISCARD;

/* Sets key; a list or dict as a key is an error of the template. An existing key keeps its place and its spelling. */
enum err jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, const struct jinja_value *key,
                        const struct jinja_value *value) ATTR_NODISCARD;

/* The value under key, or NULL; also for keys that cannot be one. */
const struct jinja_value *jinja_dict_get(const struct jinja_dict *d, const struct jinja_value *key);
const struct jinja_value *jinja_dict_get_str(const struct jinja_dict *d, const char *s, size_t len);

/* ERR_OK when v can be a key; else the template's error. */
enum err jinja_dict_check_key(struct jinja_run *r, const struct jinja_value *v) ATTR_NODISCARD;

/* Adds every pair of `from`, a dict, or of a sequence of pairs. */
enum err jinja_dict_update(struct jinja_run *r, struct jinja_dict *d, const struct jinja_value *from) ATTR_NODISCARD;

#endif
