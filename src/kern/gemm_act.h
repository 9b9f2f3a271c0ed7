/* Packed activations: one layout for every level, parametrized by R, the rows of a tile. A call with m rows has
 * tiles of R = gemm_act_tile(m, max) rows; the last one may be shorter, and then its own row count is the R of its
 * layout.
 *
 *     float   [K][R] f32
 *     q8_32   per 32-block   { R x 32 B codes | R x i32 -sum | R x f32 d | R x f32 d * sum }
 *     q8_256  per 256-block  { 8 x [R x 32 B codes] | 8 x [R x (i16, i16)] -sums of 16 weights, pairs (2j, 2j + 1)
 *                              | 4 x [R x (i16, i16)] -sums of 32 weights, pairs | R x f32 d }
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
enum { GEMM_LAYOUT_FLOAT = 1, GEMM_LAYOUT_Q8_32, GEMM_LAYOUT_Q8_256 };

/* Bytes per row of one block in a tile. */
enum { GEMM_ACT32_BYTES = 32 + 12, GEMM_ACT256_BYTES = 256 + 8 * 4 + 4 * 4 + 4 };

/* Rows per tile: as even as possible, at most max. */
static inline int gemm_act_tile(int m, int max) {
    const int n = (m + max - 1) / max;
    return (m + n - 1) / n;
}

/* Bytes of one packed row (any R: rows of a tile share its bytes evenly). */
static inline size_t gemm_act_row_bytes(int layout, int64_t k) {
    if (layout == GEMM_LAYOUT_FLOAT) return 4 * (size_t)k;
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
}

/* Packs rows row0 .. row1-1 (whole tiles). quant is not used by the float layout. */
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
