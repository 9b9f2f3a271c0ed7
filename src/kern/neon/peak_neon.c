/* Family "peak" with NEON. Sixteen chains: up to four units, latency up to four. */
#include "kern/peak.h"

#include <arm_neon.h>

/* One variable per chain: an array would go through memory. */
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
enum { N_CHAINS = 16 };

#define KEEP(i) __asm__ volatile("" : : "w"(acc##i));

static double fma_rate(int64_t rounds) {
    const float32x4_t a = vdupq_n_f32(0.999f), b = vdupq_n_f32(1.0f);
#define START(i) float32x4_t acc##i = vdupq_n_f32((float)i);
#define STEP(i)  acc##i = vfmaq_f32(acc##i, a, b);
    CHAINS(START)
    for (int64_t r = 0; r < rounds; r++) { CHAINS(STEP) }
    CHAINS(KEEP)
#undef START
#undef STEP
    return (double)rounds * N_CHAINS * 4 * 2;
}

static double dot8_rate(int64_t rounds) {
    const int8x16_t a = vdupq_n_s8(1), b = vdupq_n_s8(3);
#define START(i) int32x4_t acc##i = vdupq_n_s32(i);
#define STEP(i)  acc##i = vdotq_s32(acc##i, a, b);
    CHAINS(START)
    for (int64_t r = 0; r < rounds; r++) { CHAINS(STEP) }
    CHAINS(KEEP)
#undef START
#undef STEP
    return (double)rounds * N_CHAINS * 16 * 2;
}

void peak_init_neon(struct peak_kern *k) {
    *k = (struct peak_kern){.name = {[PEAK_FMA] = "fmla 4s", [PEAK_DOT8] = "sdot 4s"},
                            .run = {[PEAK_FMA] = fma_rate, [PEAK_DOT8] = dot8_rate}};
}
