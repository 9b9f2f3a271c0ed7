/* The fast packer of whole panels, for any level: included once by a file that says how a vector goes to the panel
 * (PACK_PUT). It makes the bytes of gemm_layout_pack_rows from vectors of words instead of one code at a time: words of
 * all P rows are turned into P-wide vectors (a transpose of 32-bit words), and bits that the layout keeps elsewhere
 * move in all outputs at once, in registers. gemm_layout.h says where every bit goes. Vectors leave in the order of
 * their addresses as far as possible, because stores past the caches collect whole lines. Written with the compiler's
 * vectors, which every instruction set has: four words, or eight where one instruction does eight.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_GEMM_PACK_SIMD_H
#define KERN_GEMM_PACK_SIMD_H

#include <stdbool.h>
#include <string.h>

#include "base/attr.h"
#include "base/check.h"
#include "kern/gemm_layout.h"

/* PACK_PUT(p, v): stores vector v at p in the panel, a multiple of its size. */
#ifdef PACK_PUT

#ifdef __AVX2__
#define PACK_BYTES 32
#define PACK_SHUFFLE(a, b, i, j, k, l) /* by fours: a has 0..3, b 4..7 */                                              \
    __builtin_shufflevector(a, b, PACK_AT(i), PACK_AT(j), PACK_AT(k), PACK_AT(l), PACK_AT(i) + 4, PACK_AT(j) + 4,      \
                            PACK_AT(k) + 4, PACK_AT(l) + 4)
#define PACK_AT(i) ((i) < 4 ? (i) : (i) + 4)
#else
#define PACK_BYTES 16
#define PACK_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#endif

typedef uint32_t vec ATTR_VECTOR(PACK_BYTES);
typedef uint16_t vec_halves ATTR_VECTOR(PACK_BYTES);
typedef uint8_t vec_bytes ATTR_VECTOR(PACK_BYTES);
typedef uint32_t quad ATTR_VECTOR(16);
typedef uint64_t vec_longs ATTR_VECTOR(PACK_BYTES);

enum { WIDE = PACK_BYTES / 4 }; /* words, and outputs, of a vector */

#define INLINE static inline ATTR_ALWAYS_INLINE
#define UNROLL _Pragma("GCC unroll 16") /* or arrays of vectors would lie in memory */

enum {
    HEAD_MAX = 20 * 16 /* bytes of scales of a unit: Q2_K, P = 16 */
};

/* One unit of K of all rows. */
struct tile {
    const uint8_t *row; /* the first row's first byte of the unit */
    size_t step;        /* bytes between rows */
    int n_blocks;       /* blocks of 32 that the rows have here; the last unit of K may lack some */
    const uint8_t *next; /* what the next panel has at this part of its bytes, when panels lie behind each other */
};

/* Packs a unit to u (zeros where blocks are missing); d: the unit's row in the panel's header, if it has one. */
typedef void unit_fn(uint8_t *u, uint8_t *d, const struct tile *t);

