/* What the stages of sample_reduce share: the scratch of a group of rows. Threads: lanes, between barriers. */
#ifndef OPS_SAMPLE_REDUCE_INT_H
#define OPS_SAMPLE_REDUCE_INT_H

#include "ops/op.h"
#include "ops/sample_keys.h"
#include "ops/sample_reduce.h"

/* SHARD: elements of a unit of work. SHARD_KEYS: candidates that one can store; a row with more is read whole. GROUP:
 * rows that are in work at a time. */
enum { SAMPLE_SHARD = 16384, SAMPLE_SHARD_KEYS = 4096, SAMPLE_GROUP = 64, SAMPLE_STAGES = 6 };

struct sample_shard {
    float max;
    int64_t argmax;
    int finite;
    double sum;     /* of all that min_p keeps, at the row's temperature */
    double sum_exp; /* of all, at temperature 1 */
    int64_t n;      /* keys found, may exceed SAMPLE_SHARD_KEYS */
    uint64_t *keys;
};

/* One row in work. Its keys are those of lo <= logit < hi. */
struct sample_state {
    float scale, from; /* 1 / temperature; min_p keeps what is not below from */
    float lo, hi;
    int64_t n_need; /* the first of the order that must be among the keys */
    bool limits_k, limits_p;
    bool is_open;  /* not drawn before the sums are known */
    bool has_body; /* and logits >= hi are kept: their sums are wanted by blocks, and the keys of lo .. hi */
};

/* A lane's own. */
struct sample_lane {
    uint64_t *keys; /* [n_vocab] */
};

struct sample_reduce {
    const struct kern *kern;
    int64_t n_vocab, n_shards, n_blocks, n_sums;
    int max_rows, n_lanes;
    struct sample_state *states; /* [max_rows] */
    struct sample_shard *shards; /* [max_rows][n_shards] */
    float *blocks;               /* [max_rows][n_blocks] maxima of blocks of ELEM_MAX_BLOCK */
    float *samples;              /* [max_rows][n_blocks] one logit of each */
    double *sums;                /* [max_rows][n_sums] of blocks of ELEM_SUM_BLOCK, logits >= hi */
    uint64_t *keys;              /* the shards' storage */
    struct sample_lane *lanes;   /* [n_lanes] */
    struct op_counter next[SAMPLE_STAGES];
    _Atomic int n_open; /* rows that need the last stages */
    struct sample_row *rows;
    int n_rows;
    bool greedy; /* nothing but maxima is asked for */
};

static inline int64_t sample_shard_len(const struct sample_reduce *r, int64_t s) {
    const int64_t left = r->n_vocab - s * SAMPLE_SHARD;
    return left < SAMPLE_SHARD ? left : SAMPLE_SHARD;
}

static inline struct sample_weight sample_weight_of(const struct sample_reduce *r, int64_t row) {
    return (struct sample_weight){&r->kern->elem, r->rows[row].max, r->states[row].scale};
}

/* ops/sample_draw.c. The first, when a row's keys are known, draws where they suffice and says what else is needed; the
 * second has that. */
void sample_draw_first(struct sample_reduce *r, int64_t row, const struct sample_lane *lane);
void sample_draw_second(struct sample_reduce *r, int64_t row, const struct sample_lane *lane);

#endif
