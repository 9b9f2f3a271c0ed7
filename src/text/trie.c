#include "text/trie.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* Edges out of the start live in first[], so a key is never 0: the nodes in the table count from 1. */
static size_t edge_slot(const struct trie *t, uint64_t key) {
    const size_t mask = t->n_slots - 1;
    size_t i = (size_t)hash_mix(key) & mask;
    while (t->edges[i].key && t->edges[i].key != key) i = (i + 1) & mask;
    return i;
}

uint32_t trie_next(const struct trie *t, uint32_t node, unsigned char byte) {
    if (node == 0) return t->first[byte];
    if (!t->n_slots) return 0;
    return t->edges[edge_slot(t, (uint64_t)node << 8 | byte)].to;
}

static bool grow_edges(struct trie *t) {
    const size_t n = t->n_slots ? t->n_slots * 2 : 256;
    struct trie_edge *const old = t->edges;
    const size_t n_old = t->n_slots;
    struct trie_edge *const edges = mem_calloc(n, sizeof *edges);
    if (!edges) return false;
    t->edges = edges;
    t->n_slots = n;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].key) edges[edge_slot(t, old[i].key)] = old[i];
    mem_free(old);
    return true;
}

static uint32_t new_node(struct trie *t) {
    if (t->n_nodes == 0) t->n_nodes = 1; /* the start */
    if (t->n_nodes >= UINT32_MAX || !mem_grow(&t->values, &t->cap_nodes, t->n_nodes + 1, sizeof *t->values)) return 0;
    t->values[0] = -1;
    t->values[t->n_nodes] = -1;
    return (uint32_t)t->n_nodes++;
}

static uint32_t step_or_add(struct trie *t, uint32_t node, unsigned char byte) {
    uint32_t to = trie_next(t, node, byte);
    if (to) return to;
    if (node && t->n_edges * 2 >= t->n_slots && !grow_edges(t)) return 0;
    to = new_node(t);
    if (!to) return 0;
    if (node == 0) {
        t->first[byte] = to;
        return to;
    }
    const uint64_t key = (uint64_t)node << 8 | byte;
    t->edges[edge_slot(t, key)] = (struct trie_edge){key, to};
    t->n_edges++;
    return to;
}

bool trie_add(struct trie *t, const char *s, size_t len, int32_t value) {
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        node = step_or_add(t, node, (unsigned char)s[i]);
        if (!node) return false;
    }
    if (node && t->values[node] < 0) t->values[node] = value;
    return true;
}

size_t trie_longest(const struct trie *t, const char *s, size_t n, int32_t *value) {
    uint32_t node = 0;
    size_t best = 0;
    for (size_t i = 0; i < n; i++) {
        node = trie_next(t, node, (unsigned char)s[i]);
        if (!node) break;
        if (t->values[node] >= 0) {
            *value = t->values[node];
            best = i + 1;
        }
    }
    return best;
}

int32_t trie_find(const struct trie *t, const char *s, size_t len) {
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        node = trie_next(t, node, (unsigned char)s[i]);
        if (!node) return -1;
    }
    return trie_value(t, node);
}

void trie_deinit(struct trie *t) {
    mem_free(t->edges);
    mem_free(t->values);
    *t = (struct trie){0};
}
