/* Bytes up to the first newline as a path, the rest as JSON text; then every kind of read at that path. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "load/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct conf *c, const char *key) {
    bool b;
    int64_t i;
    double r;
    const char *s;
    size_t len;
    const enum conf_type t = conf_type(c, key);
    CHECK(conf_bool(c, key, &b) == (t == CONF_BOOL));
    CHECK(conf_f64(c, key, &r) == (t == CONF_INT || t == CONF_REAL));
    CHECK(t != CONF_INT || conf_i64(c, key, &i));
    CHECK(conf_str(c, key, &s, &len) == (t == CONF_STRING));
    CHECK(t != CONF_STRING || s[len] == '\0');
    const int64_t n = conf_len(c, key);
    CHECK((n >= 0) == (t == CONF_ARRAY || t == CONF_OBJECT));
    for (int64_t j = -1; j <= n && j < 50; j++) {
        const int hits = conf_arr_f64(c, key, j, &r) + conf_arr_str(c, key, j, &s, &len);
        CHECK(hits <= 1 && (hits == 0 || (t == CONF_ARRAY && j >= 0 && j < n)));
        (void)conf_arr_i64(c, key, j, &i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct conf *c;
    struct err_msg msg = {{0}};
    const uint8_t *const line = size ? memchr(data, '\n', size) : NULL;
    const size_t n_key = line ? (size_t)(line - data) : 0, skip = line ? n_key + 1 : 0;
    char *const key = mem_strndup((const char *)data, n_key);
    if (!key) return 0;
    const enum err e = conf_parse_json(&c, (const char *)data + skip, size - skip, "fuzz.json", &msg);
    CHECK((e == ERR_OK) == (c != NULL));
    CHECK(e == ERR_OK || (strncmp(msg.text, "fuzz.json: ", 11) == 0 && !strpbrk(msg.text, "\n\r\x1b")));
    if (c) {
        read_all(c, key);
        read_all(c, "");
    }
    conf_close(c);
    mem_free(key);
    return 0;
}
