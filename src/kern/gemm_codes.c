/* Codes of weight blocks. Byte loops without branches, so that the compiler can vectorize them. */
#include "kern/gemm_codes.h"

#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "quant/blocks.h"

static const struct gemm_spec specs[GEMM_N_FORMATS] = {
    // clang-format off
    [GEMM_Q8_0]   = {32,  sizeof(struct block_q8_0),   8, 0, 128, NULL, 0, false},
    [GEMM_Q4_0]   = {32,  sizeof(struct block_q4_0),   4, 0, 8,   NULL, 0, false},
    [GEMM_Q4_1]   = {32,  sizeof(struct block_q4_1),   4, 0, 0,   NULL, 0, true},
    [GEMM_Q5_0]   = {32,  sizeof(struct block_q5_0),   4, 1, 16,  NULL, 0, false},
    [GEMM_Q5_1]   = {32,  sizeof(struct block_q5_1),   4, 1, 0,   NULL, 0, true},
    [GEMM_Q2_K]   = {256, sizeof(struct block_q2_k),   2, 0, 0,   NULL, 16, true},
    [GEMM_Q3_K]   = {256, sizeof(struct block_q3_k),   2, 1, 4,   NULL, 16, false},
    [GEMM_Q4_K]   = {256, sizeof(struct block_q4_k),   4, 0, 0,   NULL, 8, true},
    [GEMM_Q5_K]   = {256, sizeof(struct block_q5_k),   4, 1, 0,   NULL, 8, true},
    [GEMM_Q6_K]   = {256, sizeof(struct block_q6_k),   4, 2, 32,  NULL, 16, false},
    [GEMM_IQ4_NL] = {32,  sizeof(struct block_iq4_nl), 4, 0, 0,   block_iq4_values, 0, false},
    [GEMM_IQ4_XS] = {256, sizeof(struct block_iq4_xs), 4, 0, 0,   block_iq4_values, 8, false},
    [GEMM_MXFP4]  = {32,  sizeof(struct block_mxfp4),  4, 0, 0,   block_mxfp4_values, 0, false},
    // clang-format on
};

const struct gemm_spec *gemm_codes_spec(enum gemm_format f) {
    return specs[f].block ? &specs[f] : NULL;
}

/* 16 bytes of nibbles: element j low, element j + 16 high. */
static void nibbles_load(uint8_t *q, const uint8_t *qs) {
    for (int j = 0; j < 16; j++) q[j] = qs[j] & 15;
    for (int j = 0; j < 16; j++) q[j + 16] = qs[j] >> 4;
}

static void bit5_load(uint8_t *q, const uint8_t *qh) {
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)block_bit5(qh, i);
}

static void q2_load(struct gemm_codes *c, const struct block_q2_k *x) {
    for (int n = 0; n < 2; n++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++) c->q[128 * n + 32 * j + l] = (x->qs[32 * n + l] >> (2 * j)) & 3;
    for (int k = 0; k < 16; k++) {
        c->sc[k] = x->scales[k] & 15;
        c->mn[k] = x->scales[k] >> 4;
    }
    c->d = block_u16(&x->d);
    c->m = block_u16(&x->dmin);
}

static void q3_load(struct gemm_codes *c, const struct block_q3_k *x) {
    for (int b = 0; b < 8; b++)
        for (int l = 0; l < 32; l++) {
            const int lo = (x->qs[32 * (b / 4) + l] >> (2 * (b % 4))) & 3, hi = (x->hmask[l] >> b) & 1;
            c->q[32 * b + l] = (uint8_t)(lo | hi << 2);
        }
    for (int k = 0; k < 16; k++) c->sc[k] = (int16_t)block_scale_q3(x->scales, k);
    c->d = block_u16(&x->d);
}

static void scales_k4_load(struct gemm_codes *c, const uint8_t *scales) {
    for (int b = 0; b < 8; b++) {
        int sc, mn;
        block_scale_k4(scales, b, &sc, &mn);
        c->sc[2 * b] = c->sc[2 * b + 1] = (int16_t)sc;
        c->mn[2 * b] = c->mn[2 * b + 1] = (int16_t)mn;
    }
}

/* The nibbles of q4_k and q5_k: 32 bytes hold two sub-blocks of 32. */
static void nibbles_k_load(uint8_t *q, const uint8_t *qs) {
    for (int b = 0; b < 8; b += 2) {
        for (int l = 0; l < 32; l++) q[32 * b + l] = qs[16 * b + l] & 15;
        for (int l = 0; l < 32; l++) q[32 * b + 32 + l] = qs[16 * b + l] >> 4;
    }
}

static void q4k_load(struct gemm_codes *c, const struct block_q4_k *x) {
    nibbles_k_load(c->q, x->qs);
    scales_k4_load(c, x->scales);
    c->d = block_u16(&x->d);
    c->m = block_u16(&x->dmin);
}

