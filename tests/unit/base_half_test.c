/* Small float formats: every code round-trips, rounding is to nearest even, special values behave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdbool.h>

#include "base/attr.h"
#include "base/half.h"

static void test_f16_codes(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        const float x = half_from_f16((f16)h);
        const bool nan = (h & 0x7c00u) == 0x7c00u && (h & 0x3ffu);
        assert_int_equal(isnan(x) != 0, nan);
        if (!nan) assert_int_equal(half_to_f16(x), h);
        else assert_true(isnan(half_from_f16(half_to_f16(x))));
    }
    assert_true(half_from_f16(0x3c00) == 1.0f && half_from_f16(0x7bff) == 65504.0f && half_from_f16(1) == 0x1p-24f);
}

static void test_f16_rounding(void **state) {
    (void)state;
    assert_int_equal(half_to_f16(2049.0f), half_to_f16(2048.0f)); /* ties to even */
    assert_int_equal(half_to_f16(2051.0f), half_to_f16(2052.0f));
    assert_int_equal(half_to_f16(65519.0f), 0x7bff);
    assert_int_equal(half_to_f16(65520.0f), 0x7c00);
    assert_int_equal(half_to_f16(0x1p-25f), 0);                   /* half of the smallest: to even */
    assert_int_equal(half_to_f16(-0x1.8p-25f), 0x8001);
    assert_int_equal(half_to_f16(0x1.ff8p-15f), 0x3ff); /* the largest subnormal */
    assert_int_equal(half_to_f16(0x1.ffcp-15f), 0x400); /* tie to even: the smallest normal */
}

static void test_bf16(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 65536; b++) {
        const float x = half_from_bf16((bf16)b);
        if (!isnan(x)) assert_int_equal(half_to_bf16(x), b);
        else assert_true(isnan(half_from_bf16(half_to_bf16(x))));
    }
    assert_int_equal(half_to_bf16(half_float(0x3f808000u)), 0x3f80); /* tie to even, down */
    assert_int_equal(half_to_bf16(half_float(0x3f818000u)), 0x3f82); /* tie to even, up */
    assert_int_equal(half_to_bf16(half_float(0x7f7fffffu)), 0x7f80); /* overflows to infinity */
}

static void test_fp8(void **state) {
    (void)state;
    for (uint32_t b = 0; b < 256; b++) {
        const float x = half_from_e4m3((uint8_t)b);
        if ((b & 0x7f) == 0x7f) assert_true(isnan(x));
        else assert_int_equal(half_to_e4m3(x), b);
    }
    assert_true(half_from_e4m3(0x7e) == 448.0f && half_from_e4m3(1) == 0x1p-9f);
    assert_int_equal(half_to_e4m3(1e9f), 0x7e); /* saturates */
    assert_int_equal(half_to_e4m3(-1e9f), 0xfe);
    assert_int_equal(half_to_e4m3(1.0625f), half_to_e4m3(1.0f)); /* tie to even */
    assert_int_equal(half_to_e4m3(1.1875f), half_to_e4m3(1.25f));
    assert_true(isnan(half_from_e4m3(half_to_e4m3(NAN))));
}

static void test_fp4_e8m0(void **state) {
    (void)state;
    static const float want[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    for (uint8_t i = 0; i < 16; i++) assert_true(half_from_e2m1(i) == want[i]);
    assert_true(half_from_e8m0(127) == 1.0f && half_from_e8m0(0) == 0x1p-127f && half_from_e8m0(254) == 0x1p127f);
    assert_true(isnan(half_from_e8m0(255)));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f16_codes), cmocka_unit_test(test_f16_rounding),
                                       cmocka_unit_test(test_bf16), cmocka_unit_test(test_fp8),
                                       cmocka_unit_test(test_fp4_e8m0)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
