/* Codes that index a table: iq4_nl, iq4_xs, mxfp4. */
#include "quant/quant_int.h"

/* 16 bytes in nibble order: out[i] = scale values[q_i]. */
static void decode_16(float *out, const uint8_t *qs, float scale, const int8_t values[16]) {
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (float)values[qs[i] & 15];
        out[i + 16] = scale * (float)values[qs[i] >> 4];
    }
}

void gguf_i_decode_iq4_nl(float *out, const void *block) {
    const struct block_iq4_nl *const x = block;
    decode_16(out, x->qs, half_from_f16(x->d), block_iq4_values);
}

void gguf_i_decode_iq4_xs(float *out, const void *block) {
    const struct block_iq4_xs *const x = block;
    const float d = half_from_f16(x->d);
    for (int b = 0; b < 8; b++)
        decode_16(out + 32 * b, x->qs + 16 * b, d * (float)block_scale_iq4(x, b), block_iq4_values);
}

/* The table holds doubled values, so the scale is half of 2^(e - 127); 255 is NaN. */
static float half_scale(uint8_t e) {
    if (e == 255) return half_from_e8m0(e);
    if (e < 2) return half_float(0x00200000u << e); /* 2^-128 and 2^-127 are subnormal */
    return half_float((uint32_t)(e - 1) << 23);
}

void gguf_i_decode_mxfp4(float *out, const void *block) {
    const struct block_mxfp4 *const x = block;
    decode_16(out, x->qs, half_scale(x->e), block_mxfp4_values);
}
