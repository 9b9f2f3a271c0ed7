/* Formats with blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS. All run one loop: `prepare` expands the head of a
 * unit into 16-bit sub-scales and minima, then each sub-block's dots are multiplied by its sub-scale into the unit's
 * integer sums. All integers are exact. */
#include "kern/neon/gemm_neon_int.h"

/* A unit's sub-scales and minima of 8 outputs, expanded: 8 or 16 of each. */
struct k_scales {
    int16x8_t sc[16], mn[16];
};

GEMM_INLINE bool has_min(const enum gemm_format f) {
    return f == GEMM_Q2_K || f == GEMM_Q4_K || f == GEMM_Q5_K;
}
GEMM_INLINE bool has_16(const enum gemm_format f) {
    return f == GEMM_Q2_K || f == GEMM_Q3_K || f == GEMM_Q6_K;
}

/* Nibbles: low ones for top 0, high ones else. */
GEMM_INLINE uint8x16_t nibbles(uint8x16_t v, const bool high) {
    return high ? v >> 4 : v & vdupq_n_u8(15);
}

/* low | two bits of top << 4 */
GEMM_INLINE uint8x16_t join(uint8x16_t low, uint8x16_t top, const int shift) {
    return low | ((top >> shift) & vdupq_n_u8(3)) << 4;
}

/* 16 bytes, signed: two rows of 8 scales. */
GEMM_INLINE void expand(int16x8_t sc[2], uint8x16_t rows) {
    sc[0] = vmovl_s8(vget_low_s8(vreinterpretq_s8_u8(rows)));
    sc[1] = vmovl_high_s8(vreinterpretq_s8_u8(rows));
}

/* A, B, C of q4_k and q5_k; see docs/KERNELS.md. Bytes of B are pairs of neighbouring minima. */
GEMM_INLINE void prepare_k4(struct k_scales *s, const char *head) {
    GEMM_UNROLL
    for (int i = 0; i < 4; i++) { /* scales and minima 2i, 2i + 1 */
        const uint8x16_t A = gemm_load(head + 32 + i % 2 * 16), B = gemm_load(head + 64 + i % 2 * 16);
        const uint8x16_t C = gemm_load(head + 96 + i % 2 * 16);
        expand(&s->sc[2 * i], join(nibbles(A, i / 2), C, i / 2 * 2));
        const uint16x8_t m = vreinterpretq_u16_u8(join(nibbles(B, i / 2), C, 4 + i / 2 * 2));
        s->mn[2 * i] = vreinterpretq_s16_u16(m & vdupq_n_u16(255));
        s->mn[2 * i + 1] = vreinterpretq_s16_u16(m >> 8);
    }
}

GEMM_INLINE void prepare_q2(struct k_scales *s, const char *head) {
    GEMM_UNROLL
    for (int i = 0; i < 8; i++) {
        const uint8x16_t v = gemm_load(head + 32 + 16 * i);
        expand(&s->sc[2 * i], nibbles(v, false));
        expand(&s->mn[2 * i], nibbles(v, true));
    }
}

GEMM_INLINE void prepare_q3(struct k_scales *s, const char *head) {
    GEMM_UNROLL
    for (int i = 0; i < 8; i++) {
        const uint8x16_t A = gemm_load(head + i % 4 * 16), C = gemm_load(head + 64 + i % 2 * 16);
        expand(&s->sc[2 * i], join(nibbles(A, i / 4), C, i / 2 * 2) - vdupq_n_u8(32));
    }
}

GEMM_INLINE void prepare_iq4(struct k_scales *s, const char *head) {
    const uint8x16_t top = gemm_load(head + 16);
    GEMM_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8x16_t low = gemm_load(head + 32 + i % 2 * 16);
        expand(&s->sc[2 * i], join(nibbles(low, i / 2), top, 2 * i) - vdupq_n_u8(32));
    }
}

GEMM_INLINE void prepare(struct k_scales *s, const char *head, const enum gemm_format f) {
    if (f == GEMM_Q4_K || f == GEMM_Q5_K)
        prepare_k4(s, head);
    else if (f == GEMM_Q2_K)
        prepare_q2(s, head);
    else if (f == GEMM_Q3_K)
        prepare_q3(s, head);
    else if (f == GEMM_IQ4_XS)
        prepare_iq4(s, head);
    else
        for (int i = 0; i < 8; i++) expand(&s->sc[2 * i], gemm_load(head + 16 * i));
}

/* isum += scale * dots of the 2 n k-groups from g of one block. */
GEMM_INLINE void sub_block(int32x4_t *isum, const char *w, const char *a, int16x8_t sc, const int g, const int n,
                           const int R, const enum gemm_format f) {
    int32x4_t t[2 * GEMM_NEON_ROWS];
    GEMM_UNROLL
    for (int i = 0; i < 2 * R; i++) t[i] = vdupq_n_s32(0);
    GEMM_UNROLL
    for (int i = 0; i < n; i++) gemm_step(t, w, a, g + 2 * i, R, f);
    const int32x4_t s0 = vmovl_s16(vget_low_s16(sc)), s1 = vmovl_high_s16(sc);
    GEMM_UNROLL
    for (int i = 0; i < 2 * R; i++) isum[i] = vmlaq_s32(isum[i], t[i], i % 2 ? s1 : s0);
}

