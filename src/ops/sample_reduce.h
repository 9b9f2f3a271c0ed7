/* Reduction of logits rows on the lanes: what the sampler needs to know of a row of the vocabulary, without reading it
 * again. A row is cut into shards of a fixed size; partial results combine in shard order, so they do not depend on the
 * lanes. Threads: sample_reduce_run by the engine thread; the rest by its lanes. Owns: the scratch. */
#ifndef OPS_SAMPLE_REDUCE_H
#define OPS_SAMPLE_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kern/kern.h"
#include "sys/team.h"

enum { SAMPLE_BEST_MAX = 256 };

/* One row: what is asked and what came out. */
struct sample_row {
    const float *logits; /* [n_vocab] */
    bool want_sum;       /* sum_exp is needed */
    bool want_best;      /* the SAMPLE_BEST_MAX best are needed */
    bool masked;         /* edits of a finite row have put -inf where a token is forbidden: that counts as finite */
    /* Results. */
    bool finite;
    float max;
    int64_t argmax;      /* lowest id among equals */
    double sum_exp;      /* sum of exp(logit - max) */
    int n_best;          /* min(SAMPLE_BEST_MAX, n_vocab) when asked for */
    int32_t best_ids[SAMPLE_BEST_MAX]; /* by logit descending, then id ascending */
    float best_logits[SAMPLE_BEST_MAX];
};

struct sample_reduce;

/* For up to max_rows rows of n_vocab. *out: sample_reduce_destroy. */
enum err sample_reduce_create(struct sample_reduce **out, const struct kern *kern, int64_t n_vocab, int max_rows,
                              struct err_msg *msg) ATTR_NODISCARD;
void sample_reduce_destroy(struct sample_reduce *r);

/* Reduces n rows, n <= max_rows. */
void sample_reduce_run(struct sample_reduce *r, struct pool *pool, struct sample_row *rows, int n);

#endif
