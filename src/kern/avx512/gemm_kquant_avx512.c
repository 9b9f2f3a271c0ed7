/* Formats with blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS. A unit's sub-scales are expanded to bytes once; a
 * dot of 16 or 32 weights is multiplied by its sub-scale in int32 (vpmulld) and added to the row's integer sum. Minima
 * are vpdpwssd of pairs with the pairs of sums in the activations; biases start the dots. All integers are exact. */
#include "kern/avx512/gemm_avx512_int.h"

struct k_scales {
    __m512i rows[4];  /* bytes [8 or 16 sub-scales][16 outputs], signed */
    __m512i pairs[8]; /* dword o = two neighbouring minima of output o; [4] when sub-blocks are 32 wide */
};

GEMM_INLINE bool has_min(const enum gemm_format f) {
    return f == GEMM_Q2_K || f == GEMM_Q4_K || f == GEMM_Q5_K;
}
GEMM_INLINE bool has_16(const enum gemm_format f) {
    return f == GEMM_Q2_K || f == GEMM_Q3_K || f == GEMM_Q6_K;
}

/* low 4 bits of bytes, after a shift right | 2 bits of top at `at`, as bits 4-5 */
GEMM_INLINE __m512i join(__m512i low, const int shift, __m512i top, const int at) {
    return _mm512_or_si512(gemm_move(low, -shift, 15), gemm_move(top, 4 - at, 0x30));
}

GEMM_INLINE __m512i pairs_of(__m512i v, const int half) {
    return _mm512_cvtepu8_epi16(half ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v));
}

/* A, B, C of q4_k and q5_k; see docs/KERNELS.md. */
GEMM_INLINE void prepare_k4(struct k_scales *s, const char *head) {
    const __m512i A = avx512_load(head + 64), B = avx512_load(head + 128), C = avx512_load(head + 192);
    s->rows[0] = join(A, 0, C, 0);
    s->rows[1] = join(A, 4, C, 2);
    const __m512i m0 = join(B, 0, C, 4), m1 = join(B, 4, C, 6);
    s->pairs[0] = pairs_of(m0, 0);
    s->pairs[1] = pairs_of(m0, 1);
    s->pairs[2] = pairs_of(m1, 0);
    s->pairs[3] = pairs_of(m1, 1);
}

GEMM_INLINE void prepare_q2(struct k_scales *s, const char *head) {
    const char *const m = (const char *)s->pairs;
    GEMM_UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512i v = avx512_load(head + 64 + 64 * i);
        s->rows[i] = gemm_and8(v, 15);
        s->pairs[i] = gemm_move(v, -4, 15); /* the minima's bytes for now */
    }
    /* From the back, so that a pair never lands on bytes that are still to be read. */
    GEMM_UNROLL
    for (int j = 7; j >= 0; j--) {
        const __m128i even = _mm_load_si128((const __m128i *)(const void *)(m + 32 * j));
        const __m128i odd = _mm_load_si128((const __m128i *)(const void *)(m + 32 * j + 16));
        const __m256i both = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
        s->pairs[j] = _mm512_cvtepu8_epi16(both);
    }
}

GEMM_INLINE void prepare_q3(struct k_scales *s, const char *head) {
    const __m512i A0 = avx512_load(head), A1 = avx512_load(head + 64), C = avx512_load(head + 128);
    const __m512i bias = _mm512_set1_epi8(32);
    s->rows[0] = _mm512_sub_epi8(join(A0, 0, C, 0), bias);
    s->rows[1] = _mm512_sub_epi8(join(A1, 0, C, 2), bias);
    s->rows[2] = _mm512_sub_epi8(join(A0, 4, C, 4), bias);
    s->rows[3] = _mm512_sub_epi8(join(A1, 4, C, 6), bias);
}

