#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"

/* ---- Reduction -------------------------------------------------------------------------------- */

/* The order of candidates: logit descending, then id ascending. */
static bool is_better(float a, int32_t a_id, float b, int32_t b_id) {
    return a != b ? a > b : a_id < b_id;
}

void sampler_reduce(const float *logits, int64_t n_vocab, int n_best_max, int32_t *best_ids, float *best_logits,
                    struct sampler_input *out) {
    CHECK(n_vocab >= 1 && n_best_max >= 1);
    int n_best = 0;
    bool has_nan = false;
    for (int64_t id = 0; id < n_vocab; id++) {
        const float l = logits[id];
        has_nan |= isnan(l);
        if (n_best == n_best_max && !(l > best_logits[n_best - 1])) continue;
        int at = n_best < n_best_max ? n_best++ : n_best - 1;
        for (; at > 0 && l > best_logits[at - 1]; at--) {
            best_ids[at] = best_ids[at - 1];
            best_logits[at] = best_logits[at - 1];
        }
        best_ids[at] = (int32_t)id;
        best_logits[at] = l;
    }
    const float max = has_nan ? NAN : best_logits[0];
    double sum = 0;
    for (int64_t id = 0; id < n_vocab && isfinite(max); id++)
        sum += exp((double)logits[id] - (double)max);
    *out = (struct sampler_input){logits, n_vocab, best_ids[0], max, sum, n_best, best_ids, best_logits};
}

bool sampler_is_finite(const struct sampler_input *in) {
    return isfinite(in->max) && isfinite(in->sum_exp) && in->sum_exp > 0;
}

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

/* One draw. Weights are w(l) = exp((l - max) / temperature), so the best has 1; the order of all sums is fixed. */
struct draw {
    const struct sampler_input *in;
    double inv_temp, max;
    double min_p, top_p;
    int64_t top_k; /* n_vocab: off */
    double u;
};

static double weight(const struct draw *d, float logit) {
    return exp(((double)logit - d->max) * d->inv_temp);
}

static bool passes_min_p(const struct draw *d, double w) {
    return w > 0 && w >= d->min_p;
}

/* Mass of the whole row that passes min_p, ids ascending. */
static double row_mass(const struct draw *d) {
    double sum = 0;
    for (int64_t id = 0; id < d->in->n_vocab; id++) {
        const double w = weight(d, d->in->logits[id]);
        if (passes_min_p(d, w)) sum += w;
    }
    return sum;
}

/* Bounds of the row's mass when more candidates than the best ones exist. Every other logit x = l - max is at most
 * that of the last best one, x_b, and their mass at temperature 1 is known, m = sum_exp - sum of the best, so below T
 * = 1
 *
 *     sum exp(x / T) = sum exp(x) * exp(x * (1/T - 1)) <= m * exp(x_b * (1/T - 1)),
 *
 * and above it their number bounds it: n * exp(x_b / T). At T = 1 the mass is known. Margins cover rounding. */
struct bounds {
    double low, high;
};

static struct bounds mass_bounds(const struct draw *d, double best_mass) {
    const struct sampler_input *const in = d->in;
    const double x = (double)in->best_logits[in->n_best - 1] - d->max;
    double tail = (double)(in->n_vocab - in->n_best) * exp(x * d->inv_temp);
    if (d->inv_temp >= 1) {
        double best = 0;
        for (int i = 0; i < in->n_best; i++)
            best += exp((double)in->best_logits[i] - d->max);
        const double rest = fmax(in->sum_exp - best, 0) + in->sum_exp * 1e-6;
        tail = fmin(tail, rest * exp(x * (d->inv_temp - 1)));
    }
    const double low = d->inv_temp > 1 || d->inv_temp < 1 ? best_mass : fmax(best_mass, in->sum_exp * (1 - 1e-6));
    return (struct bounds){low, (best_mass + tail) * (1 + 1e-9)};
}

/* The first of n ordered candidates whose running sum exceeds target; the last one with a weight if rounding left
 * none. */
