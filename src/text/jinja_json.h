/* JSON and values: what a request says becomes values, and tojson writes values as the reference's json.dumps does.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_JSON_H
#define TEXT_JINJA_JSON_H

#include "text/jinja_args.h"

/* Parses JSON text; what: its name in messages ("messages"). ERR_ARG with the place for what is not JSON, ERR_LIMIT for
 * nesting deeper than the rendering allows. The value lives in the arena. */
enum err jinja_json_parse(struct jinja_run *r, const char *what, const char *text, size_t len,
                          struct jinja_value *out) ATTR_NODISCARD;

/* v | tojson(ensure_ascii, indent, separators, sort_keys) */
enum err jinja_json_filter(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p,
                           struct jinja_value *out) ATTR_NODISCARD;

#endif
