/* Safetensors headers: good ones, and one clear line for every kind of bad one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "load/safetensors.h"
#include "load_golden.h"

/* A file of this JSON header and n_data bytes 0, 1, 2, ... in memory of exactly its size. */
static char *make(const char *json, size_t n_data, size_t *len) {
    const uint64_t n = strlen(json);
    *len = 8 + n + n_data;
    char *const p = malloc(*len);
    assert_non_null(p);
    memcpy(p, &n, 8);
    memcpy(p + 8, json, n);
    for (size_t i = 0; i < n_data; i++) p[8 + n + i] = (char)i;
    return p;
}

static void expect_bytes(const char *bytes, size_t len, enum err e, const char *text) {
    struct tensor_set set = {0};
    struct err_msg msg = {{0}};
    const enum err got = safetensors_parse(&set, bytes, len, "bad.safetensors", &msg);
    if (got != e || !strstr(msg.text, text) || (e && strncmp(msg.text, "bad.safetensors: ", 17) != 0))
        fail_msg("got %d \"%s\", want %d \"%s\"", got, msg.text, e, text);
    assert_null(strpbrk(msg.text, "\n\r\t"));
    tensor_set_deinit(&set);
}

static void expect(const char *json, size_t n_data, enum err e, const char *text) {
    size_t len;
    char *const p = make(json, n_data, &len);
    expect_bytes(p, len, e, text);
    free(p);
}

static void test_good(void **state) {
    (void)state;
    struct tensor_set set = {0};
    struct err_msg msg;
    size_t len;
    char *const p =
        make("{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
             "\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
             "\"e\":{\"dtype\":\"U32\",\"shape\":[0,4],\"data_offsets\":[26,26]},"
             "\"f8\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,1,1,3],\"data_offsets\":[26,29]}}   ",
             29, &len);
    assert_int_equal(safetensors_parse(&set, p, len, "good", &msg), ERR_OK);
    assert_int_equal(set.n, 4);
    const struct ckpt_tensor *const a = tensor_set_find(&set, "a", 1), *const s = tensor_set_find(&set, "s", 1);
    const struct ckpt_tensor *const e = tensor_set_find(&set, "e", 1), *const f = tensor_set_find(&set, "f8", 2);
    assert_true(a->dtype == DTYPE_F32 && a->n_dims == 2 && a->shape[0] == 2 && a->shape[1] == 3 && a->bytes == 24);
    assert_int_equal(*(const char *)a->data, 0);
    assert_true(s->dtype == DTYPE_BF16 && s->n_dims == 0 && s->bytes == 2 && *(const char *)s->data == 24);
    assert_true(e->dtype == DTYPE_I32 && e->shape[0] == 0 && e->bytes == 0);
    assert_true(f->dtype == DTYPE_F8_E4M3 && f->shape[3] == 3 && *(const char *)f->data == 26);
    tensor_set_deinit(&set);
    free(p);
}

