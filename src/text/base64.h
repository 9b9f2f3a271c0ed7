/* Base64 (RFC 4648), as rank files and tokenizer.json carry it: the standard alphabet, no line breaks.
 * Threads: any. */
#ifndef TEXT_BASE64_H
#define TEXT_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

/* Appends the bytes of s [len]. False: a character outside the alphabet, or text behind the padding. */
bool base64_decode(struct strbuf *out, const char *s, size_t len);

#endif
