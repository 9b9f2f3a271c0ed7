/* GGUF headers: what a good file says, and one clear line for every kind of bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/mem.h"
#include "load/gguf.h"
#include "load_gguf_build.h"
#include "load_golden.h"

/* Parses a copy of exactly the size, so that the sanitizer sees every byte read behind it. */
static enum err parse_copy(const char *bytes, size_t len, struct err_msg *msg, int with_tensors) {
    char *const copy = malloc(len ? len : 1);
    assert_non_null(copy);
    if (len) memcpy(copy, bytes, len);
    struct gguf *g;
    struct tensor_set set = {0};
    memset(msg, 0, sizeof *msg);
    const enum err e = gguf_parse(&g, with_tensors ? &set : NULL, copy, len, "bad.gguf", msg);
    assert_int_equal(e == ERR_OK, g != NULL);
    if (e != ERR_OK) assert_true(strlen(msg->text) > 20 && !strpbrk(msg->text, "\n\r\t"));
    for (size_t i = 0; e == ERR_OK && i < set.n; i++) {
        const char *const p = set.items[i].data;
        if (set.items[i].bytes) assert_true(p >= copy && p + set.items[i].bytes <= copy + len);
    }
    gguf_close(g);
    tensor_set_deinit(&set);
    free(copy);
    return e;
}

/* The buffer must be refused with e and a line that has the text; frees the buffer. */
static void expect(struct strbuf *b, enum err e, const char *text) {
    struct err_msg msg;
    assert_false(b->failed);
    const enum err got = parse_copy(b->data ? b->data : "", b->len, &msg, 1);
    if (got != e || !strstr(msg.text, text) || !strstr(msg.text, "bad.gguf"))
        fail_msg("got %d \"%s\", want %d \"%s\"", got, msg.text, e, text);
    strbuf_deinit(b);
}

/* Two tensors, all scalar types, arrays. */
static void build_good(struct strbuf *b) {
    build_header(b, 3, 2, 17);
    build_key_str(b, "general.architecture", "test");
    build_key_u32(b, "test.block_count", 2);
    build_key(b, "u8", GGUF_U8), strbuf_putc(b, '\xff');
    build_key(b, "i8", GGUF_I8), strbuf_putc(b, '\xff');
    build_key(b, "u16", GGUF_U16), strbuf_append(b, "\xfe\xff", 2);
    build_key(b, "i16", GGUF_I16), strbuf_append(b, "\xfe\xff", 2);
    build_key(b, "i32", GGUF_I32), build_u32(b, (uint32_t)-5);
    build_key(b, "f32", GGUF_F32), strbuf_append(b, &(float){1.5f}, 4);
    build_key(b, "bool", GGUF_BOOL), strbuf_putc(b, 1);
    build_key(b, "u64", GGUF_U64), build_u64(b, UINT64_MAX);
    build_key(b, "i64", GGUF_I64), build_u64(b, (uint64_t)INT64_MIN);
    build_key(b, "f64", GGUF_F64), strbuf_append(b, &(double){-2.25}, 8);
    build_array(b, "ints", GGUF_I32, 3), build_u32(b, 1), build_u32(b, (uint32_t)-2), build_u32(b, 3);
    build_array(b, "tokens", GGUF_STRING, 3);
    build_str(b, "a", 1), build_str(b, "", 0), build_str(b, "x\0y", 3);
    build_array(b, "none", GGUF_STRING, 0);
    build_array(b, "nested", GGUF_ARRAY, 2);
    build_u32(b, GGUF_U8), build_u64(b, 2), strbuf_append(b, "ab", 2);
    build_u32(b, GGUF_STRING), build_u64(b, 1), build_str(b, "s", 1);
    build_key_u32(b, "last", 7);
    build_info(b, "w", 32, 3, 2, 0); /* q4_0 [3, 32]: 54 bytes */
    build_info(b, "v", 5, 0, 0, 64); /* f32 [5] */
    build_align(b, 32);
    for (int i = 0; i < 84; i++) strbuf_putc(b, (char)i);
}

static const struct gguf_value *value(const struct gguf *g, const char *key) {
    const struct gguf_value *const v = gguf_find(g, key, strlen(key));
    assert_non_null(v);
    return v;
}

static int64_t i64(const struct gguf *g, const char *key) {
    int64_t x;
    assert_true(gguf_i64(value(g, key), 0, &x));
    return x;
}

static double f64(const struct gguf *g, const char *key) {
    double x;
    assert_true(gguf_f64(value(g, key), 0, &x));
    return x;
}

