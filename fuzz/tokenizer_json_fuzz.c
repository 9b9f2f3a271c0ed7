/* tokenizer.json: any bytes give a tokenizer that works or an error. */
#include "tokenizer_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct conf *file = NULL;
    struct err_msg msg;
    if (conf_parse_json(&file, (const char *)data, size, "fuzz", &msg) != ERR_OK) return 0;
    struct tokenizer *const t = fuzz_tokenizer();
    const struct tokenizer_rules_files rules = {conf_json(file), conf_json(file), conf_json(file), conf_json(file)};
    if (tokenizer_hf_load(t, conf_json(file), &msg) == ERR_OK && tokenizer_rules_apply(t, &rules, &msg) == ERR_OK)
        fuzz_use(t, data, size);
    tokenizer_close(t);
    struct tokenizer *const tekken = fuzz_tokenizer();
    if (tokenizer_tekken_load(tekken, conf_json(file), &msg) == ERR_OK) fuzz_use(tekken, data, size);
    tokenizer_close(tekken);
    conf_close(file);
    return 0;
}
