/* An engine that is stepped by hand: runner, scheduler and sampler as the engine's loop uses them, without its thread,
 * its clients and its text, so that a step is timed alone and whole.
 * Threads: one, lane 0 of the pool. Owns: everything in it. */
#ifndef CMD_BENCH_SESSION_H
#define CMD_BENCH_SESSION_H

#include "base/rng.h"
#include "engine/batch_sampler.h"
#include "engine/model_runner.h"

struct bench_session {
    struct ckpt *ckpt;
    struct model_runner runner;
    struct block_manager *blocks;
    struct scheduler *scheduler;
    struct batch_sampler sampler;
    struct rng rng;
    uint64_t next_id;
    int n_live; /* sequences that have not ended */
};

enum err bench_session_open(struct bench_session *s, const struct xenon_options *opt,
                            struct err_msg *msg) ATTR_NODISCARD;
void bench_session_close(struct bench_session *s);

/* Queues a greedy sequence with a random prompt that answers n_answer tokens and no fewer. */
enum err bench_session_add(struct bench_session *s, int64_t n_prompt, int64_t n_answer,
                           struct err_msg *msg) ATTR_NODISCARD;

/* One step of the engine: schedule, compute, sample, commit. *n_tokens: those computed; 0: nothing to do. ERR_FORMAT
 * when a sequence ended with logits that are not finite. */
enum err bench_session_step(struct bench_session *s, int64_t *n_tokens, struct err_msg *msg) ATTR_NODISCARD;

/* Ends what runs. */
void bench_session_abort(struct bench_session *s);

#endif
