/* The bodies of family "elem" for any level with the sixteen-lane vocabulary v16 (avx2/math_avx2.h,
 * avx512/math_avx512.h): included once, by the file that fills the level's table, after that header.
 *
 * Shapes of the sums, functions of n alone: rmsnorm adds element i into lane i % 64 of 64 chains;
 * sum_exp adds element i of a block of 256 into lane i % 16 of sixteen f32 chains, which end in f64. The trees at the
 * end are v16_sum's and d16_sum's.
 * Threads: pure functions. */
#ifndef KERN_ELEM_SIMD_H
#define KERN_ELEM_SIMD_H

#include "kern/elem.h"

#ifdef V16_ISA

/* Sixteen elements from x[i], zeros from x[n] on. */
V16_FN v16 elem_load(const float *x, int64_t i, int64_t n) {
    return n - i >= 16 ? v16_load(x + i) : v16_load_n(x + i, n > i ? (int)(n - i) : 0);
}

V16_FN void elem_store(float *y, int64_t i, int64_t n, v16 v) {
    if (n - i >= 16) v16_store(y + i, v);
    else v16_store_n(y + i, v, (int)(n - i));
}

static float elem_sum_squares(const float *x, int64_t n) {
    v16 s[4] = {v16_set1(0.0f), v16_set1(0.0f), v16_set1(0.0f), v16_set1(0.0f)};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        V16_UNROLL
        for (int k = 0; k < 4; k++) {
            const v16 v = v16_load(x + i + 16 * k);
            s[k] = v16_fma(v, v, s[k]);
        }
    }
    if (i < n) {
        V16_UNROLL
        for (int k = 0; k < 4; k++) {
            const int64_t at = i + 16 * k < n ? i + 16 * k : n;
            const v16 v = elem_load(x, at, n);
            s[k] = v16_fma(v, v, s[k]);
        }
    }
    return v16_sum(v16_add(v16_add(s[0], s[1]), v16_add(s[2], s[3])));
}

static void elem_rmsnorm(float *y, const float *x, const float *w, int64_t n, float eps) {
    const float mean = elem_sum_squares(x, n) / (float)n;
    const v16 r = v16_set1(1.0f / sqrtf(mean + eps));
    for (int64_t i = 0; i < n; i += 16)
        elem_store(y, i, n, v16_mul(v16_mul(elem_load(x, i, n), r), elem_load(w, i, n)));
}

static void elem_rope_half(float *x, const float *cs, int r) {
    const int h = r / 2;
    for (int i = 0; i < h; i += 16) {
        const v16 a = elem_load(x, i, h), b = elem_load(x + h, i, h);
        const v16 c = elem_load(cs, i, h), s = elem_load(cs + h, i, h);
        const v16 bs = v16_mul(b, s), as = v16_mul(a, s);
        elem_store(x, i, h, v16_fms(a, c, bs));
        elem_store(x + h, i, h, v16_fma(b, c, as));
    }
}

static void elem_rope_pair(float *x, const float *cs, int r) {
    const int h = r / 2;
    for (int i = 0; i < h; i += 8) {
        const int pairs = h - i < 8 ? h - i : 8;
        const v16 c = v16_twice_low(v16_load_n(cs + i, pairs)), s = v16_twice_low(v16_load_n(cs + h + i, pairs));
        const v16 v = v16_load_n(x + 2 * i, 2 * pairs);
        v16_store_n(x + 2 * i, v16_fmaddsub(v, c, v16_mul(v16_swap_pairs(v), s)), 2 * pairs);
    }
}

V16_FN v16 elem_silu(v16 g) {
    const v16 one = v16_set1(1.0f);
    return v16_div(g, v16_add(one, v16_exp(v16_sub(v16_set1(0.0f), g))));
}

/* 0.5 g (1 + tanh u) = g / (1 + exp(-2u)). */
V16_FN v16 elem_gelu_tanh(v16 g) {
    const v16 cube = v16_mul(v16_mul(g, g), g);
    const v16 u = v16_mul(v16_set1(MATH_SQRT_2_PI), v16_fma(cube, v16_set1(MATH_GELU_CUBE), g));
    return v16_div(g, v16_add(v16_set1(1.0f), v16_exp(v16_mul(v16_set1(-2.0f), u))));
}

static void elem_silu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i += 16)
        elem_store(y, i, n, v16_mul(elem_silu(elem_load(gate, i, n)), elem_load(up, i, n)));
}

static void elem_gelu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i += 16)
        elem_store(y, i, n, v16_mul(elem_gelu_tanh(elem_load(gate, i, n)), elem_load(up, i, n)));
}

static void elem_add(float *y, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) elem_store(y, i, n, v16_add(elem_load(a, i, n), elem_load(b, i, n)));
}

static void elem_scale(float *y, const float *x, float s, int64_t n) {
    const v16 f = v16_set1(s);
    for (int64_t i = 0; i < n; i += 16) elem_store(y, i, n, v16_mul(elem_load(x, i, n), f));
}

enum { ELEM_MAX_STEP = 1024 }; /* max remembers the block of its maximum and looks for the index there */

