/* The contract of a model family: which configuration keys it reads, which weights it has under which names, what it
 * caches, and its forward pass, written once. Sharding, quantized storage and threads follow from the weight rows;
 * build() never mentions them.
 *
 * A family is one file with one struct model_def and one line in registry.c.
 *
 * Threads: model_open and model_bind by one thread; immutable afterwards. Owns: a struct model owns its tables; the
 * packed bytes belong to the regions that bind made. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "graph/build.h"
#include "load/ckpt.h"
#include "load/conf.h"
#include "par/shard.h"

enum { MODEL_LAYERS_MAX = 1024, MODEL_CACHE_GROUPS_MAX = PAGED_GROUPS_MAX };

enum model_rope_type { MODEL_ROPE_DEFAULT, MODEL_ROPE_LINEAR, MODEL_ROPE_LLAMA3, MODEL_ROPE_YARN };

/* Rotary embedding of a model (models.md 0.3). */
struct model_rope {
    double theta;
    int64_t r; /* rotary elements of a head; 0: all */
    enum model_rope_type type;
    double factor, low_freq_factor, high_freq_factor, beta_fast, beta_slow;
    double attention_factor; /* 0: from the rule */
    double mscale, mscale_all_dim;
    int64_t original_max;
    bool truncate;
    bool pair; /* elements (2i, 2i+1) rotate together */
};

/* Hyper-parameters. Families fill what they need; zero means "not there". */
struct model_hparams {
    int64_t n_layers, hidden, vocab, ffn;
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t max_position;
    double norm_eps;
    bool tied;         /* lm_head is the embedding */
    bool qkv_bias, o_bias, mlp_bias, qk_norm;
    bool use_window;
    int64_t window;    /* of the layers that have one */
    int64_t window_from; /* first layer with a window */
    struct model_rope rope;
};

/* One key of the configuration. */
enum model_conf_type { MODEL_CONF_I64, MODEL_CONF_F64, MODEL_CONF_BOOL };
struct model_conf_row {
    const char *hf, *gguf;      /* either may be NULL: not a key of that format */
    enum model_conf_type type;
    size_t offset;              /* in struct model_hparams */
    bool required;
    double fallback;            /* when the key is missing and not required */
};

/* Where a bound weight is found again: one table per slot and layer. */
enum model_slot {
    MODEL_EMBED,
    MODEL_OUT_NORM,
    MODEL_HEAD,
    MODEL_ROPE_FREQS,
    MODEL_ATTN_NORM,
    MODEL_Q,
    MODEL_K,
    MODEL_V,
    MODEL_O,
    MODEL_Q_BIAS,
    MODEL_K_BIAS,
    MODEL_V_BIAS,
    MODEL_O_BIAS,
    MODEL_Q_NORM,
    MODEL_K_NORM,
    MODEL_FFN_NORM,
    MODEL_GATE,
    MODEL_UP,
    MODEL_DOWN,
    MODEL_GATE_BIAS,
    MODEL_UP_BIAS,
    MODEL_DOWN_BIAS,
    MODEL_N_SLOTS
};

/* One weight row: a matrix [n, k] that is packed, or a vector [n] (k = 0) that is kept in f32. */
struct model_weight {
    enum model_slot slot;
    int layer; /* 0 for global ones */
    const char *hf, *gguf; /* names, "%d" stands for the layer */
    int64_t n, k;
    enum shard_axis axis;
    bool optional;
};

struct model;

struct model_def {
    const char *name;               /* "llama" */
    const char *const *hf_names;    /* architectures of config.json, NULL-terminated */
    const char *const *gguf_names;  /* general.architecture, NULL-terminated */
    const struct model_conf_row *conf; /* ends with a row of offset SIZE_MAX */
    enum err (*derive)(struct model *m, const struct conf *c, struct err_msg *msg);
    enum err (*weights)(struct model *m, struct err_msg *msg);
    void (*build)(struct graph *g, const struct model *m);
};

/* What a layer's cache needs; equal needs form a group. */
struct model_cache {
    int64_t window; /* 0: paged; else positions behind it may be freed */
    int n_layers;
};

struct model {
    const struct model_def *def;
    bool gguf;
    struct model_hparams h;

    struct model_weight *rows; /* declared by def->weights */
    size_t n_rows, cap_rows;
    struct weight *mats[MODEL_N_SLOTS]; /* [n_layers] each, NULL when the slot has none */
    float **vecs[MODEL_N_SLOTS];        /* [n_layers] each */

    struct model_cache caches[MODEL_CACHE_GROUPS_MAX];
    int n_caches;
    struct paged_layer *layers; /* [n_layers] caches, filled by the engine once memory is there */
    int64_t n_parameters;
    struct arena arena; /* names, vectors, tables */
};

/* Reads the configuration of a checkpoint: finds the family, fills hparams, declares weights and caches. Unknown
 * architectures are ERR_UNSUPPORTED with the list of known ones. */
enum err model_open(struct model *m, const struct ckpt *c, struct err_msg *msg) ATTR_NODISCARD;
void model_deinit(struct model *m);

/* Declares a weight row; used by weights() and the blocks. */
enum err model_declare(struct model *m, const struct model_weight *w, struct err_msg *msg) ATTR_NODISCARD;

/* The window of a layer, 0: none. */
int64_t model_window(const struct model *m, int layer);

/* Bound weights; NULL when an optional one is missing. */
static inline const struct weight *model_mat(const struct model *m, enum model_slot slot, int layer) {
    return m->mats[slot] && m->mats[slot][layer].kern ? &m->mats[slot][layer] : NULL;
}
static inline const float *model_vec(const struct model *m, enum model_slot slot, int layer) {
    return m->vecs[slot] ? m->vecs[slot][layer] : NULL;
}

/* The head: its own matrix or the embedding. */
static inline const struct weight *model_head(const struct model *m) {
    const struct weight *const w = model_mat(m, MODEL_HEAD, 0);
    return w ? w : model_mat(m, MODEL_EMBED, 0);
}

/* All families, NULL-terminated (registry.c). */
extern const struct model_def *const model_registry[];

#endif
