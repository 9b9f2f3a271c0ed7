/* Blocks of 256 with scales per sub-block: q2_k to q6_k. Elements are 128 n + 32 j + l, sub-blocks of
 * 16 are k = 8 n + 2 j + l / 16, sub-blocks of 32 are b = 4 n + j (quant/blocks.h). */
#include "quant/quant_int.h"

void gguf_k_decode_q2(float *out, const void *block) {
    const struct block_q2_k *const x = block;
    const float d = half_from_f16(x->d), dmin = half_from_f16(x->dmin);
    for (int i = 0; i < 256; i++) {
        const int n = i / 128, j = i / 32 % 4, l = i % 32, k = i / 16;
        const float scale = d * (float)(x->scales[k] & 15), min = dmin * (float)(x->scales[k] >> 4);
        const int q = (x->qs[32 * n + l] >> (2 * j)) & 3;
        out[i] = scale * (float)q - min;
    }
}

void gguf_k_decode_q3(float *out, const void *block) {
    const struct block_q3_k *const x = block;
    const float d = half_from_f16(x->d);
    for (int i = 0; i < 256; i++) {
        const int n = i / 128, j = i / 32 % 4, l = i % 32, k = i / 16;
        const float scale = d * (float)block_scale_q3(x->scales, k);
        const int high = (x->hmask[l] >> (4 * n + j)) & 1;
        const int q = ((x->qs[32 * n + l] >> (2 * j)) & 3) - (high ? 0 : 4);
        out[i] = scale * (float)q;
    }
}

void gguf_k_decode_q4(float *out, const void *block) {
    const struct block_q4_k *const x = block;
    const float d = half_from_f16(x->d), dmin = half_from_f16(x->dmin);
    for (int b = 0; b < 8; b++) {
        int sc, mn;
        block_scale_k4(x->scales, b, &sc, &mn);
        const float scale = d * (float)sc, min = dmin * (float)mn;
        for (int l = 0; l < 32; l++) {
            const int q = (x->qs[32 * (b / 2) + l] >> (4 * (b & 1))) & 15;
            out[32 * b + l] = scale * (float)q - min;
        }
    }
}

void gguf_k_decode_q5(float *out, const void *block) {
    const struct block_q5_k *const x = block;
    const float d = half_from_f16(x->d), dmin = half_from_f16(x->dmin);
    for (int b = 0; b < 8; b++) {
        int sc, mn;
        block_scale_k4(x->scales, b, &sc, &mn);
        const float scale = d * (float)sc, min = dmin * (float)mn;
        for (int l = 0; l < 32; l++) {
            const int low = (x->qs[32 * (b / 2) + l] >> (4 * (b & 1))) & 15;
            const int q = low | ((x->qh[l] >> b) & 1) << 4;
            out[32 * b + l] = scale * (float)q - min;
        }
    }
}

void gguf_k_decode_q6(float *out, const void *block) {
    const struct block_q6_k *const x = block;
    const float d = half_from_f16(x->d);
    for (int i = 0; i < 256; i++) {
        const int n = i / 128, j = i / 32 % 4, l = i % 32, k = i / 16;
        const int low = (x->ql[64 * n + l + 32 * (j & 1)] >> (j < 2 ? 0 : 4)) & 15;
        const int high = (x->qh[32 * n + l] >> (2 * j)) & 3;
        out[i] = d * (float)x->scales[k] * (float)((low | high << 4) - 32);
    }
}
