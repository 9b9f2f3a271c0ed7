/* The key/value view: the same answers from JSON text and from GGUF metadata. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "load/conf.h"
#include "load/conf_int.h"
#include "load/gguf.h"
#include "load_gguf_build.h"

static struct conf *parse(const char *text) {
    struct conf *c;
    struct err_msg msg = {{0}};
    if (conf_parse_json(&c, text, strlen(text), "dir/config.json", &msg) != ERR_OK) fail_msg("%s", msg.text);
    return c;
}

static void test_json_types(void **state) {
    (void)state;
    struct conf *const c =
        parse("{\"b\":true,\"i\":-7,\"r\":2.5,\"w\":3.0,\"s\":\"x\\u0000y\",\"a\":[1,2.0,\"z\",null],"
              "\"o\":{\"k\":1,\"l\":2},\"n\":null,\"e\":[]}");
    bool b = false;
    int64_t i = 0;
    double r = 0;
    const char *s;
    size_t len;
    assert_int_equal(conf_type(c, "b"), CONF_BOOL);
    assert_int_equal(conf_type(c, "i"), CONF_INT);
    assert_int_equal(conf_type(c, "r"), CONF_REAL);
    assert_int_equal(conf_type(c, "s"), CONF_STRING);
    assert_int_equal(conf_type(c, "a"), CONF_ARRAY);
    assert_int_equal(conf_type(c, "o"), CONF_OBJECT);
    assert_int_equal(conf_type(c, "n"), CONF_NONE);
    assert_int_equal(conf_type(c, "missing"), CONF_NONE);
    assert_int_equal(conf_type(c, ""), CONF_OBJECT);
    assert_true(conf_bool(c, "b", &b) && b);
    assert_false(conf_bool(c, "i", &b));
    assert_true(conf_i64(c, "i", &i) && i == -7);
    assert_true(conf_i64(c, "w", &i) && i == 3);
    assert_true(conf_i64(c, "b", &i) && i == 1);
    i = 99;
    assert_false(conf_i64(c, "r", &i) || conf_i64(c, "s", &i) || conf_i64(c, "n", &i) || conf_i64(c, "a", &i));
    assert_int_equal(i, 99);
    assert_true(conf_f64(c, "r", &r) && r == 2.5);
    assert_true(conf_f64(c, "i", &r) && r == -7.0);
    assert_false(conf_f64(c, "b", &r));
    assert_true(conf_str(c, "s", &s, &len) && len == 3 && memcmp(s, "x\0y", 4) == 0);
    assert_true(conf_str(c, "s", &s, NULL));
    assert_false(conf_str(c, "i", &s, &len));
    assert_int_equal(conf_len(c, "a"), 4);
    assert_int_equal(conf_len(c, "o"), 2);
    assert_int_equal(conf_len(c, "e"), 0);
    assert_int_equal(conf_len(c, "s"), -1);
    assert_true(conf_arr_i64(c, "a", 1, &i) && i == 2);
    assert_true(conf_arr_f64(c, "a", 0, &r) && r == 1.0);
    assert_true(conf_arr_str(c, "a", 2, &s, &len) && strcmp(s, "z") == 0);
    assert_false(conf_arr_i64(c, "a", 3, &i) || conf_arr_i64(c, "a", 4, &i) || conf_arr_i64(c, "a", -1, &i));
    assert_false(conf_arr_i64(c, "o", 0, &i));
    assert_string_equal(conf_source(c), "dir/config.json");
    assert_true(json_is_object((const json_t *)conf_json(c)));
    conf_close(c);
    conf_close(NULL);
}

static void test_json_paths(void **state) {
    (void)state;
    struct conf *const c = parse("{\"rope_scaling\":{\"factor\":8},\"x.y\":1,\"x\":{\"y\":2,\"z.w\":3},"
                                 "\"layers\":[{\"d\":4},[5,6]],\"10\":{\"content\":\"t\"},\"\":7,\"deep\":{\"\":8}}");
    int64_t i;
    const char *s;
    assert_true(conf_i64(c, "rope_scaling.factor", &i) && i == 8);
    assert_true(conf_i64(c, "x.y", &i) && i == 1); /* the member with the dot comes first */
    assert_true(conf_i64(c, "x.z.w", &i) && i == 3);
    assert_true(conf_i64(c, "layers.0.d", &i) && i == 4);
    assert_true(conf_i64(c, "layers.1.1", &i) && i == 6);
    assert_true(conf_str(c, "10.content", &s, NULL) && strcmp(s, "t") == 0);
    assert_true(conf_arr_i64(c, "layers.1", 0, &i) && i == 5);
    assert_false(conf_i64(c, "layers.2.d", &i) || conf_i64(c, "layers.-1", &i) ||
                 conf_i64(c, "layers.99999999999999", &i));
    assert_false(conf_i64(c, "rope_scaling.factor.more", &i) || conf_i64(c, "rope_scaling.", &i) ||
                 conf_i64(c, ".", &i));
    assert_true(conf_i64(c, "", &i) && i == 7);
    assert_true(conf_i64(c, "deep.", &i) && i == 8);
    conf_close(c);
}

