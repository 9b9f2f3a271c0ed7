/* Every vocabulary of golden/tokenizers in every form that lies there: ids, texts and streamed pieces must be those of
 * the reference libraries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "text/detokenizer.h"
#include "text/tokenizer_int.h"

enum { FILE_BYTES_MAX = 64 << 20, REPORTS_MAX = 5 };

struct form {
    const char *folder, *file;
};

static const struct form forms[] = {
    {"gpt2", "vocab.gguf"},          {"qwen2", "vocab.gguf"},           {"qwen3", "tokenizer.json"},
    {"qwen3", "qwen.tiktoken"},      {"llama3", "vocab.gguf"},          {"llama3", "tokenizer.model"},
    {"smollm2", "vocab.gguf"},       {"smollm2", "tokenizer.json"},     {"deepseek-llm", "vocab.gguf"},
    {"deepseek-v3", "tokenizer.json"}, {"gpt-oss", "o200k_base.tiktoken"}, {"mistral-tekken", "vocab.gguf"},
    {"llama2", "vocab.gguf"},        {"llama2", "tokenizer.model"},     {"gemma3", "vocab.gguf"},
    {"mistral-v1", "tokenizer.model"}, {"mistral-v3", "tokenizer.model"}, {"mistral-v7", "tokenizer.model"},
    {"unigram-small", "tokenizer.model"},
};

static char path_buf[4096];

static const char *golden(const char *folder, const char *file) {
    snprintf(path_buf, sizeof path_buf, "%s/%s/%s", env_get("XENON_GOLDEN", "../shared/golden"), folder, file);
    return path_buf;
}

static bool golden_is_there(void) {
    FILE *const f = fopen(golden("tokenizers", "README.md"), "rb");
    if (f) fclose(f);
    return f != NULL;
}

static char *read_file(const char *path, size_t *len) {
    FILE *const f = fopen(path, "rb");
    char *const bytes = f ? mem_alloc(FILE_BYTES_MAX) : NULL;
    *len = bytes ? fread(bytes, 1, FILE_BYTES_MAX - 1, f) : 0;
    if (bytes) bytes[*len] = 0;
    if (f) fclose(f);
    return bytes;
}

static json_t *read_json(const char *folder, const char *file) {
    return json_load_file(golden(folder, file), JSON_ALLOW_NUL, NULL);
}

static enum err load(struct tokenizer *t, const char *folder, const char *file, struct err_msg *msg) {
    json_t *const config = read_json(folder, "tokenizer_config.json");
    json_t *const own = read_json(folder, "special_tokens.json");
    enum err e = ERR_OK;
    if (strstr(file, ".json")) {
        json_t *const root = read_json(folder, file);
        e = tokenizer_hf_load(t, root, msg);
        json_decref(root);
    } else {
        size_t len;
        char *const bytes = read_file(golden(folder, file), &len);
        const json_t *special = json_object_get(own, "special_tokens");
        if (!special) special = json_object_get(config, "added_tokens_decoder");
        e = tokenizer_tiktoken_is(bytes, len)
                ? tokenizer_tiktoken_load(t, bytes, len, special, json_string_value(json_object_get(own, "pat_str")),
                                          msg)
                : tokenizer_spm_load(t, bytes, len, msg);
        mem_free(bytes);
    }
    const struct tokenizer_rules_files rules = {.tokenizer_config = config ? config : own};
    if (e == ERR_OK) e = tokenizer_rules_apply(t, &rules, msg);
    json_decref(config);
    json_decref(own);
    return e;
}

static struct tokenizer *open_form(const char *folder, const char *file) {
    struct err_msg msg = {""};
    struct tokenizer *t = NULL;
    char sub[256];
    snprintf(sub, sizeof sub, "tokenizers/%s", folder);
    enum err e;
    if (strstr(file, ".gguf")) {
        struct ckpt *c = NULL;
        e = ckpt_open(&c, golden(sub, file), &msg);
        if (e == ERR_OK) e = tokenizer_open(&t, c, &msg);
        ckpt_close(c);
    } else {
        t = mem_calloc(1, sizeof *t);
        assert_non_null(t);
        t->bos = t->eos = -1;
        e = load(t, sub, file, &msg);
    }
    if (e != ERR_OK) print_error("%s/%s: %s\n", folder, file, msg.text);
    assert_int_equal(e, ERR_OK);
    return t;
}

static size_t unhex(const char *hex, char *out) {
    size_t n = 0;
    for (; hex[2 * n]; n++) {
        unsigned byte = 0;
        sscanf(hex + 2 * n, "%2x", &byte);
        out[n] = (char)byte;
    }
    return n;
}

static bool same_ids(const struct token_ids *got, const json_t *want) {
    if (got->n != json_array_size(want)) return false;
    for (size_t i = 0; i < got->n; i++)
        if (got->ids[i] != json_integer_value(json_array_get(want, i))) return false;
    return true;
}

static void report_ids(const struct token_ids *got, const json_t *want) {
    print_error("  got ");
    for (size_t i = 0; i < got->n && i < 30; i++) print_error(" %d", got->ids[i]);
    print_error("\n  want");
    for (size_t i = 0; i < json_array_size(want) && i < 30; i++)
        print_error(" %d", (int)json_integer_value(json_array_get(want, i)));
    print_error("\n");
}

static bool same_text(const struct strbuf *got, const json_t *want) {
    return got->len == json_string_length(want) && memcmp(strbuf_cstr(got), json_string_value(want), got->len) == 0;
}

/* One line of cases.jsonl; returns the number of things that differ. */
static int check_case(const struct tokenizer *t, const json_t *c, bool report) {
    static char bytes[1 << 16];
    struct err_msg msg = {""};
    const json_t *const text = json_object_get(c, "text"), *const ids = json_object_get(c, "ids");
    const json_t *const decoded = json_object_get(c, "decoded");
    const size_t len = text ? 0 : unhex(json_string_value(json_object_get(c, "bytes_hex")), bytes);
    const unsigned flags = (json_is_true(json_object_get(c, "add_special")) ? TOKENIZER_ADD_SPECIAL : 0u) |
                           (json_is_true(json_object_get(c, "parse_special")) ? TOKENIZER_PARSE_SPECIAL : 0u) |
                           (text ? 0u : TOKENIZER_RAW_BYTES);
    struct token_ids got = {0};
    const enum err e = tokenizer_encode(t, text ? json_string_value(text) : bytes,
                                        text ? json_string_length(text) : len, flags, &got, &msg);
    int bad = 0;
    if (e != ERR_OK || !same_ids(&got, ids)) {
        bad++;
        if (report) {
            print_error("encode \"%s\" flags %u: %s\n",
                        text ? json_string_value(text) : json_string_value(json_object_get(c, "bytes_hex")), flags,
                        msg.text);
            report_ids(&got, ids);
        }
    }
    struct strbuf out = {0};
    got.n = 0;
    for (size_t i = 0; i < json_array_size(ids); i++)
        assert_true(bpe_push_id(&got, (int32_t)json_integer_value(json_array_get(ids, i))));
    assert_int_equal(tokenizer_decode(t, got.ids, got.n, false, &out, &msg), ERR_OK);
    if (!same_text(&out, decoded)) {
        bad++;
        if (report) print_error("decode: got \"%s\" want \"%s\"\n", strbuf_cstr(&out), json_string_value(decoded));
    }
    strbuf_deinit(&out);
    token_ids_deinit(&got);
    return bad;
}

