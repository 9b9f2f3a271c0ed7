/* The 512-bit intrinsics of this folder, and the forms that compilers do not make by themselves. With
 * XENON_EMULATE_AVX512 the same sources compile for AVX2 on top of SIMDe, so that the logic of these kernels can be
 * tested on a CPU without AVX-512; avx512_missing.h (tests/kern) adds what SIMDe lacks. */
#ifndef KERN_AVX512_AVX512_H
#define KERN_AVX512_AVX512_H

#include <stdint.h>
#include <string.h>

#include "base/attr.h"

#ifdef XENON_EMULATE_AVX512
#include "../tests/kern/avx512_missing.h" /* from -Isrc */
#include "../tests/kern/avx512_missing_f32.h"
#else
#include <immintrin.h>
#endif

/* The 32-bit word at any address, in all lanes. */
static inline ATTR_ALWAYS_INLINE __m512i avx512_word(const char *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

static inline ATTR_ALWAYS_INLINE __m512 avx512_scalar(const char *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_ps(x);
}

#ifdef XENON_EMULATE_AVX512

static ATTR_NOINLINE ATTR_UNUSED __m512i avx512_load(const char *p) {
    return _mm512_load_si512((const void *)p);
}
static ATTR_NOINLINE ATTR_UNUSED __m512i avx512_dot_u8(__m512i acc, __m512i w, const char *a) {
    return _mm512_dpbusd_epi32(acc, w, avx512_word(a));
}
static ATTR_NOINLINE ATTR_UNUSED __m512i avx512_dot_i16(__m512i acc, __m512i w, const char *a) {
    return _mm512_dpwssd_epi32(acc, w, avx512_word(a));
}
static ATTR_NOINLINE ATTR_UNUSED __m512 avx512_dot_bf16(__m512 acc, __m512i w, const char *a) {
    return avx512_dpbf16(acc, w, avx512_word(a));
}

#else

/* Memory operands: members of type char may alias anything. */
struct avx512_line {
    char bytes[64];
};
struct avx512_bytes {
    char bytes[4];
};

/* Loads in program order: compilers move plain loads, and lines touched out of address order cost the stream. */
static inline ATTR_ALWAYS_INLINE __m512i avx512_load(const char *p) {
    __m512i x;
    __asm__ volatile("vmovdqa64 %1, %0" : "=v"(x) : "m"(*(const struct avx512_line *)(const void *)p));
    return x;
}

/* acc += u8 w times the four s8 at a, broadcast by the instruction; gcc 12 would load them apart. */
static inline ATTR_ALWAYS_INLINE __m512i avx512_dot_u8(__m512i acc, __m512i w, const char *a) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const struct avx512_bytes *)(const void *)a));
    return acc;
}

/* acc += s16 w times the two s16 at a. */
static inline ATTR_ALWAYS_INLINE __m512i avx512_dot_i16(__m512i acc, __m512i w, const char *a) {
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const struct avx512_bytes *)(const void *)a));
    return acc;
}

/* acc += bf16 w times the two bf16 at a, the odd product first; for src/kern/avx512bf16, where CPUs have it. */
static inline ATTR_ALWAYS_INLINE __m512 avx512_dot_bf16(__m512 acc, __m512i w, const char *a) {
    __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const struct avx512_bytes *)(const void *)a));
    return acc;
}

#endif
#endif
