/* The avx2 level of the gemm family: fills the table. */
#include "kern/avx2/gemm_avx2_int.h"
#include "kern/avx2/gemm_quantize_avx2_int.h"
#include "kern/gemm_pack.h"

GEMM_ACTS(GEMM_AVX2_ROWS, gemm_quantize_avx2)

void gemm_init_avx2(struct gemm_kern table[GEMM_N_FORMATS]) {
    gemm_float_avx2_init(table);
    gemm_q32_avx2_init(table);
    gemm_kquant_avx2_init(table);
    gemm_pack_avx2_init(table);
    table_acts(table);
}