static void test_bad_files(void **state) {
    (void)state;
    static const char huge[16] = {'\xff', '\xff', '\xff', '\xff', '\xff', '\xff', '\xff', '\x7f'};
    static const char longer[16] = {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    expect_bytes("", 0, ERR_FORMAT, "only 0 bytes");
    expect_bytes("1234567", 7, ERR_FORMAT, "only 7 bytes");
    expect_bytes(huge, sizeof huge, ERR_FORMAT, "claim a header of 9223372036854775807 bytes");
    expect_bytes(longer, 16, ERR_FORMAT, "header of 9 bytes is longer than the file");
    expect_bytes("version https://git-lfs.github.com/spec/v1\n", 43, ERR_FORMAT, "git lfs pull");
    expect("", 0, ERR_FORMAT, "not valid JSON");
    expect("[]", 0, ERR_FORMAT, "no JSON object");
    expect("{\"a\":1", 0, ERR_FORMAT, "not valid JSON");
    expect("{} x", 0, ERR_FORMAT, "not valid JSON");
    expect("{\"a\":\"\xff\"}", 0, ERR_FORMAT, "not valid JSON");
    expect("{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0, ERR_LIMIT,
           "nested deeper");
}

/* One tensor "t" with these members, in a file with 8 bytes of data. */
static void expect_tensor(const char *dtype, const char *shape, const char *offsets, enum err e, const char *text) {
    char json[512];
    snprintf(json, sizeof json, "{\"t\":{\"dtype\":%s,\"shape\":%s,\"data_offsets\":%s}}", dtype, shape, offsets);
    expect(json, 8, e, text);
}

static void test_bad_tensors(void **state) {
    (void)state;
    expect_tensor("\"F32\"", "[2]", "[0,8]", ERR_OK, "");
    expect_tensor("\"F4\"", "[2]", "[0,8]", ERR_UNSUPPORTED, "tensor \"t\" has dtype F4");
    expect_tensor("\"F8_E4M3FNUZ\"", "[2]", "[0,8]", ERR_UNSUPPORTED, "dtype F8_E4M3FNUZ");
    expect_tensor("7", "[2]", "[0,8]", ERR_FORMAT, "no \"dtype\"");
    expect_tensor("\"F32\"", "2", "[0,8]", ERR_FORMAT, "no \"shape\"");
    expect_tensor("\"F32\"", "[-2]", "[0,8]", ERR_FORMAT, "dimension 0 of tensor \"t\"");
    expect_tensor("\"F32\"", "[1,2.0]", "[0,8]", ERR_FORMAT, "dimension 1 of tensor \"t\"");
    expect_tensor("\"F32\"", "[99999999999999999999]", "[0,8]", ERR_FORMAT, "dimension 0");
    expect_tensor("\"F32\"", "[1,1,1,1,2]", "[0,8]", ERR_UNSUPPORTED, "5 dimensions");
    expect_tensor("\"F32\"", "[4611686018427387904,4611686018427387904]", "[0,8]", ERR_FORMAT, "address space");
    expect_tensor("\"F32\"", "[4611686018427387904,4]", "[0,0]", ERR_FORMAT, "address space");
    expect_tensor("\"F32\"", "[2]", "[0]", ERR_FORMAT, "no \"data_offsets\"");
    expect_tensor("\"F32\"", "[2]", "[0,8,9]", ERR_FORMAT, "no \"data_offsets\"");
    expect_tensor("\"F32\"", "[2]", "[\"0\",8]", ERR_FORMAT, "no \"data_offsets\"");
    expect_tensor("\"F32\"", "[2]", "{}", ERR_FORMAT, "no \"data_offsets\"");
    expect_tensor("\"F32\"", "[2]", "[-1,7]", ERR_FORMAT, "data_offsets [-1, 7]");
    expect_tensor("\"F32\"", "[2]", "[8,0]", ERR_FORMAT, "data_offsets [8, 0]");
    expect_tensor("\"F32\"", "[2]", "[4,12]", ERR_FORMAT, "ends at data offset 12, but the file has 8 bytes");
    expect_tensor("\"F32\"", "[2]", "[0,9223372036854775807]", ERR_FORMAT, "cut short");
    expect_tensor("\"F32\"", "[2]", "[0,4]", ERR_FORMAT,
                  "has 4 bytes at data offset 0, but its shape and dtype need 8");
    expect("{\"t\":[]}", 0, ERR_FORMAT, "entry of tensor \"t\" is no object");
    expect("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, ERR_FORMAT, "empty name");
    expect("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"t\":{\"dtype\":\"U8\",\"shape\":[1],"
           "\"data_offsets\":[1,2]}}",
           2, ERR_FORMAT, "duplicate object key");
    expect("{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"u\":{\"dtype\":\"U8\",\"shape\":[2],"
           "\"data_offsets\":[1,3]}}",
           3, ERR_FORMAT, "\"t\" and \"u\" overlap at byte");
}

static void test_every_cut_and_flip(void **state) {
    (void)state;
    size_t len;
    char *const p =
        make("{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"u\":{\"dtype\":\"F16\",\"shape\":"
             "[1,2],\"data_offsets\":[2,6]}}",
             6, &len);
    for (size_t n = 0; n < len; n++) {
        char *const cut = malloc(n ? n : 1);
        assert_non_null(cut);
        memcpy(cut, p, n);
        expect_bytes(cut, n, ERR_FORMAT, "bad.safetensors");
        free(cut);
    }
    for (size_t n = 0; n < len; n++)
        for (int bit = 0; bit < 8; bit++) {
            struct tensor_set set = {0};
            struct err_msg msg;
            p[n] = (char)(p[n] ^ 1 << bit);
            if (safetensors_parse(&set, p, len, "flipped", &msg) == ERR_OK)
                for (size_t i = 0; i < set.n; i++)
                    assert_true((const char *)set.items[i].data + set.items[i].bytes <= p + len);
            tensor_set_deinit(&set);
            p[n] = (char)(p[n] ^ 1 << bit);
        }
    free(p);
}

/* Every allocation fails once: ERR_NOMEM and nothing left behind, also inside the JSON parser. */
static void test_faults(void **state) {
    (void)state;
    struct strbuf json = {0};
    strbuf_putc(&json, '{');
    for (int i = 0; i < 40; i++)
        strbuf_printf(&json,
                      "%s\"a.rather.long.name.of.tensor.%d.that.grows.the.token.buffer\":{\"dtype\":\"U8\",\"shape\":"
                      "[1],\"data_offsets\":[%d,%d]}",
                      i ? "," : "", i * i * i, i, i + 1);
    strbuf_putc(&json, '}');
    size_t len;
    char *const p = make(strbuf_cstr(&json), 40, &len);
    const int64_t live = mem_live_blocks();
    int n_failed = 0;
    for (int64_t n = 1;; n++) {
        struct tensor_set set = {0};
        struct err_msg msg;
        mem_fault_after(n);
        const enum err e = safetensors_parse(&set, p, len, "faulty", &msg);
        mem_fault_after(0);
        const size_t n_tensors = set.n;
        tensor_set_deinit(&set);
        assert_int_equal(mem_live_blocks(), live);
        if (e == ERR_OK) {
            assert_int_equal(n_tensors, 40);
            break;
        }
        assert_int_equal(e, ERR_NOMEM);
        n_failed++;
    }
    assert_true(n_failed > 300);
    free(p);
    strbuf_deinit(&json);
}

/* All files of a golden folder, sub-folders included, must open. Returns how many. */
static int open_all(const char *folder) {
    struct golden_path p;
    int n = 0;
    DIR *const dir = opendir(golden_path(&p, folder));
    if (!dir) return 0;
    for (const struct dirent *d; (d = readdir(dir));) {
        char name[512];
        const char *const dot = strrchr(d->d_name, '.');
        if (d->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", folder, d->d_name);
        if (dot && strcmp(dot, ".safetensors") == 0) {
            struct golden_file f;
            golden_open(&f, name);
            assert_true(f.set.n > 0);
            golden_close(&f);
            n++;
        } else if (!dot) {
            n += open_all(name);
        }
    }
    closedir(dir);
    return n;
}

static void test_golden(void **state) {
    (void)state;
    golden_need("quant");
    const int n = open_all("quant") + open_all("quantized") + open_all("models");
    print_message("%d golden files opened\n", n);
    assert_true(n > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_bad_tensors), cmocka_unit_test(test_every_cut_and_flip),
        cmocka_unit_test(test_faults),      cmocka_unit_test(test_golden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
