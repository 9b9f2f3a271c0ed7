/* Regular expressions of tokenizers: PCRE2 behind the dialect that checkpoints write (Oniguruma, Rust's and Python's
 * regex). What differs is translated when compiled: \s and \S mean White_Space, \p{Han} is the script and not its
 * extensions, [A&&[^B]] is an intersection, \h a hexadecimal digit.
 * Threads: a compiled expression is immutable; each thread brings its own regex_run. */
#ifndef TEXT_REGEX_H
#define TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"

struct regex; /* opaque */

/* Scratch of one thread for any number of expressions; zeroed = empty. */
struct regex_run {
    void *match_data;
};

/* ERR_UNSUPPORTED names the expression when PCRE2 does not take it. */
enum err regex_compile(struct regex **out, const char *pattern, size_t len, struct err_msg *msg) ATTR_NODISCARD;
void regex_free(struct regex *r);

/* The next match in text[from, n), leftmost first; text is valid UTF-8 as a whole and nothing outside of it is seen.
 * It may be empty, but
 * then it lies behind from. False: none is left. A match that costs more than the limit ends the search at that place
 * instead: the text up to the next 4 KiB is given as one match, so no prompt fails and none takes quadratic time. */
bool regex_next(const struct regex *r, struct regex_run *run, const char *text, size_t n, size_t from, size_t *start,
                size_t *end);

void regex_run_deinit(struct regex_run *run);

/* The translation alone, for tests. ERR_UNSUPPORTED: a construct that has none. */
enum err regex_translate(struct strbuf *out, const char *pattern, size_t len, struct err_msg *msg) ATTR_NODISCARD;

#endif
