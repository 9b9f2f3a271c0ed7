/* linear: y = x W^T (+ b) on packed panels, and pack, which rounds and lays out x for it.
 *
 * pack splits the rows at tile boundaries; linear takes chunks of panels, each team from the panels on its own node.
 * The kernel's definition makes every output independent of the split.
 *
 * Fine: the matrix meets 2 m rows, first every row of x rounded to int8 (q d) or bf16, which packs without loss, then
 * what the rounding left, and y is the sum of the two. Weights are read once all the same, so a decode pays next to
 * nothing. */
#include "ops/params.h"

#include "base/half.h"

static const struct weight *weight_of(const struct tensor *t) {
    return ((const struct linear_params *)t->params)->w;
}

/* How many rows the matrix meets for one row of x. */
static int row_factor(const struct tensor *t) { return ((const struct linear_params *)t->params)->fine ? 2 : 1; }

static int rows_max(const struct tensor *t, const struct op_limits *lim) {
    return row_factor(t) * (t->rows == TENSOR_ROWS_TOKENS ? lim->max_tokens : lim->max_logits);
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

/* The rows that the matrix meets, f32. */
static size_t pack_scratch(const struct tensor *t, const struct op_limits *lim) {
    return row_factor(t) == 1 ? 0 : (size_t)rows_max(t, lim) * (size_t)weight_of(t)->k * sizeof(float);
}

/* A row rounded as act_pack rounds it, or what that leaves. Adding 1.5 * 2^23 rounds to the nearest even integer. */
static void fine_row(float *y, const float *x, int64_t k, int block, bool rest) {
    const float big = 12582912.0f;
    for (int64_t b = 0; b < k; b += block) {
        uint32_t max = 0; /* of the bits without the sign */
        for (int i = 0; i < block; i++) {
            const uint32_t a = half_bits(x[b + i]) & 0x7fffffffu;
            max = a > max ? a : max;
        }
        const float d = half_float(max) / 127.0f, inv = d > 0.0f ? 127.0f / half_float(max) : 0.0f;
        for (int i = 0; i < block; i++) {
            const float q = (x[b + i] * inv + big) - big;
            y[b + i] = rest ? x[b + i] - q * d : q * d;
        }
    }
}

static void fine_row_bf16(float *y, const float *x, int64_t k, bool rest) {
    for (int64_t i = 0; i < k; i++) {
        const float q = half_from_bf16(half_to_bf16(x[i]));
        y[i] = rest ? x[i] - q : q;
    }
}

/* Rows first .. end of the 2 m. */
static const float *fine_rows(const struct op_call *c, int m, int first, int end) {
    const struct weight *const w = weight_of(c->t);
    const int block = w->kern->act == GEMM_ACT_Q8_256 ? 256 : 32;
    float *const rows = c->scratch;
    for (int r = first; r < end; r++) {
        const float *const x = c->x[0] + (r < m ? r : r - m) * c->t->src[0]->width;
        if (w->kern->act == GEMM_ACT_BF16)
            fine_row_bf16(rows + r * w->k, x, w->k, r >= m);
        else
            fine_row(rows + r * w->k, x, w->k, block, r >= m);
    }
    return rows;
}

static void pack_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct weight *const w = weight_of(c->t);
    const int n = op_n_rows(c->t, s), m = n * row_factor(c->t);
    if (m == 0) return;
    const int tile = w->kern->act_tile(m), n_tiles = (m + tile - 1) / tile;
    int first, end;
    op_rows(l, n == 1 ? 1 : n_tiles, &first, &end);
    if (first == end) return;
    if (n == 1) end = n_tiles; /* OP_SPLIT_TILES: the lane that has the row */
    const int row1 = end * tile < m ? end * tile : m;
    const float *const x = m == n ? c->x[0] : fine_rows(c, n, first * tile, row1);
    w->kern->act_pack(c->y, x, m == n ? c->t->src[0]->width : w->k, m, first * tile, row1, w->k);
}

const struct op op_pack = {.name = "pack",
                           .n_phases = 1,
                           .split = {OP_SPLIT_TILES},
                           .check = pack_check,
                           .out_bytes = pack_out_bytes,
                           .scratch = pack_scratch,
                           .run = pack_run};

static enum err linear_check(const struct tensor *t, const struct op_limits *lim, struct err_msg *msg) {
    (void)lim;
    const struct weight *const w = weight_of(t);
    if (t->width == w->n) return ERR_OK;
    return err_set(msg, ERR_FORMAT, "tensor %s: gives %lld outputs, %lld are wanted", w->name, (long long)w->n,
                   (long long)t->width);
}

/* Outputs of the 2 m rows. */
static size_t linear_scratch(const struct tensor *t, const struct op_limits *lim) {
    return row_factor(t) == 1 ? 0 : (size_t)rows_max(t, lim) * (size_t)t->width * sizeof(float);
}

static void add_halves(const struct op_call *c, int m, int64_t col0, int64_t n) {
    for (int r = 0; r < m; r++) {
        const float *const half = (const float *)c->scratch + r * c->t->width + col0;
        c->kern->elem.add(c->y + r * c->t->width + col0, half, half + (int64_t)m * c->t->width, n);
    }
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
    float *const y = p->fine ? c->scratch : c->y;
    const int64_t first = w->panel0[team], n_panels = w->panel0[team + 1] - first;
    const int64_t chunk = chunk_panels(n_panels, l->team_size), panel = w->kern->panel;
    int64_t i, end;
    if (m == 0) return;
    while (op_take(c, l, phase, chunk, n_panels, &i, &end)) {
        const int64_t col0 = (first + i) * panel, col1 = (first + end) * panel;
        const struct gemm_args a = {.y = y + col0,
                                    .ldy = c->t->width,
                                    .panels = w->base[team] + (size_t)i * w->panel_bytes,
                                    .n_rows = (col1 < w->n ? col1 : w->n) - col0,
                                    .act = c->x[0],
                                    .m = m * row_factor(c->t),
                                    .k = w->k};
        w->kern->run(&a);
        if (p->fine) add_halves(c, m, col0, a.n_rows);
        if (p->bias) add_bias(c, m, col0, a.n_rows, p->bias);
    }
}

const struct op op_linear = {
    .name = "linear",
    .n_phases = 1,
    .split = {OP_SPLIT_WORK},
    .check = linear_check,
    .scratch = linear_scratch,
    .run = linear_run,
};
