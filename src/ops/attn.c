#include "ops/attn_plan.h"

#include "base/check.h"
#include "base/mem.h"

enum {
    ROWS_PER_TILE = 64, /* query tokens x heads of a tile: its scores fit the L2 */
    SPLIT_ROWS_MAX = 4, /* query tokens of a tile whose slices may be split */
    PARTIALS_MAX = 128, /* slices of all split tiles in a step */
};

/* Query tokens row0 .. row0+n_q-1 of a sequence against slices slice0 .. slice1-1. */
struct attn_item {
    int seq, row0, n_q;
    int64_t slice0, slice1;
    int partial; /* slot of this one slice, -1: whole tile */
};

/* Partials first .. first+n-1, one per slice, in order. */
struct attn_join {
    int seq, row0, n_q;
    int first, n;
};

struct attn_plan {
    uint64_t serial; /* step it was made for */
    int n_items, n_joins, n_partials;
    int max_items;
    struct attn_item *items;
    struct attn_join *joins;
};

struct attn_plan *attn_plan_create(int max_tokens, int n_heads, const struct paged_layer *cache) {
    (void)n_heads;
    (void)cache;
    struct attn_plan *const p = mem_calloc(1, sizeof *p);
    if (!p) return NULL;
    p->max_items = max_tokens + PARTIALS_MAX;
    p->items = mem_calloc((size_t)p->max_items, sizeof *p->items);
    p->joins = mem_calloc(PARTIALS_MAX, sizeof *p->joins);
    if (p->items && p->joins) return p;
    attn_plan_destroy(p);
    return NULL;
}

void attn_plan_destroy(struct attn_plan *p) {
    if (!p) return;
    mem_free(p->items);
    mem_free(p->joins);
    mem_free(p);
}

static int group_heads(const struct attn_params *p) { return p->n_heads / p->cache->n_kv; }

static int tile_rows(const struct attn_params *p) {
    const int n = ROWS_PER_TILE / group_heads(p);
    return n < 1 ? 1 : n;
}

/* Adds the tile that begins at row0 of the sequence. */
static void plan_tile(struct attn_plan *plan, const struct attn_params *p, const struct step_seq *q, int seq, int row0,
                      int n_q, bool split) {
    const int64_t first = q->pos0 + row0, last = first + n_q - 1;
    const int64_t seen = p->cache->window ? first - p->cache->window + 1 : 0;
    const int64_t slice0 = seen > 0 ? seen / ATTN_SLICE : 0, slice1 = last / ATTN_SLICE + 1;
    const int64_t n = slice1 - slice0;
    if (!split || n < 2 || n_q > SPLIT_ROWS_MAX || plan->n_partials + n > PARTIALS_MAX) {
        CHECK(plan->n_items < plan->max_items);
        plan->items[plan->n_items++] = (struct attn_item){seq, row0, n_q, slice0, slice1, -1};
        return;
    }
    plan->joins[plan->n_joins++] = (struct attn_join){seq, row0, n_q, plan->n_partials, (int)n};
    for (int64_t i = slice0; i < slice1; i++)
        plan->items[plan->n_items++] = (struct attn_item){seq, row0, n_q, i, i + 1, plan->n_partials++};
}

static void attn_prepare(const struct op_call *c, const struct step *s, int n_lanes) {
    const struct attn_params *const p = c->t->params;
    struct attn_plan *const plan = p->plan;
    if (plan->serial == s->serial) return;
    plan->serial = s->serial;
    plan->n_items = plan->n_joins = plan->n_partials = 0;
    const int tile = tile_rows(p);
    int64_t n_tiles = 0;
    for (int i = 0; i < s->n_seqs; i++) n_tiles += (s->seqs[i].n_rows + tile - 1) / tile;
    const bool split = n_tiles * p->cache->n_kv < 4 * (int64_t)n_lanes;
    for (int i = 0; i < s->n_seqs; i++) {
        const struct step_seq *const q = &s->seqs[i];
        /* The last tile sees the most: longest first. */
        for (int row0 = (q->n_rows - 1) / tile * tile; row0 >= 0; row0 -= tile) {
            const int left = q->n_rows - row0;
            plan_tile(plan, p, q, i, row0, left < tile ? left : tile, split);
        }
    }
}

static int64_t align16(int64_t n) { return (n + 15) / 16 * 16; }

