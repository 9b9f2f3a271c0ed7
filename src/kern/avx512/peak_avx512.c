/* Family "peak" with AVX-512. Sixteen chains: two units, latency up to six, and then some. Emulated instructions have
 * no rate worth knowing. */
#include "kern/peak.h"

#ifdef XENON_EMULATE_AVX512

void peak_init_avx512(struct peak_kern *k, int bf16) {
    (void)k;
    (void)bf16;
}

#else

#include <immintrin.h>

/* One variable per chain: an array would go through memory. */
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
enum { N_CHAINS = 16 };

#define START_PS(i) __m512 acc##i = _mm512_set1_ps((float)i);
#define KEEP(i)     __asm__ volatile("" : : "v"(acc##i));

static double fma_rate(int64_t rounds) {
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1.0f);
#define STEP(i) acc##i = _mm512_fmadd_ps(acc##i, a, b);
    CHAINS(START_PS)
    for (int64_t r = 0; r < rounds; r++) { CHAINS(STEP) }
    CHAINS(KEEP)
#undef STEP
    return (double)rounds * N_CHAINS * 16 * 2;
}

static double dot8_rate(int64_t rounds) {
    const __m512i a = _mm512_set1_epi8(1), b = _mm512_set1_epi8(3);
#define START(i) __m512i acc##i = _mm512_set1_epi32(i);
#define STEP(i)  acc##i = _mm512_dpbusd_epi32(acc##i, a, b);
    CHAINS(START)
    for (int64_t r = 0; r < rounds; r++) { CHAINS(STEP) }
    CHAINS(KEEP)
#undef START
#undef STEP
    return (double)rounds * N_CHAINS * 64 * 2;
}

/* Written for the assembler, because the flags of this folder do not promise bf16. */
static double dot16_rate(int64_t rounds) {
    const __m512i a = _mm512_set1_epi16(0x3f80), b = _mm512_set1_epi16(0x3f80);
#define STEP(i) __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(acc##i) : "v"(a), "v"(b));
    CHAINS(START_PS)
    for (int64_t r = 0; r < rounds; r++) { CHAINS(STEP) }
    CHAINS(KEEP)
#undef STEP
    return (double)rounds * N_CHAINS * 32 * 2;
}

void peak_init_avx512(struct peak_kern *k, int bf16) {
    *k = (struct peak_kern){.name = {[PEAK_FMA] = "vfmadd zmm", [PEAK_DOT8] = "vpdpbusd zmm"},
                            .run = {[PEAK_FMA] = fma_rate, [PEAK_DOT8] = dot8_rate}};
    if (!bf16) return;
    k->name[PEAK_DOT16] = "vdpbf16ps zmm";
    k->run[PEAK_DOT16] = dot16_rate;
}

#endif
