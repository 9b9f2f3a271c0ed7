#include "model/blocks/block.h"

enum err block_mlp_weights(struct model *m, int layer, struct err_msg *msg) {
    const int64_t hidden = m->h.hidden, ffn = m->h.ffn;
    const struct model_weight rows[] = {
        {MODEL_GATE, layer, "model.layers.%d.mlp.gate_proj.weight", "blk.%d.ffn_gate.weight", ffn, hidden, SHARD_ROWS,
         false},
        {MODEL_UP, layer, "model.layers.%d.mlp.up_proj.weight", "blk.%d.ffn_up.weight", ffn, hidden, SHARD_ROWS, false},
        {MODEL_DOWN, layer, "model.layers.%d.mlp.down_proj.weight", "blk.%d.ffn_down.weight", hidden, ffn,
         SHARD_COLUMNS, false},
    };
    const struct model_weight bias[] = {
        {MODEL_GATE_BIAS, layer, "model.layers.%d.mlp.gate_proj.bias", "blk.%d.ffn_gate.bias", ffn, 0, SHARD_ROWS,
         m->gguf},
        {MODEL_UP_BIAS, layer, "model.layers.%d.mlp.up_proj.bias", "blk.%d.ffn_up.bias", ffn, 0, SHARD_ROWS, m->gguf},
        {MODEL_DOWN_BIAS, layer, "model.layers.%d.mlp.down_proj.bias", "blk.%d.ffn_down.bias", hidden, 0,
         SHARD_REPLICATED, m->gguf},
    };
    for (size_t i = 0; i < N_ELEMENTS(rows); i++) TRY(model_declare(m, &rows[i], msg));
    for (size_t i = 0; m->h.mlp_bias && i < N_ELEMENTS(bias); i++) TRY(model_declare(m, &bias[i], msg));
    return ERR_OK;
}

struct tensor *block_mlp(struct graph *g, const struct model *m, int layer, const struct tensor *x) {
    const struct tensor *const gate =
        gb_linear(g, x, model_mat(m, MODEL_GATE, layer), model_vec(m, MODEL_GATE_BIAS, layer));
    const struct tensor *const up = gb_linear(g, x, model_mat(m, MODEL_UP, layer), model_vec(m, MODEL_UP_BIAS, layer));
    return gb_linear(g, gb_silu_mul(g, gate, up), model_mat(m, MODEL_DOWN, layer),
                     model_vec(m, MODEL_DOWN_BIAS, layer));
}