/* Integers that no int64 holds are reals, wherever they stand; those that fit stay integers. */
static void test_long_integers(void **state) {
    (void)state;
    struct conf *const c = parse("{\"model_max_length\":1000000000000000019884624838656,\"a\":[9223372036854775807,"
                                 "9223372036854775808,-99999999999999999999 , 1e30,12345678901234567890],"
                                 "\"s\":\"99999999999999999999\",\"q\":\"\\\"99999999999999999999\"}");
    int64_t i;
    double r;
    const char *s;
    assert_true(conf_f64(c, "model_max_length", &r) && r == 1e30);
    assert_false(conf_i64(c, "model_max_length", &i));
    assert_true(conf_arr_i64(c, "a", 0, &i) && i == INT64_MAX);
    assert_true(conf_arr_f64(c, "a", 1, &r) && r == 0x1p63);
    assert_true(conf_arr_f64(c, "a", 2, &r) && r == -1e20);
    assert_true(conf_arr_f64(c, "a", 4, &r) && r == 12345678901234567890.0);
    assert_true(conf_str(c, "s", &s, NULL) && strcmp(s, "99999999999999999999") == 0);
    assert_true(conf_str(c, "q", &s, NULL) && strcmp(s, "\"99999999999999999999") == 0);
    conf_close(c);
}

static void expect(const char *text, size_t len, enum err e, const char *part) {
    struct conf *c = NULL;
    struct err_msg msg = {{0}};
    char *const copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    const enum err got = conf_parse_json(&c, copy, len, "bad.json", &msg);
    if (got != e || !strstr(msg.text, part) || strncmp(msg.text, "bad.json: ", 10) != 0)
        fail_msg("got %d \"%s\", want %d \"%s\"", got, msg.text, e, part);
    assert_null(c);
    assert_null(strpbrk(msg.text, "\n\r\t"));
    free(copy);
}

static void test_bad_json(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",     "{",      "{\"a\":}",    "{\"a\":1,}", "[1 2]", "{\"a\":NaN}", "nul",
        "{\"a", "{\"a\\", "\"\\ud800\"", "{}{}",       "'a'",   "{\"a\":01}",  "{\"a\":\"\n\"}"};
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) expect(bad[i], strlen(bad[i]), ERR_FORMAT, "line");
    expect("{\"a\":1e999}", 11, ERR_FORMAT, "overflow");
    char deep[400];
    memset(deep, '[', 200);
    memset(deep + 200, ']', 200);
    expect(deep, 400, ERR_LIMIT, "64 levels at byte 64");
    struct conf *c;
    struct err_msg msg;
    assert_int_equal(conf_parse_json(&c, deep + 136, 128, "deep", &msg), ERR_OK);
    conf_close(c);
    /* Brackets inside strings do not count. */
    memset(deep, '[', 200);
    deep[0] = deep[199] = '"';
    assert_int_equal(conf_parse_json(&c, deep, 200, "text", &msg), ERR_OK);
    conf_close(c);
}

static void test_json_faults(void **state) {
    (void)state;
    struct strbuf text = {0};
    strbuf_puts(&text, "{\"long\":[");
    for (int i = 0; i < 20; i++) strbuf_printf(&text, "\"%0*d\",123456789012345678901234567890.5e-3,", 20 << i / 4, i);
    strbuf_puts(&text, "1],\"o\":{\"a\":{\"b\":null,\"c\":[true,{}]}}}");
    const int64_t live = mem_live_blocks();
    int n_failed = 0;
    for (int64_t n = 1;; n++) {
        struct conf *c;
        struct err_msg msg;
        mem_fault_after(n);
        const enum err e = conf_parse_json(&c, text.data, text.len, "faulty", &msg);
        mem_fault_after(0);
        conf_close(c);
        assert_int_equal(mem_live_blocks(), live);
        if (e == ERR_OK) break;
        assert_int_equal(e, ERR_NOMEM);
        n_failed++;
    }
    assert_true(n_failed > 60);
    strbuf_deinit(&text);
}

