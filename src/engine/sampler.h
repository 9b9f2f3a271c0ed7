/* From a row of logits to a token. Pure: the noise is rng_at(seed, position), so a token depends on its row, its
 * parameters, its seed and its position alone.
 *
 * Order (as vLLM documents it):
 *   1. logprobs are of the raw row, before any change;
 *   2. sampler_edit: logit_bias, min_tokens (end ids to -inf), then the penalties: repetition over the ids of prompt
 *      and answer, frequency and presence over those of the answer;
 *   3. temperature 0: the largest logit, the lowest id among equals;
 *   4. otherwise, in sampler_draw, l / temperature, min_p, top_k, top_p, draw.
 *
 * The row is reduced elsewhere, on the lanes, to its maximum, sum of exponentials and up to 256 best entries; almost
 * every draw is decided by those. Where they do not decide, the row itself is read: the result is exact for every
 * setting.
 *
 *   - min_p keeps ids with p >= min_p * p(best).
 *   - top_k keeps the first k of the order (logit descending, id ascending): exactly k, ties broken by id.
 *   - top_p keeps, of what is left and renormalised, the shortest run of that order whose mass is >= top_p.
 *   - The draw is the inverse CDF at u in [0, 1) over the candidates in that order; without top_k and top_p the
 *     ids that are not among the best follow in ascending order.
 *
 * Threads: any; no state. Owns: nothing. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/sequence.h"
#include "xenon.h"

enum { SAMPLER_BEST_MAX = 256 };

/* A reduced row. best_*: the n_best largest in the order (logit descending, id ascending); n_best >= min(1, n_vocab).
 */
struct sampler_input {
    const float *logits; /* [n_vocab] */
    int64_t n_vocab;
    int64_t argmax; /* lowest id among equals */
    float max;
    double sum_exp; /* sum of exp(logit - max) */
    int n_best;
    const int32_t *best_ids;
    const float *best_logits;
};

/* Reduces a row in plain C: the specification of what the lanes compute (NaN: max becomes NaN). best_*: [n_best_max]
 * storage of the caller, n_best_max >= 1. */
void sampler_reduce(const float *logits, int64_t n_vocab, int n_best_max, int32_t *best_ids, float *best_logits,
                    struct sampler_input *out);

/* Whether the row can be sampled: its maximum and sum are finite. */
bool sampler_is_finite(const struct sampler_input *in);

/* Applies step 2 to the row [n_vocab] in place, before it is reduced. end_ids: EOS ids. counts: [n_vocab] scratch,
 * all zero before and after. Ids outside the vocabulary are ignored. Does nothing unless sequence_has_edits(seq). */
void sampler_edit(const struct sequence *seq, const int32_t *eos_ids, int n_eos, float *row, int64_t n_vocab,
                  int32_t *counts);

/* Draws the token at `position` (its index in the sequence). scratch: [n_vocab] ids. -1: the row is not finite. */
int32_t sampler_draw(const struct sampler_input *in, const struct sampling_params *p, uint64_t position,
                     int32_t *scratch);

/* Whether sampler_draw may read in->logits, so that callers know that a row has to be gathered. */
bool sampler_may_need_row(const struct sampling_params *p);

/* Log-probability of id under the raw row, *rank its place among the best (1: first; 0: not among them), *n_top <=
 * n_top_max best ids with theirs (n_top_max <= XENON_TOP_LOGPROBS_MAX). raw: reduced before any edit, with its
 * logits. */
float sampler_logprobs(const struct sampler_input *raw, int32_t id, int n_top_max, struct xenon_logprob *top,
                       int *n_top, int32_t *rank);

#endif
