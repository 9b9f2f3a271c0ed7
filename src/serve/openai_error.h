/* Errors in OpenAI's shape: {"error":{"message","type","param","code"}} and the status that goes with them.
 * Messages never quote the request's text: proxies search them for words like "rate limit".
 * Threads: any. Owns: nothing. */
#ifndef SERVE_OPENAI_ERROR_H
#define SERVE_OPENAI_ERROR_H

#include <stdbool.h>

#include "base/attr.h"
#include "base/strbuf.h"

struct openai_error {
    int status;       /* 0: none */
    const char *type; /* constant text */
    const char *code; /* constant text or NULL */
    char param[96];   /* "" : null */
    char message[512];
};

/* Fills *e and returns false, so that it can be used as `return openai_error_set(...)`. param may be NULL. The type
 * follows from the status. */
bool openai_error_set(struct openai_error *e, int status, const char *code, const char *param, const char *fmt, ...)
    ATTR_PRINTF(5, 6) ATTR_COLD;

/* A 400 about one field. */
bool openai_error_field(struct openai_error *e, const char *param, const char *fmt, ...) ATTR_PRINTF(3, 4) ATTR_COLD;

/* From an error of the engine: its XENON_E… code and text. */
bool openai_error_from_engine(struct openai_error *e, int code, const char *text) ATTR_COLD;

/* Appends the JSON body. */
void openai_error_write(struct strbuf *b, const struct openai_error *e);

#endif
