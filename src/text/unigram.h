/* SentencePiece's Unigram model: of all ways to cut a piece into tokens the one with the highest sum of scores
 * (Viterbi). SentencePiece adds in float, the tokenizers library in double (wide); ties fall as they do there.
 * Threads: immutable once built. */
#ifndef TEXT_UNIGRAM_H
#define TEXT_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/tokenizer.h"
#include "text/trie.h"
#include "text/vocab.h"

struct unigram {
    const struct vocab *vocab; /* borrowed */
    struct trie trie;          /* values: ids */
    double *scores;            /* [vocab.n] */
    double min_score, max_score;
    bool wide; /* sums are double */
    int32_t byte_ids[256]; /* -1: no byte fallback */
    int32_t unknown;       /* -1: none */
    bool fuse_unknown;
};

struct unigram_scratch {
    struct unigram_node *nodes;
    size_t cap_nodes;
    int32_t *path;
    size_t cap_path;
};

/* Copies scores [vocab.n]. The tokens that take part are the indexed ones; byte_fallback: characters that are in no
 * token become <0xNN> tokens. */
enum err unigram_init(struct unigram *u, const struct vocab *vocab, const double *scores, int32_t unknown,
                      bool byte_fallback, struct err_msg *msg) ATTR_NODISCARD;

/* Appends the ids of a piece of valid UTF-8. False: no memory. */
bool unigram_encode(const struct unigram *u, const char *piece, size_t len, struct unigram_scratch *s,
                    struct token_ids *out) ATTR_NODISCARD;

void unigram_scratch_deinit(struct unigram_scratch *s);
void unigram_deinit(struct unigram *u);

#endif
