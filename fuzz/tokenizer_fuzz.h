/* What the fuzz targets of tokenizers share: a loaded tokenizer is put to work on fixed texts and on the input. */
#ifndef FUZZ_TOKENIZER_FUZZ_H
#define FUZZ_TOKENIZER_FUZZ_H

#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/detokenizer.h"
#include "text/tokenizer_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Encodes, decodes at once and piece by piece, and compares the two texts. */
static inline void fuzz_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags) {
    struct token_ids ids = {0};
    struct strbuf whole = {0}, pieces = {0};
    struct detokenizer d;
    struct err_msg msg;
    if (tokenizer_encode(t, text, len, flags, &ids, &msg) == ERR_OK) {
        CHECK(tokenizer_decode(t, ids.ids, ids.n, false, &whole, &msg) == ERR_OK);
        detokenizer_init(&d, t, false);
        for (size_t i = 0; i < ids.n; i++) {
            size_t n;
            CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_size(t));
            (void)tokenizer_bytes(t, ids.ids[i], &n);
            detokenizer_push(&d, ids.ids[i], &pieces);
        }
        detokenizer_finish(&d, &pieces);
        CHECK(whole.len == pieces.len && (!whole.len || memcmp(whole.data, pieces.data, whole.len) == 0));
    }
    strbuf_deinit(&whole);
    strbuf_deinit(&pieces);
    token_ids_deinit(&ids);
}

static inline struct tokenizer *fuzz_tokenizer(void) {
    struct tokenizer *const t = mem_calloc(1, sizeof *t);
    CHECK(t);
    t->bos = t->eos = -1;
    return t;
}

static inline void fuzz_use(const struct tokenizer *t, const uint8_t *data, size_t size) {
    static const char text[] = "  Hello, w\xc3\xb6rld 123 \xe2\x96\x81" "aab<s>\xf0\x9f\x98\x80 \t\n\ncc";
    fuzz_encode(t, text, sizeof text - 1, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL);
    const size_t n = size > 64 ? 64 : size;
    fuzz_encode(t, (const char *)data + size - n, n, TOKENIZER_RAW_BYTES);
}

#endif
