/* Shared by the gemm files of this folder. A panel of quantized weights is 8 outputs: a k-group is two registers of
 * four outputs, and sdot multiplies it by four activations of one lane. Codes become signed values, except that the
 * bias of Q4_0 and Q5_0 starts each dot as (-sum a) << shift. */
#ifndef KERN_NEON_GEMM_NEON_INT_H
#define KERN_NEON_GEMM_NEON_INT_H

#include <arm_neon.h>

#include "kern/gemm_run_int.h"

enum { GEMM_NEON_ROWS = 6, GEMM_NEON_PANEL = 8, GEMM_NEON_PANEL_FLOAT = 16 };

/* Loads stay on their side of this line: compilers move plain loads, which costs registers when they gather them in
 * front of a block, and the stream when lines are touched out of address order. */
#define GEMM_ORDER() __asm__ volatile("" : : : "memory")

GEMM_INLINE uint8x16_t gemm_load(const char *p) {
    return vld1q_u8((const uint8_t *)p);
}

/* The 32-bit word at any address, in all lanes. */
GEMM_INLINE int32x4_t gemm_word(const char *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return vdupq_n_s32(x);
}

GEMM_INLINE float gemm_scalar(const char *p) {
    float x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Eight f32: outputs 0..3 and 4..7. */
struct gemm_pair {
    float32x4_t v[2];
};

GEMM_INLINE struct gemm_pair gemm_halves(const char *p) {
    const float16x8_t h = vreinterpretq_f16_u8(gemm_load(p));
    return (struct gemm_pair){{vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)}};
}

/* acc += w times the four bytes of lane `lane` of a, for four outputs. */
GEMM_INLINE int32x4_t gemm_dot(int32x4_t acc, int8x16_t w, int8x16_t a, const int lane) {
    switch (lane) {
    case 0: return vdotq_laneq_s32(acc, w, a, 0);
    case 1: return vdotq_laneq_s32(acc, w, a, 1);
    case 2: return vdotq_laneq_s32(acc, w, a, 2);
    default: return vdotq_laneq_s32(acc, w, a, 3);
    }
}

/* The values of IQ4_NL and IQ4_XS, and of MXFP4 (doubled), for tbl. */
static const int8_t gemm_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t gemm_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* The formats' bits: see kern/gemm_layout.h. */
GEMM_INLINE int gemm_bits_lo(const enum gemm_format f) {
    return f == GEMM_Q8_0 ? 8 : f == GEMM_Q2_K || f == GEMM_Q3_K ? 2 : 4;
}
GEMM_INLINE int gemm_bits_hi(const enum gemm_format f) {
    return f == GEMM_Q6_K ? 2 : f == GEMM_Q5_0 || f == GEMM_Q5_1 || f == GEMM_Q5_K || f == GEMM_Q3_K ? 1 : 0;
}

/* log2 of the bias that gemm_code leaves in, 0: none. */
GEMM_INLINE int gemm_bias_shift(const enum gemm_format f) {
    return f == GEMM_Q5_0 ? 4 : f == GEMM_Q4_0 ? 3 : 0;
}

/* Bytes shifted left by n >= 0 or right by -n. */
GEMM_INLINE uint8x16_t gemm_move(uint8x16_t v, const int n) {
    return n >= 0 ? v << n : v >> -n;
}

/* K-group g of the 32-block at p, outputs 4 half .. 4 half + 3. */
GEMM_INLINE int8x16_t gemm_code(const char *p, const int g, const int half, const enum gemm_format f) {
    const int lo = gemm_bits_lo(f), hi = gemm_bits_hi(f), per = 8 / lo;
    const int vec = lo == 4 ? g % 4 : g / per, shift = lo == 4 ? g / 4 * 4 : g % per * 2;
    uint8x16_t w = gemm_load(p + 32 * (hi + vec) + 16 * half);
    if (lo == 8) return vreinterpretq_s8_u8(w ^ vdupq_n_u8(128));
    w = w >> shift;
    if (shift + lo < 8) w = w & vdupq_n_u8((uint8_t)((1 << lo) - 1));
    if (hi) {
        const int at = hi == 1 ? g : g % 4 * 2;
        const uint8x16_t h = gemm_load(p + 32 * (hi == 1 ? 0 : g / 4) + 16 * half);
        w = w | (gemm_move(h, lo - at) & vdupq_n_u8((uint8_t)(((1 << hi) - 1) << lo)));
    }
    if (f == GEMM_Q6_K || f == GEMM_Q3_K) w = w - vdupq_n_u8(f == GEMM_Q6_K ? 32 : 4);
    if (f == GEMM_IQ4_NL || f == GEMM_IQ4_XS) return vqtbl1q_s8(vld1q_s8(gemm_iq4_values), w);
    if (f == GEMM_MXFP4) return vqtbl1q_s8(vld1q_s8(gemm_mxfp4_values), w);
    return vreinterpretq_s8_u8(w);
}