static void check_good_values(const struct gguf *g) {
    int64_t x = 42;
    const char *s;
    size_t len;
    assert_int_equal(i64(g, "u8"), 255);
    assert_int_equal(i64(g, "i8"), -1);
    assert_int_equal(i64(g, "u16"), 65534);
    assert_int_equal(i64(g, "i16"), -2);
    assert_int_equal(i64(g, "i32"), -5);
    assert_int_equal(i64(g, "bool"), 1);
    assert_true(i64(g, "i64") == INT64_MIN);
    assert_true(f64(g, "f32") == 1.5 && f64(g, "f64") == -2.25 && f64(g, "u64") == 0x1p64 && f64(g, "i8") == -1.0);
    assert_false(gguf_i64(value(g, "u64"), 0, &x));
    assert_false(gguf_i64(value(g, "f32"), 0, &x));
    assert_int_equal(x, 42);
    assert_true(gguf_i64(value(g, "ints"), 1, &x) && x == -2);
    assert_false(gguf_i64(value(g, "ints"), 3, &x));
    assert_true(gguf_str(value(g, "tokens"), 1, &s, &len) && len == 0 && s[0] == '\0');
    assert_true(gguf_str(value(g, "tokens"), 2, &s, &len) && len == 3 && memcmp(s, "x\0y", 4) == 0);
    assert_false(gguf_str(value(g, "tokens"), 3, &s, &len));
    assert_int_equal(value(g, "none")->n, 0);
    assert_int_equal(value(g, "nested")->n, 2);
    assert_false(gguf_i64(value(g, "nested"), 0, &x));
    assert_int_equal(i64(g, "last"), 7);
    assert_null(gguf_find(g, "lasT", 4));
}

static void test_good(void **state) {
    (void)state;
    struct strbuf b = {0};
    struct err_msg msg = {{0}};
    struct gguf *g;
    struct tensor_set set = {0};
    build_good(&b);
    assert_int_equal(gguf_parse(&g, &set, b.data, b.len, "good", &msg), ERR_OK);
    check_good_values(g);
    assert_int_equal(set.n, 2);
    const struct ckpt_tensor *const w = tensor_set_find(&set, "w", 1), *const v = tensor_set_find(&set, "v", 1);
    assert_int_equal(w->dtype, DTYPE_Q4_0);
    assert_int_equal(w->n_dims, 2);
    assert_int_equal(w->shape[0], 3);
    assert_int_equal(w->shape[1], 32);
    assert_int_equal(w->bytes, 54);
    assert_int_equal(((const uint8_t *)w->data)[0], 0);
    assert_int_equal(v->shape[0], 5);
    assert_int_equal(((const uint8_t *)v->data)[0], 64);
    gguf_close(g);
    tensor_set_deinit(&set);
    strbuf_deinit(&b);
}

/* A good file cut at any byte is an error; with any byte changed it is either fine or an error, never a crash. */
static void test_every_cut_and_flip(void **state) {
    (void)state;
    struct strbuf b = {0};
    struct err_msg msg;
    build_good(&b);
    for (size_t n = 0; n < b.len; n++) {
        const enum err e = parse_copy(b.data, n, &msg, 1);
        if (e != ERR_FORMAT || !strstr(msg.text, "bad.gguf")) fail_msg("cut at %zu: %d %s", n, e, msg.text);
    }
    static const unsigned char masks[] = {0x01, 0x20, 0x80, 0xff};
    for (size_t n = 0; n < b.len; n++)
        for (size_t m = 0; m < sizeof masks; m++) {
            b.data[n] = (char)(b.data[n] ^ masks[m]);
            (void)parse_copy(b.data, b.len, &msg, 1);
            b.data[n] = (char)(b.data[n] ^ masks[m]);
        }
    assert_int_equal(parse_copy(b.data, b.len, &msg, 1), ERR_OK);
    strbuf_deinit(&b);
}

static void test_bad_header(void **state) {
    (void)state;
    struct strbuf b = {0};
    expect(&b, ERR_FORMAT, "does not begin with");
    strbuf_puts(&b, "version https://git-lfs.github.com/spec/v1\n"), expect(&b, ERR_FORMAT, "git lfs pull");
    strbuf_puts(&b, "<!DOCTYPE html>"), expect(&b, ERR_FORMAT, "web page");
    strbuf_puts(&b, "GGU"), expect(&b, ERR_FORMAT, "does not begin with");
    build_header(&b, 1, 0, 0), expect(&b, ERR_UNSUPPORTED, "version 1");
    build_header(&b, 4, 0, 0), expect(&b, ERR_UNSUPPORTED, "version 4");
    build_header(&b, 0x03000000, 0, 0), expect(&b, ERR_UNSUPPORTED, "big-endian");
    build_header(&b, 3, 0, UINT64_MAX), expect(&b, ERR_FORMAT, "18446744073709551615 keys");
    build_header(&b, 3, UINT64_C(1) << 62, 0), expect(&b, ERR_FORMAT, "4611686018427387904 tensors");
    /* 37 bytes: one key of length 0. */
    build_header(&b, 3, 0, 1), build_str(&b, "", 0), build_u32(&b, 0), strbuf_putc(&b, 1);
    assert_int_equal(b.len, 37);
    expect(&b, ERR_FORMAT, "empty");
}

