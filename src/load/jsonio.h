/* JSON text to jansson values, safe against hostile text and short memory:
 *   - nesting is limited before the (recursive) parser sees the text;
 *   - integers beyond int64, which tokenizer configurations hold (1e30 written out), become reals;
 *   - jansson allocates through base/mem, and a failed allocation is always ERR_NOMEM.
 * Threads: any. */
#ifndef LOAD_JSONIO_H
#define LOAD_JSONIO_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "base/err.h"

enum { JSONIO_DEPTH_MAX = 64 };

/* Routes jansson's allocations to base/mem; also done by the first jsonio_parse. From then on what
 * json_dumps returns is freed with mem_free. Idempotent. */
void jsonio_init(void);

/* Parses len bytes of text, all of them. unique: repeated members are an error (otherwise the last one counts).
 * source names the text in messages. The caller releases *out with json_decref; NULL on failure.
 * ERR_FORMAT, ERR_LIMIT (nesting), ERR_NOMEM. */
enum err jsonio_parse(json_t **out, const char *text, size_t len, bool unique, const char *source,
                      struct err_msg *msg) ATTR_NODISCARD;

#endif
