/* More AVX-512 intrinsics that the emulation (SIMDe 0.7.4) does not have, those of the float kernels, written with
 * plain loops: a function missing_NAME and a macro _NAME each. Tests only; include it before the kernels. */
#ifndef TESTS_KERN_AVX512_MISSING_F32_H
#define TESTS_KERN_AVX512_MISSING_F32_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kern/avx512/avx512.h"

/* The lanes of a vector, read and written as an array. */
union missing_512 {
    simde__m512 ps;
    simde__m512d pd;
    simde__m512i si;
    float f32[16];
    double f64[8];
    int32_t i32[16];
};

static inline simde__m512 missing_mm512_fmaddsub_ps(simde__m512 a, simde__m512 b, simde__m512 c) {
    union missing_512 x = {.ps = a}, y = {.ps = b}, z = {.ps = c};
    for (int i = 0; i < 16; i++) x.f32[i] = fmaf(x.f32[i], y.f32[i], i & 1 ? z.f32[i] : -z.f32[i]);
    return x.ps;
}
#undef _mm512_fmaddsub_ps
#define _mm512_fmaddsub_ps missing_mm512_fmaddsub_ps

static inline simde__m256 missing_mm512_extractf32x8_ps(simde__m512 a, int half) {
    const union missing_512 x = {.ps = a};
    return simde_mm256_loadu_ps(x.f32 + 8 * half);
}
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps missing_mm512_extractf32x8_ps

/* Touches only the elements of the mask, as the instruction does. */
static inline simde__m512 missing_mm512_maskz_loadu_ps(simde__mmask16 k, const void *p) {
    union missing_512 x = {.ps = simde_mm512_setzero_ps()};
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy(&x.f32[i], (const char *)p + 4 * i, 4);
    return x.ps;
}
#undef _mm512_maskz_loadu_ps
#define _mm512_maskz_loadu_ps missing_mm512_maskz_loadu_ps

static inline void missing_mm512_mask_storeu_ps(void *p, simde__mmask16 k, simde__m512 a) {
    const union missing_512 x = {.ps = a};
    for (int i = 0; i < 16; i++)
        if (k >> i & 1) memcpy((char *)p + 4 * i, &x.f32[i], 4);
}
#undef _mm512_mask_storeu_ps
#define _mm512_mask_storeu_ps missing_mm512_mask_storeu_ps

static inline simde__m512 missing_mm512_permute_ps(simde__m512 a, int imm) {
    const union missing_512 x = {.ps = a};
    union missing_512 y = {.ps = a};
    for (int i = 0; i < 16; i++) y.f32[i] = x.f32[(i & ~3) | (imm >> (2 * (i & 3)) & 3)];
    return y.ps;
}
#undef _mm512_permute_ps
#define _mm512_permute_ps missing_mm512_permute_ps

static inline simde__m512d missing_mm512_cvtps_pd(simde__m256 a) {
    float x[8];
    union missing_512 y = {.pd = simde_mm512_setzero_pd()};
    simde_mm256_storeu_ps(x, a);
    for (int i = 0; i < 8; i++) y.f64[i] = (double)x[i];
    return y.pd;
}
#undef _mm512_cvtps_pd
#define _mm512_cvtps_pd missing_mm512_cvtps_pd

static inline simde__m512i missing_mm512_cvtepu16_epi32(simde__m256i a) {
    uint16_t x[16];
    union missing_512 y = {.ps = simde_mm512_setzero_ps()};
    simde_mm256_storeu_si256((simde__m256i *)(void *)x, a);
    for (int i = 0; i < 16; i++) y.i32[i] = x[i];
    return y.si;
}
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 missing_mm512_cvtepu16_epi32

#endif
