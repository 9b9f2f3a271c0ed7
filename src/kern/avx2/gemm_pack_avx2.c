/* Packing with AVX2: shuffles of bytes are one instruction, and units go past the caches. */
#include "kern/avx2/gemm_pack_avx2_int.h"
#include "kern/gemm_pack.h"
#include "kern/gemm_pack_simd.h"

GEMM_PACKS(8, 16, _mm_sfence())

void gemm_pack_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    table_packs(table);
}
