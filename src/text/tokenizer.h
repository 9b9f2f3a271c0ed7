/* A model's tokenizer: text to ids and ids to bytes, exactly as the checkpoint's reference does it.
 * One opened tokenizer serves every kind (byte-level BPE, SentencePiece BPE with byte fallback, Unigram,
 * tiktoken, tekken); which one it is shows only in tokenizer_kind.
 * Threads: immutable once open; any thread may encode and decode at the same time. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"
#include "load/ckpt.h"

struct tokenizer; /* opaque */

/* A growing list of ids; zeroed = empty. Freed by token_ids_deinit. */
struct token_ids {
    int32_t *ids;
    size_t n, cap;
};
void token_ids_deinit(struct token_ids *t);

enum {
    TOKENIZER_ADD_SPECIAL = 1,   /* BOS/EOS as the checkpoint's rules say */
    TOKENIZER_PARSE_SPECIAL = 2, /* special tokens written in the text become their ids */
    TOKENIZER_RAW_BYTES = 4      /* bytes that are no UTF-8 are taken as the reference library takes them */
};

/* From whatever the checkpoint has: tokenizer.json, tokenizer.model, tiktoken or tekken files, or GGUF
 * metadata. *out is closed by tokenizer_close. */
enum err tokenizer_open(struct tokenizer **out, const struct ckpt *c, struct err_msg *msg) ATTR_NODISCARD;
void tokenizer_close(struct tokenizer *t);

/* "bpe", "spm", "unigram", "tiktoken", "tekken". */
const char *tokenizer_kind(const struct tokenizer *t);

/* Number of ids, added tokens included. Ids may have holes. */
int32_t tokenizer_size(const struct tokenizer *t);

/* Appends the ids of text [len bytes, UTF-8] to *out. Invalid UTF-8 is ERR_ARG unless
 * TOKENIZER_RAW_BYTES is set. */
enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                          struct token_ids *out, struct err_msg *msg) ATTR_NODISCARD;

/* The raw bytes that id stands for inside a text (may be part of a code point; SentencePiece's U+2581
 * is a space). NULL and 0 for an id that does not exist. Borrowed. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);

/* The id of exactly this token's text, -1 when there is none. */
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len);

/* A control token: left out of an answer unless asked for. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);

/* -1 when there is none. */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);

/* Whether TOKENIZER_ADD_SPECIAL puts BOS in front. */
bool tokenizer_adds_bos(const struct tokenizer *t);

/* Every id that ends a turn or a text: eos_token, generation_config's list, GGUF eos/eot/eom ids and the
 * well-known names (<|im_end|>, <|eot_id|>, …). Borrowed. */
const int32_t *tokenizer_eos_ids(const struct tokenizer *t, int *n);

/* The whole text of n ids, as the reference's decode gives it (without clean-up of spaces unless the
 * checkpoint asks for it). Bytes that are no UTF-8 become U+FFFD. */
enum err tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                          struct strbuf *out, struct err_msg *msg) ATTR_NODISCARD;

#endif
