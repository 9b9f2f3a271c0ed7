/* Number formats, readable and exact: rows of stored elements to float and back. Kernels have their
 * own fast versions; this is what they are compared with, and what loaders convert with.
 *
 * Decoding follows the formulas of quant/blocks.h literally in f32: the scale is multiplied out
 * first, then the code, then the minimum is subtracted, each step rounded (no fused multiply-add).
 * Encoding is round to nearest with the scale taken from the block alone, as GGUF quantizers do it.
 * Threads: pure functions, any. Owns: nothing. */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/dtype.h"

/* Can t be decoded: F32 F16 BF16 F64, F8_E4M3 F8_E5M2 F8_E8M0, and every GGUF block type of the enum. */
bool quant_supported(enum dtype t);

/* Can t be encoded: F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0. */
bool quant_encodable(enum dtype t);

/* out[0 .. n) = the n elements of a row in format t. row may have any alignment; n >= 0 is a multiple of the block
 * (dtype_row_bytes says how many bytes are read). CHECKs quant_supported(t) and n. F64 is rounded to float. */
void quant_decode_row(enum dtype t, float *out, const void *row, int64_t n);

/* The inverse: n elements of in into dtype_row_bytes(t, n) bytes at row (any alignment). CHECKs quant_encodable(t) and
 * n. Values that are not finite make their block meaningless but never crash. */
void quant_encode_row(enum dtype t, void *row, const float *in, int64_t n);

#endif
