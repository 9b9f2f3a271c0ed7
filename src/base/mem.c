#include "base/mem.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t fault_left; /* 0: off */
static _Atomic int64_t live_blocks;
static _Atomic int64_t n_allocs;

static bool fault_now(void) {
    if (atomic_load_explicit(&fault_left, memory_order_relaxed) == 0) return false;
    return atomic_fetch_sub_explicit(&fault_left, 1, memory_order_relaxed) == 1;
}

static void *counted(void *p) {
    if (!p) return NULL;
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    return p;
}

void *mem_alloc(size_t size) {
    return fault_now() ? NULL : counted(malloc(size ? size : 1));
}

void *mem_calloc(size_t n, size_t size) {
    return fault_now() ? NULL : counted(calloc(n ? n : 1, size ? size : 1));
}

void *mem_realloc(void *p, size_t size) {
    if (!p) return mem_alloc(size);
    if (fault_now()) return NULL;
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    return realloc(p, size ? size : 1);
}

void *mem_alloc_aligned(size_t align, size_t size) {
    if (fault_now()) return NULL;
    size_t rounded;
    if (!mem_add_ok(size ? size : 1, align - 1, &rounded)) return NULL;
    return counted(aligned_alloc(align, rounded & ~(align - 1)));
}

char *mem_strndup(const char *s, size_t len) {
    size_t size;
    if (!mem_add_ok(len, 1, &size)) return NULL;
    char *const p = mem_alloc(size);
    if (!p) return NULL;
    if (len) memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *mem_strdup(const char *s) { return mem_strndup(s, strlen(s)); }

void mem_free(void *p) {
    if (!p) return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}

void mem_free_foreign(void *p) { free(p); }

static void *or_die(void *p, size_t size) {
    if (p) return p;
    fprintf(stderr, "xenon: out of memory: %zu bytes wanted\n", size);
    abort();
}

void *mem_xalloc(size_t size) { return or_die(mem_alloc(size), size); }

void *mem_xcalloc(size_t n, size_t size) { return or_die(mem_calloc(n, size), size); }

bool mem_grow(void *array_ptr, size_t *cap, size_t need, size_t elem_size) {
    if (need <= *cap) return true;
    size_t want = *cap ? *cap : 8;
    while (want < need)
        if (!mem_mul_ok(want, 2, &want)) return false;
    size_t bytes;
    if (!mem_mul_ok(want, elem_size, &bytes)) return false;
    void *old;
    memcpy(&old, array_ptr, sizeof old);
    void *const p = mem_realloc(old, bytes);
    if (!p) return false;
    memcpy(array_ptr, &p, sizeof p);
    *cap = want;
    return true;
}

void mem_fault_after(int64_t n) { atomic_store_explicit(&fault_left, n, memory_order_relaxed); }

int64_t mem_live_blocks(void) { return atomic_load_explicit(&live_blocks, memory_order_relaxed); }

int64_t mem_n_allocs(void) { return atomic_load_explicit(&n_allocs, memory_order_relaxed); }
