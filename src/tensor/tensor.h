/* The header of a value in the graph: what it is, how it is made, and, once the plan has placed it, where its bytes
 * are. An activation is a matrix of f32 rows; the number of rows belongs to the step, the width to the header. Only
 * graph/ makes tensors and only ops/ looks behind `op` and `params`. Threads: built by one thread, then immutable.
 * Owns: nothing; the graph's arena does. */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include <stdint.h>

#include "tensor/dtype.h"

/* Which rows an activation has in a step. */
enum tensor_rows {
    TENSOR_ROWS_TOKENS, /* one per token of the batch */
    TENSOR_ROWS_LOGITS, /* one per token whose logits are wanted */
};

enum { TENSOR_SRC_MAX = 4, TENSOR_NAME_MAX = 48 };

struct op;

struct tensor {
    char name[TENSOR_NAME_MAX];
    int id;                /* position in the graph's order of execution */
    enum dtype dtype;      /* DTYPE_F32, or DTYPE_U8 for bytes only the making op's family reads */
    enum tensor_rows rows;
    int64_t width;         /* elements of a row */
    const struct op *op;   /* ops/op.h */
    const void *params;    /* the op's own parameters, borrowed from the graph */
    const struct tensor *src[TENSOR_SRC_MAX];
    int n_src;
    int in_place;          /* 1: writes into the buffer of src[0] */
    int alias;             /* 1: shares the buffer of src[0] and has no work of its own */
};

#endif
