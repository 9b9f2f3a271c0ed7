/* Sixteen f32 lanes as four NEON registers: the vocabulary of kern/elem_simd.h and kern/attn_simd.h.
 * Every operation is lane by lane; the fixed sums go over the tree (i + i+8), (+4), (+2), (+1).
 * Threads: pure functions. */
#ifndef KERN_NEON_MATH_NEON_H
#define KERN_NEON_MATH_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdint.h>

#include "base/attr.h"
#include "kern/math_coef.h"

#define V16_ISA "neon"

/* Attention: rows of a tile, and columns of 16 that a tile of r rows handles at a time, so that the
 * accumulators (4 registers each) leave room for operands in 32 registers. */
#define V16_TILE_ROWS 6
#define V16_TILE_COLS(r) ((r) == 1 ? 4 : (r) <= 3 ? 2 : 1)
#define V16_TILE_ACC 6 /* most rows * columns of a tile */

/* Before a loop of at most 8 constant rounds: its accumulators must become registers. */
#ifdef __clang__
#define V16_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V16_UNROLL _Pragma("GCC unroll 8")
#endif

#define V16_FN static inline ATTR_ALWAYS_INLINE

typedef struct {
    float32x4_t q[4]; /* lanes 4 i .. 4 i + 3 */
} v16;

/* Returns the v16 whose register i (0..3) is EXPR. */
#define V16_EACH(EXPR)                                                                                                 \
    v16 v16_y;                                                                                                         \
    V16_UNROLL                                                                                                         \
    for (int i = 0; i < 4; i++) v16_y.q[i] = EXPR;                                                                     \
    return v16_y

/* Asks for the cache line of p; p may be anything. */
V16_FN void v16_prefetch(const char *p) { __builtin_prefetch(p); }

V16_FN v16 v16_set1(float x) { V16_EACH(vdupq_n_f32(x)); }
V16_FN v16 v16_load(const float *p) { V16_EACH(vld1q_f32(p + 4 * i)); }

V16_FN void v16_store(float *p, v16 x) {
    V16_UNROLL
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.q[i]);
}

V16_FN v16 v16_add(v16 x, v16 y) { V16_EACH(vaddq_f32(x.q[i], y.q[i])); }
V16_FN v16 v16_sub(v16 x, v16 y) { V16_EACH(vsubq_f32(x.q[i], y.q[i])); }
V16_FN v16 v16_mul(v16 x, v16 y) { V16_EACH(vmulq_f32(x.q[i], y.q[i])); }
V16_FN v16 v16_div(v16 x, v16 y) { V16_EACH(vdivq_f32(x.q[i], y.q[i])); }

/* x > y ? x : y: y when either is NaN. */
V16_FN float32x4_t v16_max4(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
V16_FN v16 v16_max(v16 x, v16 y) { V16_EACH(v16_max4(x.q[i], y.q[i])); }

/* x * y + z, one rounding. */
V16_FN v16 v16_fma(v16 x, v16 y, v16 z) { V16_EACH(vfmaq_f32(z.q[i], x.q[i], y.q[i])); }

/* x * y - z, one rounding. */
V16_FN v16 v16_fms(v16 x, v16 y, v16 z) { V16_EACH(vfmaq_f32(vnegq_f32(z.q[i]), x.q[i], y.q[i])); }

/* x * y - z in even lanes, x * y + z in odd ones. */
V16_FN v16 v16_fmaddsub(v16 x, v16 y, v16 z) {
    const uint32x4_t even_sign = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));
    V16_EACH(vfmaq_f32(vreinterpretq_f32_u32(vreinterpretq_u32_f32(z.q[i]) ^ even_sign), x.q[i], y.q[i]));
}

/* Swaps the lanes of each pair (2i, 2i + 1). */
V16_FN v16 v16_swap_pairs(v16 x) { V16_EACH(vrev64q_f32(x.q[i])); }

/* Lane i gets lane i / 2 (the lower 8 lanes, each twice). */
V16_FN v16 v16_twice_low(v16 x) {
    V16_EACH(i % 2 ? vzip2q_f32(x.q[i / 2], x.q[i / 2]) : vzip1q_f32(x.q[i / 2], x.q[i / 2]));
}

/* All bits of the lanes from .. to - 1, zero elsewhere; offset: the first lane of this register. */
V16_FN uint32x4_t v16_range4(int from, int to, int offset) {
    static const int32_t index[4] = {0, 1, 2, 3};
    const int32x4_t i = vld1q_s32(index) + vdupq_n_s32(offset);
    return vandq_u32(vcgeq_s32(i, vdupq_n_s32(from)), vcltq_s32(i, vdupq_n_s32(to)));
}

