/* Every number format against golden vectors, bit for bit; encoders byte for byte where they are defined so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "load_golden.h"
#include "quant/blocks.h"
#include "quant/quant.h"

/* Equal bits; of NaN only that it is one. */
static int same(float a, float b) { return half_bits(a) == half_bits(b) || (isnan(a) && isnan(b)); }

/* Decodes all blocks of a [n, bytes] tensor, at an odd address, and compares with [n, block] values. */
static void check_decode(enum dtype t, const struct ckpt_tensor *blocks, const struct ckpt_tensor *values) {
    const int64_t n = blocks->shape[0] * dtype_info(t)->block_elems;
    float *const out = malloc((size_t)n * sizeof *out);
    uint8_t *const odd = malloc(blocks->bytes + 1);
    assert_true(out && odd);
    assert_int_equal(values->bytes, (size_t)n * sizeof *out);
    memcpy(odd + 1, blocks->data, blocks->bytes);
    quant_decode_row(t, out, odd + 1, n);
    for (int64_t i = 0; i < n; i++) {
        float want;
        memcpy(&want, (const char *)values->data + (size_t)i * sizeof want, sizeof want);
        if (!same(out[i], want))
            fail_msg("%s element %lld: got %a, want %a", dtype_info(t)->name, (long long)i, (double)out[i],
                     (double)want);
    }
    free(odd);
    free(out);
}

static void check_encode(enum dtype t, const struct ckpt_tensor *blocks, const struct ckpt_tensor *input) {
    const int64_t n = blocks->shape[0] * dtype_info(t)->block_elems;
    float *const in = malloc(input->bytes);
    uint8_t *const out = malloc(blocks->bytes + 1);
    assert_true(in && out);
    memcpy(in, input->data, input->bytes);
    quant_encode_row(t, out + 1, in, n);
    for (size_t i = 0; i < blocks->bytes; i++)
        if (out[i + 1] != ((const uint8_t *)blocks->data)[i])
            fail_msg("%s byte %zu: got %d, want %d", dtype_info(t)->name, i, out[i + 1],
                     ((const uint8_t *)blocks->data)[i]);
    free(out);
    free(in);
}

static void test_golden_blocks(void **state) {
    (void)state;
    int n_formats = 0;
    golden_need("quant/q4_0.safetensors");
    for (int t = DTYPE_Q4_0; t <= DTYPE_MXFP4; t++) {
        char name[64];
        struct golden_file f;
        snprintf(name, sizeof name, "quant/%s.safetensors", dtype_info((enum dtype)t)->name);
        golden_open(&f, name);
        assert_true(quant_supported((enum dtype)t));
        assert_int_equal(golden_tensor(&f, "random_blocks")->shape[1], dtype_info((enum dtype)t)->block_bytes);
        check_decode((enum dtype)t, golden_tensor(&f, "random_blocks"), golden_tensor(&f, "random_values"));
        check_decode((enum dtype)t, golden_tensor(&f, "gauss_blocks"), golden_tensor(&f, "gauss_values"));
        if (quant_encodable((enum dtype)t))
            check_encode((enum dtype)t, golden_tensor(&f, "gauss_blocks"), golden_tensor(&f, "gauss_input"));
        golden_close(&f);
        n_formats++;
    }
    assert_int_equal(n_formats, 13);
}

static void check_codes(const struct golden_file *f, enum dtype t, const char *name) {
    const struct ckpt_tensor *const values = golden_tensor(f, name);
    float out[256];
    uint8_t codes[256];
    for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
    quant_decode_row(t, out, codes, 256);
    for (int i = 0; i < 256; i++)
        if (!same(out[i], ((const float *)values->data)[i]))
            fail_msg("%s code %d: got %a, want %a", name, i, (double)out[i], (double)((const float *)values->data)[i]);
}

static void test_golden_fp8(void **state) {
    (void)state;
    struct golden_file f;
    golden_need("quant/fp8.safetensors");
    golden_open(&f, "quant/fp8.safetensors");
    check_codes(&f, DTYPE_F8_E4M3, "e4m3fn_values");
    check_codes(&f, DTYPE_F8_E5M2, "e5m2_values");
    check_codes(&f, DTYPE_F8_E8M0, "e8m0_values");
    golden_close(&f);
}

