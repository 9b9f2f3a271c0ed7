/* Sixteen f32 lanes as two AVX2 registers: the vocabulary of kern/elem_simd.h and kern/attn_simd.h.
 * Every operation is lane by lane; the fixed sums go over the tree (i + i+8), (+4), (+2), (+1).
 * Threads: pure functions. */
#ifndef KERN_AVX2_MATH_AVX2_H
#define KERN_AVX2_MATH_AVX2_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "base/attr.h"
#include "kern/math_coef.h"

#define V16_ISA "avx2"

/* Attention: rows of a tile, and columns of 16 that a tile of r rows handles at a time, so that the
 * accumulators (2 registers each) leave room for operands in 16 registers. */
#define V16_TILE_ROWS 6
#define V16_TILE_COLS(r) ((r) == 1 ? 4 : (r) <= 3 ? 2 : 1)
#define V16_TILE_ACC 6 /* most rows * columns of a tile */

/* Before a loop of at most 8 constant rounds: its accumulators must become registers. */
#ifdef __clang__
#define V16_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V16_UNROLL _Pragma("GCC unroll 8")
#endif

#define V16_FN static inline ATTR_ALWAYS_INLINE

typedef struct {
    __m256 a, b; /* lanes 0..7, 8..15 */
} v16;

/* Asks for the cache line of p; p may be anything. */
V16_FN void v16_prefetch(const char *p) { _mm_prefetch(p, _MM_HINT_T0); }

V16_FN v16 v16_set1(float x) { return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
V16_FN v16 v16_load(const float *p) { return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }

V16_FN void v16_store(float *p, v16 x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

V16_FN v16 v16_add(v16 x, v16 y) { return (v16){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
V16_FN v16 v16_sub(v16 x, v16 y) { return (v16){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
V16_FN v16 v16_mul(v16 x, v16 y) { return (v16){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
V16_FN v16 v16_div(v16 x, v16 y) { return (v16){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }

/* x > y ? x : y: y when either is NaN. */
V16_FN v16 v16_max(v16 x, v16 y) { return (v16){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }

/* x * y + z, one rounding. */
V16_FN v16 v16_fma(v16 x, v16 y, v16 z) {
    return (v16){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}

/* x * y - z, one rounding. */
V16_FN v16 v16_fms(v16 x, v16 y, v16 z) {
    return (v16){_mm256_fmsub_ps(x.a, y.a, z.a), _mm256_fmsub_ps(x.b, y.b, z.b)};
}

/* x * y - z in even lanes, x * y + z in odd ones. */
V16_FN v16 v16_fmaddsub(v16 x, v16 y, v16 z) {
    return (v16){_mm256_fmaddsub_ps(x.a, y.a, z.a), _mm256_fmaddsub_ps(x.b, y.b, z.b)};
}

/* Swaps the lanes of each pair (2i, 2i + 1). */
V16_FN v16 v16_swap_pairs(v16 x) {
    return (v16){_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)};
}

/* Lane i gets lane i / 2 (the lower 8 lanes, each twice). */
V16_FN v16 v16_twice_low(v16 x) {
    const __m256i lo = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), hi = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    return (v16){_mm256_permutevar8x32_ps(x.a, lo), _mm256_permutevar8x32_ps(x.a, hi)};
}

/* All bits of the lanes from .. to - 1, zero elsewhere; offset: the first lane of this register. */
V16_FN __m256i v16_range8(int from, int to, int offset) {
    const __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(from - offset), i),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(to - offset), i));
}

/* The first n (0..16) elements at p, zero above; touches no byte behind them. */
V16_FN v16 v16_load_n(const float *p, int n) {
    return (v16){_mm256_maskload_ps(p, v16_range8(0, n, 0)), _mm256_maskload_ps(p + 8, v16_range8(0, n, 8))};
}

V16_FN void v16_store_n(float *p, v16 x, int n) {
    _mm256_maskstore_ps(p, v16_range8(0, n, 0), x.a);
    _mm256_maskstore_ps(p + 8, v16_range8(0, n, 8), x.b);
}

/* Lanes from .. to - 1 of x, the others of y. */
V16_FN v16 v16_range(v16 x, int from, int to, v16 y) {
    return (v16){_mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(v16_range8(from, to, 0))),
                 _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(v16_range8(from, to, 8)))};
}

/* Bit i: lane i of x >= that of y. */
V16_FN uint32_t v16_ge(v16 x, v16 y) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_GE_OQ)) |
           (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_GE_OQ)) << 8;
}

V16_FN uint32_t v16_eq(v16 x, v16 y) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ)) |
           (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)) << 8;
}

V16_FN float v16_first(v16 x) { return _mm_cvtss_f32(_mm256_castps256_ps128(x.a)); }

