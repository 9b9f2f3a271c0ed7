/* A bump allocator: many small allocations with one life, freed together. Memory is zeroed.
 * Threads: one owner. Owns: its chunks, until arena_deinit. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/attr.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
};

/* size zeroed bytes aligned to 16; NULL: no memory. */
void *arena_alloc(struct arena *a, size_t size) ATTR_NODISCARD;

void arena_deinit(struct arena *a);

#endif
