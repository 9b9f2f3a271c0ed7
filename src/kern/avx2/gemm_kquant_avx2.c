/* Formats with blocks of 256: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS. All run one loop: `prepare` expands the head of a
 * unit into 16-bit scale pairs, the 32-blocks make 16-bit dots, and vpmaddwd multiplies a dot by its sub-scale while it
 * adds the two halves, so a sub-scale costs no instruction of its own. Minima, and the bias of Q3_K, are vpmaddwd of
 * scale pairs with the pairs of sums in the activations; the dots of Q6_K start at their bias. All integers are exact.
 */
#include "kern/avx2/gemm_avx2_int.h"

/* A unit's scales, expanded. pairs: dword o = two neighbouring minima (or scales times bias) of output o. */
struct k_scales {
    __m256i dup[16];  /* dword o = (scale, scale); [8] or [16] */
    __m256i pairs[8]; /* [4] when sub-blocks are 32 wide, else [8] */
};

GEMM_INLINE bool has_min(const enum gemm_format f) {
    return f == GEMM_Q2_K || f == GEMM_Q4_K || f == GEMM_Q5_K;
}
GEMM_INLINE bool has_16(const enum gemm_format f) {
    return f == GEMM_Q2_K || f == GEMM_Q3_K || f == GEMM_Q6_K;
}

/* Scales 2j and 2j + 1 of 8 outputs each, 16 bytes: as pairs of int16. */
GEMM_INLINE __m256i pair_of(__m128i rows) {
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(rows, _mm_srli_si128(rows, 8)));
}

GEMM_INLINE void dup_pair(__m256i dup[2], __m256i pair) {
    const __m256i even = _mm256_set1_epi32(0x01000100), odd = _mm256_set1_epi32(0x03020302);
    const __m256i lane =
        _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    dup[0] = _mm256_shuffle_epi8(pair, _mm256_add_epi8(even, lane));
    dup[1] = _mm256_shuffle_epi8(pair, _mm256_add_epi8(odd, lane));
}

/* 2 n_pairs rows of 8 signed scales; the pairs are kept times 2^shift when shift >= 0. */
GEMM_INLINE void expand(struct k_scales *s, const char *rows, const int n_pairs, const int shift) {
    for (int j = 0; j < n_pairs; j++) {
        const __m256i p = pair_of(gemm_load128(rows + 16 * j));
        dup_pair(&s->dup[2 * j], p);
        if (shift >= 0) s->pairs[j] = _mm256_slli_epi16(p, shift);
    }
}

GEMM_INLINE __m256i two_bits(__m256i v, const int shift) {
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(3));
}

/* low | top << 4 */
GEMM_INLINE __m256i join(__m256i low, __m256i top) {
    return _mm256_or_si256(low, _mm256_slli_epi16(top, 4));
}

/* A, B, C of q4_k and q5_k; see docs/KERNELS.md. */
GEMM_INLINE void prepare_k4(struct k_scales *s, const char *head) {
    const __m256i A = gemm_load(head + 32), B = gemm_load(head + 64), C = gemm_load(head + 96);
    __m256i rows[2];
    rows[0] = join(gemm_low4(A), two_bits(C, 0));
    rows[1] = join(gemm_high4(A), two_bits(C, 2));
    expand(s, (const char *)rows, 4, -1);
    const __m256i m0 = join(gemm_low4(B), two_bits(C, 4)), m1 = join(gemm_high4(B), two_bits(C, 6));
    s->pairs[0] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(m0));
    s->pairs[1] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(m0, 1));
    s->pairs[2] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(m1));
    s->pairs[3] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(m1, 1));
}

/* 16 bytes, scales 2j and 2j + 1 of 8 outputs, both low nibbles: bytes to the dwords of their outputs. */
GEMM_INLINE __m256i spread(__m256i rows, const int first, const int second) {
    const __m256i out = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i low = _mm256_add_epi32(out, _mm256_set1_epi32(8 * first));
    const __m256i high = _mm256_slli_epi32(_mm256_add_epi32(out, _mm256_set1_epi32(8 * second)), 16);
    const __m256i none = _mm256_set1_epi32((int)0x80008000);
    return _mm256_shuffle_epi8(rows, _mm256_or_si256(none, _mm256_or_si256(low, high)));
}

