/* Bytes as a GGUF file: parsed, then every key, string and tensor is read. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "load/conf_int.h"
#include "load/gguf.h"
#include "load/tensor_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_values(const struct conf *c, const struct gguf *g) {
    for (size_t i = 0; i < g->n_values; i++) {
        const struct gguf_value *const v = &g->values[i];
        const uint64_t n = v->n < 100 ? v->n : 100;
        CHECK(gguf_find(g, v->key, v->key_len) == v && v->key[v->key_len] == '\0');
        if (strncmp(v->key, "{arch}.", 7) == 0) continue; /* the view gives this name another meaning */
        CHECK(conf_type(c, v->key) != CONF_NONE);
        for (uint64_t j = 0; j <= n; j++) {
            int64_t x;
            double y;
            const char *s;
            size_t len;
            const bool is_int = conf_arr_i64(c, v->key, (int64_t)j, &x),
                       is_real = conf_arr_f64(c, v->key, (int64_t)j, &y);
            const bool is_text = conf_arr_str(c, v->key, (int64_t)j, &s, &len);
            CHECK(!is_text || (!is_int && !is_real && s[len] == '\0'));
            CHECK(!(is_int || is_real || is_text) || (v->is_array && j < v->n));
        }
    }
}

static void read_tensors(const struct tensor_set *set, const uint8_t *data, size_t size) {
    for (size_t i = 0; i < set->n; i++) {
        const struct ckpt_tensor *const t = &set->items[i];
        const uint8_t *const p = t->data;
        CHECK(p >= data && t->bytes >= 1 && t->bytes <= size && (size_t)(p - data) <= size - t->bytes);
        CHECK(tensor_set_find(set, t->name, strlen(t->name)) == t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gguf *g;
    struct conf *c;
    struct tensor_set set = {0};
    struct err_msg msg = {{0}};
    const enum err e = gguf_parse(&g, &set, data, size, "fuzz.gguf", &msg);
    CHECK((e == ERR_OK) == (g != NULL));
    CHECK(e == ERR_OK || (strncmp(msg.text, "fuzz.gguf: ", 11) == 0 && !strpbrk(msg.text, "\n\r\x1b")));
    if (g) {
        read_tensors(&set, data, size);
        if (conf_open_gguf(&c, g, "fuzz.gguf", &msg) == ERR_OK) {
            read_values(c, g);
            conf_close(c);
        }
    }
    gguf_close(g);
    tensor_set_deinit(&set);
    return 0;
}
