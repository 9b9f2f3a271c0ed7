#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK_BYTES = 64 << 10, ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    max_align_t data[];
};

void *arena_alloc(struct arena *a, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    const size_t need = (size + ALIGN - 1) / ALIGN * ALIGN;
    struct arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < need) {
        const size_t room = need > CHUNK_BYTES ? need : CHUNK_BYTES;
        c = mem_alloc(sizeof *c + room);
        if (!c) return NULL;
        *c = (struct arena_chunk){.next = a->chunks, .size = room};
        a->chunks = c;
    }
    void *const p = (char *)c->data + c->used;
    c->used += need;
    return memset(p, 0, need);
}

void arena_deinit(struct arena *a) {
    for (struct arena_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    a->chunks = NULL;
}
