/* Fast packing of whole panels (gemm_pack_simd.h), by the level's instructions. Panels that lack rows, one per matrix,
 * are gemm_layout_pack_rows' business; the table entries here know that.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_GEMM_PACK_H
#define KERN_GEMM_PACK_H

#include <stddef.h>

#include "kern/gemm_layout.h"

/* Packs s.panel (8 or 16) whole rows into the bytes of gemm_layout_pack_rows; reads nothing but the rows. For any CPU.
 */
void gemm_pack_panel(struct gemm_shape s, void *panel, const void *rows, size_t row_bytes);

/* Replace `pack` of every format of the level: finished units go past the caches, because nobody reads a panel soon and
 * a plain store would read the memory that it is going to replace. */
void gemm_pack_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]);
void gemm_pack_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]);

/* pack_F for all formats, and table_packs(), which enters them. P, P_FLOAT: the level's panels of blocks and floats;
 * DONE: what makes stores that went past the caches visible to other threads. */
#define GEMM_PACKS(P, P_FLOAT, DONE)                                                                                   \
    GEMM_PACK_FLOATS(GEMM_PACK_ENTRY, P_FLOAT, DONE)                                                                   \
    GEMM_PACK_BLOCKS(GEMM_PACK_ENTRY, P, DONE)                                                                         \
    static void table_packs(struct gemm_kern table[GEMM_N_FORMATS]) {                                                  \
        GEMM_PACK_FLOATS(GEMM_PACK_ENTER, P_FLOAT, DONE)                                                               \
        GEMM_PACK_BLOCKS(GEMM_PACK_ENTER, P, DONE)                                                                     \
    }

#define GEMM_PACK_FLOATS(X, P, DONE) X(F32, P, DONE) X(F16, P, DONE) X(BF16, P, DONE)
#define GEMM_PACK_BLOCKS(X, P, DONE)                                                                                   \
    X(Q8_0, P, DONE) X(Q4_0, P, DONE) X(Q4_1, P, DONE) X(Q5_0, P, DONE) X(Q5_1, P, DONE) X(Q2_K, P, DONE)              \
    X(Q3_K, P, DONE) X(Q4_K, P, DONE) X(Q5_K, P, DONE) X(Q6_K, P, DONE) X(IQ4_NL, P, DONE) X(IQ4_XS, P, DONE)          \
    X(MXFP4, P, DONE)

#define GEMM_PACK_ENTRY(F, P, DONE)                                                                                    \
    static void pack_##F(void *panel, const void *rows, size_t row_bytes, int n_rows, int64_t k) {                     \
        const struct gemm_shape s = {GEMM_##F, P, k};                                                                  \
        if (n_rows == (P)) gemm_pack_simd(s, panel, rows, row_bytes);                                                  \
        else gemm_layout_pack_rows(s, panel, rows, row_bytes, n_rows);                                                 \
        DONE;                                                                                                          \
    }
#define GEMM_PACK_ENTER(F, P, DONE) table[GEMM_##F].pack = pack_##F;

#endif
