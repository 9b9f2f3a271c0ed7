/* Whole checkpoints: folders, shards, split GGUF files; good ones, bad ones, and every allocation failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "load/ckpt.h"
#include "load/conf.h"
#include "load_gguf_build.h"
#include "load_golden.h"
#include "quant/quant.h"

/* ---- a scratch folder ---- */

static char scratch[64];

static int make_scratch(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "/tmp/xenon_ckpt_XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int drop_scratch(void **state) {
    (void)state;
    DIR *const dir = opendir(scratch);
    if (!dir) return -1;
    for (const struct dirent *d; (d = readdir(dir));)
        if (d->d_name[0] != '.') unlinkat(dirfd(dir), d->d_name, 0);
    closedir(dir);
    return rmdir(scratch);
}

static const char *in_scratch(struct golden_path *p, const char *name) {
    snprintf(p->text, sizeof p->text, "%s/%s", scratch, name);
    return p->text;
}

static void write_file(const char *name, const char *bytes, size_t len) {
    struct golden_path p;
    FILE *const f = fopen(in_scratch(&p, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *name, const char *text) { write_file(name, text, strlen(text)); }

/* A safetensors file of one U8 tensor of 4 bytes. */
static void write_shard(const char *file, const char *tensor) {
    struct strbuf b = {0};
    char json[256];
    const int n =
        snprintf(json, sizeof json, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,4]}}", tensor);
    build_u64(&b, (uint64_t)n);
    strbuf_append(&b, json, (size_t)n);
    strbuf_append(&b, "data", 4);
    write_file(file, b.data, b.len);
    strbuf_deinit(&b);
}

/* Part no of count with one tensor; only the first has an architecture. */
static void write_part(const char *file, uint32_t no, uint32_t count, const char *tensor, uint32_t total) {
    struct strbuf b = {0};
    build_header(&b, 3, 1, no ? 3 : 4);
    if (no == 0) build_key_str(&b, "general.architecture", "llama");
    build_key(&b, "split.no", GGUF_U16), strbuf_append(&b, &(uint16_t){(uint16_t)no}, 2);
    build_key(&b, "split.count", GGUF_U16), strbuf_append(&b, &(uint16_t){(uint16_t)count}, 2);
    build_key(&b, "split.tensors.count", GGUF_I32), build_u32(&b, total);
    build_info(&b, tensor, 4, 2, 0, 0);
    build_align(&b, 32);
    for (int i = 0; i < 8; i++) strbuf_append(&b, &(float){(float)no + 1}, 4);
    write_file(file, b.data, b.len);
    strbuf_deinit(&b);
}

static struct ckpt *open_ok(const char *path) {
    struct ckpt *c;
    struct err_msg msg = {{0}};
    if (ckpt_open(&c, path, &msg) != ERR_OK) fail_msg("%s", msg.text);
    assert_string_equal(ckpt_path(c), path);
    return c;
}

static void expect(const char *name, enum err e, const char *text) {
    struct golden_path p;
    struct ckpt *c;
    struct err_msg msg = {{0}};
    const int64_t live = mem_live_blocks();
    const enum err got = ckpt_open(&c, in_scratch(&p, name), &msg);
    if (got != e || !strstr(msg.text, text)) fail_msg("got %d \"%s\", want %d \"%s\"", got, msg.text, e, text);
    assert_null(c);
    assert_null(strchr(msg.text, '\n'));
    assert_int_equal(mem_live_blocks(), live);
}

/* ---- tests ---- */

