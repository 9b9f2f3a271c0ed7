/* Qwen3, dense: Llama with a norm over every q and k head before the rotation and its own head size (models.md 2.2). */
#include "model/blocks/block.h"

static const char *const hf_names[] = {"Qwen3ForCausalLM", NULL};
static const char *const gguf_names[] = {"qwen3", NULL};

static const struct model_conf_row conf[] = {
    BLOCK_DECODER_CONF,
    {"head_dim", "{arch}.attention.key_length", MODEL_CONF_I64, BLOCK_H(head_dim), false, 128},
    {"max_position_embeddings", "{arch}.context_length", MODEL_CONF_I64, BLOCK_H(max_position), false, 40960},
    {"attention_bias", NULL, MODEL_CONF_BOOL, BLOCK_H(qkv_bias), false, 0},
    {"use_sliding_window", NULL, MODEL_CONF_BOOL, BLOCK_H(use_window), false, 0},
    {"sliding_window", NULL, MODEL_CONF_I64, BLOCK_H(window), false, 0},
    {"max_window_layers", NULL, MODEL_CONF_I64, BLOCK_H(window_from), false, 28},
    BLOCK_CONF_END,
};

static enum err derive(struct model *m, const struct conf *c, struct err_msg *msg) {
    m->h.qk_norm = true;
    m->h.o_bias = m->h.qkv_bias;
    m->h.use_window = m->h.use_window && m->h.window > 0;
    TRY(block_check_act(c, "silu", msg));
    return block_rope_conf(m, c, msg);
}

const struct model_def model_qwen3 = {.name = "qwen3",
                                      .hf_names = hf_names,
                                      .gguf_names = gguf_names,
                                      .conf = conf,
                                      .derive = derive,
                                      .weights = block_decoder_weights,
                                      .build = block_decoder_build};
