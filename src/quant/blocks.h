/* Blocks of the GGUF number formats, byte for byte as files hold them (little-endian). A row of n
 * elements is n / elements-per-block blocks in order. What the bits mean is said here in one formula
 * each; quant/gguf_*.c is the readable decoder. `d`, `m`, `dmin` are IEEE binary16 (base/half.h).
 *
 * Nibble order of the 32-element formats: byte j holds element j (low) and element j + 16 (high).
 * The 256-element formats write an element as 128 n + 32 j + l, n in 0..1, j in 0..3, l in 0..31, and
 * number their sub-blocks of 16 as k = 8 n + 2 j + l / 16.
 *
 * Blocks have no alignment beyond that of uint16_t inside a row and rows start anywhere in a file:
 * read the fields through block_u16 (or memcpy) unless the address is known to be even.
 * Threads: types only. */
#ifndef QUANT_BLOCKS_H
#define QUANT_BLOCKS_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

enum {
    QUANT_BLOCK_32 = 32,   /* elements of a block of the legacy formats, IQ4_NL and MXFP4 */
    QUANT_BLOCK_256 = 256, /* elements of a block of the K formats and IQ4_XS */
};

/* x = d (q - 8) */
struct block_q4_0 {
    f16 d;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q4_0) == 18, "q4_0 block");

/* x = d q + m */
struct block_q4_1 {
    f16 d;
    f16 m;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q4_1) == 20, "q4_1 block");

/* x = d (q - 16); bit i of the little-endian qh is the fifth bit of element i */
struct block_q5_0 {
    f16 d;
    uint8_t qh[4];
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q5_0) == 22, "q5_0 block");

/* x = d q + m; qh as in q5_0 */
struct block_q5_1 {
    f16 d;
    f16 m;
    uint8_t qh[4];
    uint8_t qs[16];
};
static_assert(sizeof(struct block_q5_1) == 24, "q5_1 block");

/* x = d q */
struct block_q8_0 {
    f16 d;
    int8_t qs[32];
};
static_assert(sizeof(struct block_q8_0) == 34, "q8_0 block");

/* q = (qs[32 n + l] >> 2 j) & 3;  x = d (scales[k] & 15) q - dmin (scales[k] >> 4) */
struct block_q2_k {
    uint8_t scales[16];
    uint8_t qs[64];
    f16 d;
    f16 dmin;
};
static_assert(sizeof(struct block_q2_k) == 84, "q2_k block");

/* q as in q2_k, h = (hmask[l] >> (4 n + j)) & 1;  x = d (sc_k - 32) (q - (h ? 0 : 4)).
 * sc_k = (k < 8 ? scales[k] & 15 : scales[k - 8] >> 4) | ((scales[8 + k % 4] >> 2 (k / 4)) & 3) << 4 */
struct block_q3_k {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    f16 d;
};
static_assert(sizeof(struct block_q3_k) == 110, "q3_k block");

/* Sub-block b of 32: nibble of qs[32 (b / 2) + l], low for even b;  x = d sc_b q - dmin mn_b.
 * 6-bit sc_b, mn_b packed in scales: block_scale_k4. */
struct block_q4_k {
    f16 d;
    f16 dmin;
    uint8_t scales[12];
    uint8_t qs[128];
};
static_assert(sizeof(struct block_q4_k) == 144, "q4_k block");

/* As q4_k with q += 16 ((qh[l] >> b) & 1). */
struct block_q5_k {
    f16 d;
    f16 dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};
static_assert(sizeof(struct block_q5_k) == 176, "q5_k block");

/* lo = nibble of ql[64 n + l + 32 (j & 1)], low for j < 2; hi = (qh[32 n + l] >> 2 j) & 3;
 * x = d scales[k] ((lo | hi << 4) - 32) */
struct block_q6_k {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    f16 d;
};
static_assert(sizeof(struct block_q6_k) == 210, "q6_k block");

/* x = d block_iq4_values[q] */
struct block_iq4_nl {
    f16 d;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_iq4_nl) == 18, "iq4_nl block");

/* Sub-block b of 32 is qs[16 b .. 16 b + 15] in nibble order;
 * ls = ((scales_l[b / 2] >> 4 (b & 1)) & 15) | ((scales_h >> 2 b) & 3) << 4;
 * x = d (ls - 32) block_iq4_values[q] */
struct block_iq4_xs {
    f16 d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
};
static_assert(sizeof(struct block_iq4_xs) == 136, "iq4_xs block");

/* x = 2^(e - 127) E2M1(q); block_mxfp4_values holds 2 E2M1(q) as integers */
struct block_mxfp4 {
    uint8_t e;
    uint8_t qs[16];
};
static_assert(sizeof(struct block_mxfp4) == 17, "mxfp4 block");

/* The 16 values of iq4_nl and iq4_xs. */
static const int8_t block_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/* Twice the 16 values of E2M1, so that they are integers: x = 2^(e - 128) of these. */
static const int8_t block_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* A little-endian u16 at any address. */
static inline uint16_t block_u16(const void *p) {
    uint8_t b[2];
    memcpy(b, p, sizeof b);
    return (uint16_t)(b[0] | b[1] << 8);
}

/* A little-endian u32 at any address. */
static inline uint32_t block_u32(const void *p) {
    uint8_t b[4];
    memcpy(b, p, sizeof b);
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* The 6-bit scale and minimum of sub-block b (0..7) of q4_k and q5_k. */
static inline void block_scale_k4(const uint8_t scales[12], int b, int *sc, int *mn) {
    if (b < 4) {
        *sc = scales[b] & 63;
        *mn = scales[b + 4] & 63;
    } else {
        *sc = (scales[b + 4] & 15) | (scales[b - 4] >> 6) << 4;
        *mn = (scales[b + 4] >> 4) | (scales[b] >> 6) << 4;
    }
}

/* The 6-bit scale of sub-block k (0..15) of q3_k, offset by 32: -32..31. */
static inline int block_scale_q3(const uint8_t scales[12], int k) {
    const int lo = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
    const int hi = (scales[8 + k % 4] >> (2 * (k / 4))) & 3;
    return (lo | hi << 4) - 32;
}

/* The 6-bit scale of sub-block b (0..7) of iq4_xs, offset by 32: -32..31. */
static inline int block_scale_iq4(const struct block_iq4_xs *x, int b) {
    const int lo = (x->scales_l[b / 2] >> (4 * (b & 1))) & 15;
    const int hi = (x->scales_h >> (2 * b)) & 3;
    return (lo | hi << 4) - 32;
}

/* Element i of q5_0, q5_1: its fifth bit, 0 or 16. */
static inline int block_bit5(const uint8_t qh[4], int i) { return ((qh[i / 8] >> (i % 8)) & 1) << 4; }

#endif
