/* tiktoken rank files, cut by an expression that is given. */
#include "tokenizer_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err_msg msg;
    struct tokenizer *const t = fuzz_tokenizer();
    (void)tokenizer_tiktoken_is((const char *)data, size);
    if (tokenizer_tiktoken_load(t, (const char *)data, size, NULL, " ?\\p{L}+|\\p{N}|\\s+", &msg) == ERR_OK)
        fuzz_use(t, data, size);
    tokenizer_close(t);
    return 0;
}
