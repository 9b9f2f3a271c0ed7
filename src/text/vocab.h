/* A vocabulary: id -> bytes and bytes -> id. Every id has up to two byte strings: `text`, what the model's merges
 * and lookups see (SentencePiece: with U+2581), and `shown`, what decoding gives. Ids may have holes.
 * Threads: immutable once filled. Owns: one buffer with all bytes. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* The numbers are those of SentencePiece's and GGUF's token types. */
enum token_type {
    TOKEN_NONE = 0,
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4, /* user-defined: matched in every text, shown in every answer */
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

enum {
    VOCAB_ID_MAX = 1 << 21,     /* ids at or above this are refused */
    VOCAB_TOKEN_LEN_MAX = 8192, /* longer tokens are refused: matching costs their length at every position */
};

struct vocab_entry {
    uint32_t text_at, shown_at;
    uint16_t text_len, shown_len;
    uint8_t type;
};

struct vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

struct vocab {
    struct vocab_entry *entries;
    int32_t n; /* largest id + 1 */
    size_t cap;
    char *bytes;
    size_t n_bytes, cap_bytes;
    struct vocab_slot *slots;
    size_t n_slots, n_used;
};

/* Gives id its text and type; shown is the text until vocab_show says otherwise. An id that has one already is
 * ERR_FORMAT. The id is not found by its text before vocab_index. */
enum err vocab_add(struct vocab *v, int64_t id, const char *text, size_t len, enum token_type type,
                   struct err_msg *msg) ATTR_NODISCARD;

/* Changes what decoding shows for an id that exists. */
enum err vocab_show(struct vocab *v, int32_t id, const char *shown, size_t len, struct err_msg *msg) ATTR_NODISCARD;

/* Makes id findable by its text; false: an earlier id has this text already and keeps it. */
enum err vocab_index(struct vocab *v, int32_t id, bool *added, struct err_msg *msg) ATTR_NODISCARD;

/* The indexed id of exactly this text, or -1. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t len);

static inline bool vocab_has(const struct vocab *v, int64_t id) {
    return id >= 0 && id < v->n && v->entries[id].type != TOKEN_NONE;
}
static inline enum token_type vocab_type(const struct vocab *v, int64_t id) {
    return id >= 0 && id < v->n ? (enum token_type)v->entries[id].type : TOKEN_NONE;
}
static inline const char *vocab_text(const struct vocab *v, int32_t id, size_t *len) {
    *len = v->entries[id].text_len;
    return v->bytes + v->entries[id].text_at;
}
static inline const char *vocab_shown(const struct vocab *v, int32_t id, size_t *len) {
    *len = v->entries[id].shown_len;
    return v->bytes + v->entries[id].shown_at;
}

void vocab_deinit(struct vocab *v);

#endif
