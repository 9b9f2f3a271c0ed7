/* Kernel family "gemm": y = x W^T for one weight format, on packed panels.
 *
 * A panel holds `panel` consecutive outputs (rows of W) interleaved along K, so that one vector load
 * feeds all of them. Rows that a last panel lacks, and K behind the real end, are packed as zeros.
 * Packed bytes per weight are those of the file's format (docs/KERNELS.md draws the layouts).
 *
 * Activations are packed once per matrix input by act_pack, in row tiles of act_tile(m) rows; formats with the same
 * act kind and tile share the packed activations of one input.
 *
 * One numeric definition per (format, level): an output is ONE f32 fma chain over the blocks of K in order, starting
 * at +0; integer dots inside a block are exact. Levels differ in BF16 alone, where `act` says which definition it is.
 * It is a function of that row of x and that row of W alone: m, the tile, the number of panels and the panel's position
 * change nothing, bit for bit.
 *
 * Threads: pure functions, any lane. No allocation. Pointers are 64-byte aligned (x and y: 4 bytes). */
#ifndef KERN_GEMM_H
#define KERN_GEMM_H

#include <stddef.h>
#include <stdint.h>

/* Formats that have kernels. Weights arrive in the file's layout of that name (quant/blocks.h). */
enum gemm_format {
    GEMM_F32,
    GEMM_F16,
    GEMM_BF16,
    GEMM_Q8_0,
    GEMM_Q4_0,
    GEMM_Q4_1,
    GEMM_Q5_0,
    GEMM_Q5_1,
    GEMM_Q2_K,
    GEMM_Q3_K,
    GEMM_Q4_K,
    GEMM_Q5_K,
    GEMM_Q6_K,
    GEMM_IQ4_NL,
    GEMM_IQ4_XS,
    GEMM_MXFP4,
    GEMM_N_FORMATS
};

/* How activations are rounded and laid out. The kind is part of a format's numeric definition. */
enum gemm_act {
    GEMM_ACT_F32,   /* not rounded */
    GEMM_ACT_BF16,  /* rounded to bfloat16, to nearest even; sums flush denormals (gemm_generic.c) */
    GEMM_ACT_Q8_32, /* int8, one f32 scale per 32: d = max|x| / 127, q = round to even(x / d) */
    GEMM_ACT_Q8_256 /* int8, one f32 scale per 256, int16 sums per 16 */
};

struct gemm_args {
    float *y;             /* [m, ldy]: writes columns 0 .. n_rows-1 */
    int64_t ldy;          /* elements between rows of y */
    const void *panels;   /* n_panels = ceil(n_rows / panel) consecutive packed panels */
    int64_t n_rows;       /* outputs to compute */
    const void *act;      /* packed activations of all m rows */
    int m;                /* >= 1 */
    int64_t k;            /* real K; a multiple of the format's block */
};

struct gemm_kern {
    const char *isa; /* level that provides it, for reports; NULL: format not supported */
    int panel;       /* outputs per panel */
    enum gemm_act act;
    int act_layout;  /* kernels of one level with equal act_layout and equal act_tile(m) share packed activations */

    /* Bytes of one packed panel (a multiple of 64). */
    size_t (*panel_bytes)(int64_t k);

    /* Packs n_rows (1 .. panel) rows that are row_bytes apart in the file's format. */
    void (*pack)(void *panel, const void *rows, size_t row_bytes, int n_rows, int64_t k);

    /* Decodes row `row` of a packed panel into out[k] (tied embeddings). */
    void (*unpack_row)(float *out, const void *panel, int row, int64_t k);

    /* Rows per activation tile for a call with m rows; a multiple of it starts every tile. */
    int (*act_tile)(int m);

    /* Bytes of the packed activations of m rows (a multiple of 64). */
    size_t (*act_bytes)(int m, int64_t k);

    /* Packs rows row0 .. row1-1 of x [m, ldx] into the buffer of the whole call. row0 is a multiple
     * of act_tile(m); row1 as well, or m. Lanes pack disjoint row ranges of one buffer. */
    void (*act_pack)(void *act, const float *x, int64_t ldx, int m, int row0, int row1, int64_t k);

    void (*run)(const struct gemm_args *a);
};

/* Fill the table: generic provides every format, a level overrides what it has. */
void gemm_init_generic(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_init_avx2(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_init_avx512(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_init_avx512bf16(struct gemm_kern table[GEMM_N_FORMATS]); /* after avx512, whose panels it keeps */
void gemm_init_neon(struct gemm_kern table[GEMM_N_FORMATS]);

/* Not part of a level: the specification of BF16 where activations are GEMM_ACT_BF16, over generic, for tests. */
void gemm_init_generic_bf16(struct gemm_kern table[GEMM_N_FORMATS]);

#endif