INLINE vec load(const uint8_t *p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void store(uint8_t *p, vec v) {
    memcpy(p, &v, sizeof v);
}

/* Four words of a row; in the upper half those of the row four further on. */
INLINE vec load_fours(const uint8_t *p, size_t step) {
    quad a;
    memcpy(&a, p, sizeof a);
#if PACK_BYTES == 32
    quad b;
    memcpy(&b, p + 4 * step, sizeof b);
    return __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
#else
    (void)step;
    return a;
#endif
}

/* Four words at byte `at` of a vector's rows, from the o-th on, as four vectors. */
INLINE void fours(vec y[4], const struct tile *t, size_t at, int o, const int P) {
    const size_t step = t->step;
    const uint8_t *const r = t->row + (size_t)o * step + at, *const next = t->next + at * (size_t)P + 16 * (size_t)o;
    /* The hardware sees too many short streams to fetch ahead: the next panel is asked for in order of address, a few
     * lines at a time. Addresses behind the end are no fault. */
    UNROLL
    for (int b = 0; b < 16 * WIDE; b += CACHE_LINE) __builtin_prefetch(next + b);
    const vec a = load_fours(r, step), b = load_fours(r + step, step);
    const vec c = load_fours(r + 2 * step, step), d = load_fours(r + 3 * step, step);
    const vec ab = PACK_SHUFFLE(a, b, 0, 4, 1, 5), AB = PACK_SHUFFLE(a, b, 2, 6, 3, 7);
    const vec cd = PACK_SHUFFLE(c, d, 0, 4, 1, 5), CD = PACK_SHUFFLE(c, d, 2, 6, 3, 7);
    y[0] = PACK_SHUFFLE(ab, cd, 0, 1, 4, 5);
    y[1] = PACK_SHUFFLE(ab, cd, 2, 3, 6, 7);
    y[2] = PACK_SHUFFLE(AB, CD, 0, 1, 4, 5);
    y[3] = PACK_SHUFFLE(AB, CD, 2, 3, 6, 7);
}

/* n (a multiple of 4) words of P rows as out[n][P], with the bits of flip inverted. */
INLINE void words(uint8_t *out, const struct tile *t, size_t at, const int n, const uint32_t flip, const int P) {
    const size_t line = 4 * (size_t)P;
    for (int i = 0; i < n; i += 4, at += 16, out += 4 * line)
        UNROLL
        for (int o = 0; o < P; o += WIDE) {
            vec y[4];
            fours(y, t, at, o, P);
            UNROLL
            for (size_t w = 0; w < 4; w++) PACK_PUT(out + w * line + 4 * (size_t)o, y[w] ^ flip);
        }
}

/* One word of every row of a vector, from the o-th on. Put together in registers: what is stored in small pieces
 * cannot be loaded whole at once. */
INLINE vec word(const struct tile *t, size_t at, int o) {
    const uint8_t *const r = t->row + (size_t)o * t->step + at;
    uint32_t x[WIDE];
    UNROLL
    for (size_t i = 0; i < WIDE; i++) memcpy(&x[i], r + i * t->step, 4);
#if PACK_BYTES == 32
    return (vec){x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
#else
    return (vec){x[0], x[1], x[2], x[3]};
#endif
}

/* One half or byte of every row, as out[P]. */
INLINE void half(uint8_t *out, const struct tile *t, size_t at, const int P) {
    typedef uint16_t eight ATTR_VECTOR(16);
    UNROLL
    for (int o = 0; o < P; o += 8) {
        const uint8_t *const r = t->row + (size_t)o * t->step + at;
        uint16_t x[8];
        UNROLL
        for (size_t i = 0; i < 8; i++) memcpy(&x[i], r + i * t->step, 2);
        const eight v = {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]};
        memcpy(out + 2 * o, &v, sizeof v);
    }
}

INLINE void byte(uint8_t *out, const struct tile *t, size_t at, const int P) {
    UNROLL
    for (size_t o = 0; o < (size_t)P; o++) out[o] = t->row[o * t->step + at];
}

/* The low halves of four words, then their high halves. */
INLINE vec halves_apart(vec w) {
    const vec_halves x = (vec_halves)w;
#if PACK_BYTES == 32
    return (vec)__builtin_shufflevector(x, x, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
#else
    return (vec)__builtin_shufflevector(x, x, 0, 2, 4, 6, 1, 3, 5, 7);
#endif
}

/* The low halves of a vector's words to lo, the high ones to hi. */
INLINE void halves(uint8_t *lo, uint8_t *hi, vec w) {
    vec_longs x = (vec_longs)halves_apart(w);
#if PACK_BYTES == 32
    x = __builtin_shufflevector(x, x, 0, 2, 1, 3);
#endif
    memcpy(lo, &x, sizeof x / 2);
    memcpy(hi, (const char *)&x + sizeof x / 2, sizeof x / 2);
}

/* Byte j of a vector's words to out + j * P. */
INLINE void bytes(uint8_t *out, vec w, const int P) {
    const vec_bytes x = (vec_bytes)w;
#if PACK_BYTES == 32
    const vec y = (vec)__builtin_shufflevector(x, x, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 16, 20, 24,
                                               28, 17, 21, 25, 29, 18, 22, 26, 30, 19, 23, 27, 31);
    const vec z = __builtin_shufflevector(y, y, 0, 4, 1, 5, 2, 6, 3, 7);
#else
    const vec z = (vec)__builtin_shufflevector(x, x, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
#endif
    UNROLL
    for (int j = 0; j < 4; j++) memcpy(out + j * P, (const char *)&z + WIDE * j, WIDE);
}

/* A finished head, in one piece: it was made of small ones. */
INLINE void put_head(uint8_t *u, const uint8_t *h, size_t n) {
    for (size_t i = 0; i < n; i += PACK_BYTES) PACK_PUT(u + i, load(h + i));
}

/* Bits `mask << shift` of a change places with bits `mask` of b. */
INLINE void exchange(vec *a, vec *b, const int shift, const uint32_t mask) {
    const vec x = *a, y = *b;
    *a = (x & mask) | ((y & mask) << shift);
    *b = ((x >> shift) & mask) | (y & (mask << shift));
}

#define NIBBLES 0x0f0f0f0fu
#define PAIRS   0x33333333u
#define SINGLES 0x55555555u

/* 32 bytes of every row: their low nibbles are one block, the high ones another. */
INLINE void nibbles(uint8_t *low, uint8_t *high, const struct tile *t, size_t at, const int P) {
    const size_t line = 4 * (size_t)P;
    UNROLL
    for (int o = 0; o < P; o += WIDE) {
        vec a[4], b[4];
        fours(a, t, at, o, P);
        fours(b, t, at + 16, o, P);
        UNROLL
        for (size_t v = 0; v < 4; v++) exchange(&a[v], &b[v], 4, NIBBLES);
        UNROLL
        for (size_t v = 0; v < 4; v++) PACK_PUT(low + v * line + 4 * (size_t)o, a[v]);
        UNROLL
        for (size_t v = 0; v < 4; v++) PACK_PUT(high + v * line + 4 * (size_t)o, b[v]);
    }
}

/* 16 bytes of pairs of bits: pair j of group g becomes pair g of x[j]. */
INLINE void pairs(vec x[4], const struct tile *t, size_t at, int o, const int P) {
    fours(x, t, at, o, P);
    exchange(&x[0], &x[2], 4, NIBBLES);
    exchange(&x[1], &x[3], 4, NIBBLES);
    exchange(&x[0], &x[1], 2, PAIRS);
    exchange(&x[2], &x[3], 2, PAIRS);
}

/* 32 bytes of every row: bit b of group g becomes bit g of out[b][P]. */
INLINE void bits(uint8_t *out, const struct tile *t, size_t at, const int P) {
    UNROLL
    for (int o = 0; o < P; o += WIDE) {
        vec x[8];
        fours(x, t, at, o, P);
        fours(x + 4, t, at + 16, o, P);
        UNROLL
        for (int g = 0; g < 4; g++) exchange(&x[g], &x[g + 4], 4, NIBBLES);
        UNROLL
        for (int g = 0; g < 8; g += g % 4 ? 3 : 1) exchange(&x[g], &x[g + 2], 2, PAIRS);
        UNROLL
        for (int g = 0; g < 8; g += 2) exchange(&x[g], &x[g + 1], 1, SINGLES);
        UNROLL
        for (int b = 0; b < 8; b++) store(out + 4 * (b * P + o), x[b]);
    }
}

/* Trades bits of x that are `shift` apart: those of mask with those of mask << shift. */
INLINE vec trade(vec x, const int shift, const uint32_t mask) {
    const vec t = (x ^ (x >> shift)) & mask;
    return x ^ t ^ (t << shift);
}

/* Words whose bit 4 g + b is code b of group g: it becomes bit g of byte b. The five bits of a position turn round by
 * two places, which four trades of two of them make. */
INLINE vec fifth_bits(vec x) {
    x = trade(x, 14, 0x0000ccccu);
    x = trade(x, 7, 0x00aa00aau);
    x = trade(x, 2, 0x0c0c0c0cu);
    return trade(x, 1, 0x22222222u);
}

/* ---- formats of blocks of 32 ---- */

struct form32 {
    int bytes;     /* of a block in the file */
    bool min;      /* d and m, or d alone */
    bool high;     /* a word of fifth bits */
    int n_words;   /* of codes */
    uint32_t flip; /* bits that the layout has inverted */
};

/* The scales of block i into h, and its vector of fifth bits into high[P]. */
INLINE void head_32(uint8_t *h, uint8_t *high, const struct tile *t, const struct form32 f, size_t i, const int P) {
    const size_t at = i * (size_t)f.bytes, line = 4 * (size_t)P;
    uint8_t *const d = h + i * line / 2, unused[2 * 16];
    if (!f.min && !f.high) {
        half(d, t, at, P);
        return;
    }
    UNROLL
    for (int o = 0; o < P; o += WIDE) {
        vec w[4];
        fours(w, t, at, o, P);
        halves(d + 2 * o, f.min ? d + line + 2 * o : unused, w[0]);
        if (f.high) store(high + 4 * o, fifth_bits(f.min ? w[1] : w[0] >> 16 | w[1] << 16));
    }
}

INLINE void unit_32(uint8_t *u, const struct tile *t, const struct form32 f, const int P) {
    const size_t line = 4 * (size_t)P, head = f.min ? 2 * line : line, n = (size_t)t->n_blocks;
    const size_t block = line * (size_t)(f.high + f.n_words), codes_at = (f.min ? 4 : 2) + (f.high ? 4 : 0);
    uint8_t h[2 * 4 * 16] ATTR_ALIGNED(32), high[2][4 * 16] ATTR_ALIGNED(32);
    if (n < 2) {
        memset(h, 0, head);
        memset(u + head + block, 0, block);
    }
    for (size_t i = 0; i < n; i++) head_32(h, high[i], t, f, i, P);
    put_head(u, h, head);
    u += head;
    for (size_t i = 0; i < n; i++, u += block) {
        if (f.high) put_head(u, high[i], line);
        words(u + (f.high ? line : 0), t, i * (size_t)f.bytes + codes_at, f.n_words, f.flip, P);
    }
}

INLINE void unit_mxfp4(uint8_t *u, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P, n = (size_t)t->n_blocks;
    uint8_t h[4 * 16] ATTR_ALIGNED(32);
    if (n < 4) {
        memset(h, 0, line);
        memset(u + line * (1 + 4 * n), 0, line * 4 * (4 - n));
    }
    for (size_t i = 0; i < n; i++) byte(h + i * (size_t)P, t, 17 * i, P);
    put_head(u, h, line);
    for (size_t i = 0; i < n; i++) words(u + line * (1 + 4 * i), t, 17 * i + 1, 4, 0, P);
}

/* ---- formats of blocks of 256 ---- */

/* d, dmin and the scales of q4_k and q5_k, from the block's first four words. */
INLINE void head_k4(uint8_t *u, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P;
    uint8_t h[HEAD_MAX] ATTR_ALIGNED(32), top[4 * 16] ATTR_ALIGNED(32);
    UNROLL
    for (int o = 0; o < P; o += WIDE) {
        vec w[4];
        fours(w, t, 0, o, P);
        const vec s0 = w[1] & 0x3f3f3f3fu, s1 = (w[3] & NIBBLES) | (((w[1] >> 6) & 0x03030303u) << 4);
        const vec m0 = w[2] & 0x3f3f3f3fu, m1 = ((w[3] >> 4) & NIBBLES) | (((w[2] >> 6) & 0x03030303u) << 4);
        uint8_t *const B = h + 2 * line + 2 * o;
        halves(h + 2 * o, h + line / 2 + 2 * o, w[0]);
        bytes(h + line + o, (s0 & NIBBLES) | ((s1 & NIBBLES) << 4), P);
        halves(B, B + line / 2, (m0 & NIBBLES) | ((m1 & NIBBLES) << 4));
        bytes(h + 3 * line + o, ((s0 >> 4) & NIBBLES) | (((s1 >> 4) & NIBBLES) << 2), P);
        halves(top + 2 * o, top + line / 2 + 2 * o, (((m0 >> 4) & NIBBLES) << 4) | (((m1 >> 4) & NIBBLES) << 6));
    }
    put_head(u, h, 3 * line);
    UNROLL
    for (size_t i = 0; i < line; i += PACK_BYTES) PACK_PUT(u + 3 * line + i, load(h + 3 * line + i) | load(top + i));
}

INLINE void unit_q4_k(uint8_t *u, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P, block = 4 * line;
    head_k4(u, t, P);
    for (size_t c = 0; c < 4; c++) {
        uint8_t *const y = u + 4 * line + 2 * c * block;
        nibbles(y, y + block, t, 16 + 32 * c, P);
    }
}

INLINE void unit_q5_k(uint8_t *u, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P, block = 5 * line;
    uint8_t high[8 * 64] ATTR_ALIGNED(32);
    head_k4(u, t, P);
    bits(high, t, 16, P);
    for (size_t c = 0; c < 4; c++) {
        uint8_t *const y = u + 4 * line + 2 * c * block;
        put_head(y, high + 2 * c * line, line);
        put_head(y + block, high + (2 * c + 1) * line, line);
        nibbles(y + line, y + block + line, t, 48 + 32 * c, P);
    }
}

/* The scales of q6_k and q2_k: bytes as they are, [16][P]. */
INLINE void scales_put(uint8_t *h, const struct tile *t, size_t at, const int P) {
    UNROLL
    for (int o = 0; o < P; o += WIDE) {
        vec w[4];
        fours(w, t, at, o, P);
        UNROLL
        for (int i = 0; i < 4; i++) bytes(h + 4 * i * P + o, w[i], P);
    }
}

INLINE void unit_q6_k(uint8_t *u, uint8_t *d, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P, block = 6 * line;
    uint8_t h[HEAD_MAX] ATTR_ALIGNED(32);
    half(d, t, 208, P);
    scales_put(h, t, 192, P);
    put_head(u, h, 4 * line);
    for (size_t n = 0; n < 2; n++) {
        uint8_t *const y = u + 4 * line + 4 * n * block;
        UNROLL
        for (int o = 0; o < P; o += WIDE) {
            vec x[2][4];
            pairs(x[0], t, 128 + 32 * n, o, P);
            pairs(x[1], t, 128 + 32 * n + 16, o, P);
            UNROLL
            for (size_t j = 0; j < 4; j++) {
                PACK_PUT(y + j * block + 4 * (size_t)o, x[0][j]);
                PACK_PUT(y + j * block + line + 4 * (size_t)o, x[1][j]);
            }
        }
        for (size_t j = 0; j < 2; j++)
            nibbles(y + j * block + 2 * line, y + (j + 2) * block + 2 * line, t, 64 * n + 32 * j, P);
    }
}

/* The two-bit codes of q2_k and q3_k at byte `at`, behind a vector of high bits each when there are some. */
INLINE void codes_2(uint8_t *u, const uint8_t *high, const struct tile *t, size_t at, const int P) {
    const size_t line = 4 * (size_t)P, first = high ? line : 0, block = first + 2 * line;
    for (size_t n = 0; n < 2; n++) {
        uint8_t *const y = u + 4 * n * block;
        UNROLL
        for (int o = 0; o < P; o += WIDE) {
            vec x[2][4];
            pairs(x[0], t, at + 32 * n, o, P);
            pairs(x[1], t, at + 32 * n + 16, o, P);
            UNROLL
            for (size_t j = 0; j < 4; j++) {
                uint8_t *const z = y + j * block + 4 * (size_t)o;
                if (high) PACK_PUT(z, load(high + (4 * n + j) * line + 4 * (size_t)o));
                PACK_PUT(z + first, x[0][j]);
                PACK_PUT(z + first + line, x[1][j]);
            }
        }
    }
}

/* The last four words begin two bytes before the twelve scales. */
INLINE void unit_q3_k(uint8_t *u, uint8_t *d, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P;
    uint8_t h[HEAD_MAX] ATTR_ALIGNED(32), high[8 * 64] ATTR_ALIGNED(32);
    scales_put(h, t, 94, P);
    half(d, t, 108, P);
    put_head(u, h + line / 2, 3 * line);
    bits(high, t, 0, P);
    codes_2(u + 3 * line, high, t, 32, P);
}

INLINE void unit_q2_k(uint8_t *u, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P;
    uint8_t h[HEAD_MAX] ATTR_ALIGNED(32);
    UNROLL
    for (int o = 0; o < P; o += WIDE) halves(h + 2 * o, h + line / 2 + 2 * o, word(t, 80, o));
    scales_put(h + line, t, 0, P);
    put_head(u, h, 5 * line);
    codes_2(u + 5 * line, NULL, t, 16, P);
}

/* Every second pair of bits of the low half, squeezed together: pairs 0, 2, 4, 6 in byte 0, pairs 1, 3, 5, 7 in byte 1.
 */
INLINE vec every_second(vec h) {
    vec e = (h & 0x3333u) | ((h & 0xccccu) << 14);
    e = (e | (e >> 2)) & 0x0f0f0f0fu;
    e = (e | (e >> 4)) & 0x00ff00ffu;
    return (e & 0xffu) | ((e >> 16) << 8);
}

/* Nibbles 0..7 of a word as bytes of (0, 4), (1, 5), (2, 6), (3, 7). */
INLINE vec nibbles_apart(vec x) {
    const vec even = (x & 0x0f0fu) | (((x >> 16) & 0x0f0fu) << 4), odd = ((x >> 4) & 0x0f0fu) | ((x >> 16) & 0xf0f0u);
    return (even & 0xffu) | ((odd & 0xffu) << 8) | ((even & 0xff00u) << 8) | ((odd & 0xff00u) << 16);
}

INLINE void unit_iq4_xs(uint8_t *u, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P;
    uint8_t h[HEAD_MAX] ATTR_ALIGNED(32), unused[2 * 16];
    /* The top bits are two rows of four; the nibbles replace the others. */
    UNROLL
    for (int o = 0; o < P; o += WIDE) {
        const vec x = word(t, 0, o);
        halves(h + 2 * o, unused, x);
        bytes(h + line / 2 + o, every_second(x >> 16), P);
    }
    UNROLL
    for (int o = 0; o < P; o += WIDE) bytes(h + line + o, nibbles_apart(word(t, 4, o)), P);
    put_head(u, h, 2 * line);
    words(u + 2 * line, t, 8, 32, 0, P);
}

/* ---- floats: 64 bytes of every row ---- */

/* The tile beside itself in buf[P * 64]: rows that are a multiple of 4 KiB apart would share eight places of the cache,
 * and every row is read four times. */
INLINE struct tile near(uint8_t *buf, const struct tile *t, const int P) {
    for (size_t o = 0; o < (size_t)P; o++) {
        const uint8_t *const r = t->row + o * t->step;
        UNROLL
        for (size_t i = 0; i < 64; i += PACK_BYTES) store(buf + 64 * o + i, load(r + i));
    }
    return (struct tile){buf, 64, 0, t->next};
}

INLINE void unit_words(uint8_t *u, const struct tile *t, const int P) {
    uint8_t buf[64 * 16] ATTR_ALIGNED(64);
    const struct tile n = near(buf, t, P);
    words(u, &n, 0, 16, 0, P);
}

/* The low halves of the words of eight or sixteen rows, then the high halves: two rows of K. */
INLINE void put_halves(uint8_t *u, const vec *y, const int P) {
#if PACK_BYTES == 32
    const vec_longs a = (vec_longs)halves_apart(y[0]);
    if (P == 8) {
        PACK_PUT(u, (vec)__builtin_shufflevector(a, a, 0, 2, 1, 3));
        return;
    }
    const vec_longs b = (vec_longs)halves_apart(y[4]);
    PACK_PUT(u, (vec)__builtin_shufflevector(a, b, 0, 2, 4, 6));
    PACK_PUT(u + 32, (vec)__builtin_shufflevector(a, b, 1, 3, 5, 7));
#else
    for (int o = 0; o < P; o += WIDE) halves(u + 2 * o, u + 2 * P + 2 * o, y[o]);
#endif
}

INLINE void unit_halves(uint8_t *u, const struct tile *t, const int P) {
    const size_t line = 4 * (size_t)P;
    uint8_t buf[64 * 16] ATTR_ALIGNED(64);
    const struct tile n = near(buf, t, P);
    for (size_t i = 0; i < 16; i += 4, u += 4 * line) {
        vec y[16]; /* [vectors of rows][4] */
        UNROLL
        for (int o = 0; o < P; o += WIDE) fours(y + 4 * (o / WIDE), &n, 4 * i, o, P);
        UNROLL
        for (size_t k = 0; k < 4; k++) put_halves(u + k * line, y + k, P);
    }
}

/* ---- the table: every unit for both widths ---- */

#define UNIT(NAME, CALL)                                                                                               \
    static void NAME##_8(uint8_t *u, uint8_t *d, const struct tile *t) {                                               \
        enum { P = 8 };                                                                                                \
        (void)d;                                                                                                       \
        CALL;                                                                                                          \
    }                                                                                                                  \
    static void NAME##_16(uint8_t *u, uint8_t *d, const struct tile *t) {                                              \
        enum { P = 16 };                                                                                               \
        (void)d;                                                                                                       \
        CALL;                                                                                                          \
    }
#define FORM(...) ((struct form32){__VA_ARGS__})

UNIT(q8_0, unit_32(u, t, FORM(34, false, false, 8, 0x80808080u), P))
UNIT(q4_0, unit_32(u, t, FORM(18, false, false, 4, 0), P))
UNIT(q4_1, unit_32(u, t, FORM(20, true, false, 4, 0), P))
UNIT(q5_0, unit_32(u, t, FORM(22, false, true, 4, 0), P))
UNIT(q5_1, unit_32(u, t, FORM(24, true, true, 4, 0), P))
UNIT(mxfp4, unit_mxfp4(u, t, P))
UNIT(q2_k, unit_q2_k(u, t, P))
UNIT(q3_k, unit_q3_k(u, d, t, P))
UNIT(q4_k, unit_q4_k(u, t, P))
UNIT(q5_k, unit_q5_k(u, t, P))
UNIT(q6_k, unit_q6_k(u, d, t, P))
UNIT(iq4_xs, unit_iq4_xs(u, t, P))
UNIT(full, unit_words(u, t, P))
UNIT(f16, unit_halves(u, t, P))

static const struct {
    unit_fn *unit[2]; /* P = 8, P = 16 */
    int bytes;        /* of a unit of one row in the file */
} units[GEMM_N_FORMATS] = {
    // clang-format off
    [GEMM_F32]    = {{full_8, full_16}, 64},      [GEMM_F16]    = {{f16_8, f16_16}, 64},
    [GEMM_BF16]   = {{full_8, full_16}, 64},      [GEMM_Q8_0]   = {{q8_0_8, q8_0_16}, 2 * 34},
    [GEMM_Q4_0]   = {{q4_0_8, q4_0_16}, 2 * 18},  [GEMM_Q4_1]   = {{q4_1_8, q4_1_16}, 2 * 20},
    [GEMM_Q5_0]   = {{q5_0_8, q5_0_16}, 2 * 22},  [GEMM_Q5_1]   = {{q5_1_8, q5_1_16}, 2 * 24},
    [GEMM_Q2_K]   = {{q2_k_8, q2_k_16}, 84},      [GEMM_Q3_K]   = {{q3_k_8, q3_k_16}, 110},
    [GEMM_Q4_K]   = {{q4_k_8, q4_k_16}, 144},     [GEMM_Q5_K]   = {{q5_k_8, q5_k_16}, 176},
    [GEMM_Q6_K]   = {{q6_k_8, q6_k_16}, 210},     [GEMM_IQ4_NL] = {{q4_0_8, q4_0_16}, 2 * 18},
    [GEMM_IQ4_XS] = {{iq4_xs_8, iq4_xs_16}, 136}, [GEMM_MXFP4]  = {{mxfp4_8, mxfp4_16}, 4 * 17},
    // clang-format on
};

/* ---- panels ---- */

static void floats_panel(struct gemm_shape s, uint8_t *panel, struct tile t) {
    const size_t P = (size_t)s.panel, row = (size_t)s.k * (s.format == GEMM_F32 ? 4 : 2), all = gemm_layout_bytes(s);
    unit_fn *const unit = units[s.format].unit[P == 16];
    uint8_t last[64 * 16] ATTR_ALIGNED(32), u[64 * 16] ATTR_ALIGNED(32);
    const uint8_t *const first = t.row;
    size_t at = 0;
    for (; at + 64 <= row; at += 64) {
        t.row = first + at;
        t.next = first + P * (t.step + at);
        unit(panel + P * at, NULL, &t);
    }
    if (at == row) return;
    memset(last, 0, sizeof last);
    for (size_t o = 0; o < P; o++) memcpy(last + 64 * o, first + at + o * t.step, row - at);
    unit(u, NULL, &(struct tile){last, 64, 0, last});
    for (size_t i = 0; i < all - P * at; i += PACK_BYTES) PACK_PUT(panel + P * at + i, load(u + i));
}

static void blocks_panel(struct gemm_shape s, uint8_t *panel, struct tile t) {
    struct gemm_layout l;
    gemm_layout_of(&l, s.format, s.panel, s.k);
    const size_t bytes_k = (size_t)units[s.format].bytes, n_units = (size_t)((s.k + l.unit_k - 1) / l.unit_k);
    const size_t d_bytes = l.header ? 2 * (size_t)s.panel : 0, end = l.header + l.unit * n_units;
    const int n_blocks = l.unit_k / 32, last = (int)(s.k % l.unit_k) / 32;
    unit_fn *const unit = units[s.format].unit[s.panel == 16];
    const uint8_t *const first = t.row;
    for (size_t i = 0; i < n_units; i++) {
        t.row = first + i * bytes_k;
        t.next = first + (size_t)s.panel * (t.step + i * bytes_k);
        t.n_blocks = i + 1 == n_units && last ? last : n_blocks;
        unit(panel + l.header + l.unit * i, panel + d_bytes * i, &t);
    }
    memset(panel + d_bytes * n_units, 0, l.header - d_bytes * n_units);
    memset(panel + end, 0, l.bytes - end);
}

/* Packs s.panel (8 or 16) whole rows; reads nothing but them. */
static void gemm_pack_simd(struct gemm_shape s, void *panel, const void *rows, size_t row_bytes) {
    CHECK(s.panel == 8 || s.panel == 16);
    const struct tile t = {rows, row_bytes, 0, rows};
    if (s.format == GEMM_F32 || s.format == GEMM_F16 || s.format == GEMM_BF16) floats_panel(s, panel, t);
    else blocks_panel(s, panel, t);
}

#endif
#endif
