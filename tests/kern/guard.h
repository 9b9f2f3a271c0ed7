/* Buffers that end at an unreadable page, for kernel tests: one byte read or written behind the end is a fault.
 * Threads: any. Owns: the mapping, released by guard_free. */
#ifndef TESTS_KERN_GUARD_H
#define TESTS_KERN_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum { GUARD_PAGE = 4096 };

struct guard {
    void *data; /* bytes long, ends at the guard page; zeroed */
    size_t bytes;
    char *map;
    size_t map_bytes;
};

static inline struct guard guard_alloc(size_t bytes) {
    const size_t body = (bytes + GUARD_PAGE - 1) / GUARD_PAGE * GUARD_PAGE, all = body + 2 * (size_t)GUARD_PAGE;
    char *const map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    CHECK(mprotect(map, GUARD_PAGE, PROT_NONE) == 0);
    CHECK(mprotect(map + GUARD_PAGE + body, GUARD_PAGE, PROT_NONE) == 0);
    return (struct guard){map + GUARD_PAGE + body - bytes, bytes, map, all};
}

static inline void guard_free(struct guard *g) {
    if (g->map) munmap(g->map, g->map_bytes);
    *g = (struct guard){0};
}

#endif
