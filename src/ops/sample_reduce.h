/* From rows of logits to tokens, on the lanes: the maximum of each row, what its logprobs need, and a draw after the
 * filters. All work over a row is cut into shards of a fixed size whose results combine in shard order, so nothing
 * depends on the lanes or on the other rows.
 *
 * The candidates of a row stand in the order (logit descending, id ascending); their weights are
 * exp((logit - max) / temperature).
 *
 *   - min_p keeps logits >= max + temperature * ln(min_p), that is p >= min_p * p(best).
 *   - top_k keeps the first k: exactly k, ties broken by id.
 *   - top_p keeps, of what is left and renormalised, the shortest run of the order whose mass is >= top_p.
 *   - The draw is the inverse CDF at u over what is kept, in an order that is a function of the row and the filters.
 *
 * How few passes: 256 best candidates are found through the maxima of blocks of 64; a nucleus that reaches further is
 * guessed from a sample of one logit a block, after which one more pass sums what is surely inside and collects the
 * few at the edge. A wrong guess costs one lane a walk over the row, never exactness.
 *
 * Threads: sample_reduce_run by the engine thread; the rest by its lanes. Owns: the scratch. */
#ifndef OPS_SAMPLE_REDUCE_H
#define OPS_SAMPLE_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kern/kern.h"
#include "sys/team.h"

enum { SAMPLE_BEST_MAX = 256 };

/* How a token is drawn. */
struct sample_draw {
    float temperature;  /* 0: the largest logit, the lowest id among equals */
    float top_p, min_p; /* 1 and 0: off */
    int64_t top_k;      /* 0: off */
    double u;           /* in [0, 1) */
};

/* One row: what is asked and what came out. */
struct sample_row {
    const float *logits; /* [n_vocab] */
    bool want_best;      /* sum_exp and best_* are needed */
    bool masked;         /* edits of a finite row have put -inf where a token is forbidden: that counts as finite */
    struct sample_draw draw;
    /* Results. */
    bool finite;
    float max;
    int64_t argmax; /* lowest id among equals */
    int32_t token;  /* what was drawn; -1: the row is not finite */
    double sum_exp; /* sum of exp(logit - max), when asked for */
    int n_best;     /* min(SAMPLE_BEST_MAX, n_vocab) when asked for, else 0 */
    int32_t best_ids[SAMPLE_BEST_MAX]; /* the first of the order */
    float best_logits[SAMPLE_BEST_MAX];
};

struct sample_reduce;

/* For rows of n_vocab, at most max_rows at a time in scratch, on pools of at most n_lanes. *out: sample_reduce_destroy.
 */
enum err sample_reduce_create(struct sample_reduce **out, const struct kern *kern, int64_t n_vocab, int max_rows,
                              int n_lanes, struct err_msg *msg) ATTR_NODISCARD;
void sample_reduce_destroy(struct sample_reduce *r);

/* Reduces n rows and draws their tokens. pool NULL: on the calling thread. */
void sample_reduce_run(struct sample_reduce *r, struct pool *pool, struct sample_row *rows, int n);

#endif
