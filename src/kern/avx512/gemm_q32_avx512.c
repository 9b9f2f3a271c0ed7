/* Formats with blocks of 32: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4. A block's eight weight vectors are
 * unpacked once and meet every row of the tile: eight vpdpbusd, one convert, one mul, one fma per row. */
#include "kern/avx512/gemm_avx512_int.h"

GEMM_INLINE bool has_min(const enum gemm_format f) {
    return f == GEMM_Q4_1 || f == GEMM_Q5_1;
}

/* Block b of a line of binary16: 16 of them to f32. */
GEMM_INLINE __m512 halves_of(__m512i line, int64_t b) {
    return _mm512_cvtph_ps(b ? _mm512_extracti64x4_epi64(line, 1) : _mm512_castsi512_si256(line));
}

/* MXFP4 scales of block b of the unit: 2^(e - 128), NaN for 255. */
GEMM_INLINE __m512 e8m0_of(const char *unit, int64_t b) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)(const void *)(unit + 16 * b)));
    const __m512i one = _mm512_set1_epi32(1);
    __m512i x = _mm512_slli_epi32(_mm512_sub_epi32(e, one), 23);
    x = _mm512_mask_mov_epi32(x, _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255)), _mm512_set1_epi32(0x7fc00000));
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(small, _mm512_cmpgt_epi32_mask(e, one), x));
}

/* acc = fma(dot, d_w d_a, acc); then fma(m_w, d_a sum, acc). */
GEMM_INLINE void block(__m512 *acc, const char *w, const char *a, __m512 dw, __m512 mw, const int R,
                       const enum gemm_format f) {
    const int shift = gemm_bias_shift(f);
    const char *const s = a + 32 * R;
    __m512i c[8];
    gemm_unpack(c, w, f);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        __m512i t = _mm512_setzero_si512();
        if (shift) t = _mm512_slli_epi32(avx512_word(s + 4 * r), (unsigned)shift);
        GEMM_UNROLL
        for (int g = 0; g < 8; g++) t = avx512_dot_u8(t, c[g], a + 32 * r + 4 * g);
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t), _mm512_mul_ps(dw, avx512_scalar(s + 4 * R + 4 * r)), acc[r]);
        if (has_min(f)) acc[r] = _mm512_fmadd_ps(mw, avx512_scalar(s + 8 * R + 4 * r), acc[r]);
    }
}

GEMM_INLINE void tile(const struct gemm_tile *t, const int R, const enum gemm_format f) {
    const bool mx = f == GEMM_MXFP4;
    const int64_t unit_blocks = mx ? 4 : 2;
    const int head = has_min(f) ? 128 : 64, codes = 64 * (gemm_bits_lo(f) + gemm_bits_hi(f));
    const char *w = t->panel, *a = t->act;
    __m512 acc[GEMM_AVX512_ROWS];
    GEMM_UNROLL
    for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    for (int64_t n = t->k / 32, i = 0; n > 0; n -= unit_blocks, i++) {
        const char *const unit = w;
        const __m512i d = avx512_load(w), m = has_min(f) ? avx512_load(w + 64) : d;
        w += head;
        for (int64_t b = 0; b < unit_blocks && b < n; b++, w += codes, a += R * GEMM_ACT32_BYTES)
            block(acc, w, a, mx ? e8m0_of(unit, b) : halves_of(d, b), halves_of(m, b), R, f);
        if (R > 4 && i % (8 / unit_blocks) == 0) gemm_ahead(t, i / (8 / unit_blocks));
    }
    GEMM_UNROLL
    for (int r = 0; r < R; r++) _mm512_storeu_ps(t->y + r * t->ldy, acc[r]);
}

#define FORMAT(F)                                                                                                      \
    GEMM_AVX512_TILES(F, tile)                                                                                         \
    GEMM_PACKING(F, GEMM_AVX512_PANEL)                                                                                 \
    GEMM_RUN(F, GEMM_AVX512_PANEL, GEMM_AVX512_ROWS, GEMM_LAYOUT_Q8_32)

FORMAT(Q8_0)
FORMAT(Q4_0)
FORMAT(Q4_1)
FORMAT(Q5_0)
FORMAT(Q5_1)
FORMAT(IQ4_NL)
FORMAT(MXFP4)

#define ENTRY(F) table[GEMM_##F] = GEMM_ENTRY("avx512", F, GEMM_AVX512_PANEL, GEMM_ACT_Q8_32, GEMM_LAYOUT_Q8_32)

void gemm_q32_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    ENTRY(Q8_0);
    ENTRY(Q4_0);
    ENTRY(Q4_1);
    ENTRY(Q5_0);
    ENTRY(Q5_1);
    ENTRY(IQ4_NL);
    ENTRY(MXFP4);
}
