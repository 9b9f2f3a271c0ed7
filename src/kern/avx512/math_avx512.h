/* Sixteen f32 lanes in one AVX-512 register: the vocabulary of kern/elem_simd.h and kern/attn_simd.h.
 * Every operation is lane by lane; the fixed sums go over the tree (i + i+8), (+4), (+2), (+1).
 * Threads: pure functions. */
#ifndef KERN_AVX512_MATH_AVX512_H
#define KERN_AVX512_MATH_AVX512_H

#include "kern/avx512/avx512.h"

#include <math.h>
#include <stdint.h>

#include "base/attr.h"
#include "kern/math_coef.h"

#define V16_ISA "avx512"

/* Attention: rows of a tile, and columns of 16 that a tile of r rows handles at a time: at least 8
 * chains hide the latency of two fma units wherever the shape allows. */
#define V16_TILE_ROWS 8
#define V16_TILE_COLS(r) ((r) <= 2 ? 4 : (r) <= 4 ? 2 : 1)
#define V16_TILE_ACC 8 /* most rows * columns of a tile */

/* Before a loop of at most 8 constant rounds: its accumulators must become registers. */
#ifdef __clang__
#define V16_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V16_UNROLL _Pragma("GCC unroll 8")
#endif

#define V16_FN static inline ATTR_ALWAYS_INLINE

typedef struct {
    __m512 v;
} v16;

/* Asks for the cache line of p; p may be anything. */
V16_FN void v16_prefetch(const char *p) { _mm_prefetch(p, _MM_HINT_T0); }

V16_FN v16 v16_set1(float x) { return (v16){_mm512_set1_ps(x)}; }
V16_FN v16 v16_load(const float *p) { return (v16){_mm512_loadu_ps(p)}; }
V16_FN void v16_store(float *p, v16 x) { _mm512_storeu_ps(p, x.v); }

V16_FN v16 v16_add(v16 x, v16 y) { return (v16){_mm512_add_ps(x.v, y.v)}; }
V16_FN v16 v16_sub(v16 x, v16 y) { return (v16){_mm512_sub_ps(x.v, y.v)}; }
V16_FN v16 v16_mul(v16 x, v16 y) { return (v16){_mm512_mul_ps(x.v, y.v)}; }
V16_FN v16 v16_div(v16 x, v16 y) { return (v16){_mm512_div_ps(x.v, y.v)}; }

/* x > y ? x : y: y when either is NaN. */
V16_FN v16 v16_max(v16 x, v16 y) { return (v16){_mm512_max_ps(x.v, y.v)}; }

/* x * y + z, one rounding. */
V16_FN v16 v16_fma(v16 x, v16 y, v16 z) { return (v16){_mm512_fmadd_ps(x.v, y.v, z.v)}; }

/* x * y - z, one rounding. */
V16_FN v16 v16_fms(v16 x, v16 y, v16 z) { return (v16){_mm512_fmsub_ps(x.v, y.v, z.v)}; }

/* x * y - z in even lanes, x * y + z in odd ones. */
V16_FN v16 v16_fmaddsub(v16 x, v16 y, v16 z) { return (v16){_mm512_fmaddsub_ps(x.v, y.v, z.v)}; }

/* Swaps the lanes of each pair (2i, 2i + 1). */
V16_FN v16 v16_swap_pairs(v16 x) { return (v16){_mm512_permute_ps(x.v, 0xb1)}; }

/* Lane i gets lane i / 2 (the lower 8 lanes, each twice). */
V16_FN v16 v16_twice_low(v16 x) {
    const __m512i i = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return (v16){_mm512_permutexvar_ps(i, x.v)};
}

/* Lanes from .. to - 1, cut to 0 .. 15. */
V16_FN __mmask16 v16_mask(int from, int to) {
    const uint32_t below_to = to >= 16 ? 0xffffu : to <= 0 ? 0 : (1u << to) - 1;
    const uint32_t below_from = from >= 16 ? 0xffffu : from <= 0 ? 0 : (1u << from) - 1;
    return (__mmask16)(below_to & ~below_from);
}

/* The first n (0..16) elements at p, zero above; touches no byte behind them. */
V16_FN v16 v16_load_n(const float *p, int n) { return (v16){_mm512_maskz_loadu_ps(v16_mask(0, n), p)}; }
V16_FN void v16_store_n(float *p, v16 x, int n) { _mm512_mask_storeu_ps(p, v16_mask(0, n), x.v); }