/* The head's first line is 16 d and 32 bytes of top bits: rows 0 and 1 of them serve scales 2t and 2t + 1. */
GEMM_INLINE void prepare_iq4(struct k_scales *s, const char *head) {
    const __m256i t = _mm256_load_si256((const __m256i *)(const void *)(head + 32));
    const __m512i top = _mm512_broadcast_i64x4(t), low = avx512_load(head + 64), bias = _mm512_set1_epi8(32);
    const __m512i by = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(2), 1);
    const __m512i top2 = _mm512_srlv_epi32(top, by);
    s->rows[0] = _mm512_sub_epi8(join(low, 0, top2, 0), bias);
    s->rows[1] = _mm512_sub_epi8(join(low, 4, top2, 4), bias);
}

GEMM_INLINE void prepare(struct k_scales *s, const char *head, const enum gemm_format f) {
    if (f == GEMM_Q4_K || f == GEMM_Q5_K)
        prepare_k4(s, head);
    else if (f == GEMM_Q2_K)
        prepare_q2(s, head);
    else if (f == GEMM_Q3_K)
        prepare_q3(s, head);
    else if (f == GEMM_IQ4_XS)
        prepare_iq4(s, head);
    else
        for (int i = 0; i < 4; i++) s->rows[i] = avx512_load(head + 64 * i);
}

GEMM_INLINE __m512i scale_row(const struct k_scales *s, int j) {
    return _mm512_cvtepi8_epi32(_mm_load_si128((const __m128i *)(const void *)((const char *)s->rows + 16 * j)));
}

/* The even or odd half of a pair of -sums at p, times the bias. */
GEMM_INLINE __m512i start_of(const char *p, const bool odd, const enum gemm_format f) {
    const int shift = gemm_bias_shift(f);
    if (!shift) return _mm512_setzero_si512();
    const __m512i x = avx512_word(p);
    return odd ? _mm512_slli_epi32(_mm512_srai_epi32(x, 16), (unsigned)shift)
               : _mm512_srai_epi32(_mm512_slli_epi32(x, 16), (unsigned)(16 - shift));
}

/* 32-block b with one sub-scale; odd says which half of its pair of sums. */
GEMM_INLINE void block_32(__m512i *isum, const char *w, const char *a, const char *sums, __m512i sc, const bool odd,
                          const int R, const enum gemm_format f) {
    __m512i c[8];
    gemm_unpack(c, w, f);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        __m512i t = start_of(sums + 4 * r, odd, f);
        GEMM_UNROLL
        for (int g = 0; g < 8; g++) t = avx512_dot_u8(t, c[g], a + 32 * r + 4 * g);
        isum[r] = _mm512_add_epi32(isum[r], _mm512_mullo_epi32(t, sc));
    }
}

/* A 32-block with two sub-scales. */
GEMM_INLINE void block_16(__m512i *isum, const char *w, const char *a, const char *sums, __m512i sc0, __m512i sc1,
                          const int R, const enum gemm_format f) {
    __m512i c[8];
    gemm_unpack(c, w, f);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        __m512i t = start_of(sums + 4 * r, false, f), u = start_of(sums + 4 * r, true, f);
        GEMM_UNROLL
        for (int g = 0; g < 4; g++) {
            t = avx512_dot_u8(t, c[g], a + 32 * r + 4 * g);
            u = avx512_dot_u8(u, c[g + 4], a + 32 * r + 4 * g + 16);
        }
        isum[r] = _mm512_add_epi32(isum[r], _mm512_mullo_epi32(t, sc0));
        isum[r] = _mm512_add_epi32(isum[r], _mm512_mullo_epi32(u, sc1));
    }
}

GEMM_INLINE void unit_dots(__m512i *isum, const char *w, const char *a, const struct k_scales *s, const int R,
                           const enum gemm_format f) {
    const int codes = 64 * (gemm_bits_lo(f) + gemm_bits_hi(f));
    const char *sums = a + 256 * R + (has_16(f) ? 0 : 32 * R);
    GEMM_ROLLED
    for (int b = 0; b < 8; b += 2) {
        if (has_16(f)) {
            block_16(isum, w, a, sums, scale_row(s, 2 * b), scale_row(s, 2 * b + 1), R, f);
            w += codes, a += 32 * R, sums += 4 * R;
            block_16(isum, w, a, sums, scale_row(s, 2 * b + 2), scale_row(s, 2 * b + 3), R, f);
        } else {
            block_32(isum, w, a, sums, scale_row(s, b), false, R, f);
            w += codes, a += 32 * R;
            block_32(isum, w, a, sums, scale_row(s, b + 1), true, R, f);
        }
        w += codes, a += 32 * R, sums += 4 * R;
    }
}