/* Floats of a state of `rows` rows: m, l, o, each on its own cache lines. */
static int64_t state_floats(int rows, int dv) { return 2 * align16(rows) + align16((int64_t)rows * dv); }

static struct attn_state state_at(float *mem, int rows) {
    return (struct attn_state){.m = mem, .l = mem + align16(rows), .o = mem + 2 * align16(rows)};
}

static void state_reset(struct attn_state *st, int rows, int dv) {
    for (int i = 0; i < rows; i++) {
        st->m[i] = -__builtin_inff();
        st->l[i] = 0.0f;
    }
    for (int64_t i = 0; i < (int64_t)rows * dv; i++) st->o[i] = 0.0f;
}

static float *partial_at(const struct op_call *c, const struct attn_params *p, int partial, int kv) {
    const int rows = SPLIT_ROWS_MAX * group_heads(p);
    const int64_t slot = (int64_t)partial * p->cache->n_kv + kv;
    return (float *)c->scratch + slot * state_floats(rows, p->cache->dv);
}

/* Everything of the kernel's arguments but the slice. */
static struct attn_args item_args(const struct op_call *c, const struct step *s, const struct attn_item *it, int team,
                                  int kv) {
    const struct attn_params *const p = c->t->params;
    const struct paged_layer *const cl = p->cache;
    const struct step_seq *const q = &s->seqs[it->seq];
    const int heads = group_heads(p);
    const size_t off = paged_head_offset(cl, team, kv);
    return (struct attn_args){
        .q = c->x[0] + (int64_t)(q->row0 + it->row0) * c->t->src[0]->width + (int64_t)kv * heads * cl->d,
        .ldq = c->t->src[0]->width,
        .n_q = it->n_q,
        .n_heads = heads,
        .pos = q->pos0 + it->row0,
        .d = cl->d,
        .dv = cl->dv,
        .scale = p->scale,
        .window = cl->window,
        .base = cl->base[team],
        .pages = q->pages[cl->group],
        .page_stride = cl->page_stride[team],
        .k_off = off,
        .v_off = off + (size_t)cl->groups_per_page * cl->k_group_bytes,
        .k_group_bytes = cl->k_group_bytes,
        .v_group_bytes = cl->v_group_bytes,
        .groups_per_page = cl->groups_per_page,
    };
}

static void finish(const struct op_call *c, const struct step *s, int seq, int row0, int n_q, int kv,
                   const struct attn_state *st) {
    const struct attn_params *const p = c->t->params;
    const int heads = group_heads(p), dv = p->cache->dv;
    float *const y = c->y + (int64_t)(s->seqs[seq].row0 + row0) * c->t->width + (int64_t)kv * heads * dv;
    c->kern->attn.finish(y, c->t->width, st, n_q, heads, dv, p->sink ? p->sink + (int64_t)kv * heads : NULL);
}

static void run_item(const struct op_call *c, const struct step *s, const struct lane *l, const struct attn_item *it,
                     int kv) {
    const struct attn_params *const p = c->t->params;
    const struct attn_kern *const k = &c->kern->attn.cache[p->cache->cache];
    struct attn_args a = item_args(c, s, it, l->team, kv);
    const int rows = a.n_q * a.n_heads, tile = tile_rows(p) * group_heads(p);
    float *const mem = (float *)(void *)(c->lane_scratch + (size_t)l->id * c->lane_stride);
    struct attn_state st = state_at(it->partial < 0 ? mem : partial_at(c, p, it->partial, kv), rows);
    a.scratch = mem + state_floats(tile, a.dv);
    state_reset(&st, rows, a.dv);
    for (int64_t i = it->slice0; i < it->slice1; i++) {
        a.ctx0 = i * ATTN_SLICE;
        a.ctx1 = a.ctx0 + ATTN_SLICE;
        if (a.ctx1 > a.pos + a.n_q) a.ctx1 = a.pos + a.n_q;
        k->slice(&st, &a);
    }
    if (it->partial < 0) finish(c, s, it->seq, it->row0, it->n_q, kv, &st);
}

static void run_join(const struct op_call *c, const struct step *s, const struct attn_join *j, int kv) {
    const struct attn_params *const p = c->t->params;
    const int rows = j->n_q * group_heads(p), dv = p->cache->dv;
    struct attn_state st = state_at(partial_at(c, p, j->first, kv), rows);
    for (int i = 1; i < j->n; i++) {
        const struct attn_state part = state_at(partial_at(c, p, j->first + i, kv), rows);
        c->kern->attn.merge(&st, &part, rows, dv);
    }
    finish(c, s, j->seq, j->row0, j->n_q, kv, &st);
}

