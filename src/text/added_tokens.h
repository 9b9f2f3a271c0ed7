/* Added tokens: strings that become one id before anything else looks at the text (special tokens, user-defined
 * ones). The longest at the leftmost place wins. Those of `raw` are sought in the text as written, those of
 * `normalized` in what the normalizer makes of the rest.
 * Threads: immutable once filled. Owns: its tries. */
#ifndef TEXT_ADDED_TOKENS_H
#define TEXT_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/trie.h"

struct added_token {
    int32_t id;
    bool special;
    bool single_word; /* not inside a word */
    bool lstrip;      /* takes the white space in front along */
    bool rstrip;      /* and behind */
};

struct added_tokens {
    struct added_token *tokens;
    size_t n, cap;
    struct trie raw, normalized; /* values: indices into tokens */
};

enum err added_tokens_add(struct added_tokens *a, const char *text, size_t len, bool normalized,
                          struct added_token token, struct err_msg *msg) ATTR_NODISCARD;

/* The next token of trie (raw or normalized) in text[from, n). An lstrip does not
 * reach behind from. skip_special: special ones are ordinary text. False: none. */
bool added_tokens_next(const struct added_tokens *a, const struct trie *trie, const char *text, size_t n, size_t from,
                       bool skip_special, size_t *start, size_t *end, int32_t *id);

void added_tokens_deinit(struct added_tokens *a);

#endif