static void test_folder(void **state) {
    (void)state;
    struct golden_path p;
    struct ckpt *c;
    struct err_msg msg = {{0}};
    struct conf *j = NULL;
    int64_t x;
    char *text;
    size_t len;
    expect("none", ERR_IO, "none");
    expect("", ERR_IO, "no config.json");
    write_text("config.json", "{\"hidden_size\": 64}");
    expect("", ERR_IO, "neither model.safetensors nor");
    assert_int_equal(ckpt_open_config(&c, in_scratch(&p, ""), &msg), ERR_OK);
    assert_true(ckpt_n_tensors(c) == 0 && conf_i64(ckpt_conf(c), "hidden_size", &x) && x == 64);
    ckpt_close(c);
    write_shard("model.safetensors", "a");
    write_text("tokenizer.json", "{\"v\": [1]}");
    write_text("broken.json", "{");
    write_text("empty.txt", "");
    c = open_ok(in_scratch(&p, ""));
    assert_false(ckpt_is_gguf(c));
    assert_int_equal(ckpt_n_tensors(c), 1);
    const struct ckpt_tensor *const t = ckpt_find(c, "a");
    assert_ptr_equal(t, ckpt_tensor_at(c, 0));
    assert_memory_equal(t->data, "data", 4);
    /* Advice changes no byte: neighbours on the same page can still be read, too. */
    ckpt_prefetch(c, t, 0, t->bytes);
    assert_memory_equal(t->data, "data", 4);
    ckpt_release(c, t, 0, t->bytes);
    assert_memory_equal(t->data, "data", 4);
    ckpt_drop(c, t, 0, t->bytes);
    assert_memory_equal(t->data, "data", 4);
    assert_null(ckpt_find(c, "b"));
    assert_true(conf_i64(ckpt_conf(c), "hidden_size", &x) && x == 64);
    assert_int_equal(ckpt_json(c, "tokenizer.json", &j, &msg), ERR_OK);
    assert_true(conf_arr_i64(j, "v", 0, &x) && x == 1 && strstr(conf_source(j), "tokenizer.json"));
    conf_close(j);
    assert_int_equal(ckpt_json(c, "missing.json", &j, &msg), ERR_OK);
    assert_null(j);
    assert_int_equal(ckpt_json(c, "broken.json", &j, &msg), ERR_FORMAT);
    assert_non_null(strstr(msg.text, "broken.json"));
    assert_int_equal(ckpt_file(c, "tokenizer.json", 100, &text, &len, &msg), ERR_OK);
    assert_true(len == 10 && strcmp(text, "{\"v\": [1]}") == 0);
    mem_free(text);
    assert_int_equal(ckpt_file(c, "tokenizer.json", 9, &text, &len, &msg), ERR_LIMIT);
    assert_null(text);
    assert_int_equal(ckpt_file(c, "empty.txt", 9, &text, NULL, &msg), ERR_OK);
    assert_string_equal(text, "");
    mem_free(text);
    assert_int_equal(ckpt_file(c, "missing", 9, &text, &len, &msg), ERR_OK);
    assert_null(text);
    ckpt_close(c);
    ckpt_close(NULL);
    write_text("config.json", "{");
    expect("", ERR_FORMAT, "config.json: is not valid JSON");
}

static void test_one_file(void **state) {
    (void)state;
    struct golden_path p;
    write_shard("other.safetensors", "b");
    struct ckpt *c = open_ok(in_scratch(&p, "other.safetensors"));
    assert_true(ckpt_find(c, "b") && conf_len(ckpt_conf(c), "") == 0); /* no config.json beside it */
    ckpt_close(c);
    write_text("weights.bin", "PK\3\4");
    expect("weights.bin", ERR_FORMAT, "is no GGUF file");
    write_text("nothing.gguf", "");
    expect("nothing.gguf", ERR_FORMAT, "empty");
    write_text("lfs.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 1\n");
    expect("lfs.safetensors", ERR_FORMAT, "git lfs pull");
}

static void expect_index(const char *json, enum err e, const char *text) {
    write_text("model.safetensors.index.json", json);
    expect("", e, text);
}