static int check_stream(const struct tokenizer *t, const json_t *c, bool report) {
    const json_t *const ids = json_object_get(c, "ids"), *const pieces = json_object_get(c, "pieces"),
                        *const prompt = json_object_get(c, "prompt_ids");
    struct detokenizer d;
    struct strbuf out = {0};
    int bad = 0;
    detokenizer_init(&d, t, json_is_true(json_object_get(c, "skip_special")));
    for (size_t i = 0; i < json_array_size(prompt); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(prompt, i));
        detokenizer_prompt(&d, &id, 1);
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        strbuf_clear(&out);
        detokenizer_push(&d, (int32_t)json_integer_value(json_array_get(ids, i)), &out);
        if (same_text(&out, json_array_get(pieces, i))) continue;
        bad++;
        if (report)
            print_error("stream \"%s\" piece %zu: got \"%s\" want \"%s\"\n",
                        json_string_value(json_object_get(c, "note")), i, strbuf_cstr(&out),
                        json_string_value(json_array_get(pieces, i)));
    }
    strbuf_clear(&out);
    detokenizer_finish(&d, &out);
    if (!same_text(&out, json_object_get(c, "flush"))) {
        bad++;
        if (report)
            print_error("stream \"%s\" flush: got \"%s\"\n", json_string_value(json_object_get(c, "note")),
                        strbuf_cstr(&out));
    }
    strbuf_deinit(&out);
    return bad;
}

