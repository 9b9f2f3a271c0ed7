/* The only file that knows every level. It must itself run on any CPU, so it is compiled for none. */
#include "kern/kern.h"

#include <string.h>

#if defined(__AVX__)
#error "dispatch.c must be compiled without instruction-set flags"
#endif

void kern_init(struct kern *k, enum cpu_level level) {
    memset(k, 0, sizeof *k);
    k->level = level;
    gemm_init_generic(k->gemm);
    attn_init_generic(&k->attn);
    elem_init_generic(&k->elem);
    peak_init_generic(&k->peak);
#if defined(__x86_64__)
    if (cpu_has(level, CPU_AVX2)) {
        gemm_init_avx2(k->gemm);
        attn_init_avx2(&k->attn);
        elem_init_avx2(&k->elem);
        peak_init_avx2(&k->peak);
    }
    if (cpu_has(level, CPU_AVX512)) {
        gemm_init_avx512(k->gemm);
        attn_init_avx512(&k->attn);
        elem_init_avx512(&k->elem);
        peak_init_avx512(&k->peak, cpu_has(level, CPU_AVX512BF16));
    }
    if (cpu_has(level, CPU_AVX512BF16)) gemm_init_avx512bf16(k->gemm);
#elif defined(__aarch64__)
    if (cpu_has(level, CPU_NEON)) {
        gemm_init_neon(k->gemm);
        attn_init_neon(&k->attn);
        elem_init_neon(&k->elem);
        peak_init_neon(&k->peak);
    }
#endif
}
