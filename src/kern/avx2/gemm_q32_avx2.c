/* Formats with blocks of 32: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4. vpmaddubsw wants unsigned weights and
 * saturates:
 *     u4            all 8 k-groups in one 16-bit sum      16 products * 15 * 127 = 30,480
 *     u5 - 16, FP4  the same: the sum may wrap on its way  16 * 16 * 127 = 32,512
 *     u5            4 k-groups in each of two sums        8 * 31 * 127 = 31,496
 *     8 bits        the sign moves to the activation, 32-bit sums
 * A 16-bit sum starts at the bias of its codes, times the negated sums of the activations that it will meet. */
#include "kern/avx2/gemm_avx2_int.h"

#include "quant/blocks.h"

struct q32_kind {
    int bits;  /* low bits stored per code, 8 or 4 */
    bool qh;   /* a vector of fifth bits precedes the nibbles */
    bool wide; /* 32-bit sums of signed weights */
    bool two;  /* two 16-bit sums per row */
    bool min;
    int bias;  /* of codes that meet in one 16-bit sum, 0: none */
};

GEMM_INLINE struct q32_kind kind_of(const enum gemm_format f) {
    return (struct q32_kind){
        .bits = f == GEMM_Q8_0 ? 8 : 4,
        .qh = f == GEMM_Q5_0 || f == GEMM_Q5_1,
        .wide = f == GEMM_Q8_0 || f == GEMM_IQ4_NL,
        .two = f == GEMM_Q5_1,
        .min = f == GEMM_Q4_1 || f == GEMM_Q5_1,
        .bias = f == GEMM_Q4_0 ? 8 : f == GEMM_Q5_0 || f == GEMM_MXFP4 ? 16 : 0,
    };
}

/* The scales of block b of the unit. MXFP4: 2^(e - 128), NaN for 255. */
GEMM_INLINE __m256 scale_of(const char *unit, int b, const enum gemm_format f) {
    if (f != GEMM_MXFP4) return gemm_halves(unit + 16 * b);
    int64_t e8;
    memcpy(&e8, unit + 8 * b, sizeof e8);
    const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(e8)), one = _mm256_set1_epi32(1);
    const __m256i nan = _mm256_srli_epi32(_mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)), 1);
    const __m256i normal = _mm256_or_si256(nan, _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23));
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, _mm256_cmpgt_epi32(e, one)));
}

GEMM_INLINE void step_q8(struct gemm_sums *s, __m256i v, const char *a, const int R) {
    const __m256i w = _mm256_xor_si256(v, _mm256_set1_epi8((char)128));
    gemm_step_signed(s->t0, w, _mm256_set1_epi16(1), a, R);
}

/* pairs: of the same rows. */
GEMM_INLINE void dots(struct gemm_sums *s, const char *w, const char *a, const char *pairs, const int R,
                      const enum gemm_format f) {
    const struct q32_kind kd = kind_of(f);
    if (kd.bias) gemm_sums_bias(s, pairs, kd.bias, R);
    else gemm_sums_zero(s, R);
    if (f == GEMM_Q8_0) {
        GEMM_GROUPS(R, 8, step_q8(s, gemm_load(w + 32 * g), a + 4 * g, R))
    } else if (f == GEMM_IQ4_NL)
        gemm_dots_iq4(s->t0, w, _mm256_set1_epi16(1), a, R);
    else if (f == GEMM_MXFP4)
        gemm_dots_q4(s, w, a, R, GEMM_NIBBLES_MXFP4, false);
    else
        gemm_dots_q4(s, w, a, R, kd.qh ? GEMM_NIBBLES_5 : GEMM_NIBBLES_4, kd.two);
}

