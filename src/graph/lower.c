#include "graph/lower.h"

#include "base/mem.h"

static const struct weight *weight_of(const struct tensor *t) {
    return ((const struct linear_params *)t->params)->w;
}

static bool is_fine(const struct tensor *t) { return ((const struct linear_params *)t->params)->fine; }

static bool same_layout(const struct weight *a, const struct weight *b) {
    return a->k == b->k && a->kern->act_pack == b->kern->act_pack && a->kern->act_tile == b->kern->act_tile &&
           a->kern->act_bytes == b->kern->act_bytes;
}

/* A pack of x for the linear node among the nodes made so far, or NULL. */
static const struct tensor *find_pack(const struct graph *g, const struct tensor *x, const struct tensor *linear) {
    for (size_t i = g->n_nodes; i-- > 0;) {
        const struct tensor *const t = g->nodes[i];
        if (t->op == &op_pack && t->src[0] == x && is_fine(t) == is_fine(linear) &&
            same_layout(weight_of(t), weight_of(linear)))
            return t;
        if (t == x) return NULL;
    }
    return NULL;
}

static const struct tensor *pack_for(struct graph *g, struct tensor *linear, int level) {
    const struct tensor *const x = linear->src[0];
    const struct tensor *const found = level > 0 ? find_pack(g, x, linear) : NULL;
    if (found) return found;
    const struct linear_params p = {.w = weight_of(linear), .fine = is_fine(linear)};
    struct tensor *const pack = graph_add(g, &op_pack, x->rows, p.w->k, &p, sizeof p, &x, 1);
    pack->dtype = DTYPE_U8;
    return pack;
}

static bool push(struct graph *g, struct tensor *t) {
    if (!mem_grow(&g->nodes, &g->cap, g->n_nodes + 1, sizeof *g->nodes)) return false;
    t->id = (int)g->n_nodes;
    g->nodes[g->n_nodes++] = t;
    return true;
}

enum err lower_graph(struct graph *g, int level, struct err_msg *msg) {
    TRY(graph_status(g, msg));
    struct tensor **const old = g->nodes;
    const size_t n_old = g->n_nodes;
    g->nodes = NULL;
    g->n_nodes = g->cap = 0;
    for (size_t i = 0; i < n_old && !g->failed; i++) {
        if (old[i]->op == &op_linear) old[i]->src[0] = pack_for(g, old[i], level);
        if (!push(g, old[i])) g->failed = true;
    }
    mem_free(old);
    return graph_status(g, msg);
}
