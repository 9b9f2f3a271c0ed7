/* From the logits of a step to its tokens: reduces and draws the rows on the lanes, applies every sequence's edits, and
 * keeps the logprobs that were asked for. Two reductions at most: raw rows, then the edited ones. Threads: engine
 * thread. Owns: scratch rows. */
#ifndef ENGINE_BATCH_SAMPLER_H
#define ENGINE_BATCH_SAMPLER_H

#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "ops/sample_reduce.h"
#include "sys/region.h"

/* The row of an item that samples: before its edits, and as it is drawn from. raw NULL: the item does not sample. */
struct draw_row {
    const struct sample_row *raw, *from;
};

struct batch_sampler {
    struct sample_reduce *reduce;
    struct pool *pool;
    int64_t n_vocab;
    int max_rows, max_seqs;
    const int32_t *eos_ids; /* borrowed */
    int n_eos;
    struct sample_row *rows;      /* [max_rows] */
    struct sample_row *edited;    /* [max_seqs] */
    int32_t *edited_item;         /* [max_seqs] */
    struct region copies;         /* [max_seqs, n_vocab] raw rows of edited ones */
    int32_t *counts;              /* [n_vocab] */
    struct draw_row *draws;       /* [max_seqs] what item i is drawn from */
    int32_t *tokens;              /* [max_seqs] */
    struct sched_result *results; /* [max_seqs] */
};

/* max_rows: logits rows of a step. */
enum err batch_sampler_create(struct batch_sampler *s, const struct kern *kern, struct pool *pool, int64_t n_vocab,
                              int max_rows, int max_seqs, struct err_msg *msg) ATTR_NODISCARD;
void batch_sampler_destroy(struct batch_sampler *s);

/* Samples the batch whose logits are [n, n_vocab] in the order of model_runner_step. Writes logprobs into the requests
 * (seq->user). Returns one result per item, for scheduler_commit. */
struct sched_result *batch_sampler_run(struct batch_sampler *s, const struct sched_batch *batch, float *logits);

/* Results for a step that was given up: nothing of it counts. */
struct sched_result *batch_sampler_nothing(struct batch_sampler *s, const struct sched_batch *batch);

#endif
