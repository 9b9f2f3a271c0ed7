/* Llama 2, 3, 3.1, 3.2, 3.3 and what is built like them: Mistral (with a window in every layer where the configuration
 * names one), SmolLM2 (models.md 1, 12). */
#include "model/blocks/block.h"

static const char *const hf_names[] = {"LlamaForCausalLM", "MistralForCausalLM", NULL};
static const char *const gguf_names[] = {"llama", NULL};

static const struct model_conf_row conf[] = {
    BLOCK_DECODER_CONF,
    {"attention_bias", NULL, MODEL_CONF_BOOL, BLOCK_H(qkv_bias), false, 0},
    {"mlp_bias", NULL, MODEL_CONF_BOOL, BLOCK_H(mlp_bias), false, 0},
    {"sliding_window", "{arch}.attention.sliding_window", MODEL_CONF_I64, BLOCK_H(window), false, 0},
    BLOCK_CONF_END,
};

static enum err derive(struct model *m, const struct conf *c, struct err_msg *msg) {
    struct model_hparams *const h = &m->h;
    TRY(block_check_act(c, "silu", msg));
    if (m->gguf) h->qkv_bias = h->mlp_bias = true; /* optional rows: a file says it by having the tensors */
    h->o_bias = h->qkv_bias;
    h->use_window = h->window > 0;
    h->rope.pair = m->gguf; /* the converter permutes q and k (models.md 15.5) */
    return block_rope_conf(m, c, msg);
}

/* llama3 scaling comes in a GGUF file as a vector of divisors. */
static enum err weights(struct model *m, struct err_msg *msg) {
    const struct model_weight freqs = {MODEL_ROPE_FREQS, 0, NULL, "rope_freqs.weight", m->h.rope.r / 2, 0,
                                       SHARD_REPLICATED, true};
    if (m->gguf) TRY(model_declare(m, &freqs, msg));
    return block_decoder_weights(m, msg);
}

const struct model_def model_llama = {.name = "llama",
                                      .hf_names = hf_names,
                                      .gguf_names = gguf_names,
                                      .conf = conf,
                                      .derive = derive,
                                      .weights = weights,
                                      .build = block_decoder_build};
