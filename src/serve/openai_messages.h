/* Chat messages as clients send them, checked and put into the one form that templates expect: string contents (text
 * parts joined by newlines) and tool-call arguments as objects.
 * Threads: any. Owns: nothing. */
#ifndef SERVE_OPENAI_MESSAGES_H
#define SERVE_OPENAI_MESSAGES_H

#include <jansson.h>

#include "serve/openai_error.h"

/* Changes the messages of root in place. */
bool openai_messages_normalize(json_t *root, struct openai_error *e) ATTR_NODISCARD;

/* Checks tools and tool_choice of root. *tools: borrowed; NULL when the template must not see any. */
bool openai_messages_tools(const json_t *root, json_t **tools, struct openai_error *e) ATTR_NODISCARD;

#endif