static void build(struct strbuf *b) {
    build_header(b, 3, 0, 10);
    build_key_str(b, "general.architecture", "llama");
    build_key_u32(b, "llama.block_count", 12);
    build_key(b, "llama.eps", GGUF_F32), strbuf_append(b, &(float){1e-5f}, 4);
    build_key(b, "llama.whole", GGUF_F64), strbuf_append(b, &(double){4096.0}, 8);
    build_key(b, "flag", GGUF_BOOL), strbuf_putc(b, 1);
    build_array(b, "heads", GGUF_I32, 2), build_u32(b, 8), build_u32(b, (uint32_t)-1);
    build_array(b, "swa", GGUF_BOOL, 2), strbuf_append(b, "\1\0", 2);
    build_array(b, "scores", GGUF_F32, 1), strbuf_append(b, &(float){-2.5f}, 4);
    build_array(b, "tokens", GGUF_STRING, 2), build_str(b, "\0", 1), build_str(b, "b", 1);
    build_key(b, "big", GGUF_U64), build_u64(b, UINT64_MAX);
}

static void check_gguf(const struct conf *c) {
    bool b = false;
    int64_t i = 5;
    double r;
    const char *s;
    size_t len;
    assert_true(conf_i64(c, "{arch}.block_count", &i) && i == 12);
    assert_true(conf_i64(c, "llama.block_count", &i) && i == 12);
    assert_true(conf_f64(c, "{arch}.eps", &r) && r == (double)1e-5f);
    assert_false(conf_i64(c, "{arch}.eps", &i));
    assert_true(conf_i64(c, "{arch}.whole", &i) && i == 4096);
    assert_true(conf_bool(c, "flag", &b) && b && conf_i64(c, "flag", &i) && i == 1);
    assert_false(conf_bool(c, "heads", &b) || conf_f64(c, "flag", &r));
    assert_int_equal(conf_len(c, "heads"), 2);
    assert_int_equal(conf_len(c, "flag"), -1);
    assert_int_equal(conf_len(c, "missing"), -1);
    assert_true(conf_arr_i64(c, "heads", 1, &i) && i == -1);
    assert_false(conf_arr_i64(c, "heads", 2, &i) || conf_arr_i64(c, "heads", -1, &i) || conf_i64(c, "heads", &i));
    assert_true(conf_arr_i64(c, "swa", 0, &i) && i == 1);
    assert_true(conf_arr_f64(c, "scores", 0, &r) && r == -2.5);
    assert_true(conf_arr_str(c, "tokens", 0, &s, &len) && len == 1 && memcmp(s, "\0", 2) == 0);
    assert_false(conf_arr_str(c, "heads", 0, &s, &len) || conf_str(c, "tokens", &s, &len));
    assert_true(conf_str(c, "general.architecture", &s, NULL) && strcmp(s, "llama") == 0);
    assert_int_equal(conf_type(c, "big"), CONF_INT);
    assert_false(conf_i64(c, "big", &i));
    assert_true(conf_f64(c, "big", &r) && r == 0x1p64);
    assert_int_equal(conf_type(c, "{arch}.eps"), CONF_REAL);
    assert_int_equal(conf_type(c, "flag"), CONF_BOOL);
    assert_int_equal(conf_type(c, "tokens"), CONF_ARRAY);
    assert_int_equal(conf_type(c, "{arch}.none"), CONF_NONE);
    char key[600] = "{arch}.";
    memset(key + 7, 'k', sizeof key - 8);
    assert_int_equal(conf_type(c, key), CONF_NONE);
    assert_null(conf_json(c));
}

static void test_gguf(void **state) {
    (void)state;
    struct strbuf b = {0};
    struct gguf *g;
    struct conf *c;
    struct err_msg msg = {{0}};
    build(&b);
    if (gguf_parse(&g, NULL, b.data, b.len, "m.gguf", &msg) != ERR_OK) fail_msg("%s", msg.text);
    assert_int_equal(conf_open_gguf(&c, g, "m.gguf", &msg), ERR_OK);
    check_gguf(c);
    conf_close(c);
    gguf_close(g);
    strbuf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_types), cmocka_unit_test(test_json_paths),  cmocka_unit_test(test_long_integers),
        cmocka_unit_test(test_bad_json),   cmocka_unit_test(test_json_faults), cmocka_unit_test(test_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
