#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/bpe.h"
#include "text/unigram.h"

/* A byte-level vocabulary: ids 0..255 are the bytes, then the tokens given. */
static void fill(struct vocab *v, const char *const *tokens, int n) {
    for (int i = 0; i < 256; i++) {
        const char c = (char)i;
        assert_int_equal(vocab_add(v, i, &c, 1, TOKEN_NORMAL, NULL), ERR_OK);
    }
    for (int i = 0; i < n; i++)
        assert_int_equal(vocab_add(v, 256 + i, tokens[i], strlen(tokens[i]), TOKEN_NORMAL, NULL), ERR_OK);
    for (int i = 0; i < v->n; i++) assert_int_equal(vocab_index(v, i, NULL, NULL), ERR_OK);
}

static void expect(const struct bpe *b, const char *text, const int32_t *ids, size_t n) {
    struct bpe_scratch s = {0};
    struct token_ids out = {0};
    assert_true(bpe_encode(b, text, strlen(text), &s, &out));
    assert_int_equal(out.n, n);
    if (n) assert_memory_equal(out.ids, ids, n * sizeof *ids);
    token_ids_deinit(&out);
    bpe_scratch_deinit(&s);
}

static void test_ranks(void **state) {
    static const char *const tokens[] = {"ab", "bc", "abc", "aa", "abcd"};
    struct vocab v = {0};
    struct bpe b = {0};
    (void)state;
    fill(&v, tokens, 5);
    assert_int_equal(bpe_init(&b, &v, true, NULL), ERR_OK);
    assert_int_equal(bpe_add_merge(&b, 'b', 'c', 0, 257, NULL), ERR_OK);
    assert_int_equal(bpe_add_merge(&b, 'a', 'b', 1, 256, NULL), ERR_OK);
    assert_int_equal(bpe_add_merge(&b, 'a', 'a', 2, 259, NULL), ERR_OK);
    assert_int_equal(bpe_add_merge(&b, 256, 'c', 3, 258, NULL), ERR_OK);
    /* bc has the lower rank, so ab never comes to be and abc is out of reach, though it is a token. */
    expect(&b, "abc", (const int32_t[]){'a', 257}, 2);
    expect(&b, "aaa", (const int32_t[]){259, 'a'}, 2); /* leftmost first */
    expect(&b, "aaaa", (const int32_t[]){259, 259}, 2);
    expect(&b, "", NULL, 0);
    b.ignore_merges = true;
    expect(&b, "abc", (const int32_t[]){258}, 1);
    expect(&b, "abcd", (const int32_t[]){260}, 1);
    bpe_deinit(&b);
    vocab_deinit(&v);
}

/* Ranks by id, as tiktoken has them: all splits of a token merge into it. */
static void test_all_splits(void **state) {
    static const char *const tokens[] = {"ab", "cd", "abcd", "bcd"};
    uint32_t rank[260];
    struct vocab v = {0};
    struct bpe b = {0};
    (void)state;
    fill(&v, tokens, 4);
    for (uint32_t i = 0; i < 260; i++) rank[i] = i;
    assert_int_equal(bpe_init(&b, &v, true, NULL), ERR_OK);
    assert_int_equal(bpe_add_all_splits(&b, rank, NULL), ERR_OK);
    assert_int_equal(b.n_pairs, 5); /* ab, cd, ab+cd, a+bcd, b+cd */
    assert_non_null(bpe_find_pair(&b, 'a', 259));
    expect(&b, "abcd", (const int32_t[]){258}, 1);
    expect(&b, "xbcd", (const int32_t[]){'x', 259}, 2);
    bpe_deinit(&b);
    vocab_deinit(&v);
}

