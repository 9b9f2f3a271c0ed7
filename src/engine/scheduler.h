/* Which tokens of which sequences are computed in the next step. Pure: time is an argument, randomness is not needed.
 *
 *     WAITING -> RUNNING(prefill) -> RUNNING(decode) -> FINISHED -> scheduler_pop_finished
 *         ^______________ preempted ______|
 *
 * Order. A sequence's key is arrival_ns + priority * aging_ns: a better priority is worth that much waiting, and
 * since time never stands still nothing waits for ever behind better priorities. The waiting list is served in key
 * order and its head is never skipped. Running sequences are served in key order too; when pages run out the one with
 * the largest key that is not part of the step yet is preempted (its pages are given back, it waits again in key
 * order, keeps its answer so far and recomputes prompt and answer), so the oldest always gets on.
 *
 * Policies. XENON_POLICY_MIXED: decodes first, the rest of the token budget to prompt chunks, shared fairly between
 * the running prompts and the next waiting one; if decodes left nothing for waiting prompt work in one step, the next
 * step keeps a quarter of the budget for it. XENON_POLICY_PREFILL_FIRST: a step of prompt chunks while there are any
 * that fit, else a step of decodes.
 *
 * A step:  scheduler_schedule -> do batch.ops in order, compute the items, sample -> scheduler_commit. Between the
 * two, scheduler_add, scheduler_finish are allowed; the sequences in the batch stay alive and keep their pages until
 * commit.
 *
 * Threads: engine thread only. Owns: its lists; the sequences from scheduler_add until scheduler_pop_finished. */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/block_manager.h"
#include "engine/sequence.h"
#include "xenon.h"

struct scheduler_config {
    enum xenon_policy policy;
    int max_num_seqs;           /* running sequences, >= 1 */
    int max_num_batched_tokens; /* tokens of a step, >= chunk_grid and >= 1 + n_draft */
    int max_queue;              /* waiting sequences before ERR_BUSY */
    int64_t max_model_len;
    int chunk_grid;         /* > 1: prompt chunks end on multiples of it or at the end (state models: 64) */
    int n_draft;            /* rows kept free behind a decode for drafts; 0: no speculation */
    int64_t aging_ns;       /* waiting time that is worth one step of priority; 0: 10 s */
    const int32_t *eos_ids; /* [n_eos], copied */
    int n_eos;
};

/* With n = n_tokens - n_draft, token j of the item is seq->tokens[first + j] for j < n, then seq->drafts[j - n]. */
struct sched_item {
    struct sequence *seq;
    int64_t first;    /* position of the first token */
    int n_tokens;     /* rows to compute, drafts included */
    int n_draft;      /* the last n_draft rows are drafts */
    int first_logits; /* rows first_logits..n_tokens-1 need logits; n_tokens: none */
    bool samples;     /* the rows reach the end of the known tokens: the last 1 + n_draft rows give tokens */
    bool is_decode;   /* one known token, the rest of the sequence was computed before */
};

struct sched_batch {
    const struct sched_item *items; /* decodes first; borrowed until the next schedule */
    int n_items, n_decodes;
    int64_t n_tokens;           /* sum of n_tokens */
    const struct block_op *ops; /* to be done in this order before computing; borrowed until commit */
    int64_t n_ops;
};

/* What came out of an item that samples; one entry per item, ignored for the others. */
struct sched_result {
    const int32_t *ids; /* the new tokens: accepted drafts, then the sampled one */
    int n_ids;          /* 1 .. 1 + n_draft */
    bool failed;        /* non-finite logits: the sequence ends with XENON_FINISH_ERROR (allowed for any item) */
    int n_kept;         /* set by commit: how many of ids became part of the sequence */
};

struct scheduler_stats {
    int n_waiting, n_running;
    int64_t preemptions, steps, prefill_chunks;
    int64_t prompt_tokens, generation_tokens; /* rows of prompts (and recomputations) computed; tokens appended */
    int64_t finished, aborted, failed, refused;
};

struct scheduler;

/* The block manager is borrowed and outlives the scheduler. ERR_ARG, ERR_NOMEM. *out: scheduler_destroy. */
enum err scheduler_create(struct scheduler **out, const struct scheduler_config *config, struct block_manager *bm,
                          struct err_msg *msg) ATTR_NODISCARD;

/* All sequences must have been popped. NULL is fine. */
void scheduler_destroy(struct scheduler *s);

/* Queues a sequence and takes it. ERR_LIMIT: it can never fit (prompt or prompt + max_tokens against the pages, with
 * the numbers); with max_tokens -1 its max_len is cut to what fits. ERR_BUSY: max_queue sequences wait. ERR_NOMEM. On
 * an error the sequence stays the caller's. */
enum err scheduler_add(struct scheduler *s, struct sequence *seq, struct err_msg *msg) ATTR_NODISCARD;

/* Ends a queued sequence: XENON_FINISH_ABORT (cancel), XENON_FINISH_STOP (a stop string), XENON_FINISH_ERROR. At once
 * when it is not part of a step, else at commit, which then keeps none of its new tokens. The first reason stays. */
void scheduler_finish(struct scheduler *s, struct sequence *seq, enum xenon_finish reason);

/* Ends everything with XENON_FINISH_ABORT and forgets a batch that was not committed. */
void scheduler_abort_all(struct scheduler *s);

/* Plans the next step. n_items 0: nothing to do now (no commit then). Sequences past their deadline are ended first.
 * Never allocates. */
void scheduler_schedule(struct scheduler *s, int64_t now_ns, struct sched_batch *out);

/* Lowers the token budget of the steps to come, so that they last as long as they should: at least 1, at most
 * config.max_num_batched_tokens count; the budget never falls below what running sequences decode and a little for
 * prompts. */
void scheduler_limit_step(struct scheduler *s, int64_t n_tokens);

/* Takes the results of the scheduled batch, results[n_items]: advances n_computed, appends tokens up to the one that
 * ends the sequence, publishes full pages. A sequence ends by, in this order: EOS (unless ignore_eos), a stop id
 * (both only from min_tokens on), max_tokens or max_model_len. Ended sequences move to the finished list. Never
 * allocates. */
void scheduler_commit(struct scheduler *s, int64_t now_ns, struct sched_result *results);

/* The next ended sequence, which becomes the caller's (sequence_destroy); NULL: none. It holds no pages any more. */
struct sequence *scheduler_pop_finished(struct scheduler *s);

/* Whether a schedule could find work. */
bool scheduler_has_work(const struct scheduler *s);

/* The earliest deadline of a queued sequence; 0: none. */
int64_t scheduler_next_deadline(const struct scheduler *s);

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *out);

/* Checks lists, counts and pages (block_manager_check). False with a line in msg. For tests. */
bool scheduler_check(const struct scheduler *s, struct err_msg *msg);

#endif
