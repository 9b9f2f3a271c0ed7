/* The inside of a tokenizer, shared by the files that fill one (tokenizer_hf, _gguf, _spm, _tiktoken, _tekken) and
 * those that use it. A loader fills vocab, the model's tables, the pipeline and the decode rules; tokenizer_finish
 * then derives what follows from them.
 *
 *     text -> added.raw -> norm -> added.normalized -> pre -> model (bpe or unigram) -> ids
 */
#ifndef TEXT_TOKENIZER_INT_H
#define TEXT_TOKENIZER_INT_H

#include <jansson.h>

#include "load/conf.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include "text/vocab.h"

enum { TOKENIZER_EOS_MAX = 32, TOKENIZER_AFFIX_MAX = 8, TOKENIZER_NAME_LEN_MAX = 128 };

/* How ids become text, beyond the concatenation of what vocab shows for each. */
struct tokenizer_decode_rules {
    bool skip_control;         /* control tokens never show (SentencePiece) */
    bool byte_runs; /* TOKEN_BYTE: characters are assembled from runs of byte tokens alone, and every bad byte
                       becomes a U+FFFD of its own (SentencePiece) */
    bool strip_all;            /* with strip_spaces: any number of leading spaces goes */
    int strip_spaces;          /* so many spaces at the start of the whole text go */
    bool first_without_spaces; /* the first token loses every space (Metaspace) */
    bool join_with_space;      /* no decoder at all: tokens are joined by one space */
};

struct tokenizer {
    const char *kind;
    struct vocab vocab;
    bool use_unigram;
    struct bpe bpe;
    struct unigram unigram;
    struct normalizer norm;
    struct pretokenizer pre;
    struct added_tokens added;
    struct trie keep; /* SentencePiece: user-defined pieces, for the normalizer */
    struct tokenizer_decode_rules decode;
    int32_t bos, eos; /* -1: none */
    int32_t prefix[TOKENIZER_AFFIX_MAX], suffix[TOKENIZER_AFFIX_MAX]; /* what TOKENIZER_ADD_SPECIAL adds */
    int n_prefix, n_suffix;
    int32_t eos_ids[TOKENIZER_EOS_MAX];
    int n_eos_ids;
};

/* Loaders: each fills a zeroed tokenizer (bos = eos = -1); on error tokenizer_close frees what there is. */

/* tokenizer.json. */
enum err tokenizer_hf_load(struct tokenizer *t, const json_t *root, struct err_msg *msg) ATTR_NODISCARD;

/* GGUF metadata (tokenizer.ggml.*). */
enum err tokenizer_gguf_load(struct tokenizer *t, const struct conf *meta, struct err_msg *msg) ATTR_NODISCARD;

/* SentencePiece's tokenizer.model (a ModelProto). */
enum err tokenizer_spm_load(struct tokenizer *t, const void *bytes, size_t len, struct err_msg *msg) ATTR_NODISCARD;

/* A tiktoken rank file. special: an object {name: id}, or tokenizer_config.json's added_tokens_decoder, or NULL:
 * what belongs to the family that the number of ranks tells. pattern: NULL: the family's. */
enum err tokenizer_tiktoken_load(struct tokenizer *t, const char *bytes, size_t len, const json_t *special,
                                 const char *pattern, struct err_msg *msg) ATTR_NODISCARD;
/* Whether the bytes look like a rank file. */
bool tokenizer_tiktoken_is(const char *bytes, size_t len);

/* Mistral's tekken.json. */
enum err tokenizer_tekken_load(struct tokenizer *t, const json_t *root, struct err_msg *msg) ATTR_NODISCARD;

/* What loaders share (tokenizer_build.c). */

/* Byte-level text ("Ġthe") to bytes (" the"), appended; a text with a character outside the map stays as it is. */
void tokenizer_build_unmap(struct strbuf *out, const char *text, size_t len);
/* The pattern steps of a pre-tokenizer by llama.cpp's name, and what goes with it (tokenizer_named.c);
 * ERR_UNSUPPORTED: unknown name. */
enum err tokenizer_named_apply(struct tokenizer *t, const char *name, bool *adds_bos,
                               struct err_msg *msg) ATTR_NODISCARD;
/* Makes the tokens findable by their text, in the order of their ids, but for control and unknown ones. */
enum err tokenizer_build_index(struct tokenizer *t, struct err_msg *msg) ATTR_NODISCARD;
/* Lets a token of the vocabulary be matched in texts before the model sees them. */
enum err tokenizer_build_added(struct tokenizer *t, int32_t id, bool normalized, struct err_msg *msg) ATTR_NODISCARD;
/* Byte-level decoding of added tokens, as the tokenizers library does it: they pass through the same map as ordinary
 * ones, so that an added "\u00f8" shows as the byte f8. */
enum err tokenizer_build_show_added(struct tokenizer *t, struct err_msg *msg) ATTR_NODISCARD;
/* The byte that "<0x1F>" names, or -1. */
int tokenizer_build_byte(const char *text, size_t len);
/* Byte-level BPE ranked by id: tiktoken and tekken. */
enum err tokenizer_build_ranked(struct tokenizer *t, struct err_msg *msg) ATTR_NODISCARD;
/* SentencePiece: scores[id] of every token, after all tokens are in; fills the model, pipeline and decode rules. step
 * (taken over) is the normalizer. */
enum err tokenizer_build_spm(struct tokenizer *t, const double *scores, struct normalizer_step step,
                             struct err_msg *msg) ATTR_NODISCARD;

/* Rules about BOS and EOS (tokenizer_rules.c). */

/* Settings of tokenizer_config.json, special_tokens_map.json, config.json and generation_config.json; any may be NULL.
 */
struct tokenizer_rules_files {
    const json_t *tokenizer_config, *special_tokens_map, *config, *generation_config;
};
enum err tokenizer_rules_apply(struct tokenizer *t, const struct tokenizer_rules_files *f,
                               struct err_msg *msg) ATTR_NODISCARD;
enum err tokenizer_rules_gguf(struct tokenizer *t, const struct conf *meta, bool adds_bos,
                              struct err_msg *msg) ATTR_NODISCARD;
/* Adds an id to the list of ending ids, unless it is there or does not exist. */
void tokenizer_rules_add_eos(struct tokenizer *t, int64_t id);
/* Adds the well-known names; call it last. */
void tokenizer_rules_known_eos(struct tokenizer *t);

#endif
