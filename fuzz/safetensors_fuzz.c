/* Bytes as a safetensors file. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "load/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tensor_set set = {0};
    struct err_msg msg = {{0}};
    const enum err e = safetensors_parse(&set, data, size, "fuzz.safetensors", &msg);
    CHECK(e == ERR_OK || (strncmp(msg.text, "fuzz.safetensors: ", 18) == 0 && !strpbrk(msg.text, "\n\r\x1b")));
    for (size_t i = 0; e == ERR_OK && i < set.n; i++) {
        const struct ckpt_tensor *const t = &set.items[i];
        const uint8_t *const p = t->data;
        CHECK(p >= data && t->bytes <= size && (size_t)(p - data) <= size - t->bytes);
        CHECK(tensor_set_find(&set, t->name, strlen(t->name)) == t);
    }
    tensor_set_deinit(&set);
    return 0;
}
