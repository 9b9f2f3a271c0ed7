/* SentencePiece's tokenizer.model. */
#include "tokenizer_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct err_msg msg;
    struct tokenizer *const t = fuzz_tokenizer();
    if (tokenizer_spm_load(t, data, size, &msg) == ERR_OK) fuzz_use(t, data, size);
    tokenizer_close(t);
    return 0;
}
