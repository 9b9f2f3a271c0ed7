/* Whole tokenizers from small files written here: rules that golden vocabularies do not touch, refusals, and what
 * happens when memory runs out at any allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_int.h"
#include "text/utf8.h"

#define VOCAB                                                                                                          \
    "{\"a\":0,\"b\":1,\"c\":2,\"\\u0120\":3,\"ab\":4,\"\\u0120a\":5,\"1\":6,\"2\":7,\"\\u010a\":8,\"\\u00c3\":9,\"\\u00a9\":10,\"cab\":11}"
#define MODEL(merges) "\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[" merges "]}"
#define BYTE_LEVEL    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}"
#define ADDED                                                                                                          \
    "\"added_tokens\":[{\"id\":20,\"content\":\"<s>\",\"special\":true},{\"id\":21,\"content\":\"</s>\",\"special\":true},"       \
    "{\"id\":22,\"content\":\"<x>\",\"special\":false,\"normalized\":false,\"lstrip\":true,\"rstrip\":true},"                  \
    "{\"id\":23,\"content\":\"bb\",\"special\":false,\"normalized\":false,\"single_word\":true},"                             \
    "{\"id\":24,\"content\":\"<|im_end|>\",\"special\":true}]"
#define TEMPLATE                                                                                                       \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}]}"

static const char plain[] = "{" BYTE_LEVEL "," ADDED "," MODEL("\"a b\",[\"\\u0120\",\"a\"]") "}";
static const char templated[] = "{" BYTE_LEVEL "," ADDED "," TEMPLATE "," MODEL("\"a b\"") "}";

static enum err load(struct tokenizer **out, const char *text, const char *config, struct err_msg *msg) {
    struct conf *file = NULL, *side = NULL;
    struct tokenizer *const t = mem_calloc(1, sizeof *t);
    enum err e = t ? conf_parse_json(&file, text, strlen(text), "test", msg) : ERR_NOMEM;
    if (e == ERR_OK && config) e = conf_parse_json(&side, config, strlen(config), "test", msg);
    if (e == ERR_OK) {
        t->bos = t->eos = -1;
        e = tokenizer_hf_load(t, conf_json(file), msg);
    }
    if (e == ERR_OK) {
        const json_t *const s = side ? conf_json(side) : NULL;
        const struct tokenizer_rules_files rules = {s, s, s, s};
        e = tokenizer_rules_apply(t, &rules, msg);
    }
    conf_close(file);
    conf_close(side);
    *out = e == ERR_OK ? t : NULL;
    if (e != ERR_OK) tokenizer_close(t);
    return e;
}

static struct tokenizer *must_load(const char *text, const char *config) {
    struct err_msg msg = {""};
    struct tokenizer *t;
    const enum err e = load(&t, text, config, &msg);
    if (e != ERR_OK) print_error("%s\n", msg.text);
    assert_int_equal(e, ERR_OK);
    return t;
}

static void expect(const struct tokenizer *t, const char *text, unsigned flags, const int32_t *want, size_t n) {
    struct token_ids ids = {0};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &ids, NULL), ERR_OK);
    assert_int_equal(ids.n, n);
    if (n) assert_memory_equal(ids.ids, want, n * sizeof *want);
    token_ids_deinit(&ids);
}
#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

static void test_added_tokens(void **state) {
    struct tokenizer *const t = must_load(plain, NULL);
    (void)state;
    assert_int_equal(tokenizer_size(t), 25);
    expect(t, "ab a", 0, IDS(4, 5));
    expect(t, "a <x>\n b", 0, IDS(0, 22, 1));             /* takes the white space along on both sides */
    expect(t, "bb abb bb", 0, IDS(23, 3, 4, 1, 3, 23));   /* only as a word of its own */
    expect(t, "a<s>b", TOKENIZER_PARSE_SPECIAL, IDS(0, 20, 1));
    expect(t, "\xc3\xa9", 0, IDS(9, 10));
    assert_int_equal(tokenizer_find(t, "<x>", 3), 22);
    assert_int_equal(tokenizer_find(t, "ab", 2), 4);
    assert_int_equal(tokenizer_find(t, " a", 2), 5);
    assert_int_equal(tokenizer_find(t, "zz", 2), -1);
    assert_true(tokenizer_is_special(t, 20));
    assert_false(tokenizer_is_special(t, 22));
    size_t len;
    assert_null(tokenizer_bytes(t, 15, &len)); /* a hole */
    assert_int_equal(len, 0);
    assert_null(tokenizer_bytes(t, -5, &len));
    assert_memory_equal(tokenizer_bytes(t, 5, &len), " a", 2);
    tokenizer_close(t);
}

