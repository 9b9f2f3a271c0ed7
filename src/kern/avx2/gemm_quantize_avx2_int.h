/* Quantizing activations with 256-bit vectors; the avx512 folder compiles the same source with its own flags.
 * The rule is in kern/gemm_act.h. */
#ifndef KERN_AVX2_GEMM_QUANTIZE_AVX2_INT_H
#define KERN_AVX2_GEMM_QUANTIZE_AVX2_INT_H

#include <immintrin.h>

#include "kern/gemm_run_int.h"

/* Largest bits without the sign of 8 lanes, so infinities and NaNs win. */
GEMM_INLINE int32_t gemm_quantize_max(__m256i v) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtsi128_si32(m);
}

/* 8 codes as int32: x / d clamped and rounded; keep is all ones or zero. */
GEMM_INLINE __m256i gemm_quantize_codes(const float *x, __m256 d, __m256 keep) {
    __m256 v = _mm256_div_ps(_mm256_loadu_ps(x), d);
    v = _mm256_min_ps(v, _mm256_set1_ps(127.0f)); /* a NaN becomes 127 */
    v = _mm256_max_ps(v, _mm256_set1_ps(-127.0f));
    return _mm256_cvtps_epi32(_mm256_and_ps(v, keep));
}

static inline float gemm_quantize_avx2(int8_t *q, int16_t *sum16, const float *x, int n) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < n; i += 8) {
        const __m256i v = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        max = _mm256_max_epi32(max, _mm256_and_si256(v, mask));
    }
    const int32_t bits = gemm_quantize_max(max);
    float d;
    memcpy(&d, &bits, sizeof d);
    d /= 127.0f;
    const __m256 dv = _mm256_set1_ps(d), keep = _mm256_cmp_ps(dv, _mm256_setzero_ps(), _CMP_GT_OQ);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (int i = 0; i < n; i += 32) {
        const __m256i a =
            _mm256_packs_epi32(gemm_quantize_codes(x + i, dv, keep), gemm_quantize_codes(x + i + 8, dv, keep));
        const __m256i b =
            _mm256_packs_epi32(gemm_quantize_codes(x + i + 16, dv, keep), gemm_quantize_codes(x + i + 24, dv, keep));
        const __m256i c = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
        _mm256_storeu_si256((__m256i *)(void *)(q + i), c);
        const __m256i ones = _mm256_set1_epi16(1);
        __m256i s = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), c), ones);
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
        sum16[i / 16] = (int16_t)_mm256_extract_epi32(s, 0);
        sum16[i / 16 + 1] = (int16_t)_mm256_extract_epi32(s, 4);
    }
    return d;
}

#endif