/* acc = fma(dot, d_w d_a, acc) of rows r0 .. r1-1 of a block; then fma(m_w, d_a sum, acc). */
GEMM_INLINE void rows(__m256 *acc, const char *w, const char *a, __m256 dw, __m256 mw, const int r0, const int r1,
                      const int R, const enum gemm_format f) {
    const struct q32_kind kd = kind_of(f);
    struct gemm_sums t;
    const char *const s = a + 32 * R;
    dots(&t, w, a + 32 * r0, s + 12 * R + 4 * r0, r1 - r0, f);
    GEMM_UNROLL
    for (int r = r0; r < r1; r++) {
        __m256i x = kd.wide ? t.t0[r - r0] : _mm256_madd_epi16(t.t0[r - r0], _mm256_set1_epi16(1));
        if (kd.two) x = _mm256_add_epi32(x, _mm256_madd_epi16(t.t1[r - r0], _mm256_set1_epi16(1)));
        acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(x), _mm256_mul_ps(dw, gemm_scalar(s + 4 * R + 4 * r)), acc[r]);
        if (kd.min) acc[r] = _mm256_fmadd_ps(mw, gemm_scalar(s + 8 * R + 4 * r), acc[r]);
    }
}

/* Two sums a row leave registers for three rows; reading the codes twice from L1 is cheaper than spilling. */
GEMM_INLINE void block(__m256 *acc, const char *w, const char *a, __m256 dw, __m256 mw, const int R,
                       const enum gemm_format f) {
    const int half = kind_of(f).two && R > 4 ? 3 : R;
    rows(acc, w, a, dw, mw, 0, half, R, f);
    if (half < R) rows(acc, w, a, dw, mw, half, R, R, f);
}

GEMM_INLINE void tile(const struct gemm_tile *t, const int R, const enum gemm_format f) {
    const struct q32_kind kd = kind_of(f);
    const int unit_blocks = f == GEMM_MXFP4 ? 4 : 2, unit_parts = 8 / unit_blocks;
    const int head = kd.min ? 64 : 32, codes = 32 * (kd.bits + kd.qh);
    const char *w = t->panel, *a = t->act;
    __m256 acc[GEMM_AVX2_ROWS];
    GEMM_UNROLL
    for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
    for (int64_t n = t->k / 32, i = 0; n > 0; n -= unit_blocks, i++) {
        const char *const unit = w;
        gemm_ahead_near(w, head, R);
        if (i % unit_parts == 0) gemm_ahead_next(t, i / unit_parts, R);
        w += head;
        for (int b = 0; b < unit_blocks && b < n; b++) {
            const __m256 mw = kd.min ? gemm_halves(unit + 32 + 16 * b) : _mm256_setzero_ps();
            gemm_ahead_near(w, codes, R);
            block(acc, w, a, scale_of(unit, b, f), mw, R, f);
            w += codes;
            a += R * GEMM_ACT32_BYTES;
        }
    }
    GEMM_UNROLL
    for (int r = 0; r < R; r++) _mm256_storeu_ps(t->y + r * t->ldy, acc[r]);
}

#define FORMAT(F)                                                                                                      \
    GEMM_AVX2_TILES(F, tile)                                                                                           \
    GEMM_PACKING(F, GEMM_AVX2_PANEL)                                                                                   \
    GEMM_RUN(F, GEMM_AVX2_PANEL, GEMM_AVX2_ROWS, GEMM_LAYOUT_Q8_32)

FORMAT(Q8_0)
FORMAT(Q4_0)
FORMAT(Q4_1)
FORMAT(Q5_0)
FORMAT(Q5_1)
FORMAT(IQ4_NL)
FORMAT(MXFP4)

#define ENTRY(F) table[GEMM_##F] = GEMM_ENTRY("avx2", F, GEMM_AVX2_PANEL, GEMM_ACT_Q8_32, GEMM_LAYOUT_Q8_32)

void gemm_q32_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    ENTRY(Q8_0);
    ENTRY(Q4_0);
    ENTRY(Q4_1);
    ENTRY(Q5_0);
    ENTRY(Q5_1);
    ENTRY(IQ4_NL);
    ENTRY(MXFP4);
}
