/* A hash map from byte strings to int64 values (open addressing, linear probing, no deletion): for
 * vocabularies, tensor names, metadata keys. Keys are copied only when asked for.
 * Threads: one writer; any number of readers once it is filled. Owns: its table and copied keys. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct map_slot {
    const char *key; /* NULL: empty */
    uint32_t len;
    uint32_t hash;
    int64_t value;
};

struct map {
    struct map_slot *slots;
    size_t n_slots; /* a power of two or 0 */
    size_t n_used;
    bool copy_keys;
};

/* Sets key to value; an existing key is overwritten. Keys longer than 4 GiB are refused. False: no
 * memory, nothing changed. Without copy_keys the caller keeps the key bytes alive. */
bool map_put(struct map *m, const char *key, size_t len, int64_t value) ATTR_NODISCARD;

/* True and *value (if not NULL) when the key is there. */
bool map_get(const struct map *m, const char *key, size_t len, int64_t *value);

void map_deinit(struct map *m);

#endif
