/* The heap: the only caller of malloc and free. Two kinds: mem_* return NULL when memory is short,
 * and every path that a file, a request or a step can reach uses them and answers with ERR_NOMEM;
 * mem_x* end the process with one line and are for small fixed start-up allocations of programs.
 * Fault injection: mem_fault_after(n) makes the n-th following mem_* call fail, for sweeps.
 * Threads: any. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

/* size bytes, uninitialised; 0 is rounded up to 1. NULL: no memory. Free with mem_free. */
void *mem_alloc(size_t size) ATTR_NODISCARD;

/* n elements of size bytes, zeroed; NULL also when the product overflows. */
void *mem_calloc(size_t n, size_t size) ATTR_NODISCARD;

/* Grows or shrinks; on NULL the old block is untouched. */
void *mem_realloc(void *p, size_t size) ATTR_NODISCARD;

/* Aligned to align (a power of two); free with mem_free. */
void *mem_alloc_aligned(size_t align, size_t size) ATTR_NODISCARD;

/* A copy of len bytes with a NUL behind it. */
char *mem_strndup(const char *s, size_t len) ATTR_NODISCARD;
char *mem_strdup(const char *s) ATTR_NODISCARD;

/* NULL is fine. */
void mem_free(void *p);

/* For what other libraries took from malloc and hand over: getline's lines, readline's. NULL is fine. */
void mem_free_foreign(void *p);

/* The same, but never NULL: out of memory ends the process. */
void *mem_xalloc(size_t size) ATTR_NODISCARD;
void *mem_xcalloc(size_t n, size_t size) ATTR_NODISCARD;

/* Doubles the capacity of a growing array so that *cap >= need elements; the array pointer is
 * replaced. False: no memory or overflow, nothing changed. */
bool mem_grow(void *array_ptr, size_t *cap, size_t need, size_t elem_size) ATTR_NODISCARD;

/* a*b and a+b into *out; false on overflow. Every size that comes from a file goes through these. */
static inline bool mem_mul_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool mem_add_ok(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* The n-th allocation from now (1 = the next one) fails, once, on any thread; 0 turns it off. */
void mem_fault_after(int64_t n);

/* Live blocks and the number of allocations made so far; tests compare them. */
int64_t mem_live_blocks(void);
int64_t mem_n_allocs(void);

#endif