static int pick_best(const struct draw *d, int n, double target) {
    double sum = 0;
    int last = 0;
    for (int i = 0; i < n; i++) {
        const double w = weight(d, d->in->best_logits[i]);
        sum += w;
        if (sum > target) return i;
        if (w > 0) last = i;
    }
    return last;
}

/* How many of the n first candidates top_p keeps when the whole mass is `mass`; n + 1: more than these. *kept: their
 * mass. */
static int nucleus(const struct draw *d, int n, double mass, double *kept) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += weight(d, d->in->best_logits[i]);
        *kept = sum;
        if (sum >= d->top_p * mass) return i + 1;
    }
    return n + 1;
}

/* ---- Drawing from the whole row, ordered ------------------------------------------------------- */

static void sift_down(const float *logits, int32_t *heap, int64_t n, int64_t at) {
    const int32_t id = heap[at];
    for (int64_t child = 2 * at + 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && is_better(logits[heap[child + 1]], heap[child + 1], logits[heap[child]], heap[child]))
            child++;
        if (!is_better(logits[heap[child]], heap[child], logits[id], id)) break;
        heap[at] = heap[child];
        heap[child] = id;
    }
}

/* Top_k and top_p over more candidates than the best ones: a heap of the row, from which candidates are taken in
 * order until both are satisfied. Taken ones collect behind the heap, the first at the end: scratch[n - 1 - i] is the
 * i-th. */
static int32_t draw_ordered(const struct draw *d, int32_t *scratch) {
    const float *const logits = d->in->logits;
    int64_t n = 0;
    double mass = 0;
    for (int64_t id = 0; id < d->in->n_vocab; id++) {
        const double w = weight(d, logits[id]);
        if (!passes_min_p(d, w)) continue;
        mass += w;
        scratch[n++] = (int32_t)id;
    }
    for (int64_t i = n / 2; i-- > 0;)
        sift_down(logits, scratch, n, i);
    const int64_t n_max = d->top_k < n ? d->top_k : n;
    /* With top_k the mass that top_p refers to is that of the first k, known only when they have been taken. */
    const bool stops_early = n_max == n && d->top_p < 1;
    double sum = 0;
    int64_t n_taken = 0;
    while (n_taken < n_max && !(stops_early && n_taken > 0 && sum >= d->top_p * mass)) {
        const int32_t id = scratch[0];
        scratch[0] = scratch[n - 1 - n_taken];
        scratch[n - 1 - n_taken] = id;
        n_taken++;
        sift_down(logits, scratch, n - n_taken, 0);
        sum += weight(d, logits[id]);
    }
    if (!stops_early && d->top_p < 1) {
        const double want = d->top_p * sum;
        int64_t n_kept = 0;
        for (sum = 0; n_kept < n_taken && (n_kept == 0 || sum < want); n_kept++)
            sum += weight(d, logits[scratch[n - 1 - n_kept]]);
        n_taken = n_kept;
    }
    double run = 0;
    for (int64_t i = 0; i < n_taken; i++) {
        run += weight(d, logits[scratch[n - 1 - i]]);
        if (run > d->u * sum) return scratch[n - 1 - i];
    }
    return scratch[n - n_taken];
}

/* ---- Drawing from the whole row, the rest in id order ------------------------------------------ */

static bool is_best(const struct sampler_input *in, int64_t id) {
    const float last = in->best_logits[in->n_best - 1];
    return !is_better(last, in->best_ids[in->n_best - 1], in->logits[id], (int32_t)id);
}

/* Continues the inverse CDF behind the best ones, whose mass is best_mass. */
static int32_t draw_rest(const struct draw *d, double best_mass, double target) {
    double sum = best_mass;
    int32_t last = d->in->best_ids[d->in->n_best - 1];
    for (int64_t id = 0; id < d->in->n_vocab; id++) {
        if (is_best(d->in, id)) continue;
        const double w = weight(d, d->in->logits[id]);
        if (!passes_min_p(d, w)) continue;
        sum += w;
        last = (int32_t)id;
        if (sum > target) break;
    }
    return last;
}

/* ---- The draw --------------------------------------------------------------------------------- */