static void test_bad_keys(void **state) {
    (void)state;
    struct strbuf b = {0};
    build_header(&b, 3, 0, 1), build_u64(&b, UINT64_MAX - 3), strbuf_puts(&b, "abcdefgh");
    expect(&b, ERR_FORMAT, "claims 18446744073709551612 bytes");
    build_header(&b, 3, 0, 1), build_str(&b, "a\0b", 3), build_u32(&b, GGUF_U8), strbuf_putc(&b, 1);
    expect(&b, ERR_FORMAT, "NUL");
    build_header(&b, 3, 0, 2), build_key_u32(&b, "twice", 1), build_key_u32(&b, "twice", 1);
    expect(&b, ERR_FORMAT, "\"twice\" occurs twice");
    build_header(&b, 3, 0, 1), build_key(&b, "k", (enum gguf_type)13), build_u32(&b, 1);
    expect(&b, ERR_FORMAT, "value type 13");
    build_header(&b, 3, 0, 1), build_array(&b, "k", (enum gguf_type)99, 1), build_u32(&b, 1);
    expect(&b, ERR_FORMAT, "value type 99");
    build_header(&b, 3, 0, 1), build_array(&b, "k", GGUF_U64, UINT64_C(1) << 61), build_u32(&b, 1);
    expect(&b, ERR_FORMAT, "2305843009213693952 array elements");
    build_header(&b, 3, 0, 1), build_array(&b, "k", GGUF_STRING, UINT64_C(1) << 61), build_u32(&b, 1);
    expect(&b, ERR_FORMAT, "2305843009213693952 strings");
    build_header(&b, 3, 0, 1), build_array(&b, "k", GGUF_ARRAY, 1);
    for (int i = 0; i < 40; i++) build_u32(&b, GGUF_ARRAY), build_u64(&b, 1);
    expect(&b, ERR_LIMIT, "deeper than 4");
    /* A name that is not printable must not break the line. */
    build_header(&b, 3, 0, 2), build_key_u32(&b, "a\nb\x1b[31m", 1), build_key_u32(&b, "a\nb\x1b[31m", 1);
    expect(&b, ERR_FORMAT, "\"a?b?[31m\"");
}

static void test_bad_known_keys(void **state) {
    (void)state;
    struct strbuf b = {0};
    static const uint32_t alignments[] = {0, 1, 3, 33, 0x80000000u};
    for (size_t i = 0; i < N_ELEMENTS(alignments); i++) {
        build_header(&b, 3, 0, 1), build_key_u32(&b, "general.alignment", alignments[i]);
        expect(&b, ERR_FORMAT, "power of two");
    }
    build_header(&b, 3, 0, 1), build_key_str(&b, "general.alignment", "32");
    expect(&b, ERR_FORMAT, "not an integer");
    build_header(&b, 3, 0, 1), build_key_u32(&b, "llama.block_count", 513);
    expect(&b, ERR_LIMIT, "513; models of up to 512");
    build_header(&b, 3, 0, 1), build_key(&b, "llama.block_count", GGUF_I32), build_u32(&b, (uint32_t)-1);
    expect(&b, ERR_FORMAT, "not a count");
    build_header(&b, 3, 0, 1), build_key_str(&b, "llama.block_count", "many");
    expect(&b, ERR_FORMAT, "not a count");
}

/* One tensor info and 64 bytes of data. */
static void expect_info(const char *name, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset, enum err e,
                        const char *text) {
    struct strbuf b = {0};
    build_header(&b, 2, 1, 0);
    build_info(&b, name, d0, d1, type, offset);
    build_align(&b, 32);
    for (int i = 0; i < 64; i++) strbuf_putc(&b, 0);
    expect(&b, e, text);
}

