/* Family "elem", the readable specification. The vector levels agree with it bit for bit: same
 * order of roundings, same exponential (generic/math_generic.h), same shapes of the sums. */
#include "kern/elem.h"

#include <math.h>
#include <stddef.h>

#include "kern/generic/math_generic.h"

/* Element i goes into chain i % 64; the four sixteens are added, then the sixteen lanes. */
static void rmsnorm_generic(float *y, const float *x, const float *w, int64_t n, float eps) {
    float chain[64] = {0}, lane[16];
    for (int64_t i = 0; i < n; i++) chain[i % 64] = fmaf(x[i], x[i], chain[i % 64]);
    for (int k = 0; k < 16; k++) lane[k] = (chain[k] + chain[16 + k]) + (chain[32 + k] + chain[48 + k]);
    const float r = 1.0f / sqrtf(math_sum16(lane) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] * r) * w[i];
}

static void rotate(float *x0, float *x1, float c, float s) {
    const float a = *x0, b = *x1;
    *x0 = fmaf(a, c, -(b * s));
    *x1 = fmaf(b, c, a * s);
}

static void rope_half_generic(float *x, const float *cs, int r) {
    const int h = r / 2;
    for (int i = 0; i < h; i++) rotate(x + i, x + h + i, cs[i], cs[h + i]);
}

static void rope_pair_generic(float *x, const float *cs, int r) {
    const int h = r / 2;
    for (ptrdiff_t i = 0; i < h; i++) rotate(x + 2 * i, x + 2 * i + 1, cs[i], cs[h + i]);
}

static void silu_mul_generic(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = math_silu(gate[i]) * up[i];
}

static void gelu_mul_generic(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = math_gelu_tanh(gate[i]) * up[i];
}

static void add_generic(float *y, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

static void scale_generic(float *y, const float *x, float s, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * s;
}

static void max_generic(const float *x, int64_t n, float *max, int64_t *arg, int *finite) {
    float m = -INFINITY;
    *finite = 1;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > m) m = x[i];
        if (!isfinite(x[i])) *finite = 0;
    }
    int64_t at = 0;
    while (at < n && x[at] != m) at++;
    *max = m;
    *arg = at < n ? at : 0;
}

static int max_blocks_generic(const float *x, int64_t n, float *blocks) {
    int all = 1;
    for (int64_t i = 0; i < n; i += ELEM_MAX_BLOCK) {
        int64_t at;
        int finite;
        max_generic(x + i, n - i < ELEM_MAX_BLOCK ? n - i : ELEM_MAX_BLOCK, &blocks[i / ELEM_MAX_BLOCK], &at, &finite);
        all &= finite;
    }
    return all;
}

/* Sixteen chains in f64. */
static double sum16_f64(const float *s) {
    double t[8];
    for (int k = 0; k < 8; k++) t[k] = (double)s[k] + (double)s[k + 8];
    for (int k = 0; k < 4; k++) t[k] += t[k + 4];
    return (t[0] + t[2]) + (t[1] + t[3]);
}

/* Element i of a block goes into f32 chain i % 16. */
static double sum_exp_generic(const float *x, int64_t n, const struct elem_weights *w, double *sums) {
    double sum = 0;
    for (int64_t i = 0; i < n; i += ELEM_SUM_BLOCK) {
        float all[16] = {0}, part[16] = {0};
        for (int64_t k = i; k < n && k < i + ELEM_SUM_BLOCK; k++) {
            const float e = math_exp((x[k] - w->max) * w->scale);
            if (!(x[k] < w->from)) all[k % 16] += e;
            if (!(x[k] < w->above)) part[k % 16] += e;
        }
        *sums++ = sum16_f64(part);
        sum += sum16_f64(all);
    }
    return sum;
}

static int64_t select_generic(const float *x, int64_t n, float lo, float hi, uint64_t *keys, int64_t cap) {
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(x[i] >= lo && x[i] < hi)) continue;
        if (found < cap) keys[found] = elem_key(x[i], (uint32_t)i);
        found++;
    }
    return found;
}

void elem_init_generic(struct elem_kern *k) {
    *k = (struct elem_kern){
        .isa = "generic",
        .rmsnorm = rmsnorm_generic,
        .rope_half = rope_half_generic,
        .rope_pair = rope_pair_generic,
        .silu_mul = silu_mul_generic,
        .gelu_mul = gelu_mul_generic,
        .add = add_generic,
        .scale = scale_generic,
        .max = max_generic,
        .max_blocks = max_blocks_generic,
        .sum_exp = sum_exp_generic,
        .select = select_generic,
    };
}