static void test_bad_text(void **state) {
    struct tokenizer *const t = must_load(plain, NULL);
    struct token_ids ids = {0};
    struct err_msg msg;
    (void)state;
    assert_int_equal(tokenizer_encode(t, "ab\xff", 3, 0, &ids, &msg), ERR_ARG);
    assert_non_null(strstr(msg.text, "byte 2"));
    assert_int_equal(ids.n, 0);
    assert_int_equal(tokenizer_encode(t, "ab\xc3", 3, TOKENIZER_RAW_BYTES, &ids, &msg), ERR_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.ids[1], 9);
    token_ids_deinit(&ids);
    tokenizer_close(t);
}

/* Where BOS comes from, and that two sources do not double it. */
static void test_bos(void **state) {
    struct tokenizer *t = must_load(templated, NULL);
    (void)state;
    assert_true(tokenizer_adds_bos(t));
    expect(t, "a", TOKENIZER_ADD_SPECIAL, IDS(20, 0));
    expect(t, "a", 0, IDS(0));
    tokenizer_close(t);
    t = must_load(templated, "{\"bos_token\":\"<s>\",\"add_bos_token\":true,\"eos_token\":{\"content\":\"</s>\"},\"add_eos_token\":true}");
    expect(t, "a", TOKENIZER_ADD_SPECIAL, IDS(20, 0, 21));
    assert_int_equal(tokenizer_eos(t), 21);
    tokenizer_close(t);
    t = must_load(templated, "{\"bos_token\":\"<s>\",\"add_bos_token\":false}");
    assert_false(tokenizer_adds_bos(t));
    assert_int_equal(tokenizer_bos(t), 20);
    expect(t, "a", TOKENIZER_ADD_SPECIAL, IDS(0));
    tokenizer_close(t);
    t = must_load(plain, "{\"bos_token\":\"<s>\",\"add_bos_token\":true}");
    expect(t, "a", TOKENIZER_ADD_SPECIAL, IDS(20, 0));
    tokenizer_close(t);
}

static void test_eos(void **state) {
    struct tokenizer *const t = must_load(plain, "{\"eos_token_id\":[21,3,99]}");
    int n;
    const int32_t *const ids = tokenizer_eos_ids(t, &n);
    (void)state;
    assert_int_equal(n, 3); /* 99 does not exist; <|im_end|> is known by its name */
    assert_int_equal(ids[0], 21);
    assert_int_equal(ids[1], 3);
    assert_int_equal(ids[2], 24);
    assert_int_equal(tokenizer_eos(t), 21);
    tokenizer_close(t);
}

