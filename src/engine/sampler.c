#include "engine/sampler.h"

#include <math.h>

#include "base/rng.h"

/* ---- Edits ------------------------------------------------------------------------------------ */

static void mask_ids(float *row, int64_t n_vocab, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < n_vocab) row[ids[i]] = -INFINITY;
    }
}

/* counts[id]: 1 + how often the answer has it, for every id of prompt and answer; the second walk changes each
 * id's logit once and clears its count.
 *
 *     l = l > 0 ? l / r : l * r;    l -= frequency * count + presence * (count > 0)            */
static void penalize(const struct sequence *seq, float *row, int64_t n_vocab, int32_t *counts) {
    const struct sampling_params *const p = &seq->sampling;
    for (int64_t i = 0; i < seq->n_tokens; i++) {
        const int32_t id = seq->tokens[i];
        if (id < 0 || id >= n_vocab) continue;
        if (counts[id] == 0) counts[id] = 1;
        counts[id] += i >= seq->n_prompt;
    }
    for (int64_t i = 0; i < seq->n_tokens; i++) {
        const int32_t id = seq->tokens[i];
        if (id < 0 || id >= n_vocab || counts[id] == 0) continue;
        const int32_t n = counts[id] - 1;
        counts[id] = 0;
        row[id] = row[id] > 0 ? row[id] / p->repetition_penalty : row[id] * p->repetition_penalty;
        if (n > 0) row[id] -= p->frequency_penalty * (float)n + p->presence_penalty;
    }
}

void sampler_edit(const struct sequence *seq, const int32_t *eos_ids, int n_eos, float *row, int64_t n_vocab,
                  int32_t *counts) {
    const struct sampling_params *const p = &seq->sampling;
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id >= 0 && p->bias[i].id < n_vocab) row[p->bias[i].id] += p->bias[i].bias;
    }
    if (sequence_n_generated(seq) < p->min_tokens) {
        mask_ids(row, n_vocab, eos_ids, (size_t)n_eos);
        mask_ids(row, n_vocab, p->stop_ids, p->n_stop_ids);
    }
    if (p->repetition_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f)
        penalize(seq, row, n_vocab, counts);
}

/* ---- Drawing ---------------------------------------------------------------------------------- */

struct sample_draw sampler_draw(const struct sampling_params *p, uint64_t position) {
    return (struct sample_draw){.temperature = p->temperature > 0 ? p->temperature : 0,
                                .top_p = p->top_p,
                                .min_p = p->min_p,
                                .top_k = p->top_k,
                                .u = p->temperature > 0 ? rng_at(p->seed, position) : 0};
}

/* ---- Logprobs --------------------------------------------------------------------------------- */

struct sampler_logprobs sampler_logprobs(const struct sample_row *raw, int64_t n_vocab, int32_t id, int n_top_max) {
    const double lse = (double)raw->max + log(raw->sum_exp);
    struct sampler_logprobs out = {.logprob = -INFINITY};
    if (n_top_max > XENON_TOP_LOGPROBS_MAX) n_top_max = XENON_TOP_LOGPROBS_MAX;
    for (; out.n_top < n_top_max && out.n_top < raw->n_best; out.n_top++) {
        const double l = (double)raw->best_logits[out.n_top];
        out.top[out.n_top] = (struct xenon_logprob){raw->best_ids[out.n_top], (float)(l - lse)};
    }
    for (int i = 0; i < raw->n_best && out.rank == 0; i++)
        if (raw->best_ids[i] == id) out.rank = i + 1;
    if (id >= 0 && id < n_vocab) out.logprob = (float)((double)raw->logits[id] - lse);
    return out;
}