static void test_index(void **state) {
    (void)state;
    struct golden_path p;
    write_text("config.json", "{}");
    write_shard("model-00001-of-00002.safetensors", "a");
    write_shard("model-00002-of-00002.safetensors", "b");
    write_shard("again.safetensors", "a");
    write_text("model.safetensors.index.json",
               "{\"metadata\":{},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"b\":"
               "\"model-00002-of-00002.safetensors\"}}");
    struct ckpt *c = open_ok(in_scratch(&p, ""));
    assert_true(ckpt_n_tensors(c) == 2 && ckpt_find(c, "a") && ckpt_find(c, "b"));
    ckpt_close(c);
    c = open_ok(in_scratch(&p, "model-00002-of-00002.safetensors"));
    assert_int_equal(ckpt_n_tensors(c), 2);
    ckpt_close(c);
    c = open_ok(in_scratch(&p, "again.safetensors"));
    assert_int_equal(ckpt_n_tensors(c), 1);
    ckpt_close(c);
    expect_index("[]", ERR_FORMAT, "no object \"weight_map\"");
    expect_index("{\"weight_map\":{\"a\":7}}", ERR_FORMAT, "no plain file name");
    expect_index("{\"weight_map\":{\"a\":\"../again.safetensors\"}}", ERR_FORMAT, "no plain file name");
    expect_index("{\"weight_map\":{\"a\":\"/etc/passwd\"}}", ERR_FORMAT, "no plain file name");
    expect_index("{\"weight_map\":{\"a\":\"x\\u0000y\"}}", ERR_FORMAT, "no plain file name");
    expect_index("{\"weight_map\":{\"a\":\"\"}}", ERR_FORMAT, "no plain file name");
    expect_index("{\"weight_map\":{\"a\":\"missing.safetensors\"}}", ERR_IO, "missing.safetensors: cannot open");
    expect_index("{\"weight_map\":{\"c\":\"again.safetensors\"}}", ERR_FORMAT,
                 "tensor \"c\" is not in again.safetensors");
    expect_index("{\"weight_map\":{\"a\":\"again.safetensors\",\"b\":\"model-00001-of-00002.safetensors\"}}",
                 ERR_FORMAT, "tensor \"a\" occurs twice");
    expect_index(
        "{\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\",\"b\":\"model-00001-of-00002.safetensors\"}}",
        ERR_FORMAT, "where the index puts it");
}

static void test_split(void **state) {
    (void)state;
    struct golden_path p;
    write_part("m-00001-of-00003.gguf", 0, 3, "a", 3);
    write_part("m-00002-of-00003.gguf", 1, 3, "b", 3);
    expect("m-00001-of-00003.gguf", ERR_IO, "part 3 of 3: ");
    write_part("m-00003-of-00003.gguf", 2, 3, "c", 3);
    for (int i = 1; i <= 3; i++) {
        char name[64];
        const char *s;
        snprintf(name, sizeof name, "m-0000%d-of-00003.gguf", i);
        struct ckpt *const c = open_ok(in_scratch(&p, name));
        assert_true(ckpt_is_gguf(c) && ckpt_n_tensors(c) == 3);
        assert_true(*(const float *)ckpt_find(c, "c")->data == 3.0f);
        assert_int_equal(ckpt_find(c, "a")->shape[0], 2);
        assert_int_equal(ckpt_find(c, "a")->shape[1], 4);
        assert_true(conf_str(ckpt_conf(c), "general.architecture", &s, NULL) && strcmp(s, "llama") == 0);
        ckpt_release(c, ckpt_find(c, "b"), 0, 4);
        ckpt_drop(c, ckpt_find(c, "b"), 0, 4);
        ckpt_close(c);
    }
    write_part("renamed.gguf", 0, 3, "a", 3);
    expect("renamed.gguf", ERR_FORMAT, "-00001-of-00003.gguf");
    write_part("m-00003-of-00003.gguf", 2, 3, "a", 3);
    expect("m-00002-of-00003.gguf", ERR_FORMAT, "\"a\" occurs twice");
    write_part("m-00003-of-00003.gguf", 1, 3, "c", 3);
    expect("m-00001-of-00003.gguf", ERR_FORMAT, "says that it is part 2 of 3, not 3 of 3");
    write_part("m-00003-of-00003.gguf", 2, 3, "c", 3);
    write_part("m-00001-of-00003.gguf", 0, 3, "a", 4);
    expect("m-00001-of-00003.gguf", ERR_FORMAT, "have 3 tensors, but 4 are announced");
    write_part("m-00001-of-00003.gguf", 0, 3, "a", (uint32_t)-1);
    expect("m-00001-of-00003.gguf", ERR_FORMAT, "split.tensors.count");
    struct ckpt *c;
    struct err_msg msg;
    write_part("m-00001-of-00003.gguf", 0, 3, "a", 3);
    assert_int_equal(ckpt_open_config(&c, in_scratch(&p, "m-00003-of-00003.gguf"), &msg), ERR_OK);
    assert_true(ckpt_n_tensors(c) == 0 && conf_type(ckpt_conf(c), "general.architecture") == CONF_STRING);
    struct conf *j;
    assert_int_equal(ckpt_json(c, "config.json", &j, &msg), ERR_OK);
    assert_null(j);
    ckpt_close(c);
}

