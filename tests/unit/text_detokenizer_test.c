#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/detokenizer.h"
#include "text/tokenizer_int.h"
#include "text/utf8.h"

/* Ids 0..255: the bytes; 256 a control token. */
static struct tokenizer *byte_tokenizer(void) {
    struct tokenizer *const t = mem_calloc(1, sizeof *t);
    assert_non_null(t);
    for (int i = 0; i < 256; i++) {
        const char c = (char)i;
        assert_int_equal(vocab_add(&t->vocab, i, &c, 1, TOKEN_NORMAL, NULL), ERR_OK);
    }
    assert_int_equal(vocab_add(&t->vocab, 256, "<end>", 5, TOKEN_CONTROL, NULL), ERR_OK);
    return t;
}

static void push(struct detokenizer *d, int32_t id, const char *want) {
    struct strbuf out = {0};
    detokenizer_push(d, id, &out);
    assert_string_equal(strbuf_cstr(&out), want);
    strbuf_deinit(&out);
}

static void finish(struct detokenizer *d, const char *want) {
    struct strbuf out = {0};
    detokenizer_finish(d, &out);
    assert_string_equal(strbuf_cstr(&out), want);
    strbuf_deinit(&out);
}

static void test_bytes(void **state) {
    struct tokenizer *const t = byte_tokenizer();
    struct detokenizer d;
    (void)state;
    detokenizer_init(&d, t, true);
    push(&d, 'a', "a");
    push(&d, 0xf0, "");
    push(&d, 0x9f, "");
    push(&d, 0x98, "");
    push(&d, 0x80, "😀");
    push(&d, 0xe2, "");
    push(&d, 0x82, "");
    push(&d, 256, ""); /* left out, and no break for the bytes around it */
    push(&d, 0xac, "€");
    push(&d, 0xe2, "");
    push(&d, 0x82, "");
    push(&d, 'x', UTF8_REPLACEMENT "x"); /* a maximal subpart is one replacement */
    push(&d, 0x80, UTF8_REPLACEMENT);
    push(&d, 12345, ""); /* no such id */
    push(&d, -1, "");
    push(&d, 0xc3, "");
    finish(&d, UTF8_REPLACEMENT);
    finish(&d, "");
    detokenizer_init(&d, t, false);
    push(&d, 256, "<end>");
    tokenizer_close(t);
}

static void test_byte_runs(void **state) {
    struct tokenizer *const t = byte_tokenizer();
    struct detokenizer d;
    (void)state;
    t->decode = (struct tokenizer_decode_rules){.byte_runs = true, .skip_control = true, .strip_spaces = 1};
    for (int i = 128; i < 256; i++) t->vocab.entries[i].type = TOKEN_BYTE;
    detokenizer_init(&d, t, false);
    push(&d, 256, "");
    push(&d, ' ', ""); /* the dummy prefix */
    push(&d, ' ', " ");
    push(&d, 0xe2, "");
    push(&d, 0x82, "");
    push(&d, 'a', UTF8_REPLACEMENT UTF8_REPLACEMENT "a"); /* one for each byte */
    push(&d, 0xc3, "");
    push(&d, 0xa9, "é");
    push(&d, 0xe2, "");
    push(&d, 256, UTF8_REPLACEMENT); /* a hidden token ends the run all the same */
    detokenizer_init(&d, t, false);
    detokenizer_prompt(&d, (const int32_t[]){'a', 'b'}, 2);
    push(&d, ' ', " "); /* the answer goes on in the middle of the text */
    tokenizer_close(t);
}

/* Whatever the ids: the pieces joined are the whole text, and each piece is valid UTF-8. */
static void test_pieces_join(void **state) {
    struct rng r = rng_seeded(3);
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct tokenizer *const t = byte_tokenizer();
        struct strbuf pieces = {0}, whole = {0};
        struct detokenizer d;
        int32_t ids[64];
        const size_t n = rng_below(&r, 64);
        t->decode.byte_runs = round & 1;
        t->decode.strip_spaces = (int)rng_below(&r, 3);
        t->decode.first_without_spaces = rng_below(&r, 2);
        for (int i = 128; i < 256; i++) t->vocab.entries[i].type = round & 1 ? TOKEN_BYTE : TOKEN_NORMAL;
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)(rng_below(&r, 3) ? 0x80 + rng_below(&r, 129) : ' ' + rng_below(&r, 3));
        detokenizer_init(&d, t, round & 2);
        for (size_t i = 0; i < n; i++) {
            const size_t before = pieces.len;
            detokenizer_push(&d, ids[i], &pieces);
            const size_t len = pieces.len - before;
            assert_int_equal(len ? utf8_valid_prefix(pieces.data + before, len) : 0, len);
        }
        detokenizer_finish(&d, &pieces);
        assert_int_equal(tokenizer_decode(t, ids, n, round & 2, &whole, NULL), ERR_OK);
        assert_string_equal(strbuf_cstr(&pieces), strbuf_cstr(&whole));
        strbuf_deinit(&pieces);
        strbuf_deinit(&whole);
        tokenizer_close(t);
    }
}

static void test_utf8(void **state) {
    uint32_t cp = 0;
    (void)state;
    assert_int_equal(utf8_step("\xed\xa0\x80", 3, &cp), -1); /* a surrogate */
    assert_int_equal(utf8_step("\xc0\xaf", 2, &cp), -1);     /* overlong */
    assert_int_equal(utf8_step("\xf4\x90\x80\x80", 4, &cp), -1);
    assert_int_equal(utf8_step("\xf0\x9f\x98", 3, &cp), 0);
    assert_int_equal(utf8_step("\xf0\x9f\x98x", 4, &cp), -3);
    assert_int_equal(utf8_step("\xf0\x9f\x98\x80", 4, &cp), 4);
    assert_int_equal(cp, 0x1f600);
    for (uint32_t c = 0; c < 0x110000; c++) {
        char s[4];
        uint32_t back = 1;
        if (c >= 0xd800 && c < 0xe000) continue;
        const int n = utf8_put(c, s);
        if (utf8_step(s, (size_t)n, &back) != n || back != c) fail_msg("code point %x", c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_byte_runs),
        cmocka_unit_test(test_pieces_join),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
