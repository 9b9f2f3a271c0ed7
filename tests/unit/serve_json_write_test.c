/* JSON text: escapes, broken UTF-8, floats that read back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/rng.h"
#include "serve/json_write.h"

static void check_string(const char *in, size_t len, const char *want) {
    struct strbuf b = {0};
    json_write_string(&b, in, len);
    assert_string_equal(strbuf_cstr(&b), want);
    strbuf_deinit(&b);
}

static void test_strings(void **state) {
    (void)state;
    check_string("", 0, "\"\"");
    check_string("a\"\\\n\r\t\x01\x7f", 8, "\"a\\\"\\\\\\n\\r\\t\\u0001\\u007f\"");
    check_string("a\0b", 3, "\"a\\u0000b\"");
    check_string("\xc2\x85\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa7", 11, "\"\\u0085\\u2028\\u2029\xe2\x80\xa7\"");
    check_string("\xf0\x9f\x98\x8a\xe6\xbc\xa2", 7, "\"\xf0\x9f\x98\x8a\xe6\xbc\xa2\"");
    check_string("\xff"
                 "a\xe6\xbc",
                 4,
                 "\"\xef\xbf\xbd"
                 "a\xef\xbf\xbd\xef\xbf\xbd\"");
    check_string("\xc0\x80\xed\xa0\x80", 5, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    check_string("\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void test_floats(void **state) {
    (void)state;
    static const struct {
        float v;
        const char *want;
    } cases[] = {{0.0f, "0.0"},          {-0.1f, "-0.1"},  {1.0f, "1.0"},    {INFINITY, "-9999.0"},
                 {-INFINITY, "-9999.0"}, {NAN, "-9999.0"}, {1e-30f, "1e-30"}};
    struct strbuf b = {0};
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        strbuf_clear(&b);
        json_write_float(&b, cases[i].v);
        assert_string_equal(strbuf_cstr(&b), cases[i].want);
    }
    struct rng r = rng_seeded(1);
    for (int i = 0; i < 20000; i++) {
        const uint32_t bits = (uint32_t)rng_next(&r);
        float v;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v)) continue;
        strbuf_clear(&b);
        json_write_float(&b, v);
        assert_true(strtof(b.data, NULL) == v);
    }
    strbuf_deinit(&b);
}

static void test_bytes(void **state) {
    (void)state;
    struct strbuf b = {0};
    json_write_bytes(&b, "\xff\x00 ", 3);
    assert_string_equal(strbuf_cstr(&b), "[255,0,32]");
    strbuf_clear(&b);
    json_write_cstr(&b, NULL);
    assert_string_equal(strbuf_cstr(&b), "null");
    strbuf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_strings), cmocka_unit_test(test_floats),
                                       cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