/* Every allocation of an opening fails in turn. */
static void sweep(const char *path, int n_min) {
    const int64_t live = mem_live_blocks();
    int n_failed = 0;
    for (int64_t n = 1;; n++) {
        struct ckpt *c;
        struct err_msg msg = {{0}};
        mem_fault_after(n);
        const enum err e = ckpt_open(&c, path, &msg);
        mem_fault_after(0);
        assert_int_equal(e == ERR_OK, c != NULL);
        ckpt_close(c);
        assert_int_equal(mem_live_blocks(), live);
        if (e == ERR_OK) break;
        if (e != ERR_NOMEM) fail_msg("allocation %lld: %d %s", (long long)n, e, msg.text);
        assert_true(msg.text[0] != '\0');
        n_failed++;
    }
    if (n_failed < n_min) fail_msg("%s: only %d allocations", path, n_failed);
}

static void test_faults(void **state) {
    (void)state;
    struct golden_path p;
    write_text("config.json", "{\"a\":{\"b\":[1,2.5,\"text\"]}}");
    write_shard("model-00001-of-00002.safetensors", "a");
    write_shard("model-00002-of-00002.safetensors", "b");
    write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"b\":"
                                               "\"model-00002-of-00002.safetensors\"}}");
    sweep(in_scratch(&p, ""), 50);
    sweep(in_scratch(&p, "model-00001-of-00002.safetensors"), 50);
    write_part("m-00001-of-00002.gguf", 0, 2, "a", 2);
    write_part("m-00002-of-00002.gguf", 1, 2, "b", 2);
    sweep(in_scratch(&p, "m-00002-of-00002.gguf"), 30);
    if (access(golden_path(&p, "models/qwen3"), R_OK) == 0) sweep(p.text, 500);
    if (access(golden_path(&p, "models/qwen3/model.gguf"), R_OK) == 0) sweep(p.text, 100);
}

/* Every folder and every .gguf below a golden folder opens, with a sane configuration. */
static int open_all(const char *folder) {
    struct golden_path p;
    int n = 0;
    DIR *const dir = opendir(golden_path(&p, folder));
    if (!dir) return 0;
    for (const struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] == '.' || strchr(d->d_name, '.')) continue;
        int64_t x;
        char name[512];
        snprintf(name, sizeof name, "%s/%s", folder, d->d_name);
        struct ckpt *c = open_ok(golden_path(&p, name));
        assert_true(ckpt_n_tensors(c) > 10);
        assert_true(conf_i64(ckpt_conf(c), "hidden_size", &x) && x > 0);
        ckpt_close(c);
        n++;
        snprintf(name, sizeof name, "%s/%s/model.gguf", folder, d->d_name);
        if (access(golden_path(&p, name), R_OK) != 0) continue;
        c = open_ok(p.text);
        assert_true(ckpt_n_tensors(c) > 10 && ckpt_is_gguf(c));
        assert_true(conf_i64(ckpt_conf(c), "{arch}.embedding_length", &x) && x > 0);
        assert_int_equal(conf_len(ckpt_conf(c), "tokenizer.ggml.tokens"), 320);
        ckpt_close(c);
        n++;
    }
    closedir(dir);
    return n;
}

static void test_golden(void **state) {
    (void)state;
    golden_need("models");
    const int n = open_all("models") + open_all("quantized");
    print_message("%d golden checkpoints opened\n", n);
    assert_true(n > 70);
}

