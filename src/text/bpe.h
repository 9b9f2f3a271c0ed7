/* Byte-pair encoding of one piece of text: repeatedly merge the adjacent pair of lowest rank, leftmost on ties, until
 * no pair is known (models.md 0.9). One engine for merges lists, tiktoken ranks and SentencePiece scores: all three
 * become one table (left id, right id) -> (rank, id).
 *
 * Symbols start as single bytes (byte-level) or as single characters. Characters that are in no vocabulary entry by
 * themselves but inside one get ids from vocab.n upwards ("pseudo"), so that SentencePiece may still merge them.
 * Threads: immutable once built, but for reach[], whose bytes may be written by any thread with the same value. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

enum { BPE_JOINT_BITS = 21 };

struct bpe_pair {
    uint64_t key; /* left << 32 | right, plus one: 0 is empty */
    uint32_t rank;
    int32_t id;
};

struct bpe {
    const struct vocab *vocab; /* borrowed */
    struct bpe_pair *pairs;
    size_t n_slots, n_pairs;
    int32_t byte_ids[256]; /* byte-level: first symbols; else: the <0xNN> tokens; -1: none */
    int32_t unknown;       /* -1: none */
    bool byte_level;
    bool ignore_merges; /* a piece that is a token is taken whole, reachable by merges or not */
    bool fuse_unknown;  /* a run of unknown characters is one unknown token */
    int32_t ascii_ids[128]; /* characters: their ids, -1: not a token */
    uint8_t *reach;     /* [vocab.n] 0 not known yet, 1 merging the token's own text gives the token, 2 it does not */
    struct vocab chars; /* pseudo characters; their ids count from 0 here */
    uint64_t *joints;   /* bits over hashes of adjacent characters inside any entry; NULL when byte-level */
};

/* Scratch of one encode call; zeroed = empty. */
struct bpe_scratch {
    struct bpe_node *nodes;
    size_t cap_nodes;
    uint64_t *heap;
    size_t n_heap, cap_heap;
    size_t after_unknown; /* out->n right after an unknown token of this piece, else SIZE_MAX */
};

/* Prepares the tables for vocab (which must not change afterwards). All kinds call this first. */
enum err bpe_init(struct bpe *b, const struct vocab *vocab, bool byte_level, struct err_msg *msg) ATTR_NODISCARD;

/* Adds a merge of two known ids into a known id; a pair that exists keeps its first rank. */
enum err bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id,
                       struct err_msg *msg) ATTR_NODISCARD;

/* Adds every pair of symbols whose concatenation is an indexed token. rank[id] is the token's rank: tiktoken (byte
 * symbols) and SentencePiece (characters, pseudo ones included). */
enum err bpe_add_all_splits(struct bpe *b, const uint32_t *rank, struct err_msg *msg) ATTR_NODISCARD;

/* Fills joints from the indexed tokens: call it after the merges when not byte-level. */
enum err bpe_find_joints(struct bpe *b, struct err_msg *msg) ATTR_NODISCARD;

/* Appends the ids of a piece. Byte-level takes any bytes, the others valid UTF-8. False: no memory. */
bool bpe_encode(const struct bpe *b, const char *piece, size_t len, struct bpe_scratch *s,
                struct token_ids *out) ATTR_NODISCARD;

/* The entry of a pair, NULL when the two never merge. */
const struct bpe_pair *bpe_find_pair(const struct bpe *b, int32_t left, int32_t right);

/* Which bit of joints stands for two adjacent characters. */
static inline uint32_t bpe_joint_bit(uint32_t a, uint32_t c) {
    return (a * 0x9e3779b1u ^ (c * 0x85ebca6bu + (c >> 7))) >> (32 - BPE_JOINT_BITS);
}

void bpe_scratch_deinit(struct bpe_scratch *s);
void bpe_deinit(struct bpe *b);

/* The id a first symbol of these bytes (one byte or one character) has: below vocab.n a token, from there on a pseudo
 * character, -1 unknown. */
int32_t bpe_symbol(const struct bpe *b, const char *s, size_t len);

/* Appends one id. False: no memory. */
bool bpe_push_id(struct token_ids *out, int32_t id) ATTR_NODISCARD;

#endif