static void check_half(enum dtype t, const char *file) {
    struct golden_file f;
    golden_open(&f, file);
    uint16_t *const codes = malloc(65536 * sizeof *codes);
    float *const out = malloc(65536 * sizeof *out);
    assert_true(codes && out);
    for (int i = 0; i < 65536; i++) codes[i] = (uint16_t)i;
    quant_decode_row(t, out, codes, 65536);
    const struct ckpt_tensor *const values = golden_tensor(&f, "values");
    for (int i = 0; i < 65536; i++)
        if (!same(out[i], ((const float *)values->data)[i])) fail_msg("%s code %d", file, i);

    const struct ckpt_tensor *const in = golden_tensor(&f, "input_bits"), *const want = golden_tensor(&f, "torch");
    const uint8_t *const is_nan = golden_tensor(&f, "is_nan")->data;
    const int64_t n = (int64_t)(in->bytes / sizeof(float));
    uint16_t *const got = malloc((size_t)n * sizeof *got);
    assert_true(got);
    quant_encode_row(t, got, in->data, n);
    for (int64_t i = 0; i < n; i++) {
        float back;
        quant_decode_row(t, &back, &got[i], 1);
        if (is_nan[i] ? !isnan(back) : got[i] != ((const uint16_t *)want->data)[i])
            fail_msg("%s input %lld: got %#x, want %#x", file, (long long)i, got[i], ((const uint16_t *)want->data)[i]);
    }
    free(got);
    free(out);
    free(codes);
    golden_close(&f);
}

static void test_golden_halves(void **state) {
    (void)state;
    golden_need("quant/f16.safetensors");
    check_half(DTYPE_F16, "quant/f16.safetensors");
    check_half(DTYPE_BF16, "quant/bf16.safetensors");
}

/* Without golden data: one hand-made block per encodable format. */
static void test_round_trip(void **state) {
    (void)state;
    static const enum dtype formats[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0};
    float in[64], out[64];
    uint8_t row[2 * sizeof(struct block_q8_0)];
    for (int i = 0; i < 64; i++) in[i] = (float)((i * 37) % 64 - 32) / 8.0f;
    for (size_t f = 0; f < N_ELEMENTS(formats); f++) {
        quant_encode_row(formats[f], row, in, 64);
        quant_decode_row(formats[f], out, row, 64);
        for (int i = 0; i < 64; i++) assert_true(fabsf(out[i] - in[i]) <= 0.55f);
    }
    quant_encode_row(DTYPE_F32, row, in, 16);
    quant_decode_row(DTYPE_F32, out, row, 16);
    assert_memory_equal(in, out, 16 * sizeof *in);
}

/* Values that are not finite must not crash any encoder. */
static void test_not_finite(void **state) {
    (void)state;
    float in[32];
    uint8_t row[sizeof(struct block_q8_0)];
    for (int i = 0; i < 32; i++) in[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    for (int t = DTYPE_Q4_0; t <= DTYPE_Q8_0; t++) {
        quant_encode_row((enum dtype)t, row, in, 32);
        float out[32];
        quant_decode_row((enum dtype)t, out, row, 32);
    }
}

static void test_tables(void **state) {
    (void)state;
    for (int t = 0; t < DTYPE_N; t++)
        assert_int_equal(quant_supported((enum dtype)t), t <= DTYPE_F64 || t >= DTYPE_F8_E4M3);
    assert_false(quant_encodable(DTYPE_Q6_K));
    float none;
    quant_decode_row(DTYPE_Q6_K, &none, "", 0);
    const uint8_t f64[8] = {0, 0, 0, 0, 0, 0, 0xf8, 0x3f};
    float x;
    quant_decode_row(DTYPE_F64, &x, f64, 1);
    assert_true(x == 1.5f);
    /* The doubled table of mxfp4 and the smallest scale: 0.5 * 2^-127. */
    const uint8_t mx[17] = {0, 0x91};
    float out[32];
    quant_decode_row(DTYPE_MXFP4, out, mx, 32);
    assert_true(out[0] == 0x1p-128f && out[16] == -0x1p-128f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_blocks), cmocka_unit_test(test_golden_fp8), cmocka_unit_test(test_golden_halves),
        cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_not_finite), cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