static void q5k_load(struct gemm_codes *c, const struct block_q5_k *x) {
    nibbles_k_load(c->q, x->qs);
    for (int b = 0; b < 8; b++)
        for (int l = 0; l < 32; l++) c->q[32 * b + l] |= (uint8_t)(((x->qh[l] >> b) & 1) << 4);
    scales_k4_load(c, x->scales);
    c->d = block_u16(&x->d);
    c->m = block_u16(&x->dmin);
}

static void q6_load(struct gemm_codes *c, const struct block_q6_k *x) {
    for (int n = 0; n < 2; n++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++) {
                const int lo = (x->ql[64 * n + l + 32 * (j & 1)] >> (4 * (j / 2))) & 15;
                const int hi = (x->qh[32 * n + l] >> (2 * j)) & 3;
                c->q[128 * n + 32 * j + l] = (uint8_t)(lo | hi << 4);
            }
    for (int k = 0; k < 16; k++) c->sc[k] = x->scales[k];
    c->d = block_u16(&x->d);
}

static void iq4xs_load(struct gemm_codes *c, const struct block_iq4_xs *x) {
    for (int b = 0; b < 8; b++) {
        nibbles_load(c->q + 32 * b, x->qs + 16 * b);
        c->sc[2 * b] = c->sc[2 * b + 1] = (int16_t)block_scale_iq4(x, b);
    }
    c->d = block_u16(&x->d);
}

static void block32_load(struct gemm_codes *c, enum gemm_format f, const uint8_t *p) {
    if (f == GEMM_MXFP4) {
        c->d = p[0];
        nibbles_load(c->q, p + 1);
        return;
    }
    c->d = block_u16(p);
    p += 2;
    if (f == GEMM_Q8_0) {
        for (int i = 0; i < 32; i++) c->q[i] = p[i] ^ 128;
        return;
    }
    if (specs[f].has_min) {
        c->m = block_u16(p);
        p += 2;
    }
    nibbles_load(c->q, specs[f].bits_hi ? p + 4 : p);
    if (specs[f].bits_hi) bit5_load(c->q, p);
}

void gemm_codes_load(struct gemm_codes *c, enum gemm_format f, const void *block) {
    const struct gemm_spec *s = &specs[f];
    CHECK(s->block);
    c->m = 0;
    if (s->block == 32) {
        block32_load(c, f, block);
        return;
    }
    /* A copy on the stack, because rows start at any address. */
    union {
        struct block_q2_k q2;
        struct block_q3_k q3;
        struct block_q4_k q4;
        struct block_q5_k q5;
        struct block_q6_k q6;
        struct block_iq4_xs iq4;
    } u;
    memcpy(&u, block, (size_t)s->bytes);
    if (f == GEMM_Q2_K)
        q2_load(c, &u.q2);
    else if (f == GEMM_Q3_K)
        q3_load(c, &u.q3);
    else if (f == GEMM_Q4_K)
        q4k_load(c, &u.q4);
    else if (f == GEMM_Q5_K)
        q5k_load(c, &u.q5);
    else if (f == GEMM_Q6_K)
        q6_load(c, &u.q6);
    else
        iq4xs_load(c, &u.iq4);
}

void gemm_codes_values(int8_t *v, const struct gemm_codes *c, enum gemm_format f) {
    const struct gemm_spec *s = &specs[f];
    if (s->codebook)
        for (int i = 0; i < s->block; i++) v[i] = s->codebook[c->q[i]];
    else
        for (int i = 0; i < s->block; i++) v[i] = (int8_t)(c->q[i] - s->bias);
}

float gemm_codes_scale(const struct gemm_codes *c, enum gemm_format f) {
    if (f != GEMM_MXFP4) return half_from_f16(c->d);
    if (c->d == 255) return half_from_e8m0(255);
    /* 2^(e - 128): half the scale, since the codebook holds twice the values. */
    return half_float(c->d < 2 ? 0x00200000u << c->d : (uint32_t)(c->d - 1) << 23);
}

void gemm_codes_decode(float *out, const struct gemm_codes *c, enum gemm_format f) {
    const struct gemm_spec *s = &specs[f];
    const float d = gemm_codes_scale(c, f), m = half_from_f16(c->m);
    int8_t v[256];
    gemm_codes_values(v, c, f);
    for (int i = 0; i < s->block; i++) {
        if (s->block == 32)
            out[i] = s->has_min ? d * (float)v[i] + m : d * (float)v[i];
        else {
            const float x = d * (float)c->sc[i / 16] * (float)v[i];
            out[i] = s->has_min ? x - m * (float)c->mn[i / 16] : x;
        }
    }
}
