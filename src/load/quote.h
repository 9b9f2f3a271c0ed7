/* Names that come from files, made fit for a one-line message: cut to a readable length, everything
 * that is not printable ASCII replaced by '?'.
 * Threads: any. Owns: nothing. */
#ifndef LOAD_QUOTE_H
#define LOAD_QUOTE_H

#include <stddef.h>

#include "base/err.h"

struct quote {
    char text[96];
};

/* Fills *q from len bytes and returns q->text. */
const char *quote_name(struct quote *q, const char *bytes, size_t len);

/* When the bytes are not a model but something users often have in its place (a Git LFS pointer, a
 * web page), ERR_FORMAT with a line that says so; otherwise ERR_OK. */
enum err quote_check_stranger(const void *data, size_t size, const char *source, struct err_msg *msg) ATTR_NODISCARD;

#endif
