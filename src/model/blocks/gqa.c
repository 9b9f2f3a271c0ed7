#include "model/blocks/block.h"

#include <math.h>

enum err block_gqa_weights(struct model *m, int layer, struct err_msg *msg) {
    const struct model_hparams *const h = &m->h;
    const int64_t q = h->n_heads * h->head_dim, kv = h->n_kv_heads * h->head_dim;
    const struct model_weight rows[] = {
        {MODEL_Q, layer, "model.layers.%d.self_attn.q_proj.weight", "blk.%d.attn_q.weight", q, h->hidden, SHARD_HEADS,
         false},
        {MODEL_K, layer, "model.layers.%d.self_attn.k_proj.weight", "blk.%d.attn_k.weight", kv, h->hidden, SHARD_HEADS,
         false},
        {MODEL_V, layer, "model.layers.%d.self_attn.v_proj.weight", "blk.%d.attn_v.weight", kv, h->hidden, SHARD_HEADS,
         false},
        {MODEL_O, layer, "model.layers.%d.self_attn.o_proj.weight", "blk.%d.attn_output.weight", h->hidden, q,
         SHARD_COLUMNS, false},
    };
    const struct model_weight qkv_bias[] = {
        {MODEL_Q_BIAS, layer, "model.layers.%d.self_attn.q_proj.bias", "blk.%d.attn_q.bias", q, 0, SHARD_HEADS,
         m->gguf},
        {MODEL_K_BIAS, layer, "model.layers.%d.self_attn.k_proj.bias", "blk.%d.attn_k.bias", kv, 0, SHARD_HEADS,
         m->gguf},
        {MODEL_V_BIAS, layer, "model.layers.%d.self_attn.v_proj.bias", "blk.%d.attn_v.bias", kv, 0, SHARD_HEADS,
         m->gguf},
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

/* Head norm where the model has one, then rotation. */
static struct tensor *head_input(struct graph *g, const struct model *m, const struct tensor *x, const float *norm,
                                 const struct tensor *table) {
    const struct model_hparams *const h = &m->h;
    const int d = (int)h->head_dim, n_heads = (int)(x->width / d);
    const struct tensor *const t = norm ? gb_head_norm(g, x, norm, (float)h->norm_eps, n_heads, d) : x;
    return gb_rope(g, t, table, n_heads, d, (int)h->rope.r, h->rope.pair);
}

struct tensor *block_gqa(struct graph *g, const struct model *m, int layer, const struct tensor *x,
                         const struct tensor *table) {
    const struct model_hparams *const h = &m->h;
    /* The three products side by side: lanes meet once for all of them. */
    const struct tensor *const q0 = gb_linear(g, x, model_mat(m, MODEL_Q, layer), model_vec(m, MODEL_Q_BIAS, layer));
    const struct tensor *const k0 =
        gb_linear_fine(g, x, model_mat(m, MODEL_K, layer), model_vec(m, MODEL_K_BIAS, layer));
    const struct tensor *const v =
        gb_linear_fine(g, x, model_mat(m, MODEL_V, layer), model_vec(m, MODEL_V_BIAS, layer));
    const struct tensor *const q = head_input(g, m, q0, model_vec(m, MODEL_Q_NORM, layer), table);
    const struct tensor *const k = head_input(g, m, k0, model_vec(m, MODEL_K_NORM, layer), table);
    const float scale = 1.0f / sqrtf((float)h->head_dim);
    const struct tensor *const a = gb_attn(g, q, k, v, &m->layers[layer], (int)h->n_heads, scale, NULL);
    return gb_linear(g, a, model_mat(m, MODEL_O, layer), model_vec(m, MODEL_O_BIAS, layer));
}
