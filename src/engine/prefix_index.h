/* The index of published pages. An entry stands for one block of tokens behind one exact prefix: its identity is
 * (serial of the parent entry, its block_size token ids), the parent of a first block being the request's salt. A
 * chained xxh64 only finds the bucket; parent and tokens are compared. A serial is a 64-bit number given when an
 * entry is filled and never given again, so that a child of a recycled entry can never be reached.
 *
 * An entry names the page that holds the block in each cache group (-1: none). One without pages is a ghost: it keeps
 * a chain walkable (models without a fully paged group) until its place is needed, oldest first.
 *
 * Threads: engine thread only. Owns: entries and salts; pages are only named. All memory is taken at creation, except
 * that of salts. */
#ifndef ENGINE_PREFIX_INDEX_H
#define ENGINE_PREFIX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "engine/sequence.h"

/* One cache_salt in use: the root of its chains. */
struct prefix_salt {
    struct prefix_salt *next;
    uint64_t serial, hash;
    int64_t refs; /* sequences and first-block entries */
    size_t len;
    char text[];
};

struct prefix_entry {
    uint64_t serial; /* 0: free */
    uint64_t parent, hash;
    struct prefix_salt *salt; /* of a first block; else NULL */
    int32_t pages[SEQUENCE_GROUP_MAX];
    int32_t n_pages; /* entries of pages that are not -1 */
    int32_t bucket_next;
    int32_t prev, next; /* ghosts, oldest first; free entries (next only) */
};

struct prefix_index {
    struct prefix_entry *entries; /* [n_entries] */
    int32_t *tokens;              /* [n_entries][block_size] */
    int32_t *buckets;             /* [n_buckets], a power of two */
    int32_t n_entries, n_buckets, n_used;
    int32_t free_head, ghost_head, ghost_tail;
    int block_size;
    uint64_t last_serial;
    struct prefix_salt *salts[256]; /* by hash */
};

/* False: no memory (deinit is fine then). n_entries >= 1. */
bool prefix_index_init(struct prefix_index *ix, int64_t n_entries, int block_size) ATTR_NODISCARD;
void prefix_index_deinit(struct prefix_index *ix);

/* A reference on the record of a salt (NUL-terminated); NULL: no memory. */
struct prefix_salt *prefix_index_salt_ref(struct prefix_index *ix, const char *text) ATTR_NODISCARD;
void prefix_index_salt_unref(struct prefix_index *ix, struct prefix_salt *salt);

/* The chained hash of a block; parent_hash of a first block is its salt's hash. */
uint64_t prefix_index_hash(const struct prefix_index *ix, uint64_t parent_hash, const int32_t *tokens);

/* The entry of this block, or -1. */
int32_t prefix_index_find(const struct prefix_index *ix, uint64_t parent, uint64_t hash, const int32_t *tokens);

/* A new entry without pages (a ghost, the youngest), which must not be in the index yet; salt for a first block, else
 * NULL. Takes the place of the oldest ghost when full; -1: full of entries with pages. */
int32_t prefix_index_insert(struct prefix_index *ix, uint64_t parent, uint64_t hash, const int32_t *tokens,
                            struct prefix_salt *salt);

/* Names or forgets the page of a group. */
void prefix_index_set_page(struct prefix_index *ix, int32_t entry, int group, int32_t page);
void prefix_index_clear_page(struct prefix_index *ix, int32_t entry, int group);

/* Frees an entry, with or without pages. */
void prefix_index_remove(struct prefix_index *ix, int32_t entry);

/* Whether lists, buckets and counts agree. For tests. */
bool prefix_index_check(const struct prefix_index *ix);

#endif
