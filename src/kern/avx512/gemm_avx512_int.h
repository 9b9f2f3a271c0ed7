/* Shared by the gemm files of this folder. vpdpbusd takes unsigned weights of any width, so every format becomes eight
 * vectors of u8 per 32-block (one per k-group of 4) and a bias, which starts each dot as (-sum a) << shift. */
#ifndef KERN_AVX512_GEMM_AVX512_INT_H
#define KERN_AVX512_GEMM_AVX512_INT_H

#include "kern/avx512/avx512.h"
#include "kern/gemm_run_int.h"

enum { GEMM_AVX512_ROWS = 8, GEMM_AVX512_PANEL = 16 };

GEMM_INLINE __m512i gemm_and8(__m512i v, const char mask) {
    return _mm512_and_si512(v, _mm512_set1_epi8(mask));
}

/* Bytes shifted left by n >= 0 or right by -n, then masked, which also removes what came from the neighbour byte. */
GEMM_INLINE __m512i gemm_move(__m512i v, const int n, const char mask) {
    if (n > 0) return gemm_and8(_mm512_slli_epi16(v, (unsigned)n), mask);
    return gemm_and8(n < 0 ? _mm512_srli_epi16(v, (unsigned)-n) : v, mask);
}

/* value + 128 of IQ4_NL and IQ4_XS, value + 16 of MXFP4, for vpshufb. */
static const uint8_t gemm_iq4_codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t gemm_mxfp4_codes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

GEMM_INLINE __m512i gemm_lookup(const uint8_t table[16], __m512i index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)table)), index);
}

/* The formats' bits: see kern/gemm_layout.h. */
GEMM_INLINE int gemm_bits_lo(const enum gemm_format f) {
    return f == GEMM_Q8_0 ? 8 : f == GEMM_Q2_K || f == GEMM_Q3_K ? 2 : 4;
}
GEMM_INLINE int gemm_bits_hi(const enum gemm_format f) {
    return f == GEMM_Q6_K ? 2 : f == GEMM_Q5_0 || f == GEMM_Q5_1 || f == GEMM_Q5_K || f == GEMM_Q3_K ? 1 : 0;
}

/* log2 of the bias of the u8 codes, 0: none. */
GEMM_INLINE int gemm_bias_shift(const enum gemm_format f) {
    switch (f) {
    case GEMM_Q8_0:
    case GEMM_IQ4_NL:
    case GEMM_IQ4_XS: return 7;
    case GEMM_Q6_K: return 5;
    case GEMM_Q5_0:
    case GEMM_MXFP4: return 4;
    case GEMM_Q4_0: return 3;
    case GEMM_Q3_K: return 2;
    default: return 0;
    }
}

/* Low bits of the 8 k-groups. */
GEMM_INLINE void gemm_unpack_lo(__m512i w[8], const char *p, const enum gemm_format f) {
    const int bits = gemm_bits_lo(f);
    GEMM_UNROLL
    for (int i = 0; i < bits; i++) {
        const __m512i v = avx512_load(p + 64 * i);
        if (bits == 8)
            w[i] = v;
        else if (bits == 4) {
            w[i] = gemm_and8(v, 15);
            w[i + 4] = gemm_move(v, -4, 15);
        } else {
            w[4 * i] = gemm_and8(v, 3);
            w[4 * i + 1] = gemm_move(v, -2, 3);
            w[4 * i + 2] = gemm_move(v, -4, 3);
            w[4 * i + 3] = gemm_move(v, -6, 3);
        }
    }
}

/* The 32-block at p as u8 codes plus bias. */
GEMM_INLINE void gemm_unpack(__m512i w[8], const char *p, const enum gemm_format f) {
    const int lo = gemm_bits_lo(f), hi = gemm_bits_hi(f);
    __m512i h[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    GEMM_UNROLL
    for (int i = 0; i < hi; i++) h[i] = avx512_load(p + 64 * i);
    gemm_unpack_lo(w, p + 64 * hi, f);
    GEMM_UNROLL
    for (int g = 0; g < 8; g++) {
        if (hi == 1) w[g] = _mm512_or_si512(w[g], gemm_move(h[0], lo - g, (char)(1 << lo)));
        if (hi == 2) w[g] = _mm512_or_si512(w[g], gemm_move(h[g / 4], lo - 2 * (g % 4), (char)(3 << lo)));
        if (f == GEMM_IQ4_NL || f == GEMM_IQ4_XS) w[g] = gemm_lookup(gemm_iq4_codes, w[g]);
        if (f == GEMM_MXFP4) w[g] = gemm_lookup(gemm_mxfp4_codes, w[g]);
    }
}

GEMM_INLINE void gemm_ahead(const struct gemm_tile *t, int64_t i) {
    const char *p = t->ahead;
    if (!p) return;
    p += (size_t)i * t->ahead_step;
    for (size_t b = 0; b < t->ahead_step; b += 64) _mm_prefetch(p + b, _MM_HINT_T1);
}

/* The kernels of one file put themselves into the table. */
void gemm_float_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_q32_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_kquant_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]);

/* Row counts 1..8 of one inline function TILE(t, R, format). */
#define GEMM_AVX512_TILES(F, TILE)                                                                                     \
    static void tile1_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 1, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static void tile2_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 2, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static void tile3_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 3, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static void tile4_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 4, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static void tile5_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 5, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static void tile6_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 6, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static void tile7_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 7, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static void tile8_##F(const struct gemm_tile *t) {                                                                 \
        TILE(t, 8, GEMM_##F);                                                                                          \
    }                                                                                                                  \
    static gemm_tile_fn *const tiles_##F[GEMM_AVX512_ROWS] = {tile1_##F, tile2_##F, tile3_##F, tile4_##F,              \
                                                              tile5_##F, tile6_##F, tile7_##F, tile8_##F};

#endif
