/* F32, F16 and BF16 weights with f32 activations. A panel is 16 outputs, four registers; an output is one fma chain
 * over k in order. Latency 4 at two fma a cycle wants 8 chains in flight, so one row takes 4 panels at once, two
 * rows 2. The activations of a k's rows are lanes of one or two registers. */
#include "kern/neon/gemm_neon_int.h"
#include "kern/gemm_float_int.h"

enum { P = GEMM_NEON_PANEL_FLOAT, V = P / 4 };

/* Outputs 4v .. 4v + 3. BF16: a word holds two k. */
GEMM_INLINE float32x4_t weight(const char *w, const int v, const enum gemm_format f, const bool odd) {
    if (f == GEMM_F32) return vreinterpretq_f32_u8(gemm_load(w + 16 * v));
    if (f == GEMM_F16) return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)w + 8 * v)));
    const uint32x4_t x = vreinterpretq_u32_u8(gemm_load(w + 16 * v));
    return vreinterpretq_f32_u32(odd ? x & vdupq_n_u32(0xffff0000) : x << 16);
}

/* acc += w x[r] of R rows at x. */
GEMM_INLINE float32x4_t fma_row(float32x4_t acc, float32x4_t w, const float *x, const int R, const int r) {
    if (r / 4 * 4 + 4 <= R) {
        const float32x4_t q = vld1q_f32(x + r / 4 * 4);
        switch (r % 4) {
        case 0: return vfmaq_laneq_f32(acc, w, q, 0);
        case 1: return vfmaq_laneq_f32(acc, w, q, 1);
        case 2: return vfmaq_laneq_f32(acc, w, q, 2);
        default: return vfmaq_laneq_f32(acc, w, q, 3);
        }
    }
    if (r / 2 * 2 + 2 <= R) {
        const float32x2_t d = vld1_f32(x + r / 2 * 2);
        return r % 2 ? vfmaq_lane_f32(acc, w, d, 1) : vfmaq_lane_f32(acc, w, d, 0);
    }
    return vfmaq_n_f32(acc, w, x[r]);
}

enum { MAX_ACC = GEMM_NEON_ROWS * V }; /* accumulators: [R][panels][V] */

/* One k for R rows and np panels that are panel_bytes apart. */
GEMM_INLINE void step(float32x4_t acc[MAX_ACC], const char *w, size_t panel_bytes, const float *a, const int R,
                      const int np, const enum gemm_format f, const bool odd) {
    GEMM_UNROLL
    for (int i = 0; i < np * V; i++) {
        if (i % V == 0) GEMM_ORDER();
        const float32x4_t wv = weight(w + (size_t)(i / V) * panel_bytes, i % V, f, odd);
        GEMM_UNROLL
        for (int r = 0; r < R; r++) acc[np * V * r + i] = fma_row(acc[np * V * r + i], wv, a, R, r);
    }
}

GEMM_INLINE void part_run(const struct gemm_part *p, const int R, const int np, const enum gemm_format f) {
    const int bytes = f == GEMM_F16 ? 2 * P : 4 * P, per = f == GEMM_BF16 ? 2 : 1, row = np * V;
    const char *w = p->panel;
    const float *a = p->act;
    float *const y = p->y;
    const size_t panel_bytes = p->panel_bytes;
    const int64_t ldy = p->ldy;
    float32x4_t acc[MAX_ACC];
    const uint32x4_t keep = vdupq_n_u32(p->first ? 0 : UINT32_MAX);
    GEMM_UNROLL
    for (int r = 0; r < R; r++)
        GEMM_UNROLL
        for (int i = 0; i < row; i++)
            acc[row * r + i] = vreinterpretq_f32_u32(keep & vreinterpretq_u32_f32(vld1q_f32(y + r * ldy + 4 * i)));
    for (int64_t k = 0; k + per <= p->n; k += per, w += bytes, a += per * R) {
        step(acc, w, panel_bytes, a, R, np, f, false);
        if (per == 2) step(acc, w, panel_bytes, a + R, R, np, f, true);
    }
    if (per == 2 && p->n % 2) step(acc, w, panel_bytes, a, R, np, f, false);
    GEMM_UNROLL
    for (int r = 0; r < R; r++)
        GEMM_UNROLL
        for (int i = 0; i < row; i++) vst1q_f32(y + r * ldy + 4 * i, acc[row * r + i]);
}

#define PART(F, R, NP)                                                                                                 \
    static void part##R##x##NP##_##F(const struct gemm_part *p) {                                                      \
        part_run(p, R, NP, GEMM_##F);                                                                                  \
    }

#define FORMAT(F, K_BYTES)                                                                                             \
    PART(F, 1, 1)                                                                                                      \
    PART(F, 2, 1) PART(F, 3, 1) PART(F, 4, 1) PART(F, 5, 1) PART(F, 6, 1) PART(F, 1, 4)                                \
        PART(F, 2, 2) static const struct gemm_part_fns parts_##F[GEMM_NEON_ROWS] = {                                  \
            {part1x1_##F, part1x4_##F, 4}, {part2x1_##F, part2x2_##F, 2}, {part3x1_##F, NULL, 1},                      \
            {part4x1_##F, NULL, 1},        {part5x1_##F, NULL, 1},        {part6x1_##F, NULL, 1},                      \
    };                                                                                                                 \
    GEMM_PACKING(F, P)                                                                                                 \
    static void run_##F(const struct gemm_args *a) {                                                                   \
        const struct gemm_float_walk w = {P, GEMM_NEON_ROWS, panel_bytes_##F(a->k), K_BYTES, parts_##F};               \
        gemm_float_run(a, &w);                                                                                         \
    }

FORMAT(F32, 4 * P)
FORMAT(F16, 2 * P)
FORMAT(BF16, 2 * P)

#define ENTRY(F) table[GEMM_##F] = GEMM_ENTRY("neon", F, P, GEMM_ACT_F32, GEMM_LAYOUT_FLOAT)

void gemm_float_neon_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    ENTRY(F32);
    ENTRY(F16);
    ENTRY(BF16);
}
