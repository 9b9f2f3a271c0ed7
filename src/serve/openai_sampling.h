/* The sampling fields that chat and completions share.
 * Threads: any. Owns: nothing; arrays go into the request. */
#ifndef SERVE_OPENAI_SAMPLING_H
#define SERVE_OPENAI_SAMPLING_H

#include "serve/openai_request.h"

/* Reads temperature … cache_salt of r->root into r. */
bool openai_sampling_parse(struct openai_request *r, const struct openai_limits *lim,
                           struct openai_error *e) ATTR_NODISCARD;

/* Refuses fields that would change the answer but are not supported. */
bool openai_sampling_refuse(const json_t *root, struct openai_error *e) ATTR_NODISCARD;

#endif
