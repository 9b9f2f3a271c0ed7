/* Shared by the gemm files of this folder: small loads, and the table entry of a format. */
#ifndef KERN_AVX2_GEMM_AVX2_INT_H
#define KERN_AVX2_GEMM_AVX2_INT_H

#include <immintrin.h>

#include "kern/gemm_run_int.h"

enum { GEMM_AVX2_ROWS = 6, GEMM_AVX2_PANEL = 8, GEMM_AVX2_PANEL_FLOAT = 16 };

GEMM_INLINE __m256i gemm_load(const char *p) {
    return _mm256_load_si256((const __m256i *)(const void *)p);
}

GEMM_INLINE __m128i gemm_load128(const char *p) {
    return _mm_load_si128((const __m128i *)(const void *)p);
}

/* The 32-bit word at any address, in all lanes. */
GEMM_INLINE __m256i gemm_word(const char *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

GEMM_INLINE __m256 gemm_scalar(const char *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_ps(x);
}

GEMM_INLINE __m256 gemm_halves(const char *p) {
    return _mm256_cvtph_ps(gemm_load128(p));
}

/* Low and high nibbles of all bytes. */
GEMM_INLINE __m256i gemm_low4(__m256i v) {
    return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
GEMM_INLINE __m256i gemm_high4(__m256i v) {
    return gemm_low4(_mm256_srli_epi16(v, 4));
}

/* Bits `from` and up of every byte, moved to bit `to`, under a mask. */
GEMM_INLINE __m256i gemm_bits(__m256i v, const int from, const int to, const int mask) {
    const __m256i at = from > to   ? _mm256_srli_epi16(v, from - to)
                       : from < to ? _mm256_slli_epi16(v, to - from)
                                   : v;
    return _mm256_and_si256(at, _mm256_set1_epi8((char)mask));
}

/* acc += 16-bit sums of pairs of u8 w times s8 a. In assembly, because compilers reassociate the exact sums of a row,
 * which costs registers and moves: 53 instead of 49 cycles a block of six rows on Zen 3. */
GEMM_INLINE __m256i gemm_dot16(__m256i acc, __m256i w, __m256i a) {
    __asm__("vpmaddubsw %1, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(acc), "+x"(a) : "x"(w));
    return acc;
}

/* Few rows wait for memory: the stream's own lines 2 KiB ahead, on top of what the hardware fetches (Zen 3 reads 20
 * instead of 16 GB/s a core). Called for the few lines at w that are read next, because a burst of more than 24 waits
 * for free miss buffers: a tenth of a K-quant's rate. */
GEMM_INLINE void gemm_ahead_near(const char *w, const int bytes, const int R) {
    if (R > 4) return;
    for (int b = 0; b < bytes; b += 64) _mm_prefetch(w + 2048 + b, _MM_HINT_T0);
}

/* More rows: the next panel into L2, spread over this one; `part` counts 256s of K. */
GEMM_INLINE void gemm_ahead_next(const struct gemm_tile *t, int64_t part, const int R) {
    if (R <= 4 || !t->ahead) return;
    const char *const p = t->ahead + (size_t)part * t->ahead_step;
    for (size_t b = 0; b < t->ahead_step; b += 64) _mm_prefetch(p + b, _MM_HINT_T1);
}

/* The values of IQ4_NL and IQ4_XS, for vpshufb. */
static const int8_t gemm_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

GEMM_INLINE __m256i gemm_lookup(const int8_t table[16], __m256i index) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)table)),
                               index);
}

/* value + 16 of MXFP4. */
static const int8_t gemm_mxfp4_code[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

/* Runs STEP for g = 0 .. N-1: unrolled for one row; rolled for more, where unrolled code hoists loads and spills. */
#define GEMM_GROUPS(R, N, STEP)                                                                                        \
    if ((R) == 1) {                                                                                                    \
        GEMM_UNROLL                                                                                                    \
        for (int g = 0; g < (N); g++) STEP;                                                                            \
    } else {                                                                                                           \
        GEMM_ROLLED                                                                                                    \
        for (int g = 0; g < (N); g++) STEP;                                                                            \
    }

/* The 16-bit sums of R rows of a 32-block. Sums of one format: t0 alone, or t0 and t1. */
struct gemm_sums {
    __m256i t0[GEMM_AVX2_ROWS], t1[GEMM_AVX2_ROWS];
};

GEMM_INLINE void gemm_sums_zero(struct gemm_sums *s, const int R) {
    GEMM_UNROLL
    for (int r = 0; r < R; r++) s->t0[r] = s->t1[r] = _mm256_setzero_si256();
}

/* Starts t0 at the bias of the weights, 8 or 16, times the negated sums: pairs are those of 8. */
GEMM_INLINE void gemm_sums_bias(struct gemm_sums *s, const char *pairs, const int bias, const int R) {
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        const __m256i eight = gemm_word(pairs + 4 * r);
        s->t0[r] = bias == 8 ? eight : _mm256_add_epi16(eight, eight);
        s->t1[r] = _mm256_setzero_si256();
    }
}

