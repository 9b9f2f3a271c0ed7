/* AVX-512 intrinsics on top of SIMDe for the emulated test build, and those that its version 0.7.4 lacks, made of two
 * 256-bit halves. Only tests include this, through src/kern/avx512/avx512.h. */
#ifndef TESTS_KERN_AVX512_MISSING_H
#define TESTS_KERN_AVX512_MISSING_H

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <immintrin.h>

static inline simde__m512i avx512_join(__m256i lo, __m256i hi) {
    simde__m512i r;
    memcpy(&r, &lo, 32);
    memcpy((char *)&r + 32, &hi, 32);
    return r;
}

static inline __m256i avx512_half(simde__m512i v, int i) {
    __m256i r;
    memcpy(&r, (const char *)&v + 32 * i, 32);
    return r;
}

static inline simde__m512 avx512_join_ps(__m256 lo, __m256 hi) {
    simde__m512 r;
    memcpy(&r, &lo, 32);
    memcpy((char *)&r + 32, &hi, 32);
    return r;
}

#define _mm512_cvtph_ps(v) avx512_cvtph(v)
#define _mm512_cvtepi32_ps(v)                                                                                          \
    avx512_join_ps(_mm256_cvtepi32_ps(avx512_half(v, 0)), _mm256_cvtepi32_ps(avx512_half(v, 1)))
#define _mm512_cvtepu8_epi32(v) avx512_join(_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)))
#define _mm512_cvtepi8_epi32(v) avx512_join(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)))
#define _mm512_cvtepu8_epi16(v)                                                                                        \
    avx512_join(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(v)), _mm256_cvtepu8_epi16(_mm256_extracti128_si256(v, 1)))
#undef _mm512_srai_epi32 /* a macro without optimisation */
#define _mm512_srai_epi32(v, n)                                                                                        \
    avx512_join(_mm256_srai_epi32(avx512_half(v, 0), n), _mm256_srai_epi32(avx512_half(v, 1), n))

static inline simde__m512 avx512_cvtph(__m256i v) {
    return avx512_join_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
}

#endif
