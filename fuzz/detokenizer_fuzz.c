/* The detokenizer on any ids, under any rules: pieces are valid UTF-8 and join to the whole text. The first byte sets
 * the rules, the others are ids, each of which stands for its own byte or for a bit of text. */
#include "tokenizer_fuzz.h"
#include "text/utf8.h"

static struct tokenizer *make(uint8_t rules) {
    static const char *const texts[] = {" ", "\xe2\x82", "\xf0\x9f\x98\x80", "  a", "\xff", "<s>", ""};
    struct tokenizer *const t = fuzz_tokenizer();
    for (int i = 0; i < 256; i++) {
        const char c = (char)i;
        const char *const text = i < 7 ? texts[i] : &c;
        const enum token_type type = i == 5 ? TOKEN_CONTROL : i >= 128 && rules & 1 ? TOKEN_BYTE : TOKEN_NORMAL;
        CHECK(vocab_add(&t->vocab, i, text, i < 7 ? strlen(text) : 1, type, NULL) == ERR_OK);
    }
    t->decode = (struct tokenizer_decode_rules){
        .byte_runs = rules & 1, .skip_control = rules & 2, .strip_all = rules & 4, .strip_spaces = rules >> 3 & 3,
        .first_without_spaces = rules & 32, .join_with_space = rules & 64,
    };
    return t;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    struct tokenizer *const t = make(data[0]);
    struct strbuf pieces = {0}, whole = {0};
    struct detokenizer d;
    int32_t ids[256];
    const size_t n = size - 1 < 256 ? size - 1 : 256;
    detokenizer_init(&d, t, data[0] & 128);
    for (size_t i = 0; i < n; i++) {
        const size_t before = pieces.len;
        ids[i] = data[i + 1];
        detokenizer_push(&d, ids[i], &pieces);
        CHECK(pieces.len == before ||
              utf8_valid_prefix(pieces.data + before, pieces.len - before) == pieces.len - before);
    }
    detokenizer_finish(&d, &pieces);
    CHECK(tokenizer_decode(t, ids, n, data[0] & 128, &whole, NULL) == ERR_OK);
    CHECK(whole.len == pieces.len && (!whole.len || memcmp(whole.data, pieces.data, whole.len) == 0));
    strbuf_deinit(&pieces);
    strbuf_deinit(&whole);
    tokenizer_close(t);
    return 0;
}
