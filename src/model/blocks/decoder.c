#include "model/blocks/block.h"

#include <string.h>

enum err block_check_act(const struct conf *c, const char *act, struct err_msg *msg) {
    const char *have = act;
    conf_str(c, "hidden_act", &have, NULL);
    if (strcmp(have, act) == 0) return ERR_OK;
    return err_set(msg, ERR_UNSUPPORTED, "%s: hidden_act \"%.32s\"; this family has only %s", conf_source(c), have,
                   act);
}

enum err block_ends_weights(struct model *m, struct err_msg *msg) {
    const struct model_hparams *const h = &m->h;
    const struct model_weight rows[] = {
        {MODEL_EMBED, 0, "model.embed_tokens.weight", "token_embd.weight", h->vocab, h->hidden, SHARD_ROWS, false},
        {MODEL_OUT_NORM, 0, "model.norm.weight", "output_norm.weight", h->hidden, 0, SHARD_REPLICATED, false},
        {MODEL_HEAD, 0, "lm_head.weight", "output.weight", h->vocab, h->hidden, SHARD_ROWS, m->gguf},
    };
    /* A GGUF file says by leaving it out that the head is the embedding. */
    const size_t n = m->gguf || !h->tied ? N_ELEMENTS(rows) : N_ELEMENTS(rows) - 1;
    for (size_t i = 0; i < n; i++) TRY(model_declare(m, &rows[i], msg));
    return ERR_OK;
}

void block_ends_build(struct graph *g, const struct model *m, const struct tensor *x) {
    const struct tensor *const rows = gb_gather(g, x);
    const struct tensor *const normed = gb_norm(g, rows, model_vec(m, MODEL_OUT_NORM, 0), (float)m->h.norm_eps);
    gb_name(g, normed, "final_norm");
    const struct tensor *const logits = gb_linear(g, normed, model_head(m), NULL);
    gb_name(g, logits, "logits");
    gb_output(g, logits);
}

static enum err norm_weights(struct model *m, int layer, struct err_msg *msg) {
    const struct model_weight rows[] = {
        {MODEL_ATTN_NORM, layer, "model.layers.%d.input_layernorm.weight", "blk.%d.attn_norm.weight", m->h.hidden, 0,
         SHARD_REPLICATED, false},
        {MODEL_FFN_NORM, layer, "model.layers.%d.post_attention_layernorm.weight", "blk.%d.ffn_norm.weight", m->h.hidden, 0,
         SHARD_REPLICATED, false},
    };
    for (size_t i = 0; i < N_ELEMENTS(rows); i++) TRY(model_declare(m, &rows[i], msg));
    return ERR_OK;
}

enum err block_decoder_weights(struct model *m, struct err_msg *msg) {
    TRY(block_ends_weights(m, msg));
    for (int l = 0; l < m->h.n_layers; l++) {
        TRY(norm_weights(m, l, msg));
        TRY(block_gqa_weights(m, l, msg));
        TRY(block_mlp_weights(m, l, msg));
    }
    return ERR_OK;
}

void block_decoder_build(struct graph *g, const struct model *m) {
    const float eps = (float)m->h.norm_eps;
    float *const freq = graph_floats(g, m->h.rope.r / 2);
    if (!freq) return;
    const float factor = block_rope_freqs(&m->h.rope, model_vec(m, MODEL_ROPE_FREQS, 0), freq);
    const struct tensor *const table = gb_rope_table(g, freq, (int)m->h.rope.r, factor);
    const struct tensor *x = gb_embed(g, model_mat(m, MODEL_EMBED, 0));
    gb_name(g, x, "hidden_0");
    for (int l = 0; l < m->h.n_layers; l++) {
        const struct tensor *const a = gb_norm(g, x, model_vec(m, MODEL_ATTN_NORM, l), eps);
        x = gb_add(g, x, block_gqa(g, m, l, a, table));
        const struct tensor *const f = gb_norm(g, x, model_vec(m, MODEL_FFN_NORM, l), eps);
        x = gb_add(g, x, block_mlp(g, m, l, f));
        gb_name(g, x, "hidden_%d", l + 1);
    }
    block_ends_build(g, m, x);
}
