/* Formats with blocks of 32: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4. Two k-groups at a time are unpacked into four
 * registers and meet every row of the tile; a row's dots and accumulators are two registers each, so six rows fit. */
#include "kern/neon/gemm_neon_int.h"

GEMM_INLINE bool has_min(const enum gemm_format f) {
    return f == GEMM_Q4_1 || f == GEMM_Q5_1;
}

/* The scales of block b of the unit. MXFP4: 2^(e - 128), NaN for 255. */
GEMM_INLINE struct gemm_pair scale_of(const char *unit, int b, const enum gemm_format f) {
    if (f != GEMM_MXFP4) return gemm_halves(unit + 16 * b);
    const uint16x8_t e8 = vmovl_u8(vld1_u8((const uint8_t *)unit + 8 * b));
    const uint32x4_t e[2] = {vmovl_u16(vget_low_u16(e8)), vmovl_high_u16(e8)};
    struct gemm_pair d;
    GEMM_UNROLL
    for (int i = 0; i < 2; i++) {
        const uint32x4_t nan = vceqq_u32(e[i], vdupq_n_u32(255)) >> 1;
        const uint32x4_t normal = nan | (e[i] - vdupq_n_u32(1)) << 23;
        const uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e[i]));
        d.v[i] = vreinterpretq_f32_u32(vbslq_u32(vcgtq_u32(e[i], vdupq_n_u32(1)), normal, small));
    }
    return d;
}

/* acc = fma(dot, d_w d_a, acc); then fma(m_w, d_a sum, acc). */
GEMM_INLINE void block(float32x4_t *acc, const char *w, const char *a, struct gemm_pair dw, const char *min,
                       const int R, const enum gemm_format f) {
    const int shift = gemm_bias_shift(f);
    const char *const s = a + 32 * R;
    int32x4_t t[2 * GEMM_NEON_ROWS];
    GEMM_UNROLL
    for (int r = 0; r < R; r++) t[2 * r] = t[2 * r + 1] = shift ? gemm_word(s + 4 * r) << shift : vdupq_n_s32(0);
    GEMM_UNROLL
    for (int g = 0; g < 8; g += 2) gemm_step(t, w, a, g, R, f);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) gemm_scaled(acc + 2 * r, t + 2 * r, dw, gemm_scalar(s + 4 * R + 4 * r));
    if (!has_min(f)) return;
    const struct gemm_pair mw = gemm_halves(min);
    GEMM_UNROLL
    for (int i = 0; i < 2 * R; i++) acc[i] = vfmaq_n_f32(acc[i], mw.v[i % 2], gemm_scalar(s + 8 * R + i / 2 * 4));
}

GEMM_INLINE void tile(const struct gemm_tile *t, const int R, const enum gemm_format f) {
    const int unit_blocks = f == GEMM_MXFP4 ? 4 : 2, unit_parts = 8 / unit_blocks;
    const int head = has_min(f) ? 64 : 32, codes = 32 * (gemm_bits_lo(f) + gemm_bits_hi(f));
    const char *w = t->panel, *a = t->act;
    float32x4_t acc[2 * GEMM_NEON_ROWS];
    GEMM_UNROLL
    for (int i = 0; i < 2 * R; i++) acc[i] = vdupq_n_f32(0.0f);
    for (int64_t n = t->k / 32, i = 0; n > 0; n -= unit_blocks, i++) {
        const char *const unit = w;
        if (i % unit_parts == 0) gemm_ahead(t, i / unit_parts, R);
        w += head;
        for (int b = 0; b < unit_blocks && b < n; b++, w += codes, a += R * GEMM_ACT32_BYTES)
            block(acc, w, a, scale_of(unit, b, f), unit + 32 + 16 * b, R, f);
    }
    gemm_store(t, acc, R);
}

#define FORMAT(F)                                                                                                      \
    GEMM_NEON_TILES(F, tile)                                                                                           \
    GEMM_PACKING(F, GEMM_NEON_PANEL)                                                                                   \
    GEMM_RUN(F, GEMM_NEON_PANEL, GEMM_NEON_ROWS, GEMM_LAYOUT_Q8_32)

FORMAT(Q8_0)
FORMAT(Q4_0)
FORMAT(Q4_1)
FORMAT(Q5_0)
FORMAT(Q5_1)
FORMAT(IQ4_NL)
FORMAT(MXFP4)

#define ENTRY(F) table[GEMM_##F] = GEMM_ENTRY("neon", F, GEMM_NEON_PANEL, GEMM_ACT_Q8_32, GEMM_LAYOUT_Q8_32)

void gemm_q32_neon_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    ENTRY(Q8_0);
    ENTRY(Q4_0);
    ENTRY(Q4_1);
    ENTRY(Q5_0);
    ENTRY(Q5_1);
    ENTRY(IQ4_NL);
    ENTRY(MXFP4);
}