static void attn_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    const struct attn_params *const p = c->t->params;
    const struct attn_plan *const plan = p->plan;
    const int head0 = p->cache->head0[l->team], n_heads = p->cache->head0[l->team + 1] - head0;
    const int64_t n = (int64_t)(phase == 0 ? plan->n_items : plan->n_joins) * n_heads;
    int64_t i, end;
    while (op_take(c, l, phase, 1, n, &i, &end)) {
        const int kv = head0 + (int)(i % n_heads);
        if (phase == 0) run_item(c, s, l, &plan->items[i / n_heads], kv);
        else run_join(c, s, &plan->joins[i / n_heads], kv);
    }
}

static enum err attn_check(const struct tensor *t, const struct op_limits *lim, struct err_msg *msg) {
    const struct attn_params *const p = t->params;
    const struct paged_layer *const cl = p->cache;
    if (cl->n_kv < 1 || p->n_heads % cl->n_kv || t->src[0]->width != (int64_t)p->n_heads * cl->d)
        return err_set(msg, ERR_FORMAT, "attention: %d query heads of %d do not fit %d key heads and a row of %lld",
                       p->n_heads, cl->d, cl->n_kv, (long long)t->src[0]->width);
    if (!lim->kern->attn.cache[cl->cache].isa)
        return err_set(msg, ERR_UNSUPPORTED, "attention: no kernel for this cache type; use --kv-cache-dtype bf16");
    return ERR_OK;
}

static size_t attn_scratch(const struct tensor *t, const struct op_limits *lim) {
    (void)lim;
    const struct attn_params *const p = t->params;
    const int64_t floats = state_floats(SPLIT_ROWS_MAX * group_heads(p), p->cache->dv);
    return (size_t)(floats * PARTIALS_MAX * p->cache->n_kv) * sizeof(float);
}

static size_t attn_lane_scratch(const struct tensor *t, const struct op_limits *lim) {
    const struct attn_params *const p = t->params;
    const int rows = tile_rows(p) * group_heads(p);
    const size_t kernel = lim->kern->attn.cache[p->cache->cache].scratch_floats(rows, p->cache->d, p->cache->dv);
    return ((size_t)state_floats(rows, p->cache->dv) + kernel) * sizeof(float);
}

const struct op op_attn = {.name = "attn",
                           .n_phases = 2,
                           .split = {OP_SPLIT_WORK, OP_SPLIT_WORK},
                           .check = attn_check,
                           .scratch = attn_scratch,
                           .lane_scratch = attn_lane_scratch,
                           .prepare = attn_prepare,
                           .run = attn_run};

/* kv_store: the rows' keys and values into their slots. */
static void kv_store_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct attn_params *const p = c->t->params;
    const struct paged_layer *const cl = p->cache;
    const struct attn_kern *const k = &c->kern->attn.cache[cl->cache];
    int r, end;
    op_rows(l, s->n_tokens, &r, &end);
    for (; r < end; r++) {
        const int64_t pos = s->positions[r];
        const int32_t page = s->seqs[s->row_seq[r]].pages[cl->group][pos / cl->block_size];
        const int group = (int)(pos % cl->block_size) / ATTN_GROUP, slot = (int)(pos % ATTN_GROUP);
        ASSERT(page >= 0);
        for (int team = 0; team < cl->n_teams; team++)
            for (int h = cl->head0[team]; h < cl->head0[team + 1]; h++) {
                char *const at =
                    cl->base[team] + (size_t)page * cl->page_stride[team] + paged_head_offset(cl, team, h);
                char *const v = at + (size_t)cl->groups_per_page * cl->k_group_bytes;
                k->store(at + (size_t)group * cl->k_group_bytes, v + (size_t)group * cl->v_group_bytes, slot,
                         c->x[0] + r * c->t->src[0]->width + (int64_t)h * cl->d,
                         c->x[1] + r * c->t->src[1]->width + (int64_t)h * cl->dv, cl->d, cl->dv);
            }
    }
}

const struct op op_kv_store = {.name = "kv_store", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = kv_store_run};