/* Compares a tensor of both files, element for element; add is what the converter added. */
static void same_tensor(const struct ckpt *hf, const char *hf_name, const struct ckpt *gg, const char *gg_name,
                        float add) {
    const struct ckpt_tensor *const a = ckpt_find(hf, hf_name), *const b = ckpt_find(gg, gg_name);
    if (!a || !b) fail_msg("%s: no %s or no %s", ckpt_path(hf), hf_name, gg_name);
    assert_int_equal(a->n_dims, b->n_dims);
    int64_t n = 1;
    for (int i = 0; i < a->n_dims; i++) {
        assert_int_equal(a->shape[i], b->shape[i]);
        n *= a->shape[i];
    }
    float *const x = mem_xalloc((size_t)n * sizeof *x), *const y = mem_xalloc((size_t)n * sizeof *y);
    quant_decode_row(a->dtype, x, a->data, n);
    quant_decode_row(b->dtype, y, b->data, n);
    for (int64_t i = 0; i < n; i++)
        if (x[i] + add != y[i]) fail_msg("%s: %s element %lld", ckpt_path(hf), hf_name, (long long)i);
    mem_free(x);
    mem_free(y);
}

static void test_golden_pairs(void **state) {
    (void)state;
    static const char *const folders[] = {"llama2",  "llama3",      "llama3_bf16", "llama_bias",   "mistral",
                                          "mixtral", "qwen2",       "qwen3",       "smollm2",      "glm4_moe",
                                          "kimi_k2", "deepseek_v3", "qwen3_next",  "mimo_v2_flash"};
    golden_need("models");
    for (size_t i = 0; i < N_ELEMENTS(folders); i++) {
        struct golden_path p, q;
        char name[128];
        snprintf(name, sizeof name, "models/%s", folders[i]);
        struct ckpt *const hf = open_ok(golden_path(&p, name));
        snprintf(name, sizeof name, "models/%s/model.gguf", folders[i]);
        struct ckpt *const gg = open_ok(golden_path(&q, name));
        const float add = strcmp(folders[i], "qwen3_next") == 0 ? 1.0f : 0.0f;
        same_tensor(hf, "model.embed_tokens.weight", gg, "token_embd.weight", 0.0f);
        same_tensor(hf, "model.norm.weight", gg, "output_norm.weight", add);
        same_tensor(hf, "model.layers.0.input_layernorm.weight", gg, "blk.0.attn_norm.weight", add);
        same_tensor(hf, "model.layers.1.input_layernorm.weight", gg, "blk.1.attn_norm.weight", add);
        if (ckpt_find(gg, "blk.0.ffn_down.weight"))
            same_tensor(hf, "model.layers.0.mlp.down_proj.weight", gg, "blk.0.ffn_down.weight", 0.0f);
        ckpt_close(gg);
        ckpt_close(hf);
    }
}

static void test_golden_vocabularies(void **state) {
    (void)state;
    static const char *const names[] = {"llama3", "gemma3", "deepseek-llm",  "qwen2",
                                        "gpt2",   "llama2", "mistral-tekken"};
    golden_need("tokenizers/llama3/vocab.gguf");
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        struct golden_path p;
        char name[128];
        const char *s;
        size_t len;
        snprintf(name, sizeof name, "tokenizers/%s/vocab.gguf", names[i]);
        struct ckpt *const c = open_ok(golden_path(&p, name));
        const struct conf *const f = ckpt_conf(c);
        const int64_t n = conf_len(f, "tokenizer.ggml.tokens");
        assert_true(n > 30000);
        for (int64_t t = 0; t < n; t++)
            assert_true(conf_arr_str(f, "tokenizer.ggml.tokens", t, &s, &len) && s[len] == '\0');
        assert_int_equal(conf_len(f, "tokenizer.ggml.token_type"), n);
        ckpt_close(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_folder, make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(test_one_file, make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(test_index, make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(test_split, make_scratch, drop_scratch),
        cmocka_unit_test_setup_teardown(test_faults, make_scratch, drop_scratch),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_golden_pairs),
        cmocka_unit_test(test_golden_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
