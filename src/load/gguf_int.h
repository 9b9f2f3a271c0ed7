/* Shared by gguf.c and gguf_tensor.c: a cursor over the bytes that never passes their end.
 * Threads: one owner. Owns: nothing. */
#ifndef LOAD_GGUF_INT_H
#define LOAD_GGUF_INT_H

#include <assert.h>
#include <string.h>

#include "load/gguf.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF numbers are read in place");

struct gguf_cursor {
    const uint8_t *data;
    size_t size;
    size_t pos;         /* <= size */
    const char *source; /* the file, for messages */
    struct err_msg *msg;
};

/* The next n bytes into *p. what: the thing being read, for the message of a truncated file. */
enum err gguf_take(struct gguf_cursor *c, size_t n, const uint8_t **p, const char *what) ATTR_NODISCARD;

enum err gguf_take_u32(struct gguf_cursor *c, uint32_t *out, const char *what) ATTR_NODISCARD;
enum err gguf_take_u64(struct gguf_cursor *c, uint64_t *out, const char *what) ATTR_NODISCARD;

/* A string: u64 length and bytes; *out points into the data. */
enum err gguf_take_string(struct gguf_cursor *c, const char **out, size_t *len, const char *what) ATTR_NODISCARD;

/* Reads n_tensors infos at the cursor, checks them against the data section and adds them to *set.
 * alignment: of the data section, a power of two. */
enum err gguf_tensor_read(struct gguf_cursor *c, uint64_t n_tensors, size_t alignment,
                          struct tensor_set *set) ATTR_NODISCARD;

#endif