static void test_refusals(void **state) {
    static const struct {
        const char *text;
        enum err e;
        const char *says;
    } cases[] = {
        {"{}", ERR_FORMAT, "model"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", ERR_UNSUPPORTED, "WordPiece"},
        {"{" MODEL("\"a zz\"") "," BYTE_LEVEL "}", ERR_FORMAT, "merges[0]"},
        {"{" MODEL("\"ab\"") "," BYTE_LEVEL "}", ERR_FORMAT, "merges[0]"},
        {"{" MODEL("[\"a\",\"b\",\"c\"]") "," BYTE_LEVEL "}", ERR_FORMAT, "merges[0]"},
        {"{" MODEL("7") "," BYTE_LEVEL "}", ERR_FORMAT, "merges[0]"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", ERR_FORMAT, "id 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"x\"},\"merges\":[]}}", ERR_FORMAT, "not an integer"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-4},\"merges\":[]}}", ERR_FORMAT, "-4"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}}", ERR_FORMAT, "4000000000"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", ERR_FORMAT, "vocab"},
        {"{\"normalizer\":{\"type\":\"Nmt\"}," MODEL("") "}", ERR_UNSUPPORTED, "Nmt"},
        {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}," MODEL("") "}", ERR_UNSUPPORTED, "UnicodeScripts"},
        {"{\"decoder\":{\"type\":\"CTC\"}," MODEL("") "}", ERR_UNSUPPORTED, "CTC"},
        {"{\"post_processor\":{\"type\":\"Odd\"}," MODEL("") "}", ERR_UNSUPPORTED, "Odd"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\"}," MODEL("") "}", ERR_UNSUPPORTED, "(a"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Sideways\"}," MODEL("") "}", ERR_UNSUPPORTED, "Sideways"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", ERR_FORMAT, "vocab[0]"},
        {"{\"added_tokens\":[{\"content\":\"a\"}]," MODEL("") "}", ERR_FORMAT, "added token"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err_msg msg = {""};
        struct tokenizer *t;
        const int64_t live = mem_live_blocks();
        const enum err e = load(&t, cases[i].text, NULL, &msg);
        if (e != cases[i].e || !strstr(msg.text, cases[i].says))
            fail_msg("case %zu: error %d \"%s\"", i, (int)e, msg.text);
        assert_int_equal(mem_live_blocks(), live);
    }
}

