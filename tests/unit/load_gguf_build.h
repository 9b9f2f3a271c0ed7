/* Writes GGUF files piece by piece, right or wrong ones. Include after cmocka. */
#ifndef TESTS_UNIT_LOAD_GGUF_BUILD_H
#define TESTS_UNIT_LOAD_GGUF_BUILD_H

#include <stdint.h>
#include <string.h>

#include "base/strbuf.h"
#include "load/gguf.h"

static inline void build_u32(struct strbuf *b, uint32_t x) { strbuf_append(b, &x, sizeof x); }
static inline void build_u64(struct strbuf *b, uint64_t x) { strbuf_append(b, &x, sizeof x); }

static inline void build_str(struct strbuf *b, const char *s, size_t len) {
    build_u64(b, len);
    strbuf_append(b, s, len);
}

static inline void build_header(struct strbuf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    strbuf_append(b, "GGUF", 4);
    build_u32(b, version);
    build_u64(b, n_tensors);
    build_u64(b, n_keys);
}

/* A key and its type; the value follows by another call. */
static inline void build_key(struct strbuf *b, const char *key, enum gguf_type type) {
    build_str(b, key, strlen(key));
    build_u32(b, (uint32_t)type);
}

static inline void build_key_u32(struct strbuf *b, const char *key, uint32_t x) {
    build_key(b, key, GGUF_U32);
    build_u32(b, x);
}

static inline void build_key_str(struct strbuf *b, const char *key, const char *s) {
    build_key(b, key, GGUF_STRING);
    build_str(b, s, strlen(s));
}

/* An array header; the elements follow. */
static inline void build_array(struct strbuf *b, const char *key, enum gguf_type type, uint64_t n) {
    build_key(b, key, GGUF_ARRAY);
    build_u32(b, (uint32_t)type);
    build_u64(b, n);
}

/* A tensor info of up to two dimensions, innermost first; d1 = 0 leaves the second out. */
static inline void build_info(struct strbuf *b, const char *name, uint64_t d0, uint64_t d1, uint32_t type,
                              uint64_t offset) {
    build_str(b, name, strlen(name));
    build_u32(b, d1 ? 2 : 1);
    build_u64(b, d0);
    if (d1) build_u64(b, d1);
    build_u32(b, type);
    build_u64(b, offset);
}

static inline void build_align(struct strbuf *b, size_t alignment) {
    while (b->len % alignment) strbuf_putc(b, '\0');
}

#endif
