/* A sequence: one request inside the engine. It holds the token ids (prompt, then answer), how far the cache reaches,
 * the sampling parameters, the times, and one block table per cache group. The scheduler moves it between its lists,
 * the block manager fills its tables; nobody else writes to it while it is queued.
 *
 *        0                n_cached          n_computed      n_prompt          n_tokens
 *        | prefix cache   | computed rows   | to compute    | generated       |
 *
 * All memory is taken at creation (tokens and tables for the longest length that the sequence may reach), so that no
 * step allocates.
 * Threads: one owner at a time (the engine thread once it is queued). Owns: tokens, tables, sampling arrays, salt. */
#ifndef ENGINE_SEQUENCE_H
#define ENGINE_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "xenon.h"

enum { SEQUENCE_GROUP_MAX = 8, SEQUENCE_DRAFT_MAX = 15, SEQUENCE_SALT_MAX = 1024 };

enum sequence_status { SEQUENCE_WAITING, SEQUENCE_RUNNING, SEQUENCE_FINISHED };

struct prefix_salt; /* prefix_index.h */

/* struct xenon_sampling with the arrays owned and the seed settled. */
struct sampling_params {
    float temperature;
    float top_p, min_p;
    int32_t top_k; /* <= 0: off */
    float presence_penalty, frequency_penalty, repetition_penalty;
    uint64_t seed;
    int32_t max_tokens; /* -1: as many as fit */
    int32_t min_tokens;
    bool ignore_eos;
    int logprobs, prompt_logprobs; /* -1: none */
    struct xenon_bias *bias;       /* [n_bias] */
    size_t n_bias;
    int32_t *stop_ids; /* [n_stop_ids] */
    size_t n_stop_ids;
};

struct sequence {
    uint64_t id;
    void *user; /* the engine's own record of the request; never touched here */

    int32_t *tokens; /* [cap_tokens] prompt, then generated */
    int64_t n_tokens, cap_tokens, n_prompt;
    int64_t n_computed;        /* tokens whose cache rows exist */
    int64_t n_cached;          /* of those, taken from the prefix cache at the first admission: what is reported */
    int64_t max_len;           /* n_tokens never exceeds it: min(limit, n_prompt + max_tokens) */
    int64_t n_prompt_logprobs; /* prompt rows 0..n-1 whose logprobs have been given out */

    enum sequence_status status;
    enum xenon_finish finish;
    int32_t stop_id; /* the stop id (not EOS) that ended it, or -1 */
    struct sampling_params sampling;
    char *salt;                                        /* cache_salt, "" by default */
    int priority;                                      /* lower is served first */
    int64_t arrival_ns, first_token_ns, last_token_ns; /* 0: not yet */
    int64_t deadline_ns;                               /* 0: none */
    int n_preempted;
    int32_t drafts[SEQUENCE_DRAFT_MAX]; /* proposed next tokens; the speculator sets them between steps */
    int n_drafts;

    /* Block tables: pages[g][b] holds tokens [b * block_size, (b + 1) * block_size) in group g; -1: behind the
     * window, released. A state group has one entry, its slot. */
    int32_t *pages[SEQUENCE_GROUP_MAX]; /* [n_groups][cap_pages] */
    int64_t n_pages[SEQUENCE_GROUP_MAX];
    int64_t first_page[SEQUENCE_GROUP_MAX]; /* entries below are -1 */
    int n_groups;
    int64_t cap_pages;

    /* The block manager's: the index entry of the last published block, and where a state checkpoint is wanted. */
    struct prefix_salt *salt_ref;
    int64_t n_published; /* blocks whose identity is known */
    int32_t chain_node;
    uint64_t chain_serial, chain_hash;
    int64_t checkpoint_at; /* a later prompt branched off here; 0: nowhere */
    bool chain_lost;       /* its parent entry was recycled: publishes no more */

    /* The scheduler's. */
    int64_t order_key;                /* arrival and priority with aging: lower goes first */
    bool in_step;                     /* part of the batch that is being computed */
    enum xenon_finish pending_finish; /* asked for while in a step */
    struct sequence *prev, *next;
};

/* What a sequence is made from; everything is copied. */
struct sequence_spec {
    uint64_t id;
    const int32_t *prompt; /* [n_prompt] */
    size_t n_prompt;
    const struct xenon_sampling *sampling;
    uint64_t seed;    /* used when sampling->has_seed is false */
    const char *salt; /* NULL: "" */
    int priority;
    int64_t arrival_ns, deadline_ns;
    int64_t max_model_len; /* longest prompt + answer */
    int n_groups, block_size;
    void *user;
};

/* Makes a waiting sequence. Checks the request: an empty prompt, a prompt that leaves no room in max_model_len,
 * sampling values outside the ranges that xenon.h states, a salt beyond SEQUENCE_SALT_MAX bytes: ERR_ARG or ERR_LIMIT
 * with the numbers. ERR_NOMEM. Token ids are not compared with a vocabulary here. *out: sequence_destroy. */
enum err sequence_create(struct sequence **out, const struct sequence_spec *spec, struct err_msg *msg) ATTR_NODISCARD;

/* NULL is fine. The block manager must hold nothing for it any more. */
void sequence_destroy(struct sequence *seq);

/* Tokens of the answer so far. */
static inline int64_t sequence_n_generated(const struct sequence *seq) {
    return seq->n_tokens - seq->n_prompt;
}

/* Whether its next row is part of the prompt or of a recomputation: more than one token is still to be computed. */
static inline bool sequence_is_prefill(const struct sequence *seq) {
    return seq->n_computed < seq->n_prompt || seq->n_tokens - seq->n_computed > 1;
}

/* Appends a token; there must be room (n_tokens < cap_tokens). */
void sequence_append(struct sequence *seq, int32_t id);

/* Whether the chosen sampling parameters change logits before the draw: a bias, penalties, a minimum length not yet
 * reached. */
bool sequence_has_edits(const struct sequence *seq);

#endif
