/* Constants of the one exponential that every level computes, so that all levels agree bit for bit:
 *     n = round(x * log2 e),  r = x - n * ln 2 (in two steps),
 *     e^r = 1 + r + r^2 * (C2 + r * (C3 + ...)), all fma,  result = e^r with n added to its exponent.
 * The polynomial is a minimax fit of the relative error on |r| <= ln 2 / 2 (3e-9); with roundings the result
 * is within 1 ulp, exactly 1 at 0. Below MATH_EXP_LO (results under 2^-126) it is 0, above MATH_EXP_HI infinity.
 * Threads: constants. */
#ifndef KERN_MATH_COEF_H
#define KERN_MATH_COEF_H

#define MATH_EXP_LO -0x1.5d589ep+6f
#define MATH_EXP_HI 0x1.62e42ep+6f
#define MATH_LOG2E  0x1.715476p+0f
#define MATH_LN2_HI 0x1.62e400p-1f /* 15 bits: n * LN2_HI is exact */
#define MATH_LN2_LO 0x1.7f7d1cp-20f
#define MATH_EXP_C2 0x1.fffffcp-2f
#define MATH_EXP_C3 0x1.555492p-3f
#define MATH_EXP_C4 0x1.5558b0p-5f
#define MATH_EXP_C5 0x1.12398ep-7f
#define MATH_EXP_C6 0x1.6a4d7ap-10f

/* 1.5 * 2^23: adding it rounds |x| < 2^22 to an integer, half to even, in the low mantissa bits. */
#define MATH_ROUND 0x1.8p+23f

#define MATH_SQRT_2_PI 0x1.988454p-1f /* sqrt(2 / pi), of the tanh form of gelu */
#define MATH_GELU_CUBE 0.044715f

#endif
