#include "graph/build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

void graph_init(struct graph *g, int max_tokens) { *g = (struct graph){.max_tokens = max_tokens}; }

void graph_deinit(struct graph *g) {
    for (size_t i = 0; i < g->n_attn_plans; i++) attn_plan_destroy(g->attn_plans[i]);
    mem_free(g->attn_plans);
    mem_free(g->attn_caches);
    mem_free(g->nodes);
    arena_deinit(&g->arena);
    *g = (struct graph){0};
}

enum err graph_status(const struct graph *g, struct err_msg *msg) {
    return g->failed ? err_set(msg, ERR_NOMEM, "graph: memory ran out while building it") : ERR_OK;
}

static struct tensor *fail(struct graph *g) {
    g->failed = true;
    return &g->nowhere;
}

struct tensor *graph_add(struct graph *g, const struct op *op, enum tensor_rows rows, int64_t width, const void *params,
                         size_t n_params, const struct tensor *const *src, int n_src) {
    CHECK(n_src <= TENSOR_SRC_MAX);
    if (g->failed) return &g->nowhere;
    struct tensor *const t = arena_alloc(&g->arena, sizeof *t);
    void *const p = arena_alloc(&g->arena, n_params);
    if (!t || !p || !mem_grow(&g->nodes, &g->cap, g->n_nodes + 1, sizeof *g->nodes)) return fail(g);
    if (n_params) memcpy(p, params, n_params);
    *t =
        (struct tensor){.id = (int)g->n_nodes, .dtype = DTYPE_F32, .rows = rows, .width = width, .op = op, .params = p};
    t->n_src = n_src;
    for (int i = 0; i < n_src; i++) t->src[i] = src[i];
    snprintf(t->name, sizeof t->name, "%s_%d", op->name, t->id);
    g->nodes[g->n_nodes++] = t;
    return t;
}

float *graph_floats(struct graph *g, int64_t n) {
    size_t bytes;
    float *const p = mem_mul_ok((size_t)n, sizeof *p, &bytes) ? arena_alloc(&g->arena, bytes) : NULL;
    if (!p) g->failed = true;
    return p;
}

void gb_name(struct graph *g, const struct tensor *t, const char *fmt, ...) {
    if (g->failed) return;
    struct tensor *const own = g->nodes[t->id];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(own->name, sizeof own->name, fmt, ap);
    va_end(ap);
}

struct tensor *gb_embed(struct graph *g, const struct weight *w) {
    const struct linear_params p = {.w = w};
    return graph_add(g, &op_embed, TENSOR_ROWS_TOKENS, w->k, &p, sizeof p, NULL, 0);
}

struct tensor *gb_linear(struct graph *g, const struct tensor *x, const struct weight *w, const float *bias) {
    const struct linear_params p = {.w = w, .bias = bias};
    return graph_add(g, &op_linear, x->rows, w->n, &p, sizeof p, &x, 1);
}

struct tensor *gb_linear_fine(struct graph *g, const struct tensor *x, const struct weight *w, const float *bias) {
    const struct linear_params p = {.w = w, .bias = bias, .fine = w->kern->act != GEMM_ACT_F32};
    return graph_add(g, &op_linear, x->rows, w->n, &p, sizeof p, &x, 1);
}

struct tensor *gb_norm(struct graph *g, const struct tensor *x, const float *w, float eps) {
    const struct norm_params p = {.w = w, .eps = eps, .n_heads = 1, .d = (int)x->width};
    return graph_add(g, &op_rmsnorm, x->rows, x->width, &p, sizeof p, &x, 1);
}

struct tensor *gb_head_norm(struct graph *g, const struct tensor *x, const float *w, float eps, int n_heads, int d) {
    const struct norm_params p = {.w = w, .eps = eps, .n_heads = n_heads, .d = d};
    struct tensor *const t = graph_add(g, &op_head_norm, x->rows, x->width, &p, sizeof p, &x, 1);
    t->in_place = 1;
    return t;
}

