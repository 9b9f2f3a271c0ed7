/* The avx512 level (with vnni) of the gemm family: fills the table. */
#include "kern/avx512/gemm_avx512_int.h"
#include "kern/avx2/gemm_quantize_avx2_int.h"
#include "kern/gemm_pack.h"

GEMM_ACTS(GEMM_AVX512_ROWS, gemm_quantize_avx2)

void gemm_init_avx512(struct gemm_kern table[GEMM_N_FORMATS]) {
    gemm_float_avx512_init(table);
    gemm_q32_avx512_init(table);
    gemm_kquant_avx512_init(table);
    gemm_pack_avx512_init(table);
    table_acts(table);
}