/* Elements at .. at + 3 of the n (0..16) at p, zero from element n on. */
V16_FN float32x4_t v16_load4(const float *p, int n, int at) {
    float32x4_t x = vdupq_n_f32(0.0f);
    if (n >= at + 4) return vld1q_f32(p + at);
    if (n >= at + 1) x = vld1q_lane_f32(p + at, x, 0);
    if (n >= at + 2) x = vld1q_lane_f32(p + at + 1, x, 1);
    if (n >= at + 3) x = vld1q_lane_f32(p + at + 2, x, 2);
    return x;
}

V16_FN void v16_store4(float *p, float32x4_t x, int n, int at) {
    if (n >= at + 4) {
        vst1q_f32(p + at, x);
        return;
    }
    if (n >= at + 1) vst1q_lane_f32(p + at, x, 0);
    if (n >= at + 2) vst1q_lane_f32(p + at + 1, x, 1);
    if (n >= at + 3) vst1q_lane_f32(p + at + 2, x, 2);
}

/* The first n (0..16) elements at p, zero above; touches no byte behind them. */
V16_FN v16 v16_load_n(const float *p, int n) { V16_EACH(v16_load4(p, n, 4 * i)); }

V16_FN void v16_store_n(float *p, v16 x, int n) {
    V16_UNROLL
    for (int i = 0; i < 4; i++) v16_store4(p, x.q[i], n, 4 * i);
}

/* Lanes from .. to - 1 of x, the others of y. */
V16_FN v16 v16_range(v16 x, int from, int to, v16 y) {
    V16_EACH(vbslq_f32(v16_range4(from, to, 4 * i), x.q[i], y.q[i]));
}

/* Bit i: lane i of the four masks is set. */
V16_FN uint32_t v16_bits(const uint32x4_t m[4]) {
    static const uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint16x8_t lo = vcombine_u16(vmovn_u32(m[0]), vmovn_u32(m[1]));
    const uint16x8_t hi = vcombine_u16(vmovn_u32(m[2]), vmovn_u32(m[3]));
    const uint8x16_t b = vandq_u8(vcombine_u8(vmovn_u16(lo), vmovn_u16(hi)), vld1q_u8(bit));
    return (uint32_t)vaddv_u8(vget_low_u8(b)) | (uint32_t)vaddv_u8(vget_high_u8(b)) << 8;
}

/* Bit i: lane i of x >= that of y. */
V16_FN uint32_t v16_ge(v16 x, v16 y) {
    const uint32x4_t m[4] = {vcgeq_f32(x.q[0], y.q[0]), vcgeq_f32(x.q[1], y.q[1]), vcgeq_f32(x.q[2], y.q[2]),
                             vcgeq_f32(x.q[3], y.q[3])};
    return v16_bits(m);
}

V16_FN uint32_t v16_eq(v16 x, v16 y) {
    const uint32x4_t m[4] = {vceqq_f32(x.q[0], y.q[0]), vceqq_f32(x.q[1], y.q[1]), vceqq_f32(x.q[2], y.q[2]),
                             vceqq_f32(x.q[3], y.q[3])};
    return v16_bits(m);
}

V16_FN float v16_first(v16 x) { return vgetq_lane_f32(x.q[0], 0); }

V16_FN float v16_sum(v16 x) {
    const float32x4_t u = vaddq_f32(vaddq_f32(x.q[0], x.q[2]), vaddq_f32(x.q[1], x.q[3]));
    const float32x2_t w = vadd_f32(vget_low_f32(u), vget_high_f32(u));
    return vget_lane_f32(w, 0) + vget_lane_f32(w, 1);
}

/* Largest lane; lanes must not be NaN. */
V16_FN float v16_max_lane(v16 x) {
    const float32x4_t u = v16_max4(v16_max4(x.q[0], x.q[2]), v16_max4(x.q[1], x.q[3]));
    const float32x4_t w = v16_max4(u, vextq_f32(u, u, 2));
    return vgetq_lane_f32(v16_max4(w, vdupq_laneq_f32(w, 1)), 0);
}

