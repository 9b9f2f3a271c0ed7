/* The neon level of the gemm family: quantizes activations (the rule is in kern/gemm_act.h) and fills the table. */
#include "kern/neon/gemm_neon_int.h"

/* Four codes as int32: x / d clamped and rounded to nearest even; keep is all ones or zero. */
GEMM_INLINE int32x4_t codes4(const float *x, float32x4_t d, uint32x4_t keep) {
    float32x4_t v = vdivq_f32(vld1q_f32(x), d);
    v = vminnmq_f32(v, vdupq_n_f32(127.0f)); /* a NaN becomes 127 */
    v = vmaxnmq_f32(v, vdupq_n_f32(-127.0f));
    return vcvtnq_s32_f32(vreinterpretq_f32_u32(vreinterpretq_u32_f32(v) & keep));
}

static float quantize(int8_t *q, int16_t *sum16, const float *x, int n) {
    uint32x4_t top = vdupq_n_u32(0); /* of the bits without the sign, so infinities and NaNs win */
    for (int i = 0; i < n; i += 4)
        top = vmaxq_u32(top, vreinterpretq_u32_f32(vld1q_f32(x + i)) & vdupq_n_u32(0x7fffffff));
    const uint32_t bits = vmaxvq_u32(top);
    float d;
    memcpy(&d, &bits, sizeof d);
    d /= 127.0f;
    const float32x4_t dv = vdupq_n_f32(d);
    const uint32x4_t keep = vcgtq_f32(dv, vdupq_n_f32(0.0f));
    for (int i = 0; i < n; i += 16) {
        const int16x8_t a = vcombine_s16(vmovn_s32(codes4(x + i, dv, keep)), vmovn_s32(codes4(x + i + 4, dv, keep)));
        const int16x8_t b =
            vcombine_s16(vmovn_s32(codes4(x + i + 8, dv, keep)), vmovn_s32(codes4(x + i + 12, dv, keep)));
        vst1q_s8(q + i, vcombine_s8(vmovn_s16(a), vmovn_s16(b)));
        sum16[i / 16] = vaddvq_s16(a + b);
    }
    return d;
}

GEMM_ACTS(GEMM_NEON_ROWS, quantize)

void gemm_init_neon(struct gemm_kern table[GEMM_N_FORMATS]) {
    gemm_float_neon_init(table);
    gemm_q32_neon_init(table);
    gemm_kquant_neon_init(table);
    table_acts(table);
}
