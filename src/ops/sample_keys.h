/* Lists of candidates for a token: elem_key numbers, so that ascending keys are the order of candidates (logit
 * descending, id ascending) and no two are equal. Their weights are exp((logit - max) / temperature) as the kernels
 * compute them; sums are in f64, in an order that depends on the list alone.
 * Threads: pure functions. Owns: nothing. */
#ifndef OPS_SAMPLE_KEYS_H
#define OPS_SAMPLE_KEYS_H

#include <stdint.h>

#include "kern/elem.h"

struct sample_weight {
    const struct elem_kern *kern;
    float max, scale; /* scale: 1 / temperature */
};

/* Reorders keys[0..n) so that the first k, 0 <= k <= n, are the k first in order, the k-th of them last. */
void sample_keys_first(uint64_t *keys, int64_t n, int64_t k);

/* The k-th of the order, 1 <= k <= n, after the same. */
uint64_t sample_keys_kth(uint64_t *keys, int64_t n, int64_t k);

void sample_keys_sort(uint64_t *keys, int64_t n);

/* Sum of their weights. */
double sample_keys_mass(const struct sample_weight *w, const uint64_t *keys, int64_t n);

/* The shortest run of the order, of one key at least, whose weights add up to `target`; all n >= 1 if none does.
 * Reorders keys so that the run comes first and ends with its last in order; returns its length, *mass its sum. */
int64_t sample_keys_cut(const struct sample_weight *w, uint64_t *keys, int64_t n, double target, double *mass);

/* The inverse CDF over the list as it stands, n >= 1: index of the first key whose running sum exceeds target, of the
 * last one with a weight if rounding left none. */
int64_t sample_keys_draw(const struct sample_weight *w, const uint64_t *keys, int64_t n, double target);

#endif