GEMM_INLINE void prepare_q2(struct k_scales *s, const char *head) {
    GEMM_UNROLL
    for (int j = 0; j < 8; j++) {
        const __m256i v = _mm256_broadcastsi128_si256(gemm_load128(head + 32 + 16 * j)), scales = gemm_low4(v);
        s->dup[2 * j] = spread(scales, 0, 0);
        s->dup[2 * j + 1] = spread(scales, 1, 1);
        s->pairs[j] = spread(gemm_high4(v), 0, 1);
    }
}

GEMM_INLINE void prepare_q3(struct k_scales *s, const char *head) {
    const __m256i A0 = gemm_load(head), A1 = gemm_load(head + 32), C = gemm_load(head + 64);
    const __m256i bias = _mm256_set1_epi8(32);
    __m256i rows[4];
    rows[0] = _mm256_sub_epi8(join(gemm_low4(A0), two_bits(C, 0)), bias);
    rows[1] = _mm256_sub_epi8(join(gemm_low4(A1), two_bits(C, 2)), bias);
    rows[2] = _mm256_sub_epi8(join(gemm_high4(A0), two_bits(C, 4)), bias);
    rows[3] = _mm256_sub_epi8(join(gemm_high4(A1), two_bits(C, 6)), bias);
    expand(s, (const char *)rows, 8, 2);
}

GEMM_INLINE void prepare_iq4(struct k_scales *s, const char *head) {
    const __m256i top = _mm256_broadcastsi128_si256(gemm_load128(head + 16)), low = gemm_load(head + 32);
    const __m256i t0 = _mm256_srlv_epi32(top, _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2));
    const __m256i bias = _mm256_set1_epi8(32);
    __m256i rows[2];
    rows[0] = _mm256_sub_epi8(join(gemm_low4(low), two_bits(t0, 0)), bias);
    rows[1] = _mm256_sub_epi8(join(gemm_high4(low), two_bits(t0, 4)), bias);
    expand(s, (const char *)rows, 4, -1);
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
        expand(s, head, 8, -1);
}

/* t0 and t1 of a row, times their scales, into its integer sum. */
GEMM_INLINE __m256i scaled(__m256i isum, __m256i t0, __m256i s0, __m256i t1, __m256i s1) {
    return _mm256_add_epi32(isum, _mm256_add_epi32(_mm256_madd_epi16(t0, s0), _mm256_madd_epi16(t1, s1)));
}

/* Q4_K, Q5_K: one sub-scale per 32. */
GEMM_INLINE void block_k4(__m256i *isum, const char *w, const char *a, __m256i sc, const int R, const bool five) {
    struct gemm_sums t;
    gemm_sums_zero(&t, R);
    gemm_dots_q4(&t, w, a, R, five ? GEMM_NIBBLES_5 : GEMM_NIBBLES_4, five);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        if (five)
            isum[r] = scaled(isum[r], t.t0[r], sc, t.t1[r], sc);
        else
            isum[r] = _mm256_add_epi32(isum[r], _mm256_madd_epi16(t.t0[r], sc));
    }
}

/* 16 weights of Q6_K: the low or the high nibbles of the 4 vectors at w, their top bits in h. The sum of a row starts
 * at the bias of 32 times its negated sums, at `pairs`. */
GEMM_INLINE void half_q6(__m256i *isum, const char *w, __m256i h, const char *a, const char *pairs, __m256i sc,
                         const int R, const bool high) {
    __m256i t[GEMM_AVX2_ROWS];
    GEMM_UNROLL
    for (int r = 0; r < R; r++) t[r] = gemm_word(pairs + 4 * r);
    GEMM_UNROLL
    for (int g = 0; g < 4; g++) {
        const __m256i v = gemm_load(w + 32 * g), low = high ? gemm_high4(v) : gemm_low4(v);
        const __m256i code = _mm256_or_si256(low, gemm_bits(h, 2 * g, 4, 0x30));
        GEMM_UNROLL
        for (int r = 0; r < R; r++) t[r] = gemm_dot16(t[r], code, gemm_word(a + 32 * r + 4 * g));
    }
    GEMM_UNROLL
    for (int r = 0; r < R; r++) isum[r] = _mm256_add_epi32(isum[r], _mm256_madd_epi16(t[r], sc));
}

