#include "quant/quant.h"

#include <string.h>

#include "base/check.h"
#include "quant/quant_int.h"

/* One stored block (or element) to floats and back; NULL: not offered. */
struct codec {
    void (*decode)(float *out, const void *block);
    void (*encode)(void *block, const float *in);
};

static void decode_f32(float *out, const void *block) { memcpy(out, block, sizeof *out); }
static void encode_f32(void *block, const float *in) { memcpy(block, in, sizeof *in); }

static void decode_f64(float *out, const void *block) {
    double x;
    memcpy(&x, block, sizeof x);
    *out = (float)x;
}

static void decode_f16(float *out, const void *block) { *out = half_from_f16(block_u16(block)); }

static void encode_f16(void *block, const float *in) {
    const f16 h = half_to_f16(*in);
    memcpy(block, &h, sizeof h);
}

static void decode_bf16(float *out, const void *block) { *out = half_from_bf16(block_u16(block)); }

static void encode_bf16(void *block, const float *in) {
    const bf16 h = half_to_bf16(*in);
    memcpy(block, &h, sizeof h);
}

static void decode_e4m3(float *out, const void *block) { *out = half_from_e4m3(*(const uint8_t *)block); }
static void decode_e5m2(float *out, const void *block) { *out = half_from_e5m2(*(const uint8_t *)block); }
static void decode_e8m0(float *out, const void *block) { *out = half_from_e8m0(*(const uint8_t *)block); }

static const struct codec codecs[DTYPE_N] = {
    [DTYPE_F32] = {decode_f32, encode_f32},
    [DTYPE_F16] = {decode_f16, encode_f16},
    [DTYPE_BF16] = {decode_bf16, encode_bf16},
    [DTYPE_F64] = {decode_f64, NULL},
    [DTYPE_F8_E4M3] = {decode_e4m3, NULL},
    [DTYPE_F8_E5M2] = {decode_e5m2, NULL},
    [DTYPE_F8_E8M0] = {decode_e8m0, NULL},
    [DTYPE_Q4_0] = {gguf_legacy_decode_q4_0, gguf_legacy_encode_q4_0},
    [DTYPE_Q4_1] = {gguf_legacy_decode_q4_1, gguf_legacy_encode_q4_1},
    [DTYPE_Q5_0] = {gguf_legacy_decode_q5_0, gguf_legacy_encode_q5_0},
    [DTYPE_Q5_1] = {gguf_legacy_decode_q5_1, gguf_legacy_encode_q5_1},
    [DTYPE_Q8_0] = {gguf_legacy_decode_q8_0, gguf_legacy_encode_q8_0},
    [DTYPE_Q2_K] = {gguf_k_decode_q2, NULL},
    [DTYPE_Q3_K] = {gguf_k_decode_q3, NULL},
    [DTYPE_Q4_K] = {gguf_k_decode_q4, NULL},
    [DTYPE_Q5_K] = {gguf_k_decode_q5, NULL},
    [DTYPE_Q6_K] = {gguf_k_decode_q6, NULL},
    [DTYPE_IQ4_NL] = {gguf_i_decode_iq4_nl, NULL},
    [DTYPE_IQ4_XS] = {gguf_i_decode_iq4_xs, NULL},
    [DTYPE_MXFP4] = {gguf_i_decode_mxfp4, NULL},
};

/* Room for one block of any format, aligned for its fields. */
union block {
    struct block_q6_k largest;
    uint64_t align;
    uint8_t bytes[sizeof(struct block_q6_k)];
};

bool quant_supported(enum dtype t) { return (unsigned)t < DTYPE_N && codecs[t].decode; }

bool quant_encodable(enum dtype t) { return (unsigned)t < DTYPE_N && codecs[t].encode; }

void quant_decode_row(enum dtype t, float *out, const void *row, int64_t n) {
    CHECK(quant_supported(t));
    const struct dtype_info *const d = dtype_info(t);
    CHECK(n >= 0 && n % d->block_elems == 0);
    const uint8_t *p = row;
    union block b;
    CHECK((size_t)d->block_bytes <= sizeof b);
    for (int64_t i = 0; i < n; i += d->block_elems, p += d->block_bytes) {
        memcpy(b.bytes, p, (size_t)d->block_bytes);
        codecs[t].decode(out + i, b.bytes);
    }
}

void quant_encode_row(enum dtype t, void *row, const float *in, int64_t n) {
    CHECK(quant_encodable(t));
    const struct dtype_info *const d = dtype_info(t);
    CHECK(n >= 0 && n % d->block_elems == 0);
    uint8_t *p = row;
    union block b;
    CHECK((size_t)d->block_bytes <= sizeof b);
    for (int64_t i = 0; i < n; i += d->block_elems, p += d->block_bytes) {
        codecs[t].encode(b.bytes, in + i);
        memcpy(p, b.bytes, (size_t)d->block_bytes);
    }
}