/* Characters with byte fallback, as Llama 2's file has them. */
static const char characters[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Prepend\",\"prepend\":\"_\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\" \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"_\":1,\"a\":2,"
    "\"b\":3,\"_a\":4,\"<0xC3>\":5,\"<0xA9>\":6},\"merges\":[\"_ a\"]}}";

static const char unigram[] =
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\",\"split\":true},"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"},"
    "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"_\",-1],[\"a\",-2],[\"_a\",-2.5],[\"b\",-3]]}}";

static void test_characters(void **state) {
    struct tokenizer *const t = must_load(characters, NULL);
    struct strbuf out = {0};
    (void)state;
    assert_string_equal(tokenizer_kind(t), "spm");
    expect(t, "a b", 0, IDS(4, 1, 3));
    expect(t, "e\xcc\x81zz" "b", 0, IDS(1, 5, 6, 0, 3)); /* composed, then bytes; z has no bytes and no token */
    assert_int_equal(tokenizer_decode(t, (const int32_t[]){4, 1, 3, 5, 6}, 5, false, &out, NULL), ERR_OK);
    assert_string_equal(out.data, "a b\xc3\xa9");
    strbuf_deinit(&out);
    tokenizer_close(t);
}

static void test_unigram(void **state) {
    struct tokenizer *const t = must_load(unigram, NULL);
    struct strbuf out = {0};
    (void)state;
    assert_string_equal(tokenizer_kind(t), "unigram");
    expect(t, "a ab zz", 0, IDS(3, 3, 4, 1, 0));
    assert_int_equal(tokenizer_decode(t, (const int32_t[]){3, 3, 4}, 3, false, &out, NULL), ERR_OK);
    assert_string_equal(out.data, "a ab");
    strbuf_deinit(&out);
    tokenizer_close(t);
}

/* Every allocation fails once, in turn: the answer is always ERR_NOMEM and nothing is lost. */
static void sweep(const char *json) {
    static const char text[] = "ab e\xcc\x81 <x> bb ab aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const int64_t live = mem_live_blocks();
    bool done = false;
    for (int64_t n = 1; !done; n++) {
        struct err_msg msg = {""};
        struct tokenizer *t = NULL;
        struct token_ids ids = {0};
        struct strbuf out = {0};
        assert_in_range(n, 1, 100000);
        mem_fault_after(n);
        enum err e = load(&t, json, NULL, &msg);
        if (e == ERR_OK) e = tokenizer_encode(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL, &ids, &msg);
        if (e == ERR_OK) e = tokenizer_decode(t, ids.ids, ids.n, false, &out, &msg);
        mem_fault_after(0);
        if (e != ERR_OK) assert_int_equal(e, ERR_NOMEM);
        done = e == ERR_OK;
        strbuf_deinit(&out);
        token_ids_deinit(&ids);
        tokenizer_close(t);
        assert_int_equal(mem_live_blocks(), live);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    sweep(templated);
    sweep(characters);
    sweep(unigram);
}

static void test_translation(void **state) {
    static const struct {
        const char *from, *part;
    } cases[] = {
        {"\\p{Han}+", "\\p{sc:Han}+"},
        {"[\\p{Han}]", "[\\p{sc:Han}]"},
        {"\\p{Lu}\\pN", "\\p{Lu}\\p{N}"},
        {"[^\\p{L}a]", "[^\\p{L}a]"},
        {"[\\p{L}&&[^\\p{Han}]]", "\\p{sc:Han}]"},
        {"[ab&&[^b]]", "(?:(?![b])[ab])"},
        {"\\h", "[0-9a-fA-F]"},
        {"\\u0041", "\\x{0041}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf out = {0};
        assert_int_equal(regex_translate(&out, cases[i].from, strlen(cases[i].from), NULL), ERR_OK);
        if (!strstr(strbuf_cstr(&out), cases[i].part)) fail_msg("%s became %s", cases[i].from, out.data);
        strbuf_deinit(&out);
    }
    struct strbuf out = {0};
    assert_int_equal(regex_translate(&out, "(*COMMIT)a", 10, NULL), ERR_UNSUPPORTED);
    assert_int_equal(regex_translate(&out, "[a", 2, NULL), ERR_UNSUPPORTED);
    assert_int_equal(regex_translate(&out, "\\p{L", 4, NULL), ERR_UNSUPPORTED);
    strbuf_deinit(&out);
}

/* An expression that explodes is cut short: the text is still covered, in short time. */
static void test_match_limit(void **state) {
    struct pretokenizer p = {0};
    struct pretokenizer_run run = {0};
    char text[6001];
    (void)state;
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '!';
    assert_int_equal(pretokenizer_add_regex(&p, "(?:a+)+(?:a+)+$", 15, NULL), ERR_OK);
    assert_true(pretokenizer_cut(&p, text, sizeof text, true, &run));
    size_t sum = 0;
    for (size_t i = 0; i < run.n_spans; i++) {
        assert_int_equal(run.spans[i].at, sum);
        sum += run.spans[i].len;
    }
    assert_int_equal(sum, sizeof text);
    pretokenizer_run_deinit(&run);
    pretokenizer_deinit(&p);
}

/* The shortcut around NFC is right for every code point that it takes. */
static void test_nfc_shortcut(void **state) {
    struct normalizer nfc = {0};
    struct strbuf bufs[2] = {{0}, {0}};
    (void)state;
    assert_int_equal(normalizer_add(&nfc, (struct normalizer_step){.kind = NORMALIZER_NFD}, NULL), ERR_OK);
    assert_int_equal(normalizer_add(&nfc, (struct normalizer_step){.kind = NORMALIZER_NFC}, NULL), ERR_OK);
    for (uint32_t cp = 1; cp < 0x110000; cp++) {
        char text[8];
        const char *out;
        size_t len;
        if (!normalizer_is_nfc_stable(cp) || (cp >= 0xd800 && cp < 0xe000)) continue;
        /* Behind a letter that composes with much, and back through its decomposition. */
        text[0] = 'e';
        const size_t n = 1 + (size_t)utf8_put(cp, text + 1);
        assert_true(normalizer_apply(&nfc, text, n, bufs, &out, &len));
        if (len != n || memcmp(out, text, n) != 0) fail_msg("U+%04X is not stable", cp);
    }
    strbuf_deinit(&bufs[0]);
    strbuf_deinit(&bufs[1]);
    normalizer_deinit(&nfc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_added_tokens), cmocka_unit_test(test_bad_text),     cmocka_unit_test(test_bos),
        cmocka_unit_test(test_eos),          cmocka_unit_test(test_refusals),     cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_characters),   cmocka_unit_test(test_unigram),      cmocka_unit_test(test_translation),
        cmocka_unit_test(test_match_limit),  cmocka_unit_test(test_nfc_shortcut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