/* The textbook loop, which the heap and the short list must agree with. */
static size_t plain(const struct bpe *b, const char *s, size_t len, int32_t *ids) {
    size_t n = len;
    for (size_t i = 0; i < len; i++) ids[i] = b->byte_ids[(unsigned char)s[i]];
    for (;;) {
        const struct bpe_pair *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct bpe_pair *const p = bpe_find_pair(b, ids[i], ids[i + 1]);
            if (p && (!best || p->rank < best->rank)) {
                best = p;
                at = i;
            }
        }
        if (!best) return n;
        ids[at] = best->id;
        memmove(&ids[at + 1], &ids[at + 2], (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void test_heap_is_the_plain_loop(void **state) {
    static const char *const tokens[] = {"ab",   "ba",   "aa",  "bb",   "aba", "bab",  "abab",
                                         "aabb", "aaaa", "bba", "abba", "cc",  "cccc", "ccc"};
    struct vocab v = {0};
    struct bpe b = {0};
    struct rng r = rng_seeded(1);
    uint32_t rank[270];
    (void)state;
    fill(&v, tokens, 14);
    for (uint32_t i = 0; i < 270; i++) rank[i] = i;
    assert_int_equal(bpe_init(&b, &v, true, NULL), ERR_OK);
    assert_int_equal(bpe_add_all_splits(&b, rank, NULL), ERR_OK);
    for (int round = 0; round < 2000; round++) {
        char text[200];
        int32_t want[200];
        const size_t len = 1 + rng_below(&r, sizeof text - 1);
        for (size_t i = 0; i < len; i++) text[i] = (char)('a' + rng_below(&r, 3));
        const size_t n = plain(&b, text, len, want);
        struct bpe_scratch s = {0};
        struct token_ids out = {0};
        assert_true(bpe_encode(&b, text, len, &s, &out));
        assert_int_equal(out.n, n);
        assert_memory_equal(out.ids, want, n * sizeof *want);
        token_ids_deinit(&out);
        bpe_scratch_deinit(&s);
    }
    bpe_deinit(&b);
    vocab_deinit(&v);
}

/* Characters: unknown ones, a pseudo character that only occurs inside a token, and an unused token. */
static void test_characters(void **state) {
    static const char *const tokens[] = {"<unk>", "a", "b", "ab", ("\xc3\xa9" "a"), "abb"};
    static const uint32_t rank[] = {9, 9, 9, 2, 1, 3};
    struct vocab v = {0};
    struct bpe b = {0};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const enum token_type type = i == 0 ? TOKEN_UNKNOWN : i == 5 ? TOKEN_UNUSED : TOKEN_NORMAL;
        assert_int_equal(vocab_add(&v, i, tokens[i], strlen(tokens[i]), type, NULL), ERR_OK);
        if (i) assert_int_equal(vocab_index(&v, i, NULL, NULL), ERR_OK);
    }
    assert_int_equal(bpe_init(&b, &v, false, NULL), ERR_OK);
    b.unknown = 0;
    b.fuse_unknown = true;
    assert_int_equal(bpe_add_all_splits(&b, rank, NULL), ERR_OK);
    assert_int_equal(bpe_find_joints(&b, NULL), ERR_OK);
    expect(&b, "ab", (const int32_t[]){3}, 1);
    expect(&b, "\xc3\xa9" "a", (const int32_t[]){4}, 1); /* é is no token, éa is */
    expect(&b, "xyzab", (const int32_t[]){0, 3}, 2);      /* one unknown token for the run */
    expect(&b, "xax", (const int32_t[]){0, 1, 0}, 3);
    expect(&b, "abb", (const int32_t[]){3, 2}, 2); /* unused: it falls apart again */
    bpe_deinit(&b);
    vocab_deinit(&v);
}

static void test_unigram(void **state) {
    static const char *const tokens[] = {"<unk>", "a", "b", "ab", "abc", "c"};
    static const double scores[] = {0, -1, -1, -1.5, -9, -1};
    struct vocab v = {0};
    struct unigram u = {0};
    struct unigram_scratch s = {0};
    struct token_ids out = {0};
    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(vocab_add(&v, i, tokens[i], strlen(tokens[i]), i ? TOKEN_NORMAL : TOKEN_UNKNOWN, NULL),
                         ERR_OK);
        if (i) assert_int_equal(vocab_index(&v, i, NULL, NULL), ERR_OK);
    }
    assert_int_equal(unigram_init(&u, &v, scores, 0, false, NULL), ERR_OK);
    assert_true(unigram_encode(&u, "abcxyb", 6, &s, &out));
    assert_int_equal(out.n, 4); /* ab c <unk> b */
    assert_memory_equal(out.ids, ((const int32_t[]){3, 5, 0, 2}), 4 * sizeof *out.ids);
    token_ids_deinit(&out);
    unigram_scratch_deinit(&s);
    unigram_deinit(&u);
    vocab_deinit(&v);
}

static void test_vocab_refuses(void **state) {
    struct vocab v = {0};
    struct err_msg msg;
    bool added;
    static char big[VOCAB_TOKEN_LEN_MAX + 1];
    (void)state;
    assert_int_equal(vocab_add(&v, 3, "a", 1, TOKEN_NORMAL, &msg), ERR_OK);
    assert_int_equal(vocab_add(&v, 3, "b", 1, TOKEN_NORMAL, &msg), ERR_FORMAT);
    assert_int_equal(vocab_add(&v, -1, "b", 1, TOKEN_NORMAL, &msg), ERR_FORMAT);
    assert_int_equal(vocab_add(&v, VOCAB_ID_MAX, "b", 1, TOKEN_NORMAL, &msg), ERR_FORMAT);
    assert_int_equal(vocab_add(&v, 4, big, sizeof big, TOKEN_NORMAL, &msg), ERR_LIMIT);
    assert_int_equal(vocab_add(&v, 5, "a", 1, TOKEN_NORMAL, &msg), ERR_OK);
    assert_int_equal(vocab_index(&v, 3, &added, &msg), ERR_OK);
    assert_true(added);
    assert_int_equal(vocab_index(&v, 5, &added, &msg), ERR_OK);
    assert_false(added); /* the first of two equal texts is found */
    assert_int_equal(vocab_find(&v, "a", 1), 3);
    assert_false(vocab_has(&v, 0));
    assert_false(vocab_has(&v, 4));
    assert_int_equal(v.n, 6);
    vocab_deinit(&v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_all_splits),
        cmocka_unit_test(test_heap_is_the_plain_loop),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_vocab_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
