/* The decisions of sample_reduce that concern one row: its best, its token, and where its nucleus ends. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ops/sample_reduce_int.h"

/* Standard deviations of the sample's error between the guess and the edges that are tried: one row in a few hundred
 * falls outside. */
#define EDGE_WIDTH 3.0

/* ---- Keys and sums of the row ------------------------------------------------------------------ */

/* Keys of lo <= logit < hi from the whole row. */
static int64_t read_keys(const struct sample_reduce *r, int64_t row, float lo, float hi, uint64_t *keys) {
    return r->kern->elem.select(r->rows[row].logits, r->n_vocab, lo, hi, keys, r->n_vocab);
}

/* The keys that the shards found, from the whole row if one had no room for its own. */
static int64_t collect_keys(const struct sample_reduce *r, int64_t row, uint64_t *keys) {
    const struct sample_shard *const shards = r->shards + row * r->n_shards;
    const struct sample_state *const st = &r->states[row];
    int64_t n = 0;
    for (int64_t s = 0; s < r->n_shards; s++) {
        if (shards[s].n > SAMPLE_SHARD_KEYS) return read_keys(r, row, st->lo, st->hi, keys);
        memcpy(keys + n, shards[s].keys, (size_t)shards[s].n * sizeof *keys);
        n += shards[s].n;
    }
    return n;
}

/* Mass of the logits >= hi. */
static double body_mass(const struct sample_reduce *r, int64_t row) {
    const double *const sums = r->sums + row * r->n_sums;
    double sum = 0;
    for (int64_t i = 0; i < r->n_sums; i++) sum += sums[i];
    return sum;
}

/* Mass of all that min_p keeps. */
static double total_mass(const struct sample_reduce *r, int64_t row) {
    double sum = 0;
    for (int64_t s = 0; s < r->n_shards; s++) sum += r->shards[row * r->n_shards + s].sum;
    return sum;
}

/* Drops the keys below `from`; keeps the order of the others. */
static int64_t drop_below(uint64_t *keys, int64_t n, float from) {
    const uint64_t last = elem_key(from, UINT32_MAX);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = keys[i];
        keys[kept] = key;
        kept += key <= last;
    }
    return kept;
}

/* ---- Draws ------------------------------------------------------------------------------------ */

static int32_t draw_list(const struct sample_weight *w, const uint64_t *keys, int64_t n, double target) {
    return (int32_t)(uint32_t)keys[sample_keys_draw(w, keys, n, target)];
}

/* The inverse CDF over the logits >= hi in order of their ids. */
static int32_t draw_body(const struct sample_reduce *r, int64_t row, double target) {
    const struct elem_kern *const k = &r->kern->elem;
    const struct sample_state *const st = &r->states[row];
    const struct elem_weights w = {r->rows[row].max, st->scale, st->hi, st->hi};
    const double *const sums = r->sums + row * r->n_sums;
    const float *const x = r->rows[row].logits;
    int64_t block = 0;
    double sum = 0;
    for (int64_t i = 0; i < r->n_sums; i++) {
        if (sums[i] > 0) block = i;
        if (sums[i] > 0 && sum + sums[i] > target) break;
        if (i + 1 < r->n_sums) sum += sums[i];
    }
    const int64_t first = block * ELEM_SUM_BLOCK;
    int64_t last = r->rows[row].argmax;
    for (int64_t i = first; i < first + ELEM_SUM_BLOCK && i < r->n_vocab; i++) {
        double ignored;
        const double one = k->sum_exp(x + i, 1, &w, &ignored);
        sum += one;
        if (one > 0) last = i;
        if (one > 0 && sum > target) break;
    }
    return (int32_t)last;
}

/* ---- The first stage -------------------------------------------------------------------------- */

/* The best of a row in order. */
static void put_best(const struct sample_reduce *r, int64_t row, uint64_t *keys, int64_t n) {
    struct sample_row *const q = &r->rows[row];
    q->n_best = n < SAMPLE_BEST_MAX ? (int)n : SAMPLE_BEST_MAX;
    sample_keys_first(keys, n, q->n_best);
    sample_keys_sort(keys, q->n_best);
    for (int i = 0; i < q->n_best; i++) {
        q->best_ids[i] = (int32_t)(uint32_t)keys[i];
        q->best_logits[i] = q->logits[q->best_ids[i]];
    }
}

/* All that is kept, but for top_p, is in the list. */
static int32_t draw_complete(const struct sample_weight *w, const struct sample_draw *d, uint64_t *keys, int64_t n) {
    double mass = sample_keys_mass(w, keys, n);
    if (d->top_p < 1.0f) n = sample_keys_cut(w, keys, n, (double)d->top_p * mass, &mass);
    return draw_list(w, keys, n, d->u * mass);
}

/* Guesses the logits between which a nucleus ends, that is, where
 *
 *     have + (mass from there to lo) = top_p * (have + rest),
 *
 * lo being as it stands and have the known mass above it; the rest is known by the sample alone, one logit a block. Of
 * its own weights the share top_p, less (1 - top_p) * have, lies above the place. The variance is about
 * (1 - top_p)^2 sum w_above^2 + top_p^2 sum w_below^2. The nucleus may as well end above lo: then nothing changes. */
