/* Packed activations: one layout for every level, parametrized by R, the rows of a tile. A call with m rows has
 * tiles of R = gemm_act_tile(m, max) rows; the last one may be shorter, and then its own row count is the R of its
 * layout.
 *
 *     float   [K][R] f32
 *     bf16    [ceil(K / 2)][R] words of a pair of K, the even one in the low half; 0 stands for a missing last one
 *     q8_32   per 32-block   { R x 32 B codes | R x i32 -sum | R x f32 d | R x f32 d * sum
 *                              | R x (i16, i16) -8 sums of the first and of the second two of every four weights }
 *     q8_256  per 256-block  { 8 x [R x 32 B codes] | 8 x [R x (i16, i16)] -sums of 16 weights, pairs (2j, 2j + 1)
 *                              | 4 x [R x (i16, i16)] -sums of 32 weights, pairs | R x f32 d
 *                              | 16 x [R x (i16, i16)] -32 sums of each 16 weights, in twos as above }
 *
 * Codes: d = max|x| / 127 in f32, q = x / d clamped to +-127 and rounded to nearest even; d = 0: all zeros. A block
 * with a NaN or an infinity gets d = that (NaN wins), so its outputs are not finite; a row's codes depend on that row
 * alone.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_GEMM_ACT_H
#define KERN_GEMM_ACT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Values of gemm_kern.act_layout. */
enum { GEMM_LAYOUT_FLOAT = 1, GEMM_LAYOUT_Q8_32, GEMM_LAYOUT_Q8_256, GEMM_LAYOUT_BF16 };

/* Bytes per row of one block in a tile. */
enum { GEMM_ACT32_BYTES = 32 + 16, GEMM_ACT256_BYTES = 256 + 8 * 4 + 4 * 4 + 4 + 16 * 4 };

/* Rows per tile: as even as possible, at most max. */
static inline int gemm_act_tile(int m, int max) {
    const int n = (m + max - 1) / max;
    return (m + n - 1) / n;
}

/* Bytes of one packed row (any R: rows of a tile share its bytes evenly). */
static inline size_t gemm_act_row_bytes(int layout, int64_t k) {
    if (layout == GEMM_LAYOUT_FLOAT) return 4 * (size_t)k;
    if (layout == GEMM_LAYOUT_BF16) return 4 * (size_t)((k + 1) / 2);
    if (layout == GEMM_LAYOUT_Q8_32) return (size_t)(k / 32) * GEMM_ACT32_BYTES;
    return (size_t)(k / 256) * GEMM_ACT256_BYTES;
}

static inline size_t gemm_act_total(int layout, int m, int64_t k) {
    return ((size_t)m * gemm_act_row_bytes(layout, k) + 63) & ~(size_t)63;
}

/* Quantizes n = 32 or 256 elements: codes, the sum of every 16, and d. */
typedef float gemm_quant_fn(int8_t *q, int16_t *sum16, const float *x, int n);

struct gemm_act_job {
    char *act;      /* the buffer of the whole call */
    const float *x; /* [m, ldx] */
    int64_t ldx, k;
    int m, tile, row0, row1;
};

static inline void gemm_act_float_tile(char *t, const float *x, int64_t ldx, int rows, int64_t k) {
    float *const out = (float *)(void *)t;
    if (rows == 1) {
        memcpy(out, x, (size_t)k * sizeof *x);
        return;
    }
    /* 16 columns at a time: the source lines stay in L1 while the words of R rows are interleaved. */
    for (int64_t k0 = 0; k0 < k; k0 += 16)
        for (int r = 0; r < rows; r++)
            for (int64_t i = k0; i < k && i < k0 + 16; i++) out[i * rows + r] = x[r * ldx + i];
}

/* -times the sums of the codes 4g, 4g + 1 and of 4g + 2, 4g + 3 in n = 16 or 32 codes, two int16 in a word: what a dot
 * that adds neighbouring bytes in 16 bits starts from when the codes of the weights have a bias of `times`. It may wrap
 * on its way, because the sum of the unbiased products fits: 32 * 8 * 127 and 16 * 16 * 127 are below 2^15. */
