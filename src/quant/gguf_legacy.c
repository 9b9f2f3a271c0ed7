/* Blocks of 32 with one scale: q4_0 q4_1 q5_0 q5_1 q8_0. */
#include <math.h>

#include "quant/quant_int.h"

/* Element i of the nibble order: low halves of the 16 bytes, then the high ones. */
static int nibble(const uint8_t qs[16], int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

void gguf_legacy_decode_q4_0(float *out, const void *block) {
    const struct block_q4_0 *const b = block;
    const float d = half_from_f16(b->d);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(nibble(b->qs, i) - 8);
}

void gguf_legacy_decode_q4_1(float *out, const void *block) {
    const struct block_q4_1 *const b = block;
    const float d = half_from_f16(b->d), m = half_from_f16(b->m);
    for (int i = 0; i < 32; i++) out[i] = d * (float)nibble(b->qs, i) + m;
}

void gguf_legacy_decode_q5_0(float *out, const void *block) {
    const struct block_q5_0 *const b = block;
    const float d = half_from_f16(b->d);
    for (int i = 0; i < 32; i++) out[i] = d * (float)((nibble(b->qs, i) | block_bit5(b->qh, i)) - 16);
}

void gguf_legacy_decode_q5_1(float *out, const void *block) {
    const struct block_q5_1 *const b = block;
    const float d = half_from_f16(b->d), m = half_from_f16(b->m);
    for (int i = 0; i < 32; i++) out[i] = d * (float)(nibble(b->qs, i) | block_bit5(b->qh, i)) + m;
}

void gguf_legacy_decode_q8_0(float *out, const void *block) {
    const struct block_q8_0 *const b = block;
    const float d = half_from_f16(b->d);
    for (int i = 0; i < 32; i++) out[i] = d * (float)b->qs[i];
}

/* The whole number below x (x >= 0 but for rounding) as a code of 0..max; NaN becomes 0. */
static int code(float x, int max) {
    if (!(x > 0.0f)) return 0;
    return x >= (float)max ? max : (int)x;
}

/* The element of largest magnitude, with its sign; the first of equals. */
static float signed_max(const float *in) {
    float amax = 0.0f, max = 0.0f;
    for (int i = 0; i < 32; i++) {
        const float a = fabsf(in[i]);
        if (a > amax) {
            amax = a;
            max = in[i];
        }
    }
    return max;
}

static void range(const float *in, float *min, float *max) {
    *min = *max = in[0];
    for (int i = 1; i < 32; i++) {
        if (in[i] < *min) *min = in[i];
        if (in[i] > *max) *max = in[i];
    }
}

static float inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

static void put_nibble(uint8_t qs[16], int i, int q) {
    if (i < 16)
        qs[i] = (uint8_t)(q & 15);
    else
        qs[i - 16] |= (uint8_t)((q & 15) << 4);
}

static void put_bit5(uint8_t qh[4], int i, int q) { qh[i / 8] |= (uint8_t)((q >> 4 & 1) << (i % 8)); }

void gguf_legacy_encode_q4_0(void *block, const float *in) {
    struct block_q4_0 *const b = block;
    const float d = signed_max(in) / -8.0f, id = inverse(d);
    *b = (struct block_q4_0){.d = half_to_f16(d)};
    for (int i = 0; i < 32; i++) put_nibble(b->qs, i, code(in[i] * id + 8.5f, 15));
}

void gguf_legacy_encode_q4_1(void *block, const float *in) {
    struct block_q4_1 *const b = block;
    float min, max;
    range(in, &min, &max);
    const float d = (max - min) / 15.0f, id = inverse(d);
    *b = (struct block_q4_1){.d = half_to_f16(d), .m = half_to_f16(min)};
    for (int i = 0; i < 32; i++) put_nibble(b->qs, i, code((in[i] - min) * id + 0.5f, 15));
}

void gguf_legacy_encode_q5_0(void *block, const float *in) {
    struct block_q5_0 *const b = block;
    const float d = signed_max(in) / -16.0f, id = inverse(d);
    *b = (struct block_q5_0){.d = half_to_f16(d)};
    for (int i = 0; i < 32; i++) {
        const int q = code(in[i] * id + 16.5f, 31);
        put_nibble(b->qs, i, q);
        put_bit5(b->qh, i, q);
    }
}

void gguf_legacy_encode_q5_1(void *block, const float *in) {
    struct block_q5_1 *const b = block;
    float min, max;
    range(in, &min, &max);
    const float d = (max - min) / 31.0f, id = inverse(d);
    *b = (struct block_q5_1){.d = half_to_f16(d), .m = half_to_f16(min)};
    for (int i = 0; i < 32; i++) {
        const int q = code((in[i] - min) * id + 0.5f, 31);
        put_nibble(b->qs, i, q);
        put_bit5(b->qh, i, q);
    }
}

void gguf_legacy_encode_q8_0(void *block, const float *in) {
    struct block_q8_0 *const b = block;
    const float d = fabsf(signed_max(in)) / 127.0f, id = inverse(d);
    b->d = half_to_f16(d);
    for (int i = 0; i < 32; i++) {
        const float x = roundf(in[i] * id); /* halves go away from zero */
        b->qs[i] = (int8_t)(x < 0.0f ? -code(-x, 127) : code(x, 127));
    }
}
