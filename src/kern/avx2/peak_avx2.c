/* Family "peak" with AVX2. Twelve chains: two units, latency up to five. */
#include "kern/peak.h"

#include <immintrin.h>

/* One variable per chain: an array would go through memory. */
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { N_CHAINS = 12 };

#define KEEP(i) __asm__ volatile("" : : "x"(acc##i));

static double fma_rate(int64_t rounds) {
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1.0f);
#define START(i) __m256 acc##i = _mm256_set1_ps((float)i);
#define STEP(i)  acc##i = _mm256_fmadd_ps(acc##i, a, b);
    CHAINS(START)
    for (int64_t r = 0; r < rounds; r++) { CHAINS(STEP) }
    CHAINS(KEEP)
#undef START
#undef STEP
    return (double)rounds * N_CHAINS * 8 * 2;
}

/* Products as pairs in int16, added in int16: what a kernel pays at least for 32 products. Written for the assembler,
 * since the products are all the same. */
static double dot8_rate(int64_t rounds) {
    const __m256i a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(3);
    __m256i t;
#define START(i) __m256i acc##i = _mm256_set1_epi16((short)i);
#define STEP(i)                                                                                                        \
    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(acc##i), "=&x"(t) : "x"(a), "x"(b));
    CHAINS(START)
    for (int64_t r = 0; r < rounds; r++) { CHAINS(STEP) }
    CHAINS(KEEP)
#undef START
#undef STEP
    return (double)rounds * N_CHAINS * 32 * 2;
}

void peak_init_avx2(struct peak_kern *k) {
    *k = (struct peak_kern){.name = {[PEAK_FMA] = "vfmadd ymm", [PEAK_DOT8] = "vpmaddubsw ymm"},
                            .run = {[PEAK_FMA] = fma_rate, [PEAK_DOT8] = dot8_rate}};
}