/* acc += factor * dot in 32 bits for signed weights of one k-group and the words at a + 32 r. vpmaddubsw saturates with
 * weights of 8 unsigned bits, so the sign moves to the activation: |w| <= 128 is safe. factor: 16-bit, in all lanes of
 * an output. */
GEMM_INLINE void gemm_step_signed(__m256i *acc, __m256i w, __m256i factor, const char *a, const int R) {
    const __m256i u = _mm256_abs_epi8(w);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        const __m256i x = _mm256_sign_epi8(gemm_word(a + 32 * r), w);
        acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(_mm256_maddubs_epi16(u, x), factor));
    }
}

GEMM_INLINE void gemm_step_iq4(__m256i *acc, __m256i v, __m256i factor, const char *a, const int R) {
    gemm_step_signed(acc, gemm_lookup(gemm_iq4_values, gemm_low4(v)), factor, a, R);
    gemm_step_signed(acc, gemm_lookup(gemm_iq4_values, gemm_high4(v)), factor, a + 16, R);
}

/* The 32-block of IQ4_NL or IQ4_XS at w: acc += factor * dot. */
GEMM_INLINE void gemm_dots_iq4(__m256i *acc, const char *w, __m256i factor, const char *a, const int R) {
    GEMM_GROUPS(R, 4, gemm_step_iq4(acc, gemm_load(w + 32 * g), factor, a + 4 * g, R))
}

enum gemm_nibbles { GEMM_NIBBLES_4, GEMM_NIBBLES_5, GEMM_NIBBLES_MXFP4 };

/* Vector g of nibbles, k-groups g and g + 4, whose fifth bits are bits g and g + 4 of qh. All in t0, or the second
 * group in t1. */
GEMM_INLINE void gemm_step_q4(struct gemm_sums *s, __m256i v, __m256i qh, const char *a, const int R,
                              const enum gemm_nibbles kind, const bool two, const int g) {
    __m256i lo = gemm_low4(v), hi = gemm_high4(v);
    if (kind == GEMM_NIBBLES_5) {
        lo = _mm256_or_si256(lo, gemm_bits(qh, g, 4, 16));
        hi = _mm256_or_si256(hi, gemm_bits(qh, g + 4, 4, 16));
    }
    if (kind == GEMM_NIBBLES_MXFP4) {
        lo = gemm_lookup(gemm_mxfp4_code, lo);
        hi = gemm_lookup(gemm_mxfp4_code, hi);
    }
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        s->t0[r] = gemm_dot16(s->t0[r], lo, gemm_word(a + 32 * r));
        __m256i *const t = two ? &s->t1[r] : &s->t0[r];
        *t = gemm_dot16(*t, hi, gemm_word(a + 32 * r + 16));
    }
}

/* The 32-block at w. */
GEMM_INLINE void gemm_dots_q4(struct gemm_sums *s, const char *w, const char *a, const int R,
                              const enum gemm_nibbles kind, const bool two) {
    const __m256i qh = kind == GEMM_NIBBLES_5 ? gemm_load(w) : _mm256_setzero_si256();
    if (kind == GEMM_NIBBLES_5) {
        w += 32;
        gemm_step_q4(s, gemm_load(w), qh, a, R, kind, two, 0);
        gemm_step_q4(s, gemm_load(w + 32), qh, a + 4, R, kind, two, 1);
        gemm_step_q4(s, gemm_load(w + 64), qh, a + 8, R, kind, two, 2);
        gemm_step_q4(s, gemm_load(w + 96), qh, a + 12, R, kind, two, 3);
    } else
        GEMM_GROUPS(R, 4, gemm_step_q4(s, gemm_load(w + 32 * g), qh, a + 4 * g, R, kind, two, 0))
}

/* The kernels of one file put themselves into the table. */
void gemm_float_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_q32_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_kquant_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]);

/* Row counts 1..6 of one inline function TILE(t, R, format). */
#define GEMM_AVX2_TILES(F, TILE)                                                                                       \
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
    static gemm_tile_fn *const tiles_##F[GEMM_AVX2_ROWS] = {tile1_##F, tile2_##F, tile3_##F,                           \
                                                            tile4_##F, tile5_##F, tile6_##F};

#endif
