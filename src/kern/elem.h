/* Kernel family "elem": everything that works on one row of f32: norms, rope, activations, adds, and the
 * reductions of a vocabulary row.
 *
 * One numeric definition per level: a row's result depends on that row alone; tails run the same
 * vector code masked, never libm; n needs no alignment. y may equal x where noted.
 * Threads: pure functions, any lane. */
#ifndef KERN_ELEM_H
#define KERN_ELEM_H

#include <stdint.h>
#include <string.h>

enum { ELEM_MAX_BLOCK = 64, ELEM_SUM_BLOCK = 256 };

/* A logit and its id as one number: ascending keys are descending logits, ids ascending among equals (-0 equals 0). x
 * must not be NaN. */
static inline uint64_t elem_key(float x, uint32_t id) {
    const float v = x + 0.0f;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits ^= bits >> 31 ? 0 : 0x7fffffffu;
    return (uint64_t)bits << 32 | id;
}

static inline float elem_key_value(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    float x;
    bits ^= bits >> 31 ? 0 : 0x7fffffffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Which elements of a row weigh how much: see sum_exp. */
struct elem_weights {
    float max, scale, from, above;
};

struct elem_kern {
    const char *isa;

    /* y = x * rsqrt(mean(x^2) + eps) * w (RMS-A and RMS-B are the same in f32). y may be x. */
    void (*rmsnorm)(float *y, const float *x, const float *w, int64_t n, float eps);

    /* Rotates the first r elements of one head in place; cs holds r/2 cosines, then r/2 sines.
     * half: pairs (i, i + r/2); pair: pairs (2i, 2i + 1). */
    void (*rope_half)(float *x, const float *cs, int r);
    void (*rope_pair)(float *x, const float *cs, int r);

    /* y = silu(gate) * up. y may be gate or up. */
    void (*silu_mul)(float *y, const float *gate, const float *up, int64_t n);

    /* y = gelu_tanh(gate) * up, 0.5 g (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))). */
    void (*gelu_mul)(float *y, const float *gate, const float *up, int64_t n);

    /* y = a + b. y may be a or b. */
    void (*add)(float *y, const float *a, const float *b, int64_t n);

    /* y = x * s. y may be x. */
    void (*scale)(float *y, const float *x, float s, int64_t n);

    /* Largest of x[0..n), n >= 1, and the lowest index that has it. NaN: *finite becomes 0 when any
     * element is not finite (else 1). */
    void (*max)(const float *x, int64_t n, float *max, int64_t *arg, int *finite);

    /* Maxima of blocks of ELEM_MAX_BLOCK: blocks[b] is the largest of x[64 b .. 64 b + 63], NaN left out. Returns
     * whether every element is finite. */
    int (*max_blocks)(const float *x, int64_t n, float *blocks);

    /* The sum of exp((x_i - max) * scale), over the x_i that are not below `from`; sums[b] has the part of
     * block b, x[256 b .. 256 b + 255], that is not below `above`, which must not be below `from`. Partial sums have a
     * fixed shape: a block's own, then the blocks in order. (x_i - max) * scale must not be above 0. */
    double (*sum_exp)(const float *x, int64_t n, const struct elem_weights *w, double *sums);

    /* Appends elem_key(x_i, i) of every lo <= x_i < hi to keys, in ascending i, at most cap; returns how
     * many there are in all (may exceed cap). */
    int64_t (*select)(const float *x, int64_t n, float lo, float hi, uint64_t *keys, int64_t cap);
};

void elem_init_generic(struct elem_kern *k);
void elem_init_avx2(struct elem_kern *k);
void elem_init_avx512(struct elem_kern *k);
void elem_init_neon(struct elem_kern *k);

#endif