/* kern/math_coef.h has the definition; for x <= 0, without the care for large ones. */
V16_FN float32x4_t v16_exp4_low(float32x4_t x) {
    const float32x4_t magic = vdupq_n_f32(MATH_ROUND), one = vdupq_n_f32(1.0f);
    const float32x4_t t = vfmaq_f32(magic, x, vdupq_n_f32(MATH_LOG2E)), n = vsubq_f32(t, magic);
    const float32x4_t s = vfmaq_f32(x, n, vdupq_n_f32(-MATH_LN2_HI));
    const float32x4_t r = vfmaq_f32(s, n, vdupq_n_f32(-MATH_LN2_LO));
    float32x4_t p = vfmaq_f32(vdupq_n_f32(MATH_EXP_C5), vdupq_n_f32(MATH_EXP_C6), r);
    p = vfmaq_f32(vdupq_n_f32(MATH_EXP_C4), p, r);
    p = vfmaq_f32(vdupq_n_f32(MATH_EXP_C3), p, r);
    p = vfmaq_f32(vdupq_n_f32(MATH_EXP_C2), p, r);
    p = vfmaq_f32(one, p, r);
    p = vfmaq_f32(one, p, r);
    const uint32x4_t bits = vreinterpretq_u32_f32(p) + (vreinterpretq_u32_f32(t) << 23);
    return vreinterpretq_f32_u32(vbicq_u32(bits, vcltq_f32(x, vdupq_n_f32(MATH_EXP_LO))));
}

V16_FN float32x4_t v16_exp4(float32x4_t x) {
    const uint32x4_t small = vcleq_f32(x, vdupq_n_f32(MATH_EXP_HI)); /* not NaN */
    return vbslq_f32(small, v16_exp4_low(x), vmulq_f32(x, vdupq_n_f32(INFINITY)));
}

V16_FN v16 v16_exp(v16 x) { V16_EACH(v16_exp4(x.q[i])); }
V16_FN v16 v16_exp_low(v16 x) { V16_EACH(v16_exp4_low(x.q[i])); }

/* Zero in the lanes where y < limit, else x. */
V16_FN v16 v16_unless_below(v16 x, v16 y, v16 limit) {
    V16_EACH(vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x.q[i]), vcltq_f32(y.q[i], limit.q[i]))));
}

/* Sixteen doubles, for sums. */
typedef struct {
    float64x2_t d[8];
} d16;

V16_FN d16 d16_zero(void) {
    const float64x2_t z = vdupq_n_f64(0.0);
    return (d16){{z, z, z, z, z, z, z, z}};
}

V16_FN d16 d16_add(d16 s, v16 x) {
    V16_UNROLL
    for (int i = 0; i < 4; i++) {
        s.d[2 * i] = vaddq_f64(s.d[2 * i], vcvt_f64_f32(vget_low_f32(x.q[i])));
        s.d[2 * i + 1] = vaddq_f64(s.d[2 * i + 1], vcvt_high_f64_f32(x.q[i]));
    }
    return s;
}

V16_FN double d16_sum(d16 s) {
    const float64x2_t lo = vaddq_f64(vaddq_f64(s.d[0], s.d[4]), vaddq_f64(s.d[2], s.d[6]));
    const float64x2_t hi = vaddq_f64(vaddq_f64(s.d[1], s.d[5]), vaddq_f64(s.d[3], s.d[7]));
    const float64x2_t u = vaddq_f64(lo, hi);
    return vgetq_lane_f64(u, 0) + vgetq_lane_f64(u, 1);
}

/* Sixteen cache elements as f32: bf16, int8 codes, and e4m3 codes times 2^-8 (as f16 bits). */
V16_FN v16 v16_load_bf16(const uint16_t *p) { V16_EACH(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16))); }

V16_FN v16 v16_load_i8(const int8_t *p) {
    const int8x16_t w = vld1q_s8(p);
    const int16x8_t h[2] = {vmovl_s8(vget_low_s8(w)), vmovl_high_s8(w)};
    V16_EACH(vcvtq_f32_s32(i % 2 ? vmovl_high_s16(h[i / 2]) : vmovl_s16(vget_low_s16(h[i / 2]))));
}

V16_FN v16 v16_load_e4m3(const uint8_t *p) {
    const int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(p));
    const uint16x8_t mask = vdupq_n_u16(0xbfff);
    const float16x8_t h[2] = {vreinterpretq_f16_u16(vreinterpretq_u16_s16(vshll_n_s8(vget_low_s8(w), 7)) & mask),
                              vreinterpretq_f16_u16(vreinterpretq_u16_s16(vshll_high_n_s8(w, 7)) & mask)};
    V16_EACH(i % 2 ? vcvt_high_f32_f16(h[i / 2]) : vcvt_f32_f16(vget_low_f16(h[i / 2])));
}

#endif
