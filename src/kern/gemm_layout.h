/* The packed panels of the vector levels: where every bit of a weight lies. One description serves panels of any
 * width P (8 for 256-bit vectors, 16 for 512-bit), because a "vector" here is 4 P bytes: byte o * 4 + b belongs to
 * output o and to K index 4 g + b of k-group g. docs/KERNELS.md draws it.
 *
 *     panel  [header: d of every 256-block, for formats whose head would not be whole vectors otherwise] units
 *     unit   head (scales of the unit), then for each of its 32-blocks: high-bit vectors, low-bit vectors
 *
 * A 32-block has 8 k-groups. Vectors of one bit: bit g = group g. Of two bits (v = 0, 1): bits 2t.. = group 4v + t.
 * Of four bits (v = 0..3): low nibble = group v, high nibble = group v + 4. Of eight: vector g = group g.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_GEMM_LAYOUT_H
#define KERN_GEMM_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "kern/gemm.h"

struct gemm_layout {
    int panel;     /* P */
    int unit_k;    /* weights along K per unit: 64, 128 or 256 */
    size_t header; /* bytes before the first unit, a multiple of 64 */
    size_t head;   /* bytes of scales at the start of a unit */
    size_t block;  /* bytes of one 32-block of codes */
    size_t unit;   /* bytes of a unit */
    size_t bytes;  /* of the panel, a multiple of 64 */
};

/* The layout of one panel of a quantized format. */
void gemm_layout_of(struct gemm_layout *l, enum gemm_format f, int panel, int64_t k);

/* What is packed: a format, the panel's width P and K. */
struct gemm_shape {
    enum gemm_format format;
    int panel;
    int64_t k;
};

/* Bytes of a panel of any format, the float formats included. */
size_t gemm_layout_bytes(struct gemm_shape s);

/* Contracts of gemm_kern.pack and unpack_row, for any format. */
void gemm_layout_pack(struct gemm_shape s, void *panel, const void *rows, size_t row_bytes, int n_rows);

/* The specification of pack, one code at a time: what the fast packers (gemm_pack_simd.h) are compared with, and what
 * packs the one panel of a matrix that lacks rows. */
void gemm_layout_pack_rows(struct gemm_shape s, void *panel, const void *rows, size_t row_bytes, int n_rows);

void gemm_layout_unpack(struct gemm_shape s, float *out, const void *panel, int row);

#endif
