#include "ops/sample_reduce.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "ops/sample_reduce_int.h"

_Static_assert(SAMPLE_SHARD % ELEM_SUM_BLOCK == 0 && SAMPLE_SHARD % ELEM_MAX_BLOCK == 0, "shards are whole blocks");

/* ---- Life -------------------------------------------------------------------------------------- */

static bool alloc_lanes(struct sample_reduce *r) {
    r->lanes = mem_calloc((size_t)r->n_lanes, sizeof *r->lanes);
    for (int i = 0; r->lanes && i < r->n_lanes; i++) {
        r->lanes[i].keys = mem_calloc((size_t)r->n_vocab, sizeof *r->lanes[i].keys);
        if (!r->lanes[i].keys) return false;
    }
    return r->lanes != NULL;
}

static bool alloc_rows(struct sample_reduce *r) {
    const size_t rows = (size_t)r->max_rows, n_shards = rows * (size_t)r->n_shards;
    r->states = mem_calloc(rows, sizeof *r->states);
    r->shards = mem_calloc(n_shards, sizeof *r->shards);
    r->blocks = mem_calloc(rows * (size_t)r->n_blocks, sizeof *r->blocks);
    r->samples = mem_calloc(rows * (size_t)r->n_blocks, sizeof *r->samples);
    r->sums = mem_calloc(rows * (size_t)r->n_sums, sizeof *r->sums);
    r->keys = mem_calloc(n_shards, SAMPLE_SHARD_KEYS * sizeof *r->keys);
    if (!r->states || !r->shards || !r->blocks || !r->samples || !r->sums || !r->keys) return false;
    for (size_t i = 0; i < n_shards; i++) r->shards[i].keys = r->keys + i * SAMPLE_SHARD_KEYS;
    return true;
}

enum err sample_reduce_create(struct sample_reduce **out, const struct kern *kern, int64_t n_vocab, int max_rows,
                              int n_lanes, struct err_msg *msg) {
    struct sample_reduce *const r = mem_calloc(1, sizeof *r);
    if (!r) return err_set(msg, ERR_NOMEM, "sampler: memory ran out");
    r->kern = kern;
    r->n_vocab = n_vocab;
    r->max_rows = max_rows < SAMPLE_GROUP ? max_rows : SAMPLE_GROUP;
    r->n_lanes = n_lanes;
    r->n_shards = (n_vocab + SAMPLE_SHARD - 1) / SAMPLE_SHARD;
    r->n_blocks = (n_vocab + ELEM_MAX_BLOCK - 1) / ELEM_MAX_BLOCK;
    r->n_sums = (n_vocab + ELEM_SUM_BLOCK - 1) / ELEM_SUM_BLOCK;
    if (!alloc_rows(r) || !alloc_lanes(r)) {
        sample_reduce_destroy(r);
        return err_set(msg, ERR_NOMEM, "sampler: memory ran out");
    }
    *out = r;
    return ERR_OK;
}

void sample_reduce_destroy(struct sample_reduce *r) {
    if (!r) return;
    for (int i = 0; r->lanes && i < r->n_lanes; i++) mem_free(r->lanes[i].keys);
    mem_free(r->lanes);
    mem_free(r->states);
    mem_free(r->shards);
    mem_free(r->blocks);
    mem_free(r->samples);
    mem_free(r->sums);
    mem_free(r->keys);
    mem_free(r);
}

/* ---- Stage 0: maxima of shards and blocks ------------------------------------------------------ */

/* One logit of each block, at a place that differs from block to block, so that no period of the row shows. */
static void take_sample(float *samples, const float *x, int64_t n, int64_t first_block) {
    for (int64_t b = 0; b * ELEM_MAX_BLOCK < n; b++) {
        const int64_t i = b * ELEM_MAX_BLOCK + (first_block + b) * 37 % ELEM_MAX_BLOCK;
        samples[b] = x[i < n ? i : n - 1];
    }
}

static void shard_max(struct sample_reduce *r, int64_t unit) {
    const int64_t row = unit / r->n_shards, s = unit % r->n_shards, n = sample_shard_len(r, s);
    const struct elem_kern *const k = &r->kern->elem;
    const float *const x = r->rows[row].logits + s * SAMPLE_SHARD;
    struct sample_shard *const out = &r->shards[unit];
    if (r->states[row].n_need == 0) {
        k->max(x, n, &out->max, &out->argmax, &out->finite);
        return;
    }
    const int64_t first = s * (SAMPLE_SHARD / ELEM_MAX_BLOCK), n_blocks = (n + ELEM_MAX_BLOCK - 1) / ELEM_MAX_BLOCK;
    float *const blocks = r->blocks + row * r->n_blocks + first;
    int64_t best;
    int ignored;
    out->finite = k->max_blocks(x, n, blocks);
    k->max(blocks, n_blocks, &out->max, &best, &ignored);
    best *= ELEM_MAX_BLOCK;
    k->max(x + best, n - best < ELEM_MAX_BLOCK ? n - best : ELEM_MAX_BLOCK, &out->max, &out->argmax, &ignored);
    out->argmax += best;
    take_sample(r->samples + row * r->n_blocks + first, x, n, first);
}