V16_FN float v16_sum(v16 x) {
    const __m256 t = _mm256_add_ps(x.a, x.b);
    const __m128 u = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    const __m128 w = _mm_add_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_add_ss(w, _mm_movehdup_ps(w)));
}

/* Largest lane; lanes must not be NaN. */
V16_FN float v16_max_lane(v16 x) {
    const __m256 t = _mm256_max_ps(x.a, x.b);
    const __m128 u = _mm_max_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    const __m128 w = _mm_max_ps(u, _mm_movehl_ps(u, u));
    return _mm_cvtss_f32(_mm_max_ss(w, _mm_movehdup_ps(w)));
}

/* kern/math_coef.h has the definition. */
V16_FN __m256 v16_exp8_low(__m256 x) {
    const __m256 magic = _mm256_set1_ps(MATH_ROUND), one = _mm256_set1_ps(1.0f);
    const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(MATH_LOG2E), magic), n = _mm256_sub_ps(t, magic);
    const __m256 s = _mm256_fmadd_ps(n, _mm256_set1_ps(-MATH_LN2_HI), x);
    const __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-MATH_LN2_LO), s);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(MATH_EXP_C6), r, _mm256_set1_ps(MATH_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(MATH_EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    const __m256 keep = _mm256_cmp_ps(x, _mm256_set1_ps(MATH_EXP_LO), _CMP_NLT_UQ);
    return _mm256_and_ps(_mm256_castsi256_ps(bits), keep);
}

V16_FN __m256 v16_exp8(__m256 x) {
    const __m256 big = _mm256_cmp_ps(x, _mm256_set1_ps(MATH_EXP_HI), _CMP_NLE_UQ);
    return _mm256_blendv_ps(v16_exp8_low(x), _mm256_mul_ps(x, _mm256_set1_ps(INFINITY)), big);
}

V16_FN v16 v16_exp(v16 x) { return (v16){v16_exp8(x.a), v16_exp8(x.b)}; }

/* The same for x <= 0, without the care for large ones. */
V16_FN v16 v16_exp_low(v16 x) { return (v16){v16_exp8_low(x.a), v16_exp8_low(x.b)}; }

/* Zero in the lanes where y < limit, else x. */
V16_FN v16 v16_unless_below(v16 x, v16 y, v16 limit) {
    return (v16){_mm256_and_ps(x.a, _mm256_cmp_ps(y.a, limit.a, _CMP_NLT_UQ)),
                 _mm256_and_ps(x.b, _mm256_cmp_ps(y.b, limit.b, _CMP_NLT_UQ))};
}

/* Sixteen doubles, for sums. */
typedef struct {
    __m256d q[4];
} d16;

V16_FN d16 d16_zero(void) {
    const __m256d z = _mm256_setzero_pd();
    return (d16){{z, z, z, z}};
}

V16_FN d16 d16_add(d16 s, v16 x) {
    s.q[0] = _mm256_add_pd(s.q[0], _mm256_cvtps_pd(_mm256_castps256_ps128(x.a)));
    s.q[1] = _mm256_add_pd(s.q[1], _mm256_cvtps_pd(_mm256_extractf128_ps(x.a, 1)));
    s.q[2] = _mm256_add_pd(s.q[2], _mm256_cvtps_pd(_mm256_castps256_ps128(x.b)));
    s.q[3] = _mm256_add_pd(s.q[3], _mm256_cvtps_pd(_mm256_extractf128_ps(x.b, 1)));
    return s;
}

V16_FN double d16_sum(d16 s) {
    const __m256d t = _mm256_add_pd(_mm256_add_pd(s.q[0], s.q[2]), _mm256_add_pd(s.q[1], s.q[3]));
    const __m128d u = _mm_add_pd(_mm256_castpd256_pd128(t), _mm256_extractf128_pd(t, 1));
    return _mm_cvtsd_f64(_mm_add_sd(u, _mm_unpackhi_pd(u, u)));
}

/* Sixteen cache elements as f32: bf16, int8 codes, and e4m3 codes times 2^-8 (as f16 bits). */
V16_FN v16 v16_load_bf16(const uint16_t *p) {
    const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i hi = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)));
    return (v16){_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}

V16_FN v16 v16_load_i8(const int8_t *p) {
    const __m256i lo = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    const __m256i hi = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(p + 8)));
    return (v16){_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi)};
}

V16_FN v16 v16_load_e4m3(const uint8_t *p) {
    const __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i h = _mm256_and_si256(_mm256_slli_epi16(w, 7), _mm256_set1_epi16((short)0xbfff));
    return (v16){_mm256_cvtph_ps(_mm256_castsi256_si128(h)), _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1))};
}

#endif