static void guess_edge(const struct sample_reduce *r, int64_t row, double have, uint64_t *keys) {
    struct sample_state *const st = &r->states[row];
    const struct sample_weight w = sample_weight_of(r, row), squares = {w.kern, w.max, fminf(2 * w.scale, FLT_MAX)};
    const float *const x = r->samples + row * r->n_blocks;
    const double p = (double)r->rows[row].draw.top_p;
    int64_t n = 0, cut = 0;
    for (int64_t i = 0; i < r->n_blocks; i++)
        if (x[i] >= st->from && x[i] < st->lo) keys[n++] = elem_key(x[i], (uint32_t)i);
    double above = 0, ignored;
    const double mass = sample_keys_mass(&w, keys, n), place = p * mass - (1 - p) * have / ELEM_MAX_BLOCK;
    if (n > 0 && place > 0) cut = sample_keys_cut(&w, keys, n, place, &above);
    const double error = sqrt((1 - p) * (1 - p) * sample_keys_mass(&squares, keys, cut) +
                              p * p * sample_keys_mass(&squares, keys + cut, n - cut));
    const double hi = place - EDGE_WIDTH * error, lo = place + EDGE_WIDTH * error;
    if (n > 0 && !(lo > 0)) return;
    st->has_body = true;
    st->hi = st->lo;
    st->lo = st->from;
    if (lo < mass && cut < n) {
        const int64_t i = sample_keys_cut(&w, keys + cut, n - cut, lo - above, &ignored);
        st->lo = elem_key_value(keys[cut + i - 1]);
    }
    if (hi > 0) st->hi = elem_key_value(keys[sample_keys_cut(&w, keys, cut, hi, &ignored) - 1]);
    if (!(st->hi > st->lo)) st->hi = nextafterf(st->lo, INFINITY);
}

/* What the first stage cannot draw. With top_p the keys are the best of the row, and more is missing. */
static void open_row(struct sample_reduce *r, int64_t row, uint64_t *keys, int64_t n) {
    struct sample_state *const st = &r->states[row];
    const struct sample_weight w = sample_weight_of(r, row);
    st->is_open = true;
    if (st->limits_p) {
        guess_edge(r, row, sample_keys_mass(&w, keys, n), keys);
    } else {
        st->has_body = true;
        st->hi = st->from;
    }
}

void sample_draw_first(struct sample_reduce *r, int64_t row, const struct sample_lane *lane) {
    struct sample_row *const q = &r->rows[row];
    struct sample_state *const st = &r->states[row];
    const struct sample_weight w = sample_weight_of(r, row);
    uint64_t *const keys = lane->keys;
    if (!q->finite) return;
    int64_t n = st->n_need > 0 ? collect_keys(r, row, keys) : 0;
    const float lowest = q->want_best ? -INFINITY : st->from;
    if (n < st->n_need && st->lo > lowest) {
        n = read_keys(r, row, lowest, INFINITY, keys);
        st->lo = lowest;
    }
    if (q->want_best) put_best(r, row, keys, n);
    if (q->draw.temperature > 0) {
        if (st->limits_k && n > q->draw.top_k) {
            sample_keys_first(keys, n, q->draw.top_k);
            n = q->draw.top_k;
        }
        if (st->n_need > 0) n = drop_below(keys, n, st->from);
        if (st->limits_k || (st->limits_p && st->lo <= st->from)) q->token = draw_complete(&w, &q->draw, keys, n);
        else open_row(r, row, keys, n);
    }
    if (st->is_open || q->want_best) atomic_fetch_add_explicit(&r->n_open, 1, memory_order_relaxed);
}

/* ---- The second stage ------------------------------------------------------------------------- */

static int64_t cut_list(const struct sample_weight *w, uint64_t *keys, int64_t n, double target, double *mass) {
    *mass = 0;
    return n > 0 ? sample_keys_cut(w, keys, n, target, mass) : 0;
}

/* The nucleus: the body, if there is one, and what of the keys reaches its mass; unless the guess was wrong on either
 * side. */
static int32_t draw_nucleus(const struct sample_reduce *r, int64_t row, uint64_t *keys) {
    const struct sample_row *const q = &r->rows[row];
    const struct sample_state *const st = &r->states[row];
    const struct sample_weight w = sample_weight_of(r, row);
    const double nucleus = (double)q->draw.top_p * total_mass(r, row);
    double body = st->has_body ? body_mass(r, row) : 0, list;
    int64_t n;
    if (body >= nucleus) {
        body = 0;
        n = read_keys(r, row, st->hi, INFINITY, keys);
        n = cut_list(&w, keys, n, nucleus, &list);
    } else {
        n = cut_list(&w, keys, collect_keys(r, row, keys), nucleus - body, &list);
        if (list < nucleus - body && st->lo > st->from)
            n = cut_list(&w, keys, read_keys(r, row, st->from, st->hi, keys), nucleus - body, &list);
    }
    const double target = q->draw.u * (list + body);
    if (n > 0 && (target < list || !(body > 0))) return draw_list(&w, keys, n, target);
    return draw_body(r, row, target - list);
}

void sample_draw_second(struct sample_reduce *r, int64_t row, const struct sample_lane *lane) {
    struct sample_row *const q = &r->rows[row];
    const struct sample_state *const st = &r->states[row];
    if (!q->finite) return;
    if (q->want_best)
        for (int64_t s = 0; s < r->n_shards; s++) q->sum_exp += r->shards[row * r->n_shards + s].sum_exp;
    if (!st->is_open) return;
    if (st->limits_p) q->token = draw_nucleus(r, row, lane->keys);
    else q->token = draw_body(r, row, q->draw.u * body_mass(r, row));
}
