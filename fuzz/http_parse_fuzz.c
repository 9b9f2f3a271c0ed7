/* Request heads (first byte even) and chunked bodies (odd), the latter also cut in pieces, which must not change the
 * answer. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "serve/http_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_head(const uint8_t *data, size_t size) {
    struct http_head h;
    const char *why = NULL;
    const size_t n = http_parse_find_head((const char *)data, size);
    CHECK(n <= size);
    if (n == 0) return;
    char *const copy = mem_strndup((const char *)data, n);
    CHECK(copy);
    const int status = http_parse_head(&h, copy, n, &why);
    CHECK(status == 0 || (status >= 400 && why));
    if (status == 0) {
        CHECK(h.path[0] == '/' || strcmp(h.path, "*") == 0);
        CHECK(!(h.chunked && h.has_length));
        for (int i = 0; i < h.n_fields; i++)
            CHECK(!strpbrk(h.fields[i].value, "\r\n"));
    }
    mem_free(copy);
}

/* Feeds pieces of `step` bytes; returns a digest of the outcome. */
static uint64_t decode(const uint8_t *data, size_t size, size_t step) {
    struct http_chunked c = {0};
    uint64_t digest = 0;
    int r = 0;
    for (size_t at = 0; r == 0 && at < size;) {
        const size_t m = size - at < step ? size - at : step;
        char *const piece = mem_strndup((const char *)data + at, m);
        size_t consumed, payload;
        CHECK(piece);
        r = http_parse_chunked(&c, piece, m, &consumed, &payload);
        CHECK(consumed <= m && payload <= consumed && (r != 0 || consumed == m));
        for (size_t i = 0; i < payload; i++)
            digest = digest * 131 + (unsigned char)piece[i];
        at += consumed;
        mem_free(piece);
        if (r == 1) digest = digest * 131 + at;
    }
    return digest * 131 + (uint64_t)(r + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] & 1)
        CHECK(decode(data + 1, size - 1, 1) == decode(data + 1, size - 1, 7));
    else
        fuzz_head(data + 1, size - 1);
    return 0;
}
