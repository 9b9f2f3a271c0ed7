#include "graph/plan.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* A piece of memory and the stretch of the tape that uses it, in segments between barriers that always hold. */
struct buffer {
    size_t bytes, offset;
    int first, last;
};

struct planner {
    struct plan *p;
    const struct graph *g;
    const struct op_limits *lim;
    int *root;             /* [n_nodes] node that owns the buffer: itself, or src[0]'s root when in place */
    struct buffer *out;    /* [n_nodes] used for roots */
    struct buffer *scratch; /* [n_nodes] */
    int *segment;          /* [n_nodes] of the last phase */
    /* The search for barriers: nodes since the last barrier of each kind. */
    int since_always, since_rows;
};

static size_t align_up(size_t n, size_t a) { return (n + a - 1) / a * a; }

static size_t out_bytes(const struct planner *pl, const struct tensor *t) {
    if (t->op->out_bytes) return align_up(t->op->out_bytes(t, pl->lim), 64);
    const size_t rows = (size_t)(t->rows == TENSOR_ROWS_TOKENS ? pl->lim->max_tokens : pl->lim->max_logits);
    return align_up(rows * (size_t)t->width * sizeof(float), 64);
}

static bool reads(const struct planner *pl, const struct tensor *t, int root) {
    for (int i = 0; i < t->n_src; i++)
        if (pl->root[t->src[i]->id] == root) return true;
    return false;
}

/* What must hold between earlier node a and node b if b touches what a wrote or read. */
static enum plan_barrier conflict(const struct planner *pl, const struct tensor *a, const struct tensor *b) {
    const int wrote = pl->root[a->id], own = pl->root[b->id];
    if (!reads(pl, b, wrote) && own != wrote && !(b->in_place && reads(pl, a, own))) return PLAN_BARRIER_NONE;
    const enum op_split sa = a->op->split[a->op->n_phases - 1], sb = b->op->split[0];
    if (a->rows != b->rows || sa == OP_SPLIT_WORK || sb == OP_SPLIT_WORK) return PLAN_BARRIER_ALWAYS;
    return sa == OP_SPLIT_ROWS && sb == OP_SPLIT_ROWS ? PLAN_BARRIER_NONE : PLAN_BARRIER_ROWS;
}

static enum plan_barrier barrier_before(const struct planner *pl, const struct tensor *b) {
    enum plan_barrier need = PLAN_BARRIER_NONE;
    if (pl->p->level == 0) return b->id == 0 ? PLAN_BARRIER_NONE : PLAN_BARRIER_ALWAYS;
    for (int i = pl->since_always; i < b->id; i++) {
        const enum plan_barrier k = conflict(pl, pl->g->nodes[i], b);
        if (k == PLAN_BARRIER_ROWS && i < pl->since_rows) continue; /* they met there already */
        if (k > need) need = k;
    }
    return need;
}

/* Writes the tape and every node's segment. */
static void plan_tape(struct planner *pl) {
    struct plan *const p = pl->p;
    int segment = 0;
    for (size_t i = 0; i < pl->g->n_nodes; i++) {
        const struct tensor *const t = pl->g->nodes[i];
        for (int phase = 0; phase < t->op->n_phases; phase++) {
            const enum plan_barrier b = phase ? PLAN_BARRIER_ALWAYS : barrier_before(pl, t);
            if (b == PLAN_BARRIER_ALWAYS) {
                segment++;
                pl->since_always = (int)i;
            }
            if (b != PLAN_BARRIER_NONE) pl->since_rows = (int)i;
            if (phase == 0) pl->out[i].first = pl->scratch[i].first = segment;
            p->tape[p->n_tape++] = (struct plan_entry){&p->calls[i], phase, b};
        }
        pl->segment[i] = pl->scratch[i].last = segment;
    }
}

/* Stretches buffers to their last reader. */
static void plan_lifetimes(struct planner *pl) {
    for (size_t i = 0; i < pl->g->n_nodes; i++) {
        const struct tensor *const t = pl->g->nodes[i];
        struct buffer *const own = &pl->out[pl->root[i]];
        if (pl->segment[i] > own->last) own->last = pl->segment[i];
        for (int s = 0; s < t->n_src; s++) {
            struct buffer *const b = &pl->out[pl->root[t->src[s]->id]];
            if (pl->segment[i] > b->last) b->last = pl->segment[i];
        }
    }
    if (pl->g->output) pl->out[pl->root[pl->g->output->id]].last = INT32_MAX;
}

/* The lowest offset at which b overlaps no placed buffer whose life overlaps b's. */
static void place(struct buffer *b, struct buffer **placed, size_t n_placed, bool share) {
    b->offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (size_t i = 0; i < n_placed; i++) {
            const struct buffer *const o = placed[i];
            if (share && (o->last < b->first || b->last < o->first)) continue;
            if (o->offset + o->bytes <= b->offset || b->offset + b->bytes <= o->offset) continue;
            b->offset = o->offset + o->bytes;
            moved = true;
        }
    }
}