struct tensor *gb_rope_table(struct graph *g, const float *freq, int r, float factor) {
    const struct rope_params p = {.r = r, .freq = freq, .factor = factor};
    return graph_add(g, &op_rope_table, TENSOR_ROWS_TOKENS, r, &p, sizeof p, NULL, 0);
}

struct tensor *gb_rope(struct graph *g, const struct tensor *x, const struct tensor *table, int n_heads, int d, int r,
                       bool pair) {
    const struct rope_params p = {.r = r, .pair = pair, .n_heads = n_heads, .d = d};
    const struct tensor *const src[] = {x, table};
    struct tensor *const t = graph_add(g, &op_rope, x->rows, x->width, &p, sizeof p, src, 2);
    t->in_place = 1;
    return t;
}

/* The plan of a cache's kind: layers of one group with equal heads and window share it. */
static struct attn_plan *plan_for(struct graph *g, const struct paged_layer *c, int n_heads) {
    for (size_t i = 0; i < g->n_attn_plans; i++) {
        const struct paged_layer *const o = g->attn_caches[i];
        if (o->group == c->group && o->window == c->window && o->n_kv == c->n_kv && o->d == c->d)
            return g->attn_plans[i];
    }
    if (!mem_grow(&g->attn_plans, &g->cap_plans, g->n_attn_plans + 1, sizeof *g->attn_plans) ||
        !mem_grow(&g->attn_caches, &g->cap_caches, g->n_attn_plans + 1, sizeof *g->attn_caches))
        return NULL;
    struct attn_plan *const p = attn_plan_create(g->max_tokens, n_heads, c);
    if (!p) return NULL;
    g->attn_caches[g->n_attn_plans] = c;
    g->attn_plans[g->n_attn_plans++] = p;
    return p;
}

struct tensor *gb_attn(struct graph *g, const struct tensor *q, const struct tensor *k, const struct tensor *v,
                       const struct paged_layer *cache, int n_heads, float scale, const float *sink) {
    struct attn_params p = {.cache = cache, .n_heads = n_heads, .scale = scale, .sink = sink};
    if (g->failed) return &g->nowhere;
    p.plan = plan_for(g, cache, n_heads);
    if (!p.plan) return fail(g);
    const struct tensor *const kv[] = {k, v};
    const struct tensor *const stored = graph_add(g, &op_kv_store, TENSOR_ROWS_TOKENS, 0, &p, sizeof p, kv, 2);
    const struct tensor *const src[] = {q, stored};
    return graph_add(g, &op_attn, TENSOR_ROWS_TOKENS, (int64_t)n_heads * cache->dv, &p, sizeof p, src, 2);
}

static struct tensor *binary(struct graph *g, const struct op *op, const struct tensor *a, const struct tensor *b) {
    CHECK(g->failed || (a->width == b->width && a->rows == b->rows));
    const struct tensor *const src[] = {a, b};
    return graph_add(g, op, a->rows, a->width, NULL, 0, src, 2);
}

struct tensor *gb_silu_mul(struct graph *g, const struct tensor *gate, const struct tensor *up) {
    return binary(g, &op_silu_mul, gate, up);
}

struct tensor *gb_gelu_mul(struct graph *g, const struct tensor *gate, const struct tensor *up) {
    return binary(g, &op_gelu_mul, gate, up);
}

struct tensor *gb_add(struct graph *g, const struct tensor *a, const struct tensor *b) {
    return binary(g, &op_add, a, b);
}

struct tensor *gb_scale(struct graph *g, const struct tensor *x, float s) {
    const struct scale_params p = {.s = s};
    return graph_add(g, &op_scale, x->rows, x->width, &p, sizeof p, &x, 1);
}

struct tensor *gb_gather(struct graph *g, const struct tensor *x) {
    return graph_add(g, &op_gather, TENSOR_ROWS_LOGITS, x->width, NULL, 0, &x, 1);
}

void gb_output(struct graph *g, const struct tensor *t) { g->output = t; }
