#include "model/blocks/blocks.h"

#include <math.h>

enum err block_gqa_weights(struct model *m, int layer, struct err_msg *msg) {
    const struct model_hparams *const h = &m->h;
    const int64_t q = h->n_heads * h->head_dim, kv = h->n_kv_heads * h->head_dim;
    const struct model_weight rows[] = {
        {MODEL_Q, layer, "model.layers.%d.self_attn.q_proj.weight", "blk.%d.attn_q.weight", q, h->hidden, SHARD_HEADS, false},
        {MODEL_K, layer, "model.layers.%d.self_attn.k_proj.weight", "blk.%d.attn_k.weight", kv, h->hidden, SHARD_HEADS, false},
        {MODEL_V, layer, "model.layers.%d.self_attn.v_proj.weight", "blk.%d.attn_v.weight", kv, h->hidden, SHARD_HEADS, false},
        {MODEL_O, layer, "model.layers.%d.self_attn.o_proj.weight", "blk.%d.attn_output.weight", h->hidden, q,
         SHARD_COLUMNS, false},
    };
    const struct model_weight qkv_bias[] = {
        {MODEL_Q_BIAS, layer, "model.layers.%d.self_attn.q_proj.bias", "blk.%d.attn_q.bias", q, 0, SHARD_HEADS, m->gguf},
        {MODEL_K_BIAS, layer, "model.layers.%d.self_attn.k_proj.bias", "blk.%d.attn_k.bias", kv, 0, SHARD_HEADS, m->gguf},
        {MODEL_V_BIAS, layer, "model.layers.%d.self_attn.v_proj.bias", "blk.%d.attn_v.bias", kv, 0, SHARD_HEADS, m->gguf},
    };
    const struct model_weight o_bias = {MODEL_O_BIAS, layer, "model.layers.%d.self_attn.o_proj.bias",
                                        "blk.%d.attn_output.bias", h->hidden, 0, SHARD_REPLICATED, m->gguf};
    const struct model_weight qk_norm[] = {
        {MODEL_Q_NORM, layer, "model.layers.%d.self_attn.q_norm.weight", "blk.%d.attn_q_norm.weight", h->head_dim, 0,
         SHARD_REPLICATED, false},
        {MODEL_K_NORM, layer, "model.layers.%d.self_attn.k_norm.weight", "blk.%d.attn_k_norm.weight", h->head_dim, 0,
         SHARD_REPLICATED, false},
    };
    for (size_t i = 0; i < N_ELEMENTS(rows); i++) TRY(model_declare(m, &rows[i], msg));
    for (size_t i = 0; h->qkv_bias && i < N_ELEMENTS(qkv_bias); i++) TRY(model_declare(m, &qkv_bias[i], msg));
    if (h->o_bias) TRY(model_declare(m, &o_bias, msg));
    for (size_t i = 0; h->qk_norm && i < N_ELEMENTS(qk_norm); i++) TRY(model_declare(m, &qk_norm[i], msg));
    return ERR_OK;
}

/* Linear, head norm where the model has one, rotation. */
static struct tensor *head_input(struct graph *g, const struct model *m, int layer, const struct tensor *x,
                                 const struct tensor *table, bool is_q) {
    const struct model_hparams *const h = &m->h;
    const int n_heads = (int)(is_q ? h->n_heads : h->n_kv_heads), d = (int)h->head_dim;
    struct tensor *t = gb_linear(g, x, model_mat(m, is_q ? MODEL_Q : MODEL_K, layer),
                                 model_vec(m, is_q ? MODEL_Q_BIAS : MODEL_K_BIAS, layer));
    const float *const norm = model_vec(m, is_q ? MODEL_Q_NORM : MODEL_K_NORM, layer);
    if (norm) t = gb_head_norm(g, t, norm, (float)h->norm_eps, n_heads, d);
    return gb_rope(g, t, table, n_heads, d, (int)h->rope.r, h->rope.pair);
}

struct tensor *block_gqa(struct graph *g, const struct model *m, int layer, const struct tensor *x,
                         const struct tensor *table) {
    const struct model_hparams *const h = &m->h;
    const struct tensor *const q = head_input(g, m, layer, x, table, true);
    const struct tensor *const k = head_input(g, m, layer, x, table, false);
    const struct tensor *const v = gb_linear(g, x, model_mat(m, MODEL_V, layer), model_vec(m, MODEL_V_BIAS, layer));
    const float scale = 1.0f / sqrtf((float)h->head_dim);
    const struct tensor *const a = gb_attn(g, q, k, v, &m->layers[layer], (int)h->n_heads, scale, NULL);
    return gb_linear(g, a, model_mat(m, MODEL_O, layer), model_vec(m, MODEL_O_BIAS, layer));
}
