/* A submitted request: what xenon_handle is. The engine thread writes tokens and logprobs into memory that was taken at
 * submission and publishes how many there are; the client reads up to that number. Neither waits for the other, and a
 * slow reader costs the engine nothing: news pile up in place.
 *
 * Threads: fields are grouped by who writes them; `published` and `finish` carry the release/acquire order. Owns: the
 * sequence and the logprob arrays, until both sides have let go. */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include <stdatomic.h>

#include "engine/output_processor.h"
#include "engine/sequence.h"
#include "xenon.h"

/* Logprobs of a row of tokens, memory for all of them taken at once. */
struct logprob_store {
    int n_top;                    /* most alternatives per token; -1: none are kept */
    float *logprob;               /* [cap] */
    int32_t *rank;                /* [cap] */
    int32_t *n_tops;              /* [cap] */
    struct xenon_logprob *tops;   /* [cap, n_top] */
};

/* The polling thread's own state. */
struct client_side {
    int64_t consumed;                  /* tokens given to the processor */
    enum xenon_finish finish;          /* what the client is told */
    bool done;                         /* the end has been told */
    bool prompt_given;
    struct xenon_token *prompt_tokens; /* owned */
};

struct xenon_handle {
    struct xenon *x;
    struct sequence *seq;
    _Atomic int refs; /* engine and client */

    /* Written by the engine. */
    struct logprob_store out, prompt;
    _Atomic int64_t published;        /* tokens of the answer that can be read; release */
    _Atomic int finish;               /* enum xenon_finish, written after the last token; release */
    _Atomic int64_t first_token_ns, last_token_ns, n_cached;
    _Atomic bool prompt_ready;        /* prompt logprobs can be read; release */
    struct err_msg error;             /* before finish */

    /* Written by the client, read by the engine. */
    _Atomic int wanted_finish; /* enum xenon_finish: ABORT (cancel) or STOP (stop string) */
    bool told;                 /* engine: the scheduler knows */

    struct output_processor processor; /* client */
    struct client_side client;

    struct xenon_handle *prev, *next;  /* engine: active requests; also the submission list (next) */
};

/* Takes all memory. seq is taken on success. ERR_NOMEM, ERR_ARG. */
enum err request_create(struct xenon_handle **out, struct xenon *x, struct sequence *seq, const struct tokenizer *tok,
                        const struct xenon_sampling *s, struct err_msg *msg) ATTR_NODISCARD;

/* Lets go of one reference; the last one frees. */
void request_unref(struct xenon_handle *h);

/* Puts entry i of a store. */
void request_put_logprob(struct logprob_store *st, int64_t i, float logprob, int32_t rank,
                         const struct xenon_logprob *top, int n_top);

#endif