/* t[2r], t[2r + 1] += k-groups g and g + 1 (g even) of the block at w times row r's codes at a + 32 r. */
GEMM_INLINE void gemm_step(int32x4_t *t, const char *w, const char *a, const int g, const int R,
                           const enum gemm_format f) {
    GEMM_ORDER();
    const int8x16_t w00 = gemm_code(w, g, 0, f), w01 = gemm_code(w, g, 1, f);
    const int8x16_t w10 = gemm_code(w, g + 1, 0, f), w11 = gemm_code(w, g + 1, 1, f);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        const int8x16_t x = vld1q_s8((const int8_t *)a + 32 * r + 16 * (g / 4));
        t[2 * r] = gemm_dot(t[2 * r], w00, x, g % 4);
        t[2 * r + 1] = gemm_dot(t[2 * r + 1], w01, x, g % 4);
        t[2 * r] = gemm_dot(t[2 * r], w10, x, g % 4 + 1);
        t[2 * r + 1] = gemm_dot(t[2 * r + 1], w11, x, g % 4 + 1);
    }
}

/* acc = fma(f32 of dot, d_w d_a, acc) for eight outputs of one row. */
GEMM_INLINE void gemm_scaled(float32x4_t *acc, const int32x4_t *dot, struct gemm_pair dw, float da) {
    GEMM_UNROLL
    for (int i = 0; i < 2; i++) acc[i] = vfmaq_f32(acc[i], vcvtq_f32_s32(dot[i]), vmulq_n_f32(dw.v[i], da));
}

/* Many rows: the next panel into L2, spread over this one; `part` counts 256s of K. Few rows read one ascending stream,
 * which the CPU itself fetches ahead. */
GEMM_INLINE void gemm_ahead(const struct gemm_tile *t, int64_t part, const int R) {
    if (R <= 4 || !t->ahead) return;
    const char *const p = t->ahead + (size_t)part * t->ahead_step;
    for (size_t b = 0; b < t->ahead_step; b += 64) __builtin_prefetch(p + b, 0, 2);
}

GEMM_INLINE void gemm_store(const struct gemm_tile *t, const float32x4_t *acc, const int R) {
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        vst1q_f32(t->y + r * t->ldy, acc[2 * r]);
        vst1q_f32(t->y + r * t->ldy + 4, acc[2 * r + 1]);
    }
}

/* The kernels of one file put themselves into the table. */
void gemm_float_neon_init(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_q32_neon_init(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_kquant_neon_init(struct gemm_kern table[GEMM_N_FORMATS]);

/* Row counts 1..6 of one inline function TILE(t, R, format). */
#define GEMM_NEON_TILE(F, TILE, R)                                                                                     \
    static void tile##R##_##F(const struct gemm_tile *t) {                                                             \
        TILE(t, R, GEMM_##F);                                                                                          \
    }
#define GEMM_NEON_TILES(F, TILE)                                                                                       \
    GEMM_NEON_TILE(F, TILE, 1)                                                                                         \
    GEMM_NEON_TILE(F, TILE, 2)                                                                                         \
    GEMM_NEON_TILE(F, TILE, 3)                                                                                         \
    GEMM_NEON_TILE(F, TILE, 4)                                                                                         \
    GEMM_NEON_TILE(F, TILE, 5)                                                                                         \
    GEMM_NEON_TILE(F, TILE, 6)                                                                                         \
    static gemm_tile_fn *const tiles_##F[GEMM_NEON_ROWS] = {tile1_##F, tile2_##F, tile3_##F,                           \
                                                            tile4_##F, tile5_##F, tile6_##F};

#endif
