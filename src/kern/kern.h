/* All kernel families at one level: what ops/ calls. Filled once before the first step.
 * Threads: immutable after kern_init. */
#ifndef KERN_KERN_H
#define KERN_KERN_H

#include "base/cpu.h"
#include "kern/attn.h"
#include "kern/elem.h"
#include "kern/gemm.h"
#include "kern/peak.h"

struct kern {
    enum cpu_level level;
    struct gemm_kern gemm[GEMM_N_FORMATS];
    struct attn_table attn;
    struct elem_kern elem;
    struct peak_kern peak; /* benchmarks only */
};

/* Generic first, then every level up to `level` overrides what it has. */
void kern_init(struct kern *k, enum cpu_level level);

#endif
