/* Family "peak" in plain C: f32 only. */
#include "kern/peak.h"

enum { CHAINS = 32 };

static double fma_rate(int64_t rounds) {
    float acc[CHAINS];
    for (int i = 0; i < CHAINS; i++) acc[i] = (float)i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++) acc[i] = acc[i] * 0.999f + 1.0f;
    for (int i = 0; i < CHAINS; i++) __asm__ volatile("" : : "m"(acc[i]));
    return (double)rounds * CHAINS * 2;
}

void peak_init_generic(struct peak_kern *k) {
    *k = (struct peak_kern){.name = {[PEAK_FMA] = "mul, add"}, .run = {[PEAK_FMA] = fma_rate}};
}