/* Largest of x[0..n), NaN left out; *bad collects x * 0: not 0 when an element is not finite. */
V16_FN float elem_max_block(const float *x, int64_t n, v16 *bad) {
    const v16 zero = v16_set1(0.0f), none = v16_set1(-INFINITY);
    v16 m[4] = {none, none, none, none}, b[4] = {*bad, zero, zero, zero};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        V16_UNROLL
        for (int k = 0; k < 4; k++) {
            const v16 v = v16_load(x + i + 16 * k);
            m[k] = v16_max(v, m[k]);
            b[k] = v16_fma(v, zero, b[k]);
        }
    }
    for (; i < n; i += 16) {
        const int left = n - i < 16 ? (int)(n - i) : 16;
        const v16 v = v16_load_n(x + i, left);
        m[0] = v16_max(v16_range(v, 0, left, none), m[0]);
        b[0] = v16_fma(v, zero, b[0]);
    }
    *bad = v16_add(v16_add(b[0], b[1]), v16_add(b[2], b[3]));
    return v16_max_lane(v16_max(v16_max(m[0], m[1]), v16_max(m[2], m[3])));
}

static void elem_max(const float *x, int64_t n, float *max, int64_t *arg, int *finite) {
    v16 bad = v16_set1(0.0f);
    float m = -INFINITY;
    int64_t block = 0;
    for (int64_t i = 0; i < n; i += ELEM_MAX_STEP) {
        const float bm = elem_max_block(x + i, n - i < ELEM_MAX_STEP ? n - i : ELEM_MAX_STEP, &bad);
        if (bm > m) {
            m = bm;
            block = i;
        }
    }
    int64_t at = block;
    for (int64_t i = block; i < n; i += 16) { /* ends in the block, unless every element is NaN */
        const uint32_t live = n - i < 16 ? (1u << (n - i)) - 1 : 0xffffu;
        const uint32_t hit = v16_eq(elem_load(x, i, n), v16_set1(m)) & live;
        if (hit) {
            at = i + __builtin_ctz(hit);
            break;
        }
    }
    *max = m;
    *arg = at;
    *finite = v16_eq(bad, v16_set1(0.0f)) == 0xffffu;
}

static int elem_max_blocks(const float *x, int64_t n, float *blocks) {
    v16 bad = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += ELEM_MAX_BLOCK)
        blocks[i / ELEM_MAX_BLOCK] = elem_max_block(x + i, n - i < ELEM_MAX_BLOCK ? n - i : ELEM_MAX_BLOCK, &bad);
    return v16_eq(bad, v16_set1(0.0f)) == 0xffffu;
}

/* One block of sum_exp; split: `above` differs from `from`. */
V16_FN double elem_sum_block(const float *x, int64_t n, const struct elem_weights *w, int split, double *above) {
    const v16 zero = v16_set1(0.0f), max = v16_set1(w->max), scale = v16_set1(w->scale), from = v16_set1(w->from);
    v16 all = zero, part = zero;
    for (int64_t i = 0; i < n; i += 16) {
        const int left = n - i < 16 ? (int)(n - i) : 16;
        const v16 v = left == 16 ? v16_load(x + i) : v16_load_n(x + i, left);
        v16 e = v16_exp_low(v16_mul(v16_sub(v, max), scale));
        if (left < 16) e = v16_range(e, 0, left, zero);
        if (split) part = v16_add(part, v16_unless_below(e, v, v16_set1(w->above)));
        all = v16_add(all, v16_unless_below(e, v, from));
    }
    const double sum = d16_sum(d16_add(d16_zero(), all));
    *above = split ? d16_sum(d16_add(d16_zero(), part)) : sum;
    return sum;
}

static double elem_sum_exp(const float *x, int64_t n, const struct elem_weights *w, double *sums) {
    const int64_t whole = n - n % ELEM_SUM_BLOCK;
    double sum = 0;
    if (w->above > w->from)
        for (int64_t i = 0; i < whole; i += ELEM_SUM_BLOCK) sum += elem_sum_block(x + i, ELEM_SUM_BLOCK, w, 1, sums++);
    else
        for (int64_t i = 0; i < whole; i += ELEM_SUM_BLOCK) sum += elem_sum_block(x + i, ELEM_SUM_BLOCK, w, 0, sums++);
    if (whole < n) sum += elem_sum_block(x + whole, n - whole, w, 1, sums);
    return sum;
}

static int64_t elem_select(const float *x, int64_t n, float lo, float hi, uint64_t *keys, int64_t cap) {
    const v16 l = v16_set1(lo), h = v16_set1(hi);
    int64_t found = 0;
    for (int64_t i = 0; i < n; i += 64) {
        uint64_t hits = 0;
        V16_UNROLL
        for (int k = 0; k < 4; k++) {
            const v16 v = elem_load(x, i + 16 * k < n ? i + 16 * k : n, n);
            hits |= (uint64_t)(v16_ge(v, l) & ~v16_ge(v, h)) << (16 * k);
        }
        if (n - i < 64) hits &= (UINT64_C(1) << (n - i)) - 1;
        for (; hits; hits &= hits - 1, found++) {
            const int64_t at = i + __builtin_ctzll(hits);
            if (found < cap) keys[found] = elem_key(x[at], (uint32_t)at);
        }
    }
    return found;
}

V16_FN struct elem_kern elem_table(void) {
    return (struct elem_kern){
        .isa = V16_ISA,
        .rmsnorm = elem_rmsnorm,
        .rope_half = elem_rope_half,
        .rope_pair = elem_rope_pair,
        .silu_mul = elem_silu_mul,
        .gelu_mul = elem_gelu_mul,
        .add = elem_add,
        .scale = elem_scale,
        .max = elem_max,
        .max_blocks = elem_max_blocks,
        .sum_exp = elem_sum_exp,
        .select = elem_select,
    };
}

#endif
#endif
