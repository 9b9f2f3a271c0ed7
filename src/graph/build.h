/* Building a graph: the words that model files speak. Every word adds one node and returns its header; nodes run in the
 * order in which they were added. The graph is static: built once, planned once, run for every step.
 *
 * The first failure (no memory) is remembered; later words return a harmless header, and graph_status says so at the
 * end.
 *
 * Threads: one builder. Owns: the graph owns nodes, parameters and names. */
#ifndef GRAPH_BUILD_H
#define GRAPH_BUILD_H

#include "base/arena.h"
#include "ops/attn_plan.h"
#include "ops/params.h"

struct graph {
    struct arena arena;
    struct tensor **nodes; /* in order of execution */
    size_t n_nodes, cap;
    struct attn_plan **attn_plans;
    const struct paged_layer **attn_caches; /* [n_attn_plans] a layer of each plan's kind */
    size_t n_attn_plans, cap_plans, cap_caches;
    int max_tokens;
    bool failed;
    struct tensor nowhere; /* what words return after a failure */
    const struct tensor *output;
};

/* max_tokens: rows of the largest step. */
void graph_init(struct graph *g, int max_tokens);
void graph_deinit(struct graph *g);

/* ERR_NOMEM when a word failed. */
enum err graph_status(const struct graph *g, struct err_msg *msg) ATTR_NODISCARD;

/* Any node: used by the words below and by lower. params are copied (n_params bytes). */
struct tensor *graph_add(struct graph *g, const struct op *op, enum tensor_rows rows, int64_t width, const void *params,
                         size_t n_params, const struct tensor *const *src, int n_src);

/* f32 memory that lives as long as the graph (rope frequencies and the like). NULL after a failure. */
float *graph_floats(struct graph *g, int64_t n);

/* Names a node so that tests and dumps find it: "hidden_3". */
void gb_name(struct graph *g, const struct tensor *t, const char *fmt, ...) ATTR_PRINTF(3, 4);

/* The words. Shapes in brackets; T = tokens of the step, R = rows whose logits are wanted. */
struct tensor *gb_embed(struct graph *g, const struct weight *w);                                 /* [T, k] */
struct tensor *gb_linear(struct graph *g, const struct tensor *x, const struct weight *w,
                         const float *bias); /* [., n] */
/* The same with the finest activations that the format has: for what goes into the cache, where its error would stay.
 */
struct tensor *gb_linear_fine(struct graph *g, const struct tensor *x, const struct weight *w, const float *bias);
struct tensor *gb_norm(struct graph *g, const struct tensor *x, const float *w, float eps);       /* as x */
struct tensor *gb_head_norm(struct graph *g, const struct tensor *x, const float *w, float eps, int n_heads, int d);
struct tensor *gb_rope_table(struct graph *g, const float *freq, int r, float factor);            /* [T, r] */
struct tensor *gb_rope(struct graph *g, const struct tensor *x, const struct tensor *table, int n_heads, int d, int r,
                       bool pair); /* in place */
/* Stores k and v, then attends: [T, n_heads * dv]. sink may be NULL. */
struct tensor *gb_attn(struct graph *g, const struct tensor *q, const struct tensor *k, const struct tensor *v,
                       const struct paged_layer *cache, int n_heads, float scale, const float *sink);
struct tensor *gb_silu_mul(struct graph *g, const struct tensor *gate, const struct tensor *up);
struct tensor *gb_gelu_mul(struct graph *g, const struct tensor *gate, const struct tensor *up);
struct tensor *gb_add(struct graph *g, const struct tensor *a, const struct tensor *b);
struct tensor *gb_scale(struct graph *g, const struct tensor *x, float s);
struct tensor *gb_gather(struct graph *g, const struct tensor *x);                                /* [R, .] */

/* Marks the result of the graph. */
void gb_output(struct graph *g, const struct tensor *t);

#endif