/* Q2_K, Q3_K: groups g and g + 4, their low bits in v0 and v1, the third ones in qh; a sum holds 4 groups. */
GEMM_INLINE void step_q2(struct gemm_sums *s, __m256i v0, __m256i v1, __m256i qh, const char *a, const int R,
                         const bool three, const int g) {
    __m256i lo = gemm_bits(v0, 2 * g, 0, 3), hi = gemm_bits(v1, 2 * g, 0, 3);
    if (three) {
        lo = _mm256_or_si256(lo, gemm_bits(qh, g, 2, 4));
        hi = _mm256_or_si256(hi, gemm_bits(qh, g + 4, 2, 4));
    }
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        s->t0[r] = gemm_dot16(s->t0[r], lo, gemm_word(a + 32 * r + 4 * g));
        s->t1[r] = gemm_dot16(s->t1[r], hi, gemm_word(a + 32 * r + 4 * g + 16));
    }
}

GEMM_INLINE void block_q2(__m256i *isum, const char *w, const char *a, const __m256i *sc, const int R,
                          const bool three) {
    struct gemm_sums t;
    const __m256i qh = three ? gemm_load(w) : _mm256_setzero_si256();
    if (three) w += 32;
    const __m256i v0 = gemm_load(w), v1 = gemm_load(w + 32);
    gemm_sums_zero(&t, R);
    step_q2(&t, v0, v1, qh, a, R, three, 0);
    step_q2(&t, v0, v1, qh, a, R, three, 1);
    step_q2(&t, v0, v1, qh, a, R, three, 2);
    step_q2(&t, v0, v1, qh, a, R, three, 3);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) isum[r] = scaled(isum[r], t.t0[r], sc[0], t.t1[r], sc[1]);
}

/* Block b of a unit for R rows whose words start at a; pairs: those of Q6_K. */
GEMM_INLINE void block(__m256i *isum, const char *w, const char *a, const char *pairs, const struct k_scales *s,
                       const int b, const int R, const enum gemm_format f) {
    if (f == GEMM_Q6_K) {
        half_q6(isum, w + 64, gemm_load(w), a, pairs, s->dup[2 * b], R, false);
        half_q6(isum, w + 64, gemm_load(w + 32), a + 16, pairs + 4 * R, s->dup[2 * b + 1], R, true);
    } else if (has_16(f))
        block_q2(isum, w, a, &s->dup[2 * b], R, f == GEMM_Q3_K);
    else if (f == GEMM_IQ4_XS)
        gemm_dots_iq4(isum, w, s->dup[b], a, R);
    else
        block_k4(isum, w, a, s->dup[b], R, f == GEMM_Q5_K);
}

/* All 8 blocks of a unit. Two sums a row leave registers for three rows; reading the codes twice from L1 is cheaper
 * than spilling. */
GEMM_INLINE void unit_dots(__m256i *isum, const char *w, const char *a, const struct k_scales *s, const int R,
                           const enum gemm_format f) {
    const int bytes = f == GEMM_Q2_K ? 64 : f == GEMM_Q3_K ? 96 : f == GEMM_Q5_K ? 160 : f == GEMM_Q6_K ? 192 : 128;
    const int half = (f == GEMM_Q2_K || f == GEMM_Q3_K || f == GEMM_Q5_K) && R > 4 ? 3 : R;
    const char *pairs = a + 308 * R;
    GEMM_ROLLED
    for (int b = 0; b < 8; b++, w += bytes, a += 32 * R, pairs += 8 * R) {
        gemm_ahead_near(w, bytes, R);
        block(isum, w, a, pairs, s, b, half, f);
        if (half < R) block(isum + half, w, a + 32 * half, pairs, s, b, R - half, f);
    }
}

