/* Parameters of the operators, one struct each. Borrowed by tensors, owned by the graph.
 * Threads: immutable once the plan is made, except attn_plan (see there). */
#ifndef OPS_PARAMS_H
#define OPS_PARAMS_H

#include "ops/op.h"
#include "ops/weight.h"

/* embed, pack, linear: y = x W^T (+ bias). pack carries the weight only for its activation layout. */
struct linear_params {
    const struct weight *w;
    const float *bias; /* [n] or NULL */
    bool fine;         /* rounded activations keep what that leaves as rows of their own: about 16 bits (linear.c) */
};

/* rmsnorm over the whole row; head_norm over each of n_heads parts of d elements (one weight for all). */
struct norm_params {
    const float *w; /* [d] */
    float eps;
    int n_heads, d;
};

/* rope_table: y[r] = cos and sin of position(r) * freq[i], times factor. */
struct rope_params {
    int r;             /* rotary elements of a head */
    const float *freq; /* [r / 2] */
    float factor;      /* attention factor of YaRN, else 1 */
    bool pair;         /* pairs (2i, 2i+1) instead of (i, i + r/2) */
    int n_heads, d;    /* rope: heads of the row */
};

/* attn (src: q) and kv_store (src: k, v): the layer's cache. */
struct attn_params {
    const struct paged_layer *cache;
    int n_heads;         /* query heads */
    float scale;
    const float *sink;   /* [n_heads] or NULL */
    struct attn_plan *plan; /* shared by the attention operators of one cache group and shape */
};

struct scale_params {
    float s;
};

#endif
