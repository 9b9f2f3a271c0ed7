/* attn_test.c for the AVX-512 sources on CPUs without AVX-512: they run here through SIMDe on AVX2. GCC only:
 * the instruction set of this one file is set by a pragma. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)

#pragma GCC target("avx2,fma,f16c,bmi2")
#pragma GCC diagnostic ignored "-Wpsabi"
#ifndef XENON_EMULATE_AVX512
#define XENON_EMULATE_AVX512
#endif

#include "avx512_missing_f32.h"

#include "kern/avx512/attn_avx512.c"

#include "attn_test.c"

#else

#include <stdio.h>

int main(void) {
    printf("skipped: the emulation is built with GCC for x86-64\n");
    return 0;
}

#endif