/* sum_j pairs_j * (-sums_j) of row r; a points behind the codes. */
GEMM_INLINE __m256i pair_dots(__m256i acc, const struct k_scales *s, const char *a, const int R, const int r,
                              const enum gemm_format f) {
    const int n = has_16(f) ? 8 : 4;
    if (n == 4) a += 32 * R; /* sums of 32 lie behind those of 16 */
    GEMM_UNROLL
    for (int j = 0; j < n; j++)
        acc = _mm256_add_epi32(acc, _mm256_madd_epi16(s->pairs[j], gemm_word(a + 4 * (j * R + r))));
    return acc;
}

/* acc = fma(isum, d d_a, acc); then fma(-msum, dmin d_a, acc). */
GEMM_INLINE void unit(__m256 *acc, const char *head, const char *a, __m256 d, const int R, const enum gemm_format f) {
    const int head_bytes = f == GEMM_Q2_K ? 160 : f == GEMM_Q3_K ? 96 : f == GEMM_IQ4_XS ? 64 : 128;
    struct k_scales s;
    __m256i isum[GEMM_AVX2_ROWS];
    gemm_ahead_near(head, head_bytes, R);
    prepare(&s, head, f);
    GEMM_UNROLL
    for (int r = 0; r < R; r++) isum[r] = _mm256_setzero_si256();
    unit_dots(isum, head + head_bytes, a, &s, R, f);
    a += 256 * R;
    GEMM_UNROLL
    for (int r = 0; r < R; r++) {
        const __m256 da = gemm_scalar(a + 48 * R + 4 * r);
        if (f == GEMM_Q3_K) isum[r] = pair_dots(isum[r], &s, a, R, r, f);
        acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[r]), _mm256_mul_ps(d, da), acc[r]);
        if (has_min(f)) {
            const __m256i nmsum = pair_dots(_mm256_setzero_si256(), &s, a, R, r, f);
            acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(nmsum), _mm256_mul_ps(gemm_halves(head + 16), da), acc[r]);
        }
    }
}

GEMM_INLINE void tile(const struct gemm_tile *t, const int R, const enum gemm_format f) {
    const bool far_d = f == GEMM_Q3_K || f == GEMM_Q6_K;
    const int bytes = gemm_unit_bytes(f, GEMM_AVX2_PANEL);
    const int64_t n = t->k / 256;
    const char *w = t->panel + (far_d ? (16 * n + 63) / 64 * 64 : 0), *a = t->act;
    __m256 acc[GEMM_AVX2_ROWS];
    GEMM_UNROLL
    for (int r = 0; r < R; r++) acc[r] = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i++, w += bytes, a += R * GEMM_ACT256_BYTES) {
        gemm_ahead_next(t, i, R);
        unit(acc, w, a, gemm_halves(far_d ? t->panel + 16 * i : w), R, f);
    }
    GEMM_UNROLL
    for (int r = 0; r < R; r++) _mm256_storeu_ps(t->y + r * t->ldy, acc[r]);
}

#define FORMAT(F)                                                                                                      \
    GEMM_AVX2_TILES(F, tile)                                                                                           \
    GEMM_PACKING(F, GEMM_AVX2_PANEL)                                                                                   \
    GEMM_RUN(F, GEMM_AVX2_PANEL, GEMM_AVX2_ROWS, GEMM_LAYOUT_Q8_256)

FORMAT(Q2_K)
FORMAT(Q3_K)
FORMAT(Q4_K)
FORMAT(Q5_K)
FORMAT(Q6_K)
FORMAT(IQ4_XS)

#define ENTRY(F) table[GEMM_##F] = GEMM_ENTRY("avx2", F, GEMM_AVX2_PANEL, GEMM_ACT_Q8_256, GEMM_LAYOUT_Q8_256)

void gemm_kquant_avx2_init(struct gemm_kern table[GEMM_N_FORMATS]) {
    ENTRY(Q2_K);
    ENTRY(Q3_K);
    ENTRY(Q4_K);
    ENTRY(Q5_K);
    ENTRY(Q6_K);
    ENTRY(IQ4_XS);
}
