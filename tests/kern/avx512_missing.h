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

/* vdpbf16ps on one half: fmas with denormals flushed, as the instruction works whatever MXCSR says, are what SSE does
 * when MXCSR says so. One piece of assembly, because compilers do not know that fmas depend on MXCSR. */
static inline __m256 avx512_dpbf16_half(__m256 acc, __m256i w, __m256i a) {
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
    const unsigned old = _mm_getcsr(), flush = 0x9fc0; /* FTZ, DAZ, no exceptions, to nearest */
    __asm__ volatile("vldmxcsr %[flush]\n\t"
                     "vfmadd231ps %[w_odd], %[a_odd], %[acc]\n\t"
                     "vfmadd231ps %[w_even], %[a_even], %[acc]\n\t"
                     "vldmxcsr %[old]"
                     : [acc] "+x"(acc)
                     : [flush] "m"(flush), [old] "m"(old), [w_odd] "x"(_mm256_and_si256(w, upper)),
                       [a_odd] "x"(_mm256_and_si256(a, upper)), [w_even] "x"(_mm256_slli_epi32(w, 16)),
                       [a_even] "x"(_mm256_slli_epi32(a, 16)));
    return acc;
}

static inline simde__m512 avx512_dpbf16(simde__m512 acc, simde__m512i w, simde__m512i a) {
    const __m256 lo = _mm256_castsi256_ps(avx512_half(simde_mm512_castps_si512(acc), 0));
    const __m256 hi = _mm256_castsi256_ps(avx512_half(simde_mm512_castps_si512(acc), 1));
    return avx512_join_ps(avx512_dpbf16_half(lo, avx512_half(w, 0), avx512_half(a, 0)),
                          avx512_dpbf16_half(hi, avx512_half(w, 1), avx512_half(a, 1)));
}

#endif