/* sum_j pairs_j * (-sums_j) of row r; a points behind the codes. */
GEMM_INLINE __m512i pair_dots(const struct k_scales *s, const char *a, const int R, const int r,
                              const enum gemm_format f) {
    const int n = has_16(f) ? 8 : 4;
    __m512i acc = _mm512_setzero_si512();
    if (n == 4) a += 32 * R; /* sums of 32 lie behind those of 16 */
    GEMM_UNROLL
    for (int j = 0; j < n; j++) acc = avx512_dot_i16(acc, s->pairs[j], a + 4 * (j * R + r));
    return acc;
}

GEMM_INLINE __m512 halves_at(const char *p) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(const void *)p));
}

/* acc = fma(isum, d d_a, acc); then fma(-msum, dmin d_a, acc). */
GEMM_INLINE void unit(__m512 *acc, const char *head, const char *a, __m512 d, const int R, const enum gemm_format f) {
    const int head_bytes = 16 * (f == GEMM_Q2_K ? 20 : f == GEMM_Q3_K ? 12 : f == GEMM_IQ4_XS ? 8 : 16);
    const __m512 dmin = has_min(f) ? halves_at(head + 32) : _mm512_setzero_ps();
    struct k_scales s;
    __m512i isum[GEMM_AVX512_ROWS];
    prepare(&s, head, f);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) isum[r] = _mm512_setzero_si512();
    unit_dots(isum, head + head_bytes, a, &s, R, f);
    a += 256 * R;
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        const __m512 da = avx512_scalar(a + 48 * R + 4 * r);
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(isum[r]), _mm512_mul_ps(d, da), acc[r]);
        if (has_min(f)) {
            const __m512i nmsum = pair_dots(&s, a, R, r, f);
            acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(nmsum), _mm512_mul_ps(dmin, da), acc[r]);
        }
    }
}

GEMM_INLINE void tile(const struct gemm_tile *t, const int R, const enum gemm_format f) {
    const bool far_d = f == GEMM_Q3_K || f == GEMM_Q6_K;
    const int bytes = gemm_unit_bytes(f, GEMM_AVX512_PANEL);
    const int64_t n = t->k / 256;
    const char *w = t->panel + (far_d ? (32 * n + 63) / 64 * 64 : 0), *a = t->act;
    __m512 acc[GEMM_AVX512_ROWS];
    GEMM_UNROLL
    for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i++, w += bytes, a += R * GEMM_ACT256_BYTES) {
        unit(acc, w, a, halves_at(far_d ? t->panel + 32 * i : w), R, f);
        if (R > 4) gemm_ahead(t, i);
    }
    GEMM_UNROLL
    for (int r = 0; r < R; r++) _mm512_storeu_ps(t->y + r * t->ldy, acc[r]);
}

#define FORMAT(F)                                                                                                      \
    GEMM_AVX512_TILES(F, tile)                                                                                         \
    GEMM_PACKING(F, GEMM_AVX512_PANEL)                                                                                 \
    GEMM_RUN(F, GEMM_AVX512_PANEL, GEMM_AVX512_ROWS, GEMM_LAYOUT_Q8_256)

FORMAT(Q2_K)
FORMAT(Q3_K)
FORMAT(Q4_K)
FORMAT(Q5_K)
FORMAT(Q6_K)
FORMAT(IQ4_XS)

#define ENTRY(F) table[GEMM_##F] = GEMM_ENTRY("avx512", F, GEMM_AVX512_PANEL, GEMM_ACT_Q8_256, GEMM_LAYOUT_Q8_256)

void gemm_kquant_avx512_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    ENTRY(Q2_K);
    ENTRY(Q3_K);
    ENTRY(Q4_K);
    ENTRY(Q5_K);
    ENTRY(Q6_K);
    ENTRY(IQ4_XS);
}
