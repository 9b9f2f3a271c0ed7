/* A set of byte strings, each with a value, for "the longest of them that starts here".
 * Threads: immutable once filled. Owns: its edges. */
#ifndef TEXT_TRIE_H
#define TEXT_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct trie_edge {
    uint64_t key; /* node << 8 | byte; 0: empty (no edge leads out of node 0 by this key, see trie.c) */
    uint32_t to;
};

struct trie {
    struct trie_edge *edges; /* open addressing */
    size_t n_slots, n_edges;
    int32_t *values; /* [node]; -1: no string ends here */
    size_t n_nodes, cap_nodes;
    uint32_t first[256]; /* node after the first byte, 0: none */
};

/* Adds a string of at least one byte; value >= 0. An existing string keeps its first value. False: no memory. */
bool trie_add(struct trie *t, const char *s, size_t len, int32_t value) ATTR_NODISCARD;

/* The node behind `node` by `byte`; 0 when there is none. Node 0 stands for the start. */
uint32_t trie_next(const struct trie *t, uint32_t node, unsigned char byte);

/* The value that ends at this node, or -1. */
static inline int32_t trie_value(const struct trie *t, uint32_t node) { return node ? t->values[node] : -1; }

static inline bool trie_empty(const struct trie *t) { return t->n_nodes == 0; }

/* The longest string of the set at s: its length, and its value in *value; 0 when there is none. */
size_t trie_longest(const struct trie *t, const char *s, size_t n, int32_t *value);

/* The value of exactly this string, or -1. */
int32_t trie_find(const struct trie *t, const char *s, size_t len);

void trie_deinit(struct trie *t);

#endif
