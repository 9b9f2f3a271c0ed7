/* Element types of stored tensors: one table of names and block sizes. A blocked type keeps
 * block_elems consecutive elements of a row (the last axis) in block_bytes bytes.
 * Threads: immutable. */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

enum dtype {
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_F64,
    DTYPE_I8,
    DTYPE_U8,
    DTYPE_I16,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_BOOL,
    DTYPE_F8_E4M3,
    DTYPE_F8_E5M2,
    DTYPE_F8_E8M0,
    DTYPE_Q4_0,
    DTYPE_Q4_1,
    DTYPE_Q5_0,
    DTYPE_Q5_1,
    DTYPE_Q8_0,
    DTYPE_Q2_K,
    DTYPE_Q3_K,
    DTYPE_Q4_K,
    DTYPE_Q5_K,
    DTYPE_Q6_K,
    DTYPE_IQ4_NL,
    DTYPE_IQ4_XS,
    DTYPE_MXFP4,
    DTYPE_N
};

struct dtype_info {
    const char *name; /* as users write it: "q4_0", "bf16" */
    int block_elems;
    int block_bytes;
};

/* CHECKs that t is a value of the enum. */
const struct dtype_info *dtype_info(enum dtype t);

/* Finds a type by its name, case ignored. False: unknown. */
bool dtype_by_name(const char *name, enum dtype *out);

/* Bytes of a row of n elements into *bytes. False: n is no multiple of the block, or overflow. */
bool dtype_row_bytes(enum dtype t, int64_t n, size_t *bytes) ATTR_NODISCARD;

#endif
