/* From a row of logits to a token, what concerns requests: the noise is rng_at(seed, position), so a token depends on
 * its row, its parameters, its seed and its position alone. ops/sample_reduce does the arithmetic.
 *
 * Order (as vLLM documents it):
 *   1. logprobs are of the raw row, before any change;
 *   2. sampler_edit: logit_bias, min_tokens (end ids to -inf), then the penalties: repetition over the ids of prompt
 *      and answer, frequency and presence over those of the answer;
 *   3. temperature 0: the largest logit, the lowest id among equals;
 *   4. otherwise l / temperature, min_p, top_k, top_p, draw, exactly as ops/sample_reduce.h defines them.
 *
 * Threads: any; no state. Owns: nothing. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stdint.h>

#include "engine/sequence.h"
#include "ops/sample_reduce.h"
#include "xenon.h"

/* Applies step 2 to the row [n_vocab] in place, before it is reduced. end_ids: EOS ids. counts: [n_vocab] scratch,
 * all zero before and after. Ids outside the vocabulary are ignored. Does nothing unless sequence_has_edits(seq). */
void sampler_edit(const struct sequence *seq, const int32_t *eos_ids, int n_eos, float *row, int64_t n_vocab,
                  int32_t *counts);

/* How the token at `position` (its index in the sequence) is drawn. */
struct sample_draw sampler_draw(const struct sampling_params *p, uint64_t position);

struct sampler_logprobs {
    float logprob;
    int32_t rank; /* place among the best (1: first); 0: not among them */
    int n_top;
    struct xenon_logprob top[XENON_TOP_LOGPROBS_MAX]; /* the best ids with theirs */
};

/* Of id under the raw row of n_vocab, with at most n_top_max others. An id outside the vocabulary has -infinity. raw:
 * reduced before any edit, with its best, and finite. */
struct sampler_logprobs sampler_logprobs(const struct sample_row *raw, int64_t n_vocab, int32_t id, int n_top_max);

#endif