static void test_bad_tensors(void **state) {
    (void)state;
    const uint64_t huge = UINT64_C(1) << 62;
    expect_info("", 4, 0, 0, 0, ERR_FORMAT, "empty name");
    expect_info("w", 0, 0, 0, 0, ERR_FORMAT, "tensor \"w\" at byte 24 has a dimension of 0");
    expect_info("w", UINT64_MAX, 0, 0, 0, ERR_FORMAT, "dimension of -1");
    expect_info("w", huge, huge, 0, 0, ERR_FORMAT, "address space");
    expect_info("w", huge, 0, 0, 0, ERR_FORMAT, "address space");
    expect_info("w", UINT64_C(1) << 60, 0, 0, 0, ERR_FORMAT, "cut short");
    expect_info("w", 16, 1, 0, 32, ERR_FORMAT, "needs 64 bytes at data offset 32");
    expect_info("w", 16, 1, 0, UINT64_MAX - 31, ERR_FORMAT, "cut short");
    expect_info("w", 4, 0, 0, 4, ERR_FORMAT, "no multiple of the alignment 32");
    expect_info("w", 33, 0, 2, 0, ERR_FORMAT, "no multiple of the 32 of a q4_0 block");
    expect_info("w", 32, 2, 12, 0, ERR_FORMAT, "no multiple of the 256 of a q4_k block");
    expect_info("w", 256, 0, 16, 0, ERR_UNSUPPORTED, "type iq2_xxs, which is not supported");
    expect_info("w", 256, 0, 40, 0, ERR_UNSUPPORTED, "type nvfp4");
    expect_info("w", 256, 0, 97, 0, ERR_UNSUPPORTED, "unknown type 97");
    expect_info("w", 256, 0, UINT32_MAX, 0, ERR_UNSUPPORTED, "unknown type 4294967295");
    struct strbuf b = {0};
    build_header(&b, 3, 1, 0), build_str(&b, "w", 1), build_u32(&b, 5);
    for (int i = 0; i < 8; i++) build_u64(&b, 1);
    expect(&b, ERR_FORMAT, "5 dimensions");
    build_header(&b, 3, 1, 0), build_str(&b, "w", 1), build_u32(&b, UINT32_MAX), build_u64(&b, 1), build_u64(&b, 1);
    expect(&b, ERR_FORMAT, "4294967295 dimensions");
    build_header(&b, 3, 1, 0), build_info(&b, "w", 4, 0, 0, 0); /* no data at all */
    expect(&b, ERR_FORMAT, "before the data");
    char name[1100];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    expect_info(name, 4, 0, 0, 0, ERR_FORMAT, "1099 bytes");
}

static void test_two_tensors(void **state) {
    (void)state;
    struct strbuf b = {0};
    build_header(&b, 3, 2, 0), build_info(&b, "w", 4, 0, 0, 0), build_info(&b, "w", 4, 0, 0, 32);
    build_align(&b, 32), build_u64(&b, 0), build_u64(&b, 0), build_align(&b, 32), build_u64(&b, 0), build_u64(&b, 0);
    expect(&b, ERR_FORMAT, "\"w\" occurs twice");
    build_header(&b, 3, 2, 0), build_info(&b, "w", 12, 0, 0, 0), build_info(&b, "x", 4, 0, 0, 32);
    build_align(&b, 32);
    for (int i = 0; i < 8; i++) build_u64(&b, 0);
    expect(&b, ERR_FORMAT, "\"w\" and \"x\" overlap");
    build_header(&b, 3, 2, 0), build_info(&b, "w", 4, 0, 0, 32), build_info(&b, "x", 4, 0, 0, 32);
    build_align(&b, 32);
    for (int i = 0; i < 8; i++) build_u64(&b, 0);
    expect(&b, ERR_FORMAT, "overlap");
}

/* 150,000 tokens: each is found in constant time. */
static void test_many_strings(void **state) {
    (void)state;
    enum { N = 150000 };
    struct strbuf b = {0};
    struct err_msg msg;
    struct gguf *g;
    char text[32];
    build_header(&b, 3, 0, 1);
    build_array(&b, "tokenizer.ggml.tokens", GGUF_STRING, N);
    for (int i = 0; i < N; i++) build_str(&b, text, (size_t)snprintf(text, sizeof text, "t%d", i));
    const int64_t before = mem_n_allocs();
    assert_int_equal(gguf_parse(&g, NULL, b.data, b.len, "many", &msg), ERR_OK);
    assert_true(mem_n_allocs() - before < 10);
    for (int i = N - 1; i >= 0; i--) {
        const char *s;
        size_t len;
        assert_true(gguf_str(value(g, "tokenizer.ggml.tokens"), (uint64_t)i, &s, &len));
        const int n = snprintf(text, sizeof text, "t%d", i);
        if (len != (size_t)n || strcmp(s, text) != 0) fail_msg("token %d is \"%s\"", i, s);
    }
    gguf_close(g);
    strbuf_deinit(&b);
}

/* Configuration alone: the tensors may be missing. */
static void test_no_tensors_wanted(void **state) {
    (void)state;
    struct strbuf b = {0};
    struct err_msg msg;
    build_header(&b, 3, 1, 1), build_key_u32(&b, "k", 1);
    build_info(&b, "w", 256, 0, 16, 0);
    assert_int_equal(parse_copy(b.data, b.len, &msg, 0), ERR_OK);
    strbuf_deinit(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_every_cut_and_flip),
        cmocka_unit_test(test_bad_header),
        cmocka_unit_test(test_bad_keys),
        cmocka_unit_test(test_bad_known_keys),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_two_tensors),
        cmocka_unit_test(test_many_strings),
        cmocka_unit_test(test_no_tensors_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