/* Places every buffer; returns the bytes of the whole. */
static enum err plan_offsets(struct planner *pl, size_t *total, struct err_msg *msg) {
    const size_t n = pl->g->n_nodes;
    struct buffer **const placed = mem_calloc(2 * n + 1, sizeof *placed);
    if (!placed) return err_set(msg, ERR_NOMEM, "plan: memory ran out");
    size_t n_placed = 0;
    *total = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        struct buffer *const b = i % 2 ? &pl->scratch[i / 2] : &pl->out[i / 2];
        if (b->bytes == 0) continue;
        place(b, placed, n_placed, pl->p->level > 0);
        placed[n_placed++] = b;
        pl->p->bytes_apart += b->bytes;
        if (b->offset + b->bytes > *total) *total = b->offset + b->bytes;
    }
    pl->p->bytes_planned = *total;
    mem_free(placed);
    return ERR_OK;
}

static enum err plan_sizes(struct planner *pl, struct err_msg *msg) {
    for (size_t i = 0; i < pl->g->n_nodes; i++) {
        const struct tensor *const t = pl->g->nodes[i];
        if (t->op->check) TRY(t->op->check(t, pl->lim, msg));
        pl->root[i] = t->in_place ? pl->root[t->src[0]->id] : (int)i;
        if (!t->in_place) pl->out[i].bytes = out_bytes(pl, t);
        if (t->op->scratch) pl->scratch[i].bytes = align_up(t->op->scratch(t, pl->lim), 64);
        const size_t lane = t->op->lane_scratch ? t->op->lane_scratch(t, pl->lim) : 0;
        if (lane > pl->p->bytes_scratch) pl->p->bytes_scratch = lane;
    }
    pl->p->bytes_scratch = align_up(pl->p->bytes_scratch, 4096);
    return ERR_OK;
}

static void plan_calls(struct planner *pl, size_t total) {
    struct plan *const p = pl->p;
    for (size_t i = 0; i < pl->g->n_nodes; i++) {
        const struct tensor *const t = pl->g->nodes[i];
        struct op_call *const c = &p->calls[i];
        *c = (struct op_call){.t = t, .kern = pl->lim->kern, .lane_stride = p->bytes_scratch};
        c->y = (float *)(void *)(p->region.base + pl->out[pl->root[i]].offset);
        c->scratch = p->region.base + pl->scratch[i].offset;
        c->lane_scratch = p->region.base + align_up(total, 4096);
        c->counters = p->counters + i * OP_PHASES_MAX * (size_t)pl->lim->n_teams;
        for (int s = 0; s < t->n_src; s++)
            c->x[s] = (const float *)(const void *)(p->region.base + pl->out[pl->root[t->src[s]->id]].offset);
    }
    p->output = pl->g->output;
    if (p->output) p->output_data = p->calls[p->output->id].y;
}

static enum err plan_all(struct planner *pl, int os_node, struct err_msg *msg) {
    struct plan *const p = pl->p;
    size_t total = 0;
    TRY(plan_sizes(pl, msg));
    plan_tape(pl);
    plan_lifetimes(pl);
    TRY(plan_offsets(pl, &total, msg));
    const size_t lanes = p->bytes_scratch * (size_t)pl->lim->n_lanes;
    TRY(region_create(&p->region, "activations", os_node, align_up(total, 4096) + lanes + 4096, msg));
    p->region.used = p->region.size;
    plan_calls(pl, total);
    return ERR_OK;
}

enum err plan_make(struct plan *p, const struct graph *g, const struct op_limits *lim, int level, int os_node,
                   struct err_msg *msg) {
    const size_t n = g->n_nodes;
    CHECK(level >= 0 && level <= PLAN_LEVEL_MAX && n > 0);
    *p = (struct plan){.level = level, .n_calls = n};
    p->n_counters = n * OP_PHASES_MAX * (size_t)lim->n_teams;
    p->tape = mem_calloc(n * OP_PHASES_MAX, sizeof *p->tape);
    p->calls = mem_calloc(n, sizeof *p->calls);
    p->counters = mem_alloc_aligned(sizeof *p->counters, p->n_counters * sizeof *p->counters);
    struct planner pl = {.p = p, .g = g, .lim = lim};
    pl.root = mem_calloc(n, sizeof *pl.root);
    pl.out = mem_calloc(n, sizeof *pl.out);
    pl.scratch = mem_calloc(n, sizeof *pl.scratch);
    pl.segment = mem_calloc(n, sizeof *pl.segment);
    enum err e = ERR_NOMEM;
    if (p->tape && p->calls && p->counters && pl.root && pl.out && pl.scratch && pl.segment)
        e = plan_all(&pl, os_node, msg);
    else err_set(msg, e, "plan: memory ran out");
    mem_free(pl.root);
    mem_free(pl.out);
    mem_free(pl.scratch);
    mem_free(pl.segment);
    if (e) plan_deinit(p);
    return e;
}

void plan_deinit(struct plan *p) {
    region_destroy(&p->region);
    mem_free(p->tape);
    mem_free(p->calls);
    mem_free(p->counters);
    *p = (struct plan){0};
}

const float *plan_value(const struct plan *p, const char *name, const struct tensor **t) {
    CHECK(p->level == 0);
    for (size_t i = 0; i < p->n_calls; i++)
        if (strcmp(p->calls[i].t->name, name) == 0) {
            if (t) *t = p->calls[i].t;
            return p->calls[i].y;
        }
    return NULL;
}
