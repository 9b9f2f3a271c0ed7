/* Packing for AVX-512: as with AVX2, in panels of 16. Two stores past the caches make a whole line. */
#include "kern/avx2/gemm_pack_avx2_int.h"
#include "kern/gemm_pack.h"
#include "kern/gemm_pack_simd.h"

GEMM_PACKS(16, 16, _mm_sfence())

void gemm_pack_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    table_packs(table);
}