/* ---- Stage 1: the row's maximum, and a floor under its best ------------------------------------- */

/* At least n_need elements reach the n_need-th largest maximum of a block, and few more do while n_need is far below
 * the number of blocks. Above that the sample gives a floor that almost certainly n_need reach: sample_draw counts. */
static float floor_of(const struct sample_reduce *r, int64_t row, uint64_t *keys) {
    const int64_t n_need = r->states[row].n_need, n = r->n_blocks;
    const bool few = n_need < n / 4 * 3;
    const double expected = (double)n_need / ELEM_MAX_BLOCK;
    const int64_t k = few ? n_need : (int64_t)(expected + 4 * sqrt(expected) + 5);
    const float *const x = (few ? r->blocks : r->samples) + row * n;
    if (k > n) return -INFINITY;
    for (int64_t i = 0; i < n; i++) keys[i] = elem_key(x[i], (uint32_t)i);
    const float floor = elem_key_value(sample_keys_kth(keys, n, k));
    return isnan(floor) ? -INFINITY : floor;
}

static void row_max(struct sample_reduce *r, int64_t row, const struct sample_lane *lane) {
    struct sample_row *const q = &r->rows[row];
    struct sample_state *const st = &r->states[row];
    q->finite = true;
    q->max = -INFINITY;
    q->argmax = 0;
    for (int64_t s = 0; s < r->n_shards; s++) {
        const struct sample_shard *const sh = &r->shards[row * r->n_shards + s];
        q->finite = q->finite && sh->finite;
        if (sh->max > q->max) {
            q->max = sh->max;
            q->argmax = s * SAMPLE_SHARD + sh->argmax;
        }
    }
    if (q->masked) q->finite = isfinite(q->max);
    q->token = q->finite ? (int32_t)q->argmax : -1;
    q->n_best = 0;
    q->sum_exp = 0;
    if (!q->finite) return;
    const double depth = (double)q->draw.temperature * log((double)q->draw.min_p);
    st->from = q->draw.min_p > 0 ? fminf((float)((double)q->max + depth), q->max) : -INFINITY;
    if (st->n_need > 0) st->lo = floor_of(r, row, lane->keys);
    /* Everything that min_p keeps is among the keys then. */
    if (!q->want_best && st->lo < st->from) st->lo = st->from;
}

/* ---- Stage 2: candidates ----------------------------------------------------------------------- */

/* Blocks of the shard whose maximum reaches lo; asks for their memory. */
static int find_blocks(const float *blocks, const float *x, int64_t n, float lo, int16_t *hits) {
    int n_hits = 0;
    for (int b = 0; b < n; b++) {
        if (blocks[b] < lo) continue;
        hits[n_hits++] = (int16_t)b;
        for (int i = 0; i < ELEM_MAX_BLOCK; i += 16) __builtin_prefetch(x + b * ELEM_MAX_BLOCK + i);
    }
    return n_hits;
}

/* Keys of the shard's elements >= lo. */
static void shard_keys(struct sample_reduce *r, int64_t unit) {
    const int64_t row = unit / r->n_shards, s = unit % r->n_shards, n = sample_shard_len(r, s);
    const float *const x = r->rows[row].logits + s * SAMPLE_SHARD, lo = r->states[row].lo;
    const float *const blocks = r->blocks + row * r->n_blocks + s * (SAMPLE_SHARD / ELEM_MAX_BLOCK);
    struct sample_shard *const out = &r->shards[unit];
    int16_t hits[SAMPLE_SHARD / ELEM_MAX_BLOCK];
    out->n = 0;
    if (!r->rows[row].finite || r->states[row].n_need == 0) return;
    const int n_hits = find_blocks(blocks, x, (n + ELEM_MAX_BLOCK - 1) / ELEM_MAX_BLOCK, lo, hits);
    for (int h = 0; h < n_hits && out->n <= SAMPLE_SHARD_KEYS; h++) {
        const int64_t i = (int64_t)hits[h] * ELEM_MAX_BLOCK, len = n - i < ELEM_MAX_BLOCK ? n - i : ELEM_MAX_BLOCK;
        const int64_t at = out->n, cap = SAMPLE_SHARD_KEYS - at;
        out->n += r->kern->elem.select(x + i, len, lo, INFINITY, out->keys + at, cap);
        for (int64_t k = at; k < out->n && k < SAMPLE_SHARD_KEYS; k++) out->keys[k] += (uint64_t)(s * SAMPLE_SHARD + i);
    }
}

/* ---- Stage 4: sums, and keys of the stretch in which a nucleus ends ----------------------------- */

