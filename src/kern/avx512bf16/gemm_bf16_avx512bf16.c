/* The avx512bf16 level of the gemm family: BF16 weights times activations rounded to bf16, two products per lane and
 * instruction (vdpbf16ps). gemm_init_generic_bf16 is the definition: one chain per output over the pairs of K in order,
 * the odd product of a pair first. A panel is one vector. The instruction's latency is six, so few rows take several
 * panels at once; more than eight rows are chains enough, and up to sixteen meet the weights in one pass. */
#include "base/check.h"
#include "kern/avx512/avx512.h"
#include "kern/gemm_float_int.h"

enum { P = 16, ROWS = 16, MAX_ACC = 16 };

/* ---- activations ---- */

/* Sixteen floats rounded to nearest even, bf16 in the upper halves; NaNs become quiet (half_to_bf16). */
GEMM_INLINE __m512i rounded(__m512 x) {
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), up, quiet);
}

/* The pairs of the n = 1 .. 32 elements at x; zeros behind them. */
GEMM_INLINE __m512i pairs(const float *x, int64_t n) {
    static const uint16_t upper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                       33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const uint32_t mask = n >= 32 ? UINT32_MAX : (1u << n) - 1;
    const __m512i lo = rounded(_mm512_maskz_loadu_ps((__mmask16)(mask & 0xffff), x));
    const __m512i hi = rounded(_mm512_maskz_loadu_ps((__mmask16)(mask >> 16), x + 16));
    return _mm512_permutex2var_epi16(lo, _mm512_loadu_si512(upper), hi);
}

static void tile_pack(uint32_t *out, const float *x, int64_t ldx, int rows, int64_t k) {
    uint32_t words[16];
    for (int64_t k0 = 0; k0 < k; k0 += 32, out += 16 * rows)
        for (int r = 0; r < rows; r++) {
            const int64_t n = k - k0 < 32 ? k - k0 : 32;
            _mm512_storeu_si512(words, pairs(x + r * ldx + k0, n));
            for (int64_t i = 0; i < (n + 1) / 2; i++) out[i * rows + r] = words[i];
        }
}

static int act_tile(int m) {
    return gemm_act_tile(m, ROWS);
}

static size_t act_bytes(int m, int64_t k) {
    return gemm_act_total(GEMM_LAYOUT_BF16, m, k);
}

static void act_pack(void *act, const float *x, int64_t ldx, int m, int row0, int row1, int64_t k) {
    const int tile = act_tile(m);
    const size_t row_bytes = gemm_act_row_bytes(GEMM_LAYOUT_BF16, k);
    for (int row = row0; row < row1; row += tile)
        tile_pack((uint32_t *)(void *)((char *)act + (size_t)row * row_bytes), x + row * ldx, ldx,
                  m - row < tile ? m - row : tile, k);
}

/* ---- tiles ---- */

GEMM_INLINE void part_run(const struct gemm_part *p, const int R, const int np) {
    const char *w = p->panel, *a = p->act;
    float *const y = p->y;
    const int64_t ldy = p->ldy;
    __m512 acc[MAX_ACC]; /* [R][np] */
    GEMM_UNROLL
    for (int i = 0; i < R * np; i++)
        acc[i] = p->first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + i / np * ldy + i % np * P);
    for (int64_t k = 0; k < p->n; k += 2, w += 4 * P, a += 4 * R) {
        __m512i v[4];
        GEMM_UNROLL
        for (int i = 0; i < np; i++) v[i] = _mm512_load_si512((const void *)(w + (size_t)i * p->panel_bytes));
        GEMM_UNROLL
        for (int i = 0; i < R * np; i++) acc[i] = avx512_dot_bf16(acc[i], v[i % np], a + 4 * (i / np));
    }
    GEMM_UNROLL
    for (int i = 0; i < R * np; i++) _mm512_storeu_ps(y + i / np * ldy + i % np * P, acc[i]);
}

#define PART(R, NP)                                                                                                    \
    static void part##R##x##NP(const struct gemm_part *p) {                                                            \
        part_run(p, R, NP);                                                                                            \
    }
// clang-format off
PART(1, 1) PART(2, 1) PART(3, 1) PART(4, 1) PART(5, 1) PART(6, 1) PART(7, 1) PART(8, 1)
PART(9, 1) PART(10, 1) PART(11, 1) PART(12, 1) PART(13, 1) PART(14, 1) PART(15, 1) PART(16, 1)
PART(1, 4) PART(2, 4) PART(3, 4) PART(4, 2) PART(5, 2) PART(6, 2) PART(7, 2) PART(8, 2)
// clang-format on

static const struct gemm_part_fns parts[ROWS] = {
    {part1x1, part1x4, 4}, {part2x1, part2x4, 4}, {part3x1, part3x4, 4}, {part4x1, part4x2, 2},
    {part5x1, part5x2, 2}, {part6x1, part6x2, 2}, {part7x1, part7x2, 2}, {part8x1, part8x2, 2},
    {part9x1, NULL, 1},    {part10x1, NULL, 1},   {part11x1, NULL, 1},   {part12x1, NULL, 1},
    {part13x1, NULL, 1},   {part14x1, NULL, 1},   {part15x1, NULL, 1},   {part16x1, NULL, 1},
};

/* ---- the table ---- */

static void run(const struct gemm_args *a) {
    const size_t panel_bytes = gemm_layout_bytes((struct gemm_shape){GEMM_BF16, P, a->k});
    const struct gemm_float_walk w = {P, ROWS, panel_bytes, 2 * P, parts};
    gemm_float_run_act(a, &w, GEMM_LAYOUT_BF16);
}

/* Panels, and what packs them, stay those of avx512. */
void gemm_init_avx512bf16(struct gemm_kern table[GEMM_N_FORMATS]) {
    struct gemm_kern *const g = &table[GEMM_BF16];
    CHECK(g->panel == P);
    g->isa = "avx512bf16";
    g->act = GEMM_ACT_BF16;
    g->act_layout = GEMM_LAYOUT_BF16;
    g->act_tile = act_tile;
    g->act_bytes = act_bytes;
    g->act_pack = act_pack;
    g->run = run;
}
