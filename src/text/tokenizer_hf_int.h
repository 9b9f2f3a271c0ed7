/* What the two files that read tokenizer.json share. */
#ifndef TEXT_TOKENIZER_HF_INT_H
#define TEXT_TOKENIZER_HF_INT_H

#include "text/tokenizer_int.h"

/* The "type" of an object, "" when it has none. */
const char *tokenizer_hf_type(const json_t *o);
bool tokenizer_hf_flag(const json_t *o, const char *key, bool fallback);

/* Each reads one member of the pipeline, a single kind or a Sequence of them; null is nothing. Kinds that are not in
 * their tables are refused by name. */
enum err tokenizer_hf_normalizer(struct tokenizer *t, const json_t *o, struct err_msg *msg) ATTR_NODISCARD;
/* *byte_level: the pieces are bytes in GPT-2's alphabet. */
enum err tokenizer_hf_pretokenizer(struct tokenizer *t, const json_t *o, bool *byte_level,
                                   struct err_msg *msg) ATTR_NODISCARD;
enum err tokenizer_hf_post(struct tokenizer *t, const json_t *o, struct err_msg *msg) ATTR_NODISCARD;
enum err tokenizer_hf_decoder(struct tokenizer *t, const json_t *o, struct err_msg *msg) ATTR_NODISCARD;

/* Makes a token of the vocabulary an added one. A normalized one is sought, and shown, by its normalized text. */
enum err tokenizer_hf_added(struct tokenizer *t, bool normalized, struct added_token token,
                            struct err_msg *msg) ATTR_NODISCARD;

#endif
