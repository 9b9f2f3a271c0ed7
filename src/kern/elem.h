/* Kernel family "elem": everything that works on one row of f32: norms, rope, activations, adds, and the
 * reductions of a vocabulary row.
 *
 * One numeric definition per level: a row's result depends on that row alone; tails run the same
 * vector code masked, never libm; n needs no alignment. y may equal x where noted.
 * Threads: pure functions, any lane. */
#ifndef KERN_ELEM_H
#define KERN_ELEM_H

#include <stdint.h>

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

    /* sum of exp((x_i - max) * scale) in f64 partial sums of a fixed shape. */
    double (*sum_exp)(const float *x, int64_t n, float max, float scale);

    /* Appends (i, x_i) of every x_i >= threshold to idx/val, in ascending i, at most cap; returns how
     * many there are in all (may exceed cap). */
    int64_t (*select)(const float *x, int64_t n, float threshold, int32_t *idx, float *val, int64_t cap);
};

void elem_init_generic(struct elem_kern *k);
void elem_init_avx2(struct elem_kern *k);
void elem_init_avx512(struct elem_kern *k);

#endif
