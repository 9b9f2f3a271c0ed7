/* Kernel family "peak": the arithmetic rates that bound the other families, for benchmarks. Every function runs
 * rounds of independent chains in registers and touches no memory.
 * Threads: pure functions, any lane. */
#ifndef KERN_PEAK_H
#define KERN_PEAK_H

#include <stdint.h>

enum peak_kind {
    PEAK_FMA,   /* f32 multiply and add */
    PEAK_DOT8,  /* products of 8-bit integers */
    PEAK_DOT16, /* products of bf16, added in f32 */
    PEAK_N_KINDS
};

struct peak_kern {
    const char *name[PEAK_N_KINDS];           /* the instruction; NULL: the level has none */
    double (*run[PEAK_N_KINDS])(int64_t rounds); /* returns the operations done; a multiply and an add are two */
};

void peak_init_generic(struct peak_kern *k);
void peak_init_avx2(struct peak_kern *k);

/* bf16: the CPU has the bf16 instructions as well. */
void peak_init_avx512(struct peak_kern *k, int bf16);
void peak_init_neon(struct peak_kern *k);

#endif
