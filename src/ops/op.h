/* Operators: what graph nodes do. An operator has one or more phases; in a phase every lane does its share, and between
 * two phases of one operator all lanes meet. check runs when the plan is made, so that run cannot fail.
 *
 * How a phase splits its work says where lanes must meet between operators: OP_SPLIT_ROWS phases all give row r of a
 * step to the same lane, so a chain of them needs no barrier.
 *
 * Threads: descriptors are immutable; run is called by every lane with the same op_call. */
#ifndef OPS_OP_H
#define OPS_OP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/attr.h"
#include "base/err.h"
#include "kern/kern.h"
#include "sys/team.h"
#include "tensor/paged.h"
#include "tensor/tensor.h"

enum op_split {
    OP_SPLIT_ROWS,  /* rows over lanes, op_rows() */
    OP_SPLIT_TILES, /* tiles of rows over lanes; a step of one row goes where OP_SPLIT_ROWS puts it */
    OP_SPLIT_WORK,  /* anything else */
};

enum { OP_PHASES_MAX = 2 };

/* Work counter of one phase and team; lanes take chunks from it. On its own lines. */
struct op_counter {
    _Atomic int64_t next;
    char pad[2 * CACHE_LINE - sizeof(int64_t)];
};

/* One planned operator: everything resolved. */
struct op_call {
    const struct tensor *t;
    const struct kern *kern;
    float *y;                       /* output rows, [rows, width] */
    const float *x[TENSOR_SRC_MAX]; /* source rows */
    void *scratch;                  /* op.scratch bytes, shared by the lanes, or NULL */
    char *lane_scratch;             /* op.lane_scratch bytes for each lane, lane i at i * lane_stride */
    size_t lane_stride;
    struct op_counter *counters;    /* [OP_PHASES_MAX][n_teams], zero when the step begins */
};

struct op_limits {
    int max_tokens, max_logits; /* rows of a step */
    int64_t max_len;            /* positions */
    int n_lanes, n_teams;
    const struct kern *kern;
};

struct op {
    const char *name;
    int n_phases;
    enum op_split split[OP_PHASES_MAX];

    /* Refuses impossible shapes or formats; NULL: nothing to refuse. */
    enum err (*check)(const struct tensor *t, const struct op_limits *lim, struct err_msg *msg);

    /* Bytes of a row of the output when it is not width * 4 (packed activations): whole buffer for max rows. */
    size_t (*out_bytes)(const struct tensor *t, const struct op_limits *lim);
    size_t (*scratch)(const struct tensor *t, const struct op_limits *lim);
    size_t (*lane_scratch)(const struct tensor *t, const struct op_limits *lim);

    /* Called by the engine thread before the lanes start; NULL: nothing to prepare. */
    void (*prepare)(const struct op_call *c, const struct step *s, int n_lanes);

    void (*run)(const struct op_call *c, const struct step *s, const struct lane *l, int phase);
};

/* Rows of t in this step. */
static inline int op_n_rows(const struct tensor *t, const struct step *s) {
    return t->rows == TENSOR_ROWS_TOKENS ? s->n_tokens : s->n_logits;
}

/* This lane's rows of n: row r always belongs to the same lane for equal n. */
static inline void op_rows(const struct lane *l, int n, int *first, int *end) {
    *first = (int)((int64_t)n * l->id / l->n_lanes);
    *end = (int)((int64_t)n * (l->id + 1) / l->n_lanes);
}

/* Takes the next chunk [*i, min(*i + chunk, n)) of this lane's team; false when the work is gone. */
static inline bool op_take(const struct op_call *c, const struct lane *l, int phase, int64_t chunk, int64_t n,
                           int64_t *i, int64_t *end) {
    struct op_counter *const k = &c->counters[phase * l->n_teams + l->team];
    *i = atomic_fetch_add_explicit(&k->next, chunk, memory_order_relaxed);
    if (*i >= n) return false;
    *end = *i + chunk < n ? *i + chunk : n;
    return true;
}

/* The operators; their parameters are in the headers beside them. */
extern const struct op op_embed, op_rmsnorm, op_head_norm, op_rope_table, op_rope, op_pack, op_linear, op_kv_store,
    op_attn, op_silu_mul, op_add, op_gather, op_scale, op_gelu_mul;

#endif
