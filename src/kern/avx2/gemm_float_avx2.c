/* F32, F16 and BF16 weights with f32 activations. A panel is 16 outputs, two vectors; an output is one fma chain
 * over k in order. Latency 4 at two fma a cycle wants 8 chains in flight, so one row takes 4 panels at once, two
 * rows 2. With many rows, K is cut so that a panel's part stays in L1 or L2; the chains go on from y, which changes no
 * bit. */
#include "kern/avx2/gemm_avx2_int.h"
#include "kern/gemm_float_int.h"

enum { P = GEMM_AVX2_PANEL_FLOAT };

/* BF16: a word holds two k. */
GEMM_INLINE __m256 weight(const char *w, const int v, const enum gemm_format f, const bool odd) {
    if (f == GEMM_F32) return _mm256_load_ps((const float *)(const void *)(w + 32 * v));
    if (f == GEMM_F16) return gemm_halves(w + 16 * v);
    const __m256i x = gemm_load(w + 32 * v);
    /* Two shifts need no register for a mask. */
    return _mm256_castsi256_ps(_mm256_slli_epi32(odd ? _mm256_srli_epi32(x, 16) : x, 16));
}

enum { MAX_ACC = 12 }; /* accumulators: [R][panels][2] */

/* One k for R rows and np panels. */
GEMM_INLINE void step(__m256 acc[MAX_ACC], const struct gemm_part *p, const char *w, const float *a, const int R,
                      const int np, const enum gemm_format f, const bool odd) {
    GEMM_UNROLL
    for (int i = 0; i < np; i++) {
        const __m256 w0 = weight(w + (size_t)i * p->panel_bytes, 0, f, odd);
        const __m256 w1 = weight(w + (size_t)i * p->panel_bytes, 1, f, odd);
        GEMM_UNROLL
        for (int r = 0; r < R; r++) {
            const __m256 x = _mm256_broadcast_ss(a + r);
            __m256 *const c = acc + 2 * (np * r + i);
            c[0] = _mm256_fmadd_ps(w0, x, c[0]);
            c[1] = _mm256_fmadd_ps(w1, x, c[1]);
        }
    }
}

GEMM_INLINE void part_run(const struct gemm_part *p, const int R, const int np, const enum gemm_format f) {
    const int bytes = f == GEMM_F16 ? 2 * P : 4 * P, per = f == GEMM_BF16 ? 2 : 1, n_acc = 2 * np * R;
    const char *w = p->panel;
    const float *a = p->act;
    float *const y = p->y;
    const int64_t ldy = p->ldy;
    __m256 acc[MAX_ACC];
    /* A mask, because clang keeps the accumulators in memory when they start in two ways. */
    const __m256 keep = _mm256_castsi256_ps(_mm256_set1_epi32(p->first ? 0 : -1));
    GEMM_UNROLL
    for (int i = 0; i < n_acc; i++)
        acc[i] = _mm256_and_ps(keep, _mm256_loadu_ps(y + i / (2 * np) * ldy + i % (2 * np) * 8));
    for (int64_t k = 0; k + per <= p->n; k += per, w += bytes, a += per * R) {
        step(acc, p, w, a, R, np, f, false);
        if (per == 2) step(acc, p, w, a + R, R, np, f, true);
    }
    if (per == 2 && p->n % 2) step(acc, p, w, a, R, np, f, false);
    GEMM_UNROLL
    for (int i = 0; i < n_acc; i++) _mm256_storeu_ps(y + i / (2 * np) * ldy + i % (2 * np) * 8, acc[i]);
}

#define PART(F, R, NP)                                                                                                 \
    static void part##R##x##NP##_##F(const struct gemm_part *p) {                                                      \
        part_run(p, R, NP, GEMM_##F);                                                                                  \
    }

#define FORMAT(F, K_BYTES)                                                                                             \
    PART(F, 1, 1)                                                                                                      \
    PART(F, 2, 1) PART(F, 3, 1) PART(F, 4, 1) PART(F, 5, 1) PART(F, 6, 1) PART(F, 1, 4)                                \
        PART(F, 2, 2) static const struct gemm_part_fns parts_##F[GEMM_AVX2_ROWS] = {                                  \
            {part1x1_##F, part1x4_##F, 4}, {part2x1_##F, part2x2_##F, 2}, {part3x1_##F, NULL, 1},                      \
            {part4x1_##F, NULL, 1},        {part5x1_##F, NULL, 1},        {part6x1_##F, NULL, 1},                      \
    };                                                                                                                 \
    GEMM_PACKING(F, P)                                                                                                 \
    static void run_##F(const struct gemm_args *a) {                                                                   \
        const struct gemm_float_walk w = {P, GEMM_AVX2_ROWS, panel_bytes_##F(a->k), K_BYTES, parts_##F};               \
        gemm_float_run(a, &w);                                                                                         \
    }

FORMAT(F32, 4 * P)
FORMAT(F16, 2 * P)
FORMAT(BF16, 2 * P)

void gemm_float_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    table[GEMM_F32] = GEMM_ENTRY("avx2", F32, P, GEMM_ACT_F32, GEMM_LAYOUT_FLOAT);
    table[GEMM_F16] = GEMM_ENTRY("avx2", F16, P, GEMM_ACT_F32, GEMM_LAYOUT_FLOAT);
    table[GEMM_BF16] = GEMM_ENTRY("avx2", BF16, P, GEMM_ACT_F32, GEMM_LAYOUT_FLOAT);
}
