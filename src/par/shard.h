/* How one axis of a weight or a cache is split over parts (the teams of this machine; hosts later). Splits are
 * contiguous, in whole quanta (a head, a panel), as even as they come, and need no power of two; parts without a
 * quantum are empty. Threads: pure. */
#ifndef PAR_SHARD_H
#define PAR_SHARD_H

#include <stdint.h>

/* What a weight row of a model says about its matrix. */
enum shard_axis {
    SHARD_ROWS,       /* outputs: gate, up, vocabulary */
    SHARD_HEADS,      /* outputs in whole heads: q, k, v */
    SHARD_COLUMNS,    /* inputs: o, down */
    SHARD_REPLICATED, /* norms, small vectors */
};

/* First quantum of part i when n quanta are split in proportion to weight[0 .. parts-1]; i may equal parts. */
static inline int64_t shard_first(int64_t n, const int *weight, int parts, int i) {
    int64_t total = 0, before = 0;
    for (int p = 0; p < parts; p++) {
        total += weight[p];
        if (p < i) before += weight[p];
    }
    return n * before / total;
}

#endif
