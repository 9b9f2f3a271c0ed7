/* Template source to syntax tree.
 * Threads: any; the tree is immutable. Owns: the template's arena. */
#ifndef TEXT_JINJA_PARSE_H
#define TEXT_JINJA_PARSE_H

#include "text/jinja_ast.h"

enum { JINJA_SOURCE_MAX = 4 << 20, JINJA_PARSE_DEPTH_MAX = 200 };

/* ERR_FORMAT: not a template, with the line; ERR_LIMIT: too large or nested too deep. *out is heap, freed by
 * jinja_parse_free. */
enum err jinja_parse(struct jinja_template **out, const char *source, size_t len, struct err_msg *msg) ATTR_NODISCARD;

/* NULL is fine. */
void jinja_parse_free(struct jinja_template *t);

#endif