/* Lanes from .. to - 1 of x, the others of y. */
V16_FN v16 v16_range(v16 x, int from, int to, v16 y) {
    return (v16){_mm512_mask_blend_ps(v16_mask(from, to), y.v, x.v)};
}

/* Bit i: lane i of x >= that of y. */
V16_FN uint32_t v16_ge(v16 x, v16 y) { return _mm512_cmp_ps_mask(x.v, y.v, _CMP_GE_OQ); }
V16_FN uint32_t v16_eq(v16 x, v16 y) { return _mm512_cmp_ps_mask(x.v, y.v, _CMP_EQ_OQ); }

V16_FN float v16_first(v16 x) { return _mm_cvtss_f32(_mm512_castps512_ps128(x.v)); }

V16_FN float v16_sum(v16 x) {
    const __m256 t = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 u = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    const __m128 w = _mm_add_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_add_ss(w, _mm_movehdup_ps(w)));
}

/* Largest lane; lanes must not be NaN. */
V16_FN float v16_max_lane(v16 x) {
    const __m256 t = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
    const __m128 u = _mm_max_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    const __m128 w = _mm_max_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_max_ss(w, _mm_movehdup_ps(w)));
}

/* kern/math_coef.h has the definition; for x <= 0, without the care for large ones. */
V16_FN v16 v16_exp_low(v16 in) {
    const __m512 x = in.v, magic = _mm512_set1_ps(MATH_ROUND), one = _mm512_set1_ps(1.0f);
    const __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(MATH_LOG2E), magic), n = _mm512_sub_ps(t, magic);
    const __m512 s = _mm512_fmadd_ps(n, _mm512_set1_ps(-MATH_LN2_HI), x);
    const __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-MATH_LN2_LO), s);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(MATH_EXP_C6), r, _mm512_set1_ps(MATH_EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(MATH_EXP_C2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23));
    const __mmask16 keep = _mm512_cmp_ps_mask(x, _mm512_set1_ps(MATH_EXP_LO), _CMP_NLT_UQ);
    return (v16){_mm512_maskz_mov_ps(keep, _mm512_castsi512_ps(bits))};
}

V16_FN v16 v16_exp(v16 x) {
    const __mmask16 big = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(MATH_EXP_HI), _CMP_NLE_UQ);
    return (v16){_mm512_mask_mul_ps(v16_exp_low(x).v, big, x.v, _mm512_set1_ps(INFINITY))};
}

/* Zero in the lanes where y < limit, else x. */
V16_FN v16 v16_unless_below(v16 x, v16 y, v16 limit) {
    return (v16){_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(y.v, limit.v, _CMP_NLT_UQ), x.v)};
}

/* Sixteen doubles, for sums. */
typedef struct {
    __m512d lo, hi;
} d16;

V16_FN d16 d16_zero(void) { return (d16){_mm512_setzero_pd(), _mm512_setzero_pd()}; }

V16_FN d16 d16_add(d16 s, v16 x) {
    s.lo = _mm512_add_pd(s.lo, _mm512_cvtps_pd(_mm512_castps512_ps256(x.v)));
    s.hi = _mm512_add_pd(s.hi, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1)));
    return s;
}

V16_FN double d16_sum(d16 s) {
    const __m512d h = _mm512_add_pd(s.lo, s.hi);
    const __m256d t = _mm256_add_pd(_mm512_castpd512_pd256(h), _mm512_extractf64x4_pd(h, 1));
    const __m128d u = _mm_add_pd(_mm256_castpd256_pd128(t), _mm256_extractf128_pd(t, 1));
    return _mm_cvtsd_f64(_mm_add_sd(u, _mm_unpackhi_pd(u, u)));
}

/* Sixteen cache elements as f32: bf16, int8 codes, and e4m3 codes times 2^-8 (as f16 bits). */
V16_FN v16 v16_load_bf16(const uint16_t *p) {
    const __m512i w = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return (v16){_mm512_castsi512_ps(_mm512_slli_epi32(w, 16))};
}

V16_FN v16 v16_load_i8(const int8_t *p) {
    const __m512i w = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return (v16){_mm512_cvtepi32_ps(w)};
}

V16_FN v16 v16_load_e4m3(const uint8_t *p) {
    const __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i h = _mm256_and_si256(_mm256_slli_epi16(w, 7), _mm256_set1_epi16((short)0xbfff));
    return (v16){_mm512_cvtph_ps(h)};
}

#endif
