/* Scalar conversions between float and the small float formats. Storage is plain integers; the
 * typedefs say what the bits mean. All round to nearest even; NaN stays NaN.
 * Formats: IEEE binary16; bfloat16; OCP OFP8 E4M3FN and E5M2; OCP MX E2M1 and E8M0.
 * Threads: any. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

typedef uint16_t f16;
typedef uint16_t bf16;

static inline uint32_t half_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float half_float(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float half_from_bf16(bf16 b) { return half_float((uint32_t)b << 16); }

static inline bf16 half_to_bf16(float x) {
    const uint32_t u = half_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (bf16)((u >> 16) | 0x40u); /* quiet the NaN */
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float half_from_f16(f16 h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exp = (h >> 10) & 31u, man = h & 0x3ffu;
    if (exp == 31) return half_float(sign | 0x7f800000u | man << 13);
    if (exp == 0) { /* subnormal: man * 2^-24 is exact in f32 */
        const float x = (float)man * 0x1p-24f;
        return sign ? -x : x;
    }
    return half_float(sign | (exp + 112) << 23 | man << 13);
}

static inline f16 half_to_f16(float x) {
    const uint32_t u = half_bits(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (f16)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (f16)(sign | 0x7c00u); /* rounds to 65520 or more: infinity */
    if (a < 0x38800000u) { /* below 2^-14: let the float adder round at 2^-24 */
        const float r = half_float(a) + 0.5f;
        return (f16)(sign | (half_bits(r) - 0x3f000000u));
    }
    return (f16)(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}

/* E4M3FN: bias 7, no infinity, 0x7f is NaN, largest 448. */
static inline float half_from_e4m3(uint8_t b) {
    const uint32_t exp = (b >> 3) & 15u, man = b & 7u;
    float x;
    if (exp == 15 && man == 7) x = half_float(0x7fc00000u);
    else if (exp == 0) x = (float)man * 0x1p-9f;
    else x = half_float((exp + 120) << 23 | man << 20);
    return b & 0x80u ? -x : x;
}

/* Saturates to 448, as the formats' users expect. */
static inline uint8_t half_to_e4m3(float x) {
    const uint32_t u = half_bits(x), a = u & 0x7fffffffu;
    const uint8_t sign = (uint8_t)((u >> 24) & 0x80u);
    if (a > 0x7f800000u) return (uint8_t)(sign | 0x7fu);
    if (a >= 0x43e00000u) return (uint8_t)(sign | 0x7eu); /* 448 and above */
    if (a < 0x3c800000u) { /* below 2^-6: subnormal, round at 2^-9 */
        const float r = half_float(a) + 0x1p14f;
        return (uint8_t)(sign | (half_bits(r) - 0x46800000u));
    }
    const uint32_t r = (a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20;
    return (uint8_t)(sign | (r > 0x7eu ? 0x7eu : r));
}

static inline float half_from_e5m2(uint8_t b) { return half_from_f16((f16)((uint16_t)b << 8)); }

/* E2M1: 0 0.5 1 1.5 2 3 4 6 and their negatives. */
static inline float half_from_e2m1(uint8_t nibble) {
    static const float values[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    return nibble & 8u ? -values[nibble & 7u] : values[nibble & 7u];
}

/* E8M0: 2^(b - 127); 255 is NaN. */
static inline float half_from_e8m0(uint8_t b) {
    if (b == 255) return half_float(0x7fc00000u);
    return b ? half_float((uint32_t)b << 23) : half_float(0x00400000u);
}

#endif