static inline uint32_t gemm_act_pair(const int8_t *q, int n, uint32_t times) {
    uint64_t lanes = 0; /* four 16-bit sums of codes + 128 */
    for (int i = 0; i < n; i += 8) {
        uint64_t w;
        memcpy(&w, q + i, sizeof w);
        w ^= 0x8080808080808080u;
        lanes += (w & 0x00ff00ff00ff00ffu) + (w >> 8 & 0x00ff00ff00ff00ffu);
    }
    const uint32_t even = (uint32_t)(lanes & 0xffff) + (uint32_t)(lanes >> 32 & 0xffff);
    const uint32_t odd = (uint32_t)(lanes >> 16 & 0xffff) + (uint32_t)(lanes >> 48), zero = 64 * (uint32_t)n;
    return (times * (zero - even) & 0xffff) | times * (zero - odd) << 16;
}

static inline void gemm_act_32_tile(char *t, const struct gemm_act_job *j, int row, int rows, gemm_quant_fn *quant) {
    for (int64_t k = 0; k < j->k; k += 32, t += rows * GEMM_ACT32_BYTES)
        for (int r = 0; r < rows; r++) {
            int16_t s[2];
            const float d = quant((int8_t *)t + 32 * r, s, j->x + (row + r) * j->ldx + k, 32);
            const int32_t nsum = -(s[0] + s[1]);
            const float ds = d * (float)-nsum;
            memcpy(t + 32 * rows + 4 * r, &nsum, 4);
            memcpy(t + 36 * rows + 4 * r, &d, 4);
            memcpy(t + 40 * rows + 4 * r, &ds, 4);
            const uint32_t pair = gemm_act_pair((const int8_t *)t + 32 * r, 32, 8);
            memcpy(t + 44 * rows + 4 * r, &pair, 4);
        }
}

static inline void gemm_act_256_row(char *t, int r, int rows, const float *x, gemm_quant_fn *quant) {
    int8_t q[256];
    int16_t s[16];
    const float d = quant(q, s, x, 256);
    for (int b = 0; b < 8; b++) memcpy(t + 32 * (b * rows + r), q + 32 * b, 32);
    t += 256 * rows;
    for (int i = 0; i < 8; i++) {
        const int16_t pair[2] = {(int16_t)-s[2 * i], (int16_t)-s[2 * i + 1]};
        memcpy(t + 4 * (i * rows + r), pair, 4);
    }
    t += 32 * rows;
    for (int i = 0; i < 4; i++) {
        const int16_t pair[2] = {(int16_t) - (s[4 * i] + s[4 * i + 1]), (int16_t) - (s[4 * i + 2] + s[4 * i + 3])};
        memcpy(t + 4 * (i * rows + r), pair, 4);
    }
    memcpy(t + 16 * rows + 4 * r, &d, 4);
    t += 20 * rows;
    for (int i = 0; i < 16; i++) {
        const uint32_t pair = gemm_act_pair(q + 16 * i, 16, 32);
        memcpy(t + 4 * (i * rows + r), &pair, 4);
    }
}

/* Packs rows row0 .. row1-1 (whole tiles), all layouts but bf16. quant is not used by the float layout. */
static inline void gemm_act_run(const struct gemm_act_job *j, int layout, gemm_quant_fn *quant) {
    for (int row = j->row0; row < j->row1; row += j->tile) {
        const int rows = j->m - row < j->tile ? j->m - row : j->tile;
        char *t = j->act + (size_t)row * gemm_act_row_bytes(layout, j->k);
        if (layout == GEMM_LAYOUT_FLOAT)
            gemm_act_float_tile(t, j->x + row * j->ldx, j->ldx, rows, j->k);
        else if (layout == GEMM_LAYOUT_Q8_32)
            gemm_act_32_tile(t, j, row, rows, quant);
        else
            for (int64_t k = 0; k < j->k; k += 256, t += rows * GEMM_ACT256_BYTES)
                for (int r = 0; r < rows; r++) gemm_act_256_row(t, r, rows, j->x + (row + r) * j->ldx + k, quant);
    }
}

#endif