typedef int check_fn(const struct tokenizer *t, const json_t *c, bool report);

static int check_lines(const struct tokenizer *t, const char *folder, const char *file, check_fn *check, int *n) {
    char sub[256];
    size_t len;
    int bad = 0;
    snprintf(sub, sizeof sub, "tokenizers/%s", folder);
    char *const bytes = read_file(golden(sub, file), &len);
    assert_non_null(bytes);
    for (char *line = bytes; *line;) {
        char *const end = strchr(line, '\n');
        json_t *const c = json_loadb(line, end ? (size_t)(end - line) : strlen(line), JSON_ALLOW_NUL, NULL);
        assert_non_null(c);
        bad += check(t, c, bad < REPORTS_MAX) > 0;
        json_decref(c);
        ++*n;
        if (!end) break;
        line = end + 1;
    }
    mem_free(bytes);
    return bad;
}

static void test_form(void **state) {
    const struct form *const f = *state;
    if (!golden_is_there()) skip();
    struct tokenizer *const t = open_form(f->folder, f->file);
    int n_cases = 0, n_streams = 0;
    const int bad_cases = check_lines(t, f->folder, "cases.jsonl", check_case, &n_cases);
    const int bad_streams = check_lines(t, f->folder, "detok_stream.jsonl", check_stream, &n_streams);
    print_message("%s/%s (%s): %d of %d cases, %d of %d streams\n", f->folder, f->file, tokenizer_kind(t),
                  n_cases - bad_cases, n_cases, n_streams - bad_streams, n_streams);
    tokenizer_close(t);
    assert_int_equal(bad_cases + bad_streams, 0);
}

/* The pieces of one case by the steps in p; true when they are the expected ones. */
static bool same_pieces(const struct pretokenizer *p, const json_t *c) {
    const json_t *const text = json_object_get(c, "text"), *const pieces = json_object_get(c, "pieces");
    struct pretokenizer_run run = {0};
    assert_true(pretokenizer_cut(p, json_string_value(text), json_string_length(text), true, &run));
    bool same = run.n_spans == json_array_size(pieces);
    for (size_t i = 0; same && i < run.n_spans; i++) {
        const json_t *const want = json_array_get(pieces, i);
        same = run.spans[i].len == json_string_length(want) &&
               memcmp(run.text + run.spans[i].at, json_string_value(want), run.spans[i].len) == 0;
    }
    pretokenizer_run_deinit(&run);
    return same;
}

/* golden/tokenizers/pretokenizers: by the expressions that lie there, and by the built-in ones of the same names. */
static void test_pretokenizers(void **state) {
    (void)state;
    if (!golden_is_there()) skip();
    json_t *const patterns = read_json("tokenizers/pretokenizers", "patterns.json");
    size_t len;
    char *const bytes = read_file(golden("tokenizers/pretokenizers", "cases.jsonl"), &len);
    const char *name;
    json_t *list;
    int n = 0, bad = 0;
    assert_non_null(patterns);
    assert_non_null(bytes);
    json_object_foreach(patterns, name, list) {
        struct err_msg msg;
        struct pretokenizer from_file = {0};
        struct tokenizer *const named = mem_calloc(1, sizeof *named);
        bool adds_bos;
        size_t i;
        json_t *pattern;
        json_array_foreach(list, i, pattern) assert_int_equal(
            pretokenizer_add_regex(&from_file, json_string_value(pattern), json_string_length(pattern), &msg), ERR_OK);
        assert_int_equal(tokenizer_named_apply(named, name, &adds_bos, &msg), ERR_OK);
        for (char *line = bytes, *end; *line; line = end + 1) {
            end = strchr(line, '\n');
            json_t *const c = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
            if (strcmp(json_string_value(json_object_get(c, "pattern")), name) == 0) {
                const bool ok = same_pieces(&from_file, c) && same_pieces(&named->pre, c);
                if (!ok && bad++ < REPORTS_MAX)
                    print_error("%s: \"%s\"\n", name, json_string_value(json_object_get(c, "text")));
                n++;
            }
            json_decref(c);
        }
        pretokenizer_deinit(&from_file);
        tokenizer_close(named);
    }
    json_decref(patterns);
    mem_free(bytes);
    print_message("pretokenizers: %d of %d cases\n", n - bad, n);
    assert_int_equal(bad, 0);
}

