/* The model on this machine: topology, lanes, packed weights, cache, graph and plan; and one step of it. From a
 * scheduled batch to rows of logits. Threads: everything by the engine thread, which becomes lane 0 of the pool. Owns:
 * all of the above. */
#ifndef ENGINE_MODEL_RUNNER_H
#define ENGINE_MODEL_RUNNER_H

#include "engine/kv_cache.h"
#include "engine/scheduler.h"
#include "graph/exec.h"
#include "model/bind.h"
#include "xenon.h"

struct model_runner {
    struct topology topology;
    bool has_topology;
    struct kern kern;
    struct pool *pool;
    struct model model;
    bool has_model;
    struct bound weights;
    struct kv_cache kv;
    struct graph graph;
    struct plan plan;
    int level, block_size, max_num_seqs, max_num_batched_tokens;
    int64_t max_model_len;

    /* The step being run. */
    struct step step;
    int32_t *token_ids, *positions, *row_seq; /* [max_num_batched_tokens] */
    int32_t *logit_rows;                      /* [max_num_batched_tokens] */
    struct step_seq *seqs;                    /* [max_num_seqs] */
};

/* Opens the machine and the model of ckpt as opt asks. */
enum err model_runner_open(struct model_runner *r, const struct ckpt *c, const struct xenon_options *opt,
                           struct err_msg *msg) ATTR_NODISCARD;

/* The same without packing weights: everything but steps can be asked of it. For `xenon inspect`. */
enum err model_runner_describe(struct model_runner *r, const struct ckpt *c, const struct xenon_options *opt,
                               struct err_msg *msg) ATTR_NODISCARD;

void model_runner_close(struct model_runner *r);

/* Computes the batch. Returns the logits [n, vocab]: for each item in order its rows from first_logits on. The rows may
 * be edited until the next step. watch (may be NULL) is asked between layers; NULL is returned when it gave the step
 * up. */
float *model_runner_step(struct model_runner *r, const struct sched_batch *batch, const struct exec_watch *watch);

/* Tokens per second of a prompt step, measured on page 0 of an empty cache: before the first request. */
double model_runner_measure_prefill(struct model_runner *r);

#endif