/* All 8 blocks of a unit. */
GEMM_INLINE void unit_dots(int32x4_t *isum, const char *w, const char *a, const struct k_scales *s, const int R,
                           const enum gemm_format f) {
    const int bytes = 32 * (gemm_bits_lo(f) + gemm_bits_hi(f));
    GEMM_ROLLED
    for (int b = 0; b < 8; b++, w += bytes, a += 32 * R) {
        if (has_16(f)) {
            sub_block(isum, w, a, s->sc[2 * b], 0, 2, R, f);
            sub_block(isum, w, a, s->sc[2 * b + 1], 4, 2, R, f);
        } else
            sub_block(isum, w, a, s->sc[b], 0, 4, R, f);
    }
}

/* nmsum = sum_j mn_j (-sum_j) of row r; a points behind the codes. */
GEMM_INLINE void min_dots(int32x4_t nmsum[2], const struct k_scales *s, const char *a, const int R, const int r,
                          const enum gemm_format f) {
    const int n = has_16(f) ? 8 : 4;
    if (n == 4) a += 32 * R; /* sums of 32 lie behind those of 16 */
    nmsum[0] = nmsum[1] = vdupq_n_s32(0);
    GEMM_UNROLL
    for (int j = 0; j < n; j++) {
        const int16x4_t pair = vreinterpret_s16_s32(vget_low_s32(gemm_word(a + 4 * (j * R + r))));
        nmsum[0] = vmlal_lane_s16(nmsum[0], vget_low_s16(s->mn[2 * j]), pair, 0);
        nmsum[1] = vmlal_high_lane_s16(nmsum[1], s->mn[2 * j], pair, 0);
        nmsum[0] = vmlal_lane_s16(nmsum[0], vget_low_s16(s->mn[2 * j + 1]), pair, 1);
        nmsum[1] = vmlal_high_lane_s16(nmsum[1], s->mn[2 * j + 1], pair, 1);
    }
}

/* acc = fma(isum, d d_a, acc); then fma(-msum, dmin d_a, acc). */
GEMM_INLINE void unit(float32x4_t *acc, const char *head, const char *a, const char *d, const int R,
                      const enum gemm_format f) {
    const int head_bytes = f == GEMM_Q2_K ? 160 : f == GEMM_Q3_K ? 96 : f == GEMM_IQ4_XS ? 64 : 128;
    struct k_scales s;
    int32x4_t isum[2 * GEMM_NEON_ROWS];
    prepare(&s, head, f);
    GEMM_UNROLL
    for (int i = 0; i < 2 * R; i++) isum[i] = vdupq_n_s32(0);
    unit_dots(isum, head + head_bytes, a, &s, R, f);
    a += 256 * R;
    const struct gemm_pair dw = gemm_halves(d), mw = gemm_halves(head + 16);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        const float da = gemm_scalar(a + 48 * R + 4 * r);
        gemm_scaled(acc + 2 * r, isum + 2 * r, dw, da);
        if (!has_min(f)) continue;
        int32x4_t nmsum[2];
        min_dots(nmsum, &s, a, R, r, f);
        gemm_scaled(acc + 2 * r, nmsum, mw, da);
    }
}

GEMM_INLINE void tile(const struct gemm_tile *t, const int R, const enum gemm_format f) {
    const bool far_d = f == GEMM_Q3_K || f == GEMM_Q6_K;
    const int bytes = gemm_unit_bytes(f, GEMM_NEON_PANEL);
    const int64_t n = t->k / 256;
    const char *w = t->panel + (far_d ? (16 * n + 63) / 64 * 64 : 0), *a = t->act;
    float32x4_t acc[2 * GEMM_NEON_ROWS];
    GEMM_UNROLL
    for (int i = 0; i < 2 * R; i++) acc[i] = vdupq_n_f32(0.0f);
    for (int64_t i = 0; i < n; i++, w += bytes, a += R * GEMM_ACT256_BYTES) {
        gemm_ahead(t, i, R);
        unit(acc, w, a, far_d ? t->panel + 16 * i : w, R, f);
    }
    gemm_store(t, acc, R);
}

#define FORMAT(F)                                                                                                      \
    GEMM_NEON_TILES(F, tile)                                                                                           \
    GEMM_PACKING(F, GEMM_NEON_PANEL)                                                                                   \
    GEMM_RUN(F, GEMM_NEON_PANEL, GEMM_NEON_ROWS, GEMM_LAYOUT_Q8_256)

FORMAT(Q2_K)
FORMAT(Q3_K)
FORMAT(Q4_K)
FORMAT(Q5_K)
FORMAT(Q6_K)
FORMAT(IQ4_XS)

#define ENTRY(F) table[GEMM_##F] = GEMM_ENTRY("neon", F, GEMM_NEON_PANEL, GEMM_ACT_Q8_256, GEMM_LAYOUT_Q8_256)

void gemm_kquant_neon_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    ENTRY(Q2_K);
    ENTRY(Q3_K);
    ENTRY(Q4_K);
    ENTRY(Q5_K);
    ENTRY(Q6_K);
    ENTRY(IQ4_XS);
}