/* Whole conversations of gpt-oss, whose text is known. */
static void test_harmony(void **state) {
    (void)state;
    if (!golden_is_there()) skip();
    struct tokenizer *const t = open_form("gpt-oss", "o200k_base.tiktoken");
    size_t len;
    char *const bytes = read_file(golden("tokenizers/gpt-oss", "chat_ids.jsonl"), &len);
    int n = 0;
    assert_non_null(bytes);
    for (char *line = bytes, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        json_t *const c = json_loadb(line, (size_t)(end - line), 0, NULL);
        const json_t *const text = json_object_get(c, "text");
        struct token_ids got = {0};
        /* In one the user writes the names of special tokens, which only the vendor's renderer tells apart. */
        const bool look_alikes = strstr(json_string_value(json_object_get(c, "note")), "look-alikes");
        if (json_is_string(text) && !look_alikes) {
            assert_int_equal(tokenizer_encode(t, json_string_value(text), json_string_length(text),
                                              TOKENIZER_PARSE_SPECIAL, &got, NULL),
                             ERR_OK);
            assert_true(same_ids(&got, json_object_get(c, "ids")));
            n++;
        }
        token_ids_deinit(&got);
        json_decref(c);
    }
    mem_free(bytes);
    tokenizer_close(t);
    print_message("gpt-oss: %d conversations\n", n);
    assert_true(n > 0);
}

static bool has_eos(const struct tokenizer *t, int32_t id) {
    int n;
    const int32_t *const ids = tokenizer_eos_ids(t, &n);
    for (int i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* The tiny models carry one tokenizer twice: as tokenizer.json and inside model.gguf. */
static void test_model_folders(void **state) {
    static const char *const names[] = {"smollm2", "llama3", "qwen3", "gemma3", "gpt_oss", "deepseek_v3", "glm4_moe"};
    static const char text[] = "The quick brown fox: 1234 ünïcödé <|im_start|>user\nhello the world<|im_end|>";
    (void)state;
    if (!golden_is_there()) skip();
    struct token_ids first = {0};
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        char path[4096];
        struct err_msg msg = {""};
        struct ckpt *c = NULL;
        struct tokenizer *t = NULL;
        struct token_ids ids = {0};
        struct strbuf back = {0};
        snprintf(path, sizeof path, "%s/models/%s%s", env_get("XENON_GOLDEN", "../shared/golden"), names[i / 2],
                 i % 2 ? "/model.gguf" : "");
        if (ckpt_open(&c, path, &msg) != ERR_OK) continue; /* not every folder has a GGUF file */
        const enum err e = tokenizer_open(&t, c, &msg);
        if (e != ERR_OK) print_error("%s: %s\n", path, msg.text);
        assert_int_equal(e, ERR_OK);
        assert_int_equal(
            tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_PARSE_SPECIAL | TOKENIZER_ADD_SPECIAL, &ids, &msg),
            ERR_OK);
        assert_int_equal(tokenizer_decode(t, ids.ids, ids.n, false, &back, &msg), ERR_OK);
        assert_string_equal(back.data, text);
        assert_string_equal(tokenizer_kind(t), "bpe");
        assert_int_equal(tokenizer_bos(t), 1);
        assert_int_equal(tokenizer_eos(t), 4);
        assert_false(tokenizer_adds_bos(t));
        assert_true(has_eos(t, 4));
        if (!(i % 2)) assert_true(has_eos(t, 2)); /* generation_config.json says so */
        if (!first.n) {
            first = ids;
            ids = (struct token_ids){0};
        } else {
            assert_int_equal(ids.n, first.n);
            assert_memory_equal(ids.ids, first.ids, ids.n * sizeof *ids.ids);
        }
        token_ids_deinit(&ids);
        strbuf_deinit(&back);
        tokenizer_close(t);
        ckpt_close(c);
    }
    assert_true(first.n > 0);
    token_ids_deinit(&first);
}

int main(void) {
    enum { N_FORMS = sizeof forms / sizeof *forms, N = N_FORMS + 3 };
    static struct CMUnitTest tests[N] = {
        [N_FORMS] = cmocka_unit_test(test_pretokenizers),
        [N_FORMS + 1] = cmocka_unit_test(test_harmony),
        [N_FORMS + 2] = cmocka_unit_test(test_model_folders),
    };
    static char names[N][128];
    for (int i = 0; i < N_FORMS; i++) {
        snprintf(names[i], sizeof names[i], "%s/%s", forms[i].folder, forms[i].file);
        tests[i] = (struct CMUnitTest){names[i], test_form, NULL, NULL, (void *)(uintptr_t)&forms[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
