/* A region: one reserved address range on one NUMA node for one life (weights, KV pages, activations,
 * scratch). Memory comes on first touch; huge pages are asked for; the node is bound where the kernel allows
 * it (else: one warning for the whole process, first touch decides, still correct).
 * Threads: region_alloc by one thread at a time; the memory is the callers'. Owns: the mapping. */
#ifndef SYS_REGION_H
#define SYS_REGION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct region {
    char *base;
    size_t size; /* reserved, a multiple of 2 MiB */
    size_t used; /* handed out by region_alloc */
    int node;    /* OS node it is bound to, -1: none */
    bool bound;  /* the kernel accepted the binding, or there is one node only and nothing to bind */
};

/* Reserves size bytes (rounded up); nothing is touched yet. what: for messages, "weights". */
enum err region_create(struct region *r, const char *what, int os_node, size_t size,
                       struct err_msg *msg) ATTR_NODISCARD;
void region_destroy(struct region *r);

/* size bytes aligned to align (a power of two); NULL when the region is full. Contents are zero. */
void *region_alloc(struct region *r, size_t size, size_t align) ATTR_NODISCARD;

/* Asks the kernel where up to n_samples touched pages, spread over [0, used), live. Returns how many live on
 * `node`; *n_touched: how many of the samples are in memory at all. -1 when the kernel does not tell. */
int region_verify(const struct region *r, int n_samples, int *n_touched);

/* Gives the pages of [offset, offset + len) back to the system; they read as zeros afterwards. */
void region_discard(struct region *r, size_t offset, size_t len);

#endif
