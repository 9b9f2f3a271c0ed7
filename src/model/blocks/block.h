/* The blocks that families share: each declares its weights and builds its part of the graph from the model's
 * hyper-parameters. Threads: the builder. */
#ifndef MODEL_BLOCKS_BLOCK_H
#define MODEL_BLOCKS_BLOCK_H

#include "model/model.h"

#define BLOCK_H(field) offsetof(struct model_hparams, field)

/* Keys that every decoder-only family has; a family's own rows come behind and may set another fallback. */
// clang-format off
#define BLOCK_DECODER_CONF \
    {"num_hidden_layers",       "{arch}.block_count",                      MODEL_CONF_I64,  BLOCK_H(n_layers),     true,  0}, \
    {"hidden_size",             "{arch}.embedding_length",                 MODEL_CONF_I64,  BLOCK_H(hidden),       true,  0}, \
    {"vocab_size",              "{arch}.vocab_size",                       MODEL_CONF_I64,  BLOCK_H(vocab),        false, 0}, \
    {"intermediate_size",       "{arch}.feed_forward_length",              MODEL_CONF_I64,  BLOCK_H(ffn),          true,  0}, \
    {"num_attention_heads",     "{arch}.attention.head_count",             MODEL_CONF_I64,  BLOCK_H(n_heads),      true,  0}, \
    {"num_key_value_heads",     "{arch}.attention.head_count_kv",          MODEL_CONF_I64,  BLOCK_H(n_kv_heads),   false, 0}, \
    {"head_dim",                "{arch}.attention.key_length",             MODEL_CONF_I64,  BLOCK_H(head_dim),     false, 0}, \
    {"max_position_embeddings", "{arch}.context_length",                   MODEL_CONF_I64,  BLOCK_H(max_position), false, 2048}, \
    {"rms_norm_eps",            "{arch}.attention.layer_norm_rms_epsilon", MODEL_CONF_F64,  BLOCK_H(norm_eps),     false, 1e-6}, \
    {"rope_theta",              "{arch}.rope.freq_base",                   MODEL_CONF_F64,  BLOCK_H(rope.theta),   false, 1e4}, \
    {NULL,                      "{arch}.rope.dimension_count",             MODEL_CONF_I64,  BLOCK_H(rope.r),       false, 0}, \
    {"tie_word_embeddings",     NULL,                                      MODEL_CONF_BOOL, BLOCK_H(tied),         false, 0}
// clang-format on
#define BLOCK_CONF_END {NULL, NULL, MODEL_CONF_I64, SIZE_MAX, false, 0}

/* ERR_UNSUPPORTED unless hidden_act is missing or names this activation. */
enum err block_check_act(const struct conf *c, const char *act, struct err_msg *msg) ATTR_NODISCARD;

/* Embedding, final norm and head: names as in Llama. */
enum err block_ends_weights(struct model *m, struct err_msg *msg) ATTR_NODISCARD;
/* Final norm and head over the rows whose logits are wanted; marks the output. x: [T, hidden]. */
void block_ends_build(struct graph *g, const struct model *m, const struct tensor *x);

/* Grouped-query attention (models.md 0.4) with the biases and head norms that hparams name. */
enum err block_gqa_weights(struct model *m, int layer, struct err_msg *msg) ATTR_NODISCARD;
/* x: the normed input [T, hidden]; table: gb_rope_table of the layer; returns [T, hidden]. */
struct tensor *block_gqa(struct graph *g, const struct model *m, int layer, const struct tensor *x,
                         const struct tensor *table);

/* down(silu(gate x) * up x) (models.md 0.5). */
enum err block_mlp_weights(struct model *m, int layer, struct err_msg *msg) ATTR_NODISCARD;
struct tensor *block_mlp(struct graph *g, const struct model *m, int layer, const struct tensor *x);

/* Standard decoder layers: x += attn(norm x); x += mlp(norm x), with "hidden_<l>" names, then the ends. Families that
 * are nothing else use these two as their weights() and build(). */
enum err block_decoder_weights(struct model *m, struct err_msg *msg) ATTR_NODISCARD;
void block_decoder_build(struct graph *g, const struct model *m);

/* The rope parameters of the configuration, HF (rope_scaling or rope_parameters) and GGUF, into m->h.rope. */
enum err block_rope_conf(struct model *m, const struct conf *c, struct err_msg *msg) ATTR_NODISCARD;

/* Frequencies f_i after the scaling rule into freq[r/2]; divisor [r/2] (GGUF rope_freqs.weight) divides them, or NULL.
 * Returns the factor of cos and sin (YaRN's, else 1). */
float block_rope_freqs(const struct model_rope *rope, const float *divisor, float *freq);

#endif
