/* Scalar maths that agrees bit for bit with the vector levels (kern/math_coef.h).
 * Threads: pure functions. */
#ifndef KERN_GENERIC_MATH_GENERIC_H
#define KERN_GENERIC_MATH_GENERIC_H

#include <math.h>
#include <stdint.h>

#include "base/half.h"
#include "kern/math_coef.h"

static inline float math_exp(float x) {
    if (x < MATH_EXP_LO) return 0.0f;
    if (!(x <= MATH_EXP_HI)) return x * INFINITY; /* too large, or NaN */
    const float t = fmaf(x, MATH_LOG2E, MATH_ROUND);
    const float n = t - MATH_ROUND;
    const float r = fmaf(n, -MATH_LN2_LO, fmaf(n, -MATH_LN2_HI, x));
    float p = MATH_EXP_C6;
    p = fmaf(p, r, MATH_EXP_C5);
    p = fmaf(p, r, MATH_EXP_C4);
    p = fmaf(p, r, MATH_EXP_C3);
    p = fmaf(p, r, MATH_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return half_float(half_bits(p) + (half_bits(t) << 23));
}

/* Sum of 16 lanes over the fixed tree of all levels: halves are added until one is left. */
static inline float math_sum16(const float *lane) {
    float t[8];
    for (int i = 0; i < 8; i++) t[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++) t[i] += t[i + 4];
    return (t[0] + t[2]) + (t[1] + t[3]);
}

static inline float math_silu(float g) { return g / (1.0f + math_exp(-g)); }

/* 0.5 g (1 + tanh u) = g / (1 + exp(-2u)). */
static inline float math_gelu_tanh(float g) {
    const float u = MATH_SQRT_2_PI * fmaf(g * g * g, MATH_GELU_CUBE, g);
    return g / (1.0f + math_exp(-2.0f * u));
}

#endif
