#include "engine/page_pool.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

static void unlink_page(struct page_pool *pool, struct page_list *list, int32_t page) {
    const struct page *const p = &pool->pages[page];
    if (p->prev >= 0) {
        pool->pages[p->prev].next = p->next;
    } else {
        list->head = p->next;
    }
    if (p->next >= 0) {
        pool->pages[p->next].prev = p->prev;
    } else {
        list->tail = p->prev;
    }
    list->n--;
}

static void push_front(struct page_pool *pool, struct page_list *list, int32_t page) {
    pool->pages[page].prev = -1;
    pool->pages[page].next = list->head;
    if (list->head >= 0) {
        pool->pages[list->head].prev = page;
    } else {
        list->tail = page;
    }
    list->head = page;
    list->n++;
}

static void push_back(struct page_pool *pool, struct page_list *list, int32_t page) {
    pool->pages[page].next = -1;
    pool->pages[page].prev = list->tail;
    if (list->tail >= 0) {
        pool->pages[list->tail].next = page;
    } else {
        list->head = page;
    }
    list->tail = page;
    list->n++;
}

static void file_vacant(struct page_pool *pool, int32_t page) {
    pool->pages[page].place = PAGE_VACANT;
    push_front(pool, &pool->vacant, page);
}

static void file_cached(struct page_pool *pool, int32_t page) {
    pool->pages[page].place = PAGE_CACHED;
    push_back(pool, &pool->cached, page);
}

bool page_pool_init(struct page_pool *pool, int32_t n_pages) {
    memset(pool, 0, sizeof *pool);
    pool->pages = mem_calloc((size_t)n_pages, sizeof *pool->pages);
    if (!pool->pages) return false;
    pool->n_pages = n_pages;
    pool->vacant = pool->cached = (struct page_list){-1, -1, 0};
    for (int32_t i = 0; i < n_pages; i++) {
        pool->pages[i] = (struct page){.entry = -1, .place = PAGE_VACANT};
        push_back(pool, &pool->vacant, i);
    }
    return true;
}

void page_pool_deinit(struct page_pool *pool) {
    mem_free(pool->pages);
    memset(pool, 0, sizeof *pool);
}

int32_t page_pool_take(struct page_pool *pool) {
    const int32_t page = pool->vacant.head;
    if (page < 0) return -1;
    unlink_page(pool, &pool->vacant, page);
    struct page *const p = &pool->pages[page];
    CHECK(p->refs == 0 && p->entry < 0);
    p->refs = 1;
    p->place = PAGE_USED;
    return page;
}

void page_pool_ref(struct page_pool *pool, int32_t page) {
    struct page *const p = &pool->pages[page];
    CHECK(p->place != PAGE_VACANT);
    if (p->place == PAGE_CACHED) {
        CHECK(p->refs == 0);
        unlink_page(pool, &pool->cached, page);
        p->place = PAGE_USED;
    }
    p->refs++;
}

void page_pool_unref(struct page_pool *pool, int32_t page) {
    struct page *const p = &pool->pages[page];
    CHECK(p->place == PAGE_USED && p->refs > 0);
    if (--p->refs > 0) return;
    if (p->entry >= 0) {
        file_cached(pool, page);
    } else {
        file_vacant(pool, page);
    }
}

void page_pool_touch(struct page_pool *pool, int32_t page) {
    CHECK(pool->pages[page].place == PAGE_CACHED);
    unlink_page(pool, &pool->cached, page);
    file_cached(pool, page);
}

void page_pool_forget(struct page_pool *pool, int32_t page) {
    struct page *const p = &pool->pages[page];
    CHECK(p->entry >= 0);
    p->entry = -1;
    if (p->place != PAGE_CACHED) return;
    unlink_page(pool, &pool->cached, page);
    file_vacant(pool, page);
}
