/* The header of one GGUF file (versions 2 and 3, little-endian): its metadata, indexed by key, and
 * its tensors. Works on bytes in memory, checks every length and offset against their size, and
 * copies only keys and strings (so that they are NUL-terminated and found in constant time).
 *
 *     "GGUF" | u32 version | u64 tensors | u64 keys | keys and values | tensor infos | padding | data
 *
 * Threads: immutable after gguf_parse. Owns: keys and strings; numbers point into the bytes given. */
#ifndef LOAD_GGUF_H
#define LOAD_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "load/tensor_set.h"

/* Value types as numbered in files. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES
};

/* A value is seen as n elements of one type; a scalar is one element. Elements that are arrays
 * themselves are checked when parsed but cannot be read. */
struct gguf_value {
    char *key;
    size_t key_len;
    bool is_array;
    enum gguf_type type; /* of the elements */
    uint64_t n;
    const uint8_t *data; /* numbers and booleans: the elements, little-endian, at any address */
    char *text;          /* strings: all of them, a NUL behind each */
    size_t *starts;      /* strings: [n + 1] where each begins in text; the end of i is starts[i + 1] - 1 */
};

struct gguf {
    struct gguf_value *values;
    size_t n_values, cap;
    struct map by_key;  /* key -> index into values */
    uint64_t n_tensors; /* of this file, as its header says */
};

/* Parses size bytes at data, which must stay until gguf_close. source names the file in messages.
 * The tensors are appended to *set; with set NULL they are not looked at (configuration only, the
 * data may be missing). ERR_FORMAT, ERR_UNSUPPORTED (version, tensor type), ERR_LIMIT, ERR_NOMEM; on failure *out is
 * NULL and *set may hold tensors of this file, so that the caller drops it whole. */
enum err gguf_parse(struct gguf **out, struct tensor_set *set, const void *data, size_t size, const char *source,
                    struct err_msg *msg) ATTR_NODISCARD;

void gguf_close(struct gguf *g);

/* NULL when there is no such key. */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key, size_t len);

/* Element i of a value. False: no such element or another kind of type; *out is left alone then.
 * gguf_i64 reads every integer type that fits, and booleans; gguf_f64 every number. */
bool gguf_i64(const struct gguf_value *v, uint64_t i, int64_t *out);
bool gguf_f64(const struct gguf_value *v, uint64_t i, double *out);
bool gguf_str(const struct gguf_value *v, uint64_t i, const char **out, size_t *len);

#endif
