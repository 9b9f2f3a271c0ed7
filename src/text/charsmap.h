/* SentencePiece's precompiled character map: a Darts double-array trie from byte strings to replacements (the
 * precompiled_charsmap of a tokenizer.model, the Precompiled normalizer of a tokenizer.json).
 * Layout: u32 bytes of the trie, the trie's u32 units, then the replacements, each ended by NUL. Little-endian.
 * Threads: immutable once opened. Owns: a copy of the bytes. */
#ifndef TEXT_CHARSMAP_H
#define TEXT_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct charsmap {
    uint32_t *units;
    size_t n_units;
    char *strings; /* ends with NUL */
    size_t n_strings;
};

enum err charsmap_open(struct charsmap *m, const void *blob, size_t len, struct err_msg *msg) ATTR_NODISCARD;

/* The longest key at s: its length and its replacement; 0: none. */
size_t charsmap_longest(const struct charsmap *m, const char *s, size_t n, const char **to, size_t *to_len);

void charsmap_deinit(struct charsmap *m);

#endif