/* How many of the best pass min_p and top_k, and their mass. *complete: nobody else does. */
static int count_candidates(const struct draw *d, double *mass, bool *complete) {
    const struct sampler_input *const in = d->in;
    *mass = 0;
    for (int i = 0; i < in->n_best; i++) {
        const double w = weight(d, in->best_logits[i]);
        *complete = true;
        if (i >= d->top_k || !passes_min_p(d, w)) return i;
        *mass += w;
    }
    *complete = in->n_best >= d->top_k || in->n_best >= in->n_vocab;
    return in->n_best;
}

/* All candidates are among the n first. */
static int32_t draw_complete(const struct draw *d, int n, double mass) {
    double kept = mass;
    if (d->top_p < 1) n = nucleus(d, n, mass, &kept);
    return d->in->best_ids[pick_best(d, n, d->u * kept)];
}

/* top_p over a row of which only the best are known in order. */
static int32_t draw_nucleus(const struct draw *d, double best_mass, int32_t *scratch) {
    const int n = d->in->n_best;
    const struct bounds b = mass_bounds(d, best_mass);
    double kept = 0;
    int n_kept = nucleus(d, n, b.low, &kept);
    if (d->min_p > 0 || nucleus(d, n, b.high, &kept) != n_kept) n_kept = nucleus(d, n, row_mass(d), &kept);
    if (n_kept > n) return draw_ordered(d, scratch);
    return d->in->best_ids[pick_best(d, n_kept, d->u * kept)];
}

/* No top_k, no top_p: the best first, then the others by id. */
static int32_t draw_plain(const struct draw *d, double best_mass) {
    const int n = d->in->n_best;
    const struct bounds b = mass_bounds(d, best_mass);
    if (d->u * b.high < best_mass && d->min_p <= 0) {
        const int i = pick_best(d, n, d->u * b.high);
        if (i == pick_best(d, n, d->u * b.low)) return d->in->best_ids[i];
    }
    const double target = d->u * row_mass(d);
    if (target < best_mass) return d->in->best_ids[pick_best(d, n, target)];
    return draw_rest(d, best_mass, target);
}

int32_t sampler_draw(const struct sampler_input *in, const struct sampling_params *p, uint64_t position,
                     int32_t *scratch) {
    if (!sampler_is_finite(in)) return -1;
    if (!(p->temperature > 0)) return (int32_t)in->argmax;
    const struct draw d = {
        .in = in,
        .inv_temp = 1.0 / (double)p->temperature,
        .max = (double)in->max,
        .min_p = (double)p->min_p,
        .top_p = (double)p->top_p,
        .top_k = p->top_k > 0 && p->top_k < in->n_vocab ? p->top_k : in->n_vocab,
        .u = rng_at(p->seed, position),
    };
    double mass = 0;
    bool complete = false;
    const int n = count_candidates(&d, &mass, &complete);
    if (complete) return draw_complete(&d, n, mass);
    if (d.top_k < in->n_vocab) return draw_ordered(&d, scratch);
    if (d.top_p < 1) return draw_nucleus(&d, mass, scratch);
    return draw_plain(&d, mass);
}

bool sampler_may_need_row(const struct sampling_params *p) {
    return p->temperature > 0 && !(p->top_k > 0 && p->top_k <= SAMPLER_BEST_MAX);
}

/* ---- Logprobs --------------------------------------------------------------------------------- */

float sampler_logprobs(const struct sampler_input *raw, int32_t id, int n_top_max, struct xenon_logprob *top,
                       int *n_top, int32_t *rank) {
    const double lse = (double)raw->max + log(raw->sum_exp);
    *rank = 0;
    *n_top = n_top_max < raw->n_best ? n_top_max : raw->n_best;
    if (*n_top < 0) *n_top = 0;
    for (int i = 0; i < *n_top; i++)
        top[i] = (struct xenon_logprob){raw->best_ids[i], (float)((double)raw->best_logits[i] - lse)};
    for (int i = 0; i < raw->n_best; i++) {
        if (raw->best_ids[i] != id) continue;
        *rank = i + 1;
        return (float)((double)raw->best_logits[i] - lse);
    }
    if (id < 0 || id >= raw->n_vocab) return -INFINITY;
    return (float)((double)raw->logits[id] - lse);
}
