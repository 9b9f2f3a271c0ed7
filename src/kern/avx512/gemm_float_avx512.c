/* F32, F16 and BF16 weights with f32 activations; an output is one fma chain over k in order, a panel one vector.
 * One row takes four panels at once, more rows two, which share the broadcasts. */
#include "kern/avx512/gemm_avx512_int.h"
#include "kern/gemm_float_int.h"

enum { P = GEMM_AVX512_PANEL };

/* BF16: a word holds two k. */
GEMM_INLINE __m512 weight(const char *w, const enum gemm_format f, const bool odd) {
    if (f == GEMM_F32) return _mm512_loadu_ps((const float *)(const void *)w);
    if (f == GEMM_F16) return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)w));
    const __m512i x = _mm512_load_si512((const void *)w);
    return _mm512_castsi512_ps(odd ? _mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u))
                                   : _mm512_slli_epi32(x, 16));
}

enum { MAX_ACC = 16 }; /* accumulators: [R][panels] */

/* One k for R rows and np panels. */
GEMM_INLINE void step(__m512 acc[MAX_ACC], const struct gemm_part *p, const char *w, const float *a, const int R,
                      const int np, const enum gemm_format f, const bool odd) {
    __m512 v[4];
    GEMM_UNROLL
    for (int i = 0; i < np; i++) v[i] = weight(w + (size_t)i * p->panel_bytes, f, odd);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        const __m512 x = _mm512_set1_ps(a[r]);
        GEMM_UNROLL
        for (int i = 0; i < np; i++) acc[np * r + i] = _mm512_fmadd_ps(v[i], x, acc[np * r + i]);
    }
}

GEMM_INLINE void part_run(const struct gemm_part *p, const int R, const int np, const enum gemm_format f) {
    const int bytes = f == GEMM_F16 ? 2 * P : 4 * P, per = f == GEMM_BF16 ? 2 : 1;
    const char *w = p->panel;
    const float *a = p->act;
    float *const y = p->y;
    const int64_t ldy = p->ldy;
    __m512 acc[MAX_ACC];
    GEMM_UNROLL
    for (int i = 0; i < R * np; i++)
        acc[i] = p->first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + i / np * ldy + i % np * P);
    for (int64_t k = 0; k + per <= p->n; k += per, w += bytes, a += per * R) {
        step(acc, p, w, a, R, np, f, false);
        if (per == 2) step(acc, p, w, a + R, R, np, f, true);
    }
    if (per == 2 && p->n % 2) step(acc, p, w, a, R, np, f, false);
    GEMM_UNROLL
    for (int i = 0; i < R * np; i++) _mm512_storeu_ps(y + i / np * ldy + i % np * P, acc[i]);
}

#define PART(F, R, NP)                                                                                                 \
    static void part##R##x1_##F(const struct gemm_part *p) {                                                           \
        part_run(p, R, 1, GEMM_##F);                                                                                   \
    }                                                                                                                  \
    static void part##R##x##NP##_##F(const struct gemm_part *p) {                                                      \
        part_run(p, R, NP, GEMM_##F);                                                                                  \
    }

#define FORMAT(F, K_BYTES)                                                                                             \
    PART(F, 1, 4)                                                                                                      \
    PART(F, 2, 2) PART(F, 3, 2) PART(F, 4, 2) PART(F, 5, 2) PART(F, 6, 2) PART(F, 7, 2)                                \
        PART(F, 8, 2) static const struct gemm_part_fns parts_##F[GEMM_AVX512_ROWS] = {                                \
            {part1x1_##F, part1x4_##F, 4}, {part2x1_##F, part2x2_##F, 2}, {part3x1_##F, part3x2_##F, 2},               \
            {part4x1_##F, part4x2_##F, 2}, {part5x1_##F, part5x2_##F, 2}, {part6x1_##F, part6x2_##F, 2},               \
            {part7x1_##F, part7x2_##F, 2}, {part8x1_##F, part8x2_##F, 2},                                              \
    };                                                                                                                 \
    GEMM_PACKING(F, P)                                                                                                 \
    static void run_##F(const struct gemm_args *a) {                                                                   \
        const struct gemm_float_walk w = {P, GEMM_AVX512_ROWS, panel_bytes_##F(a->k), K_BYTES, parts_##F};             \
        gemm_float_run(a, &w);                                                                                         \
    }

FORMAT(F32, 4 * P)
FORMAT(F16, 2 * P)
FORMAT(BF16, 2 * P)

void gemm_float_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    table[GEMM_F32] = GEMM_ENTRY("avx512", F32, P, GEMM_ACT_F32, GEMM_LAYOUT_FLOAT);
    table[GEMM_F16] = GEMM_ENTRY("avx512", F16, P, GEMM_ACT_F32, GEMM_LAYOUT_FLOAT);
    table[GEMM_BF16] = GEMM_ENTRY("avx512", BF16, P, GEMM_ACT_F32, GEMM_LAYOUT_FLOAT);
}
