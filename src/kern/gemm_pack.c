/* The packer with the instructions that every CPU has. */
#include "kern/gemm_pack.h"

#define PACK_PUT(p, v) store(p, v)
#include "kern/gemm_pack_simd.h"

void gemm_pack_panel(struct gemm_shape s, void *panel, const void *rows, size_t row_bytes) {
    gemm_pack_simd(s, panel, rows, row_bytes);
}