static void shard_sums(struct sample_reduce *r, int64_t unit) {
    const int64_t row = unit / r->n_shards, s = unit % r->n_shards, n = sample_shard_len(r, s);
    const struct sample_row *const q = &r->rows[row];
    const struct sample_state *const st = &r->states[row];
    const struct elem_kern *const k = &r->kern->elem;
    const float *const x = q->logits + s * SAMPLE_SHARD;
    double *const sums = r->sums + row * r->n_sums + s * (SAMPLE_SHARD / ELEM_SUM_BLOCK);
    struct sample_shard *const out = &r->shards[unit];
    const struct elem_weights raw = {q->max, 1.0f, -INFINITY, -INFINITY};
    const struct elem_weights own = {q->max, st->scale, st->from, st->has_body ? st->hi : st->from};
    if (!q->finite) return;
    const bool same = st->is_open && st->scale == 1.0f && st->from == -INFINITY;
    if (q->want_best && !same) out->sum_exp = k->sum_exp(x, n, &raw, sums);
    if (st->is_open) out->sum = k->sum_exp(x, n, &own, sums);
    if (q->want_best && same) out->sum_exp = out->sum;
    if (!st->has_body || !st->limits_p) return;
    out->n = k->select(x, n, st->lo, st->hi, out->keys, SAMPLE_SHARD_KEYS);
    for (int64_t i = 0; i < out->n && i < SAMPLE_SHARD_KEYS; i++) out->keys[i] += (uint64_t)(s * SAMPLE_SHARD);
}

/* ---- The stages ------------------------------------------------------------------------------- */

/* Takes work unit *i of n in a stage. */
static bool take(struct sample_reduce *r, int stage, int64_t n, int64_t *i) {
    *i = atomic_fetch_add_explicit(&r->next[stage].next, 1, memory_order_relaxed);
    return *i < n;
}

static void meet(const struct lane *l) {
    if (l->n_lanes > 1) pool_barrier(l);
}

static void reduce_lane(const struct lane *l, void *arg) {
    struct sample_reduce *const r = arg;
    const struct sample_lane *const own = &r->lanes[l->id];
    const int64_t n_units = r->n_rows * r->n_shards;
    int64_t i;
    while (take(r, 0, n_units, &i)) shard_max(r, i);
    meet(l);
    while (take(r, 1, r->n_rows, &i)) row_max(r, i, own);
    if (r->greedy) return;
    meet(l);
    while (take(r, 2, n_units, &i)) shard_keys(r, i);
    meet(l);
    while (take(r, 3, r->n_rows, &i)) sample_draw_first(r, i, own);
    meet(l);
    if (atomic_load_explicit(&r->n_open, memory_order_relaxed) == 0) return;
    while (take(r, 4, n_units, &i)) shard_sums(r, i);
    meet(l);
    while (take(r, 5, r->n_rows, &i)) sample_draw_second(r, i, own);
}

/* What a row's filters need. */
static struct sample_state plan(const struct sample_reduce *r, const struct sample_row *q) {
    const bool draws = q->draw.temperature > 0;
    struct sample_state st = {.from = -INFINITY, .lo = INFINITY, .hi = INFINITY};
    st.scale = draws ? fminf(1.0f / q->draw.temperature, FLT_MAX) : 0.0f;
    st.limits_k = draws && q->draw.top_k > 0 && q->draw.top_k < r->n_vocab;
    st.limits_p = draws && q->draw.top_p < 1.0f;
    if (q->want_best || (st.limits_p && !st.limits_k)) st.n_need = SAMPLE_BEST_MAX;
    if (st.limits_k && q->draw.top_k > st.n_need) st.n_need = q->draw.top_k;
    if (st.n_need > r->n_vocab) st.n_need = r->n_vocab;
    return st;
}

static void run_group(struct sample_reduce *r, struct pool *pool, struct sample_row *rows, int n) {
    const struct lane alone = {.n_lanes = 1, .team_size = 1, .n_teams = 1};
    r->rows = rows;
    r->n_rows = n;
    r->greedy = true;
    atomic_store_explicit(&r->n_open, 0, memory_order_relaxed);
    for (size_t i = 0; i < N_ELEMENTS(r->next); i++) atomic_store_explicit(&r->next[i].next, 0, memory_order_relaxed);
    for (int i = 0; i < n; i++) {
        r->states[i] = plan(r, &rows[i]);
        if (rows[i].draw.temperature > 0 || rows[i].want_best) r->greedy = false;
    }
    if (pool) pool_run(pool, reduce_lane, r);
    else reduce_lane(&alone, r);
}

void sample_reduce_run(struct sample_reduce *r, struct pool *pool, struct sample_row *rows, int n) {
    CHECK(!pool || pool_n_lanes(pool) <= r->n_lanes);
    for (int i = 0; i < n; i += r->max_rows) run_group(r, pool, rows + i, n - i < r->max_rows ? n - i : r->max_rows);
}
