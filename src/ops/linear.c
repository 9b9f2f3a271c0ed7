/* linear: y = x W^T (+ b) on packed panels, and pack, which rounds and lays out x for it.
 *
 * pack splits the rows at tile boundaries; linear takes chunks of panels, each team from the panels on its own node. The
 * kernel's definition makes every output independent of the split. */
#include "ops/params.h"

static const struct weight *weight_of(const struct tensor *t) {
    return ((const struct linear_params *)t->params)->w;
}

static int rows_max(const struct tensor *t, const struct op_limits *lim) {
    return t->rows == TENSOR_ROWS_TOKENS ? lim->max_tokens : lim->max_logits;
}

/* act_bytes need not grow with m tile by tile: ask for every m up to the largest tile, and the maximum. */
static size_t pack_out_bytes(const struct tensor *t, const struct op_limits *lim) {
    const struct weight *const w = weight_of(t);
    const int m_max = rows_max(t, lim);
    size_t most = w->kern->act_bytes(m_max, w->k);
    for (int m = 1; m < m_max; m++) {
        const size_t bytes = w->kern->act_bytes(m, w->k);
        if (bytes > most) most = bytes;
    }
    return most;
}

static enum err pack_check(const struct tensor *t, const struct op_limits *lim, struct err_msg *msg) {
    (void)lim;
    const struct weight *const w = weight_of(t);
    if (t->src[0]->width == w->k) return ERR_OK;
    return err_set(msg, ERR_FORMAT, "tensor %s: takes %lld inputs, is given %lld", w->name, (long long)w->k,
                   (long long)t->src[0]->width);
}

static void pack_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct weight *const w = weight_of(c->t);
    const int m = op_n_rows(c->t, s);
    if (m == 0) return;
    const int tile = w->kern->act_tile(m), n_tiles = (m + tile - 1) / tile;
    int first, end;
    op_rows(l, n_tiles, &first, &end);
    if (first == end) return;
    const int row1 = end * tile < m ? end * tile : m;
    w->kern->act_pack(c->y, c->x[0], c->t->src[0]->width, m, first * tile, row1, w->k);
}

const struct op op_pack = {.name = "pack",
                           .n_phases = 1,
                           .split = {OP_SPLIT_TILES},
                           .check = pack_check,
                           .out_bytes = pack_out_bytes,
                           .run = pack_run};

static enum err linear_check(const struct tensor *t, const struct op_limits *lim, struct err_msg *msg) {
    (void)lim;
    const struct weight *const w = weight_of(t);
    if (t->width == w->n) return ERR_OK;
    return err_set(msg, ERR_FORMAT, "tensor %s: gives %lld outputs, %lld are wanted", w->name, (long long)w->n,
                   (long long)t->width);
}

static void add_bias(const struct op_call *c, int m, int64_t col0, int64_t n, const float *bias) {
    for (int r = 0; r < m; r++) {
        float *const y = c->y + r * c->t->width + col0;
        c->kern->elem.add(y, y, bias + col0, n);
    }
}

/* Chunks big enough to stream, small enough that a disturbed lane holds up nobody. */
static int64_t chunk_panels(int64_t n_panels, int team_size) {
    const int64_t share = n_panels / ((int64_t)team_size * 4);
    return share < 2 ? 2 : share > 16 ? 16 : share;
}

static void linear_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    const struct linear_params *const p = c->t->params;
    const struct weight *const w = p->w;
    const int m = op_n_rows(c->t, s), team = l->team;
    const int64_t first = w->panel0[team], n_panels = w->panel0[team + 1] - first;
    const int64_t chunk = chunk_panels(n_panels, l->team_size), panel = w->kern->panel;
    int64_t i, end;
    if (m == 0) return;
    while (op_take(c, l, phase, chunk, n_panels, &i, &end)) {
        const int64_t col0 = (first + i) * panel, col1 = (first + end) * panel;
        const struct gemm_args a = {.y = c->y + col0,
                                    .ldy = c->t->width,
                                    .panels = w->base[team] + (size_t)i * w->panel_bytes,
                                    .n_rows = (col1 < w->n ? col1 : w->n) - col0,
                                    .act = c->x[0],
                                    .m = m,
                                    .k = w->k};
        w->kern->run(&a);
        if (p->bias) add_bias(c, m, col0, a.n_rows, p->bias);
    }
}

const struct op op_linear = {
    .name = "linear", .n_phases = 1, .split = {OP_SPLIT_WORK}, .check = linear_check, .run = linear_run};
