/* Reserved mappings bound to NUMA nodes. Raw system calls instead of libnuma, which would be a dependency for three
 * calls. */
#include "sys/region.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/file.h"

#define REGION_UNIT ((size_t)2 << 20) /* the huge page of x86-64, and of aarch64 with 4 KiB pages */

enum { NODE_BITS = 1024 };

/* True when the kernel has one node with memory only: binding would say nothing. */
static bool one_node_machine(void) {
    static _Atomic int known; /* 0: not asked yet, 1: one, 2: several; every thread finds the same answer */
    int k = atomic_load_explicit(&known, memory_order_relaxed);
    if (k == 0) {
        char *text = NULL;
        /* A list such as "0-3"; kernels without NUMA have no such file. */
        const enum err e = file_read_all("/sys/devices/system/node/has_memory", 1 << 20, &text, NULL, NULL);
        k = e == ERR_OK && strpbrk(text, ",-") ? 2 : 1;
        mem_free(text);
        atomic_store_explicit(&known, k, memory_order_relaxed);
    }
    return k == 1;
}

static void warn_unbound(int node, int why) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set_explicit(&warned, memory_order_relaxed)) return;
    log_warn("sys", "cannot bind memory to NUMA node %d (%s): first touch decides where pages live%s", node,
             strerror(why), why == EPERM ? "; in a container, --cap-add SYS_NICE allows it" : "");
}

/* MPOL_BIND and not MPOL_PREFERRED: with the latter, a node full of page cache sends our pages elsewhere instead of
 * dropping the cache. */
static bool bind_pages(void *p, size_t size, int node) {
    unsigned long mask[NODE_BITS / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof mask[0];
    if (node >= NODE_BITS) return false;
    mask[(size_t)node / bits] |= 1ul << ((size_t)node % bits);
    /* The kernel reads one bit less than maxnode. */
    if (syscall(SYS_mbind, p, size, MPOL_BIND, mask, (unsigned long)NODE_BITS + 1, 0u) == 0) return true;
    warn_unbound(node, errno);
    return false;
}

/* Maps size bytes at a multiple of REGION_UNIT: maps one unit more and gives both ends back. */
static char *map_aligned(size_t size) {
    size_t total;
    if (!mem_add_ok(size, REGION_UNIT, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    char *const p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return NULL;
    const size_t head = (REGION_UNIT - (uintptr_t)p % REGION_UNIT) % REGION_UNIT;
    if (head) munmap(p, head);
    munmap(p + head + size, total - head - size);
    return p + head;
}

enum err region_create(struct region *r, const char *what, int os_node, size_t size, struct err_msg *msg) {
    memset(r, 0, sizeof *r);
    r->node = os_node;
    size_t rounded = 0;
    const bool fits = mem_add_ok(size ? size : 1, REGION_UNIT - 1, &rounded);
    rounded -= rounded % REGION_UNIT;
    errno = ENOMEM;
    r->base = fits ? map_aligned(rounded) : NULL;
    if (!r->base) {
        const int why = errno;
        const double mib = (double)size / (1 << 20);
        return err_set(msg, ERR_NOMEM, "cannot reserve %.1f MiB (%zu bytes) for %s on node %d: %s; lower what is asked "
                       "for, or raise the address space limit (ulimit -v)", mib, size, what, os_node, strerror(why));
    }
    r->size = rounded;
    /* Small regions keep small pages: a huge one would cost up to 2 MiB for a few bytes. */
    (void)madvise(r->base, rounded, size >= REGION_UNIT ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    (void)madvise(r->base, rounded, MADV_DONTDUMP); /* nobody wants a core file of all the weights */
    if (os_node >= 0) r->bound = one_node_machine() || bind_pages(r->base, rounded, os_node);
    return ERR_OK;
}

void region_destroy(struct region *r) {
    if (r->base) munmap(r->base, r->size);
    memset(r, 0, sizeof *r);
    r->node = -1;
}

void *region_alloc(struct region *r, size_t size, size_t align) {
    CHECK(align > 0 && (align & (align - 1)) == 0);
    size_t begin, end;
    /* The base is a multiple of 2 MiB; larger alignments are reached from the address. */
    if (!mem_add_ok((uintptr_t)r->base + r->used, align - 1, &begin)) return NULL;
    begin = (begin & ~(align - 1)) - (uintptr_t)r->base;
    if (!mem_add_ok(begin, size, &end) || end > r->size) return NULL;
    r->used = end;
    return r->base + begin;
}

int region_verify(const struct region *r, int n_samples, int *n_touched) {
    enum { BATCH = 64 };
    void *pages[BATCH];
    int status[BATCH];
    int touched = 0, right = 0;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t n_pages = (r->used + page - 1) / page;
    const size_t n = n_samples > 0 && (size_t)n_samples < n_pages ? (size_t)n_samples : n_samples > 0 ? n_pages : 0;
    *n_touched = 0;
    for (size_t i = 0; i < n;) {
        unsigned long k = 0;
        for (; k < BATCH && i < n; i++, k++) {
            /* The middle of the i-th of n equal parts; in double, since n_pages * n may not fit. */
            const size_t at = (size_t)(((double)i + 0.5) * (double)n_pages / (double)n);
            pages[k] = r->base + (at < n_pages ? at : n_pages - 1) * page;
        }
        /* Without a list of target nodes nothing moves; status becomes the node, or -errno (-ENOENT: untouched). */
        if (syscall(SYS_move_pages, 0, k, pages, NULL, status, 0) != 0) return -1;
        for (unsigned long j = 0; j < k; j++) {
            touched += status[j] >= 0;
            right += status[j] >= 0 && status[j] == r->node;
        }
    }
    *n_touched = touched;
    return right;
}

void region_discard(struct region *r, size_t offset, size_t len) {
    CHECK(offset <= r->size && len <= r->size - offset);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t end = offset + len;
    const size_t first = (offset + page - 1) / page * page, last = end / page * page;
    if (first >= last) {
        memset(r->base + offset, 0, len);
        return;
    }
    /* The edges share their pages with somebody else, so they are cleared by hand. */
    memset(r->base + offset, 0, first - offset);
    memset(r->base + last, 0, end - last);
    if (madvise(r->base + first, last - first, MADV_DONTNEED) != 0) memset(r->base + first, 0, last - first);
}
