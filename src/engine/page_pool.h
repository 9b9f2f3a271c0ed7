/* The pages of one cache group: reference counts and two lists, vacant (no content worth keeping, last given back
 * goes first: its memory is warm) and cached (unreferenced, content published, least recently used first).
 *
 * Threads: engine thread only. Owns: its array, taken at init. */
#ifndef ENGINE_PAGE_POOL_H
#define ENGINE_PAGE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

enum page_place { PAGE_USED, PAGE_VACANT, PAGE_CACHED };

struct page {
    int32_t refs;
    int32_t entry; /* of the prefix index, or -1 */
    int32_t prev, next;
    enum page_place place;
    bool zero_pending; /* a BLOCK_OP_ZERO for it is on the list of operations */
};

struct page_list {
    int32_t head, tail, n;
};

struct page_pool {
    struct page *pages; /* [n_pages] */
    int32_t n_pages;
    struct page_list vacant, cached;
};

/* False: no memory. All pages start vacant, page 0 first. */
bool page_pool_init(struct page_pool *pool, int32_t n_pages) ATTR_NODISCARD;
void page_pool_deinit(struct page_pool *pool);

/* Pages that could be handed out. */
static inline int32_t page_pool_available(const struct page_pool *pool) {
    return pool->vacant.n + pool->cached.n;
}

/* The first vacant page becomes used with one reference; -1: none is vacant. */
int32_t page_pool_take(struct page_pool *pool);

/* One more reference; revives a cached page. */
void page_pool_ref(struct page_pool *pool, int32_t page);

/* One reference less; the last one files the page as cached (most recent) when it has an index entry, else as vacant.
 */
void page_pool_unref(struct page_pool *pool, int32_t page);

/* Makes a cached page the most recently used one. */
void page_pool_touch(struct page_pool *pool, int32_t page);

/* Forgets the index entry of a page; a cached one becomes vacant. */
void page_pool_forget(struct page_pool *pool, int32_t page);

#endif
