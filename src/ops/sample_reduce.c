#include "ops/sample_reduce.h"

#include "base/check.h"
#include "base/mem.h"
#include "ops/op.h"

/* The 256th largest of the maxima of blocks is a floor under the 256 best elements: at least that many reach it, and
 * few more in practice. Rows with very many equal elements overflow a shard's candidates and are sorted out whole. */
enum { SHARD = 16384, BLOCK = 64, CANDIDATES = 1024 };

struct shard {
    float max;
    int64_t argmax;
    int finite;
    double sum;
    int64_t n; /* candidates found, may exceed CANDIDATES */
    int32_t *ids;
    float *vals;
};

struct sample_reduce {
    const struct kern *kern;
    int64_t n_vocab, n_shards, n_blocks;
    int max_rows;
    struct shard *shards; /* [max_rows][n_shards] */
    float *blocks;        /* [max_rows][n_blocks] block maxima */
    float *floors;        /* [max_rows] */
    int32_t *ids;         /* the candidates' storage */
    float *vals;
    struct op_counter next[4];
    struct sample_row *rows;
    int n_rows;
};

enum err sample_reduce_create(struct sample_reduce **out, const struct kern *kern, int64_t n_vocab, int max_rows,
                              struct err_msg *msg) {
    struct sample_reduce *const r = mem_calloc(1, sizeof *r);
    if (!r) return err_set(msg, ERR_NOMEM, "sampler: memory ran out");
    r->kern = kern;
    r->n_vocab = n_vocab;
    r->max_rows = max_rows;
    r->n_shards = (n_vocab + SHARD - 1) / SHARD;
    r->n_blocks = (n_vocab + BLOCK - 1) / BLOCK;
    const size_t n_shards = (size_t)max_rows * (size_t)r->n_shards;
    r->shards = mem_calloc(n_shards, sizeof *r->shards);
    r->blocks = mem_calloc((size_t)max_rows * (size_t)r->n_blocks, sizeof *r->blocks);
    r->floors = mem_calloc((size_t)max_rows, sizeof *r->floors);
    r->ids = mem_calloc(n_shards, CANDIDATES * sizeof *r->ids);
    r->vals = mem_calloc(n_shards, CANDIDATES * sizeof *r->vals);
    if (!r->shards || !r->blocks || !r->floors || !r->ids || !r->vals) {
        sample_reduce_destroy(r);
        return err_set(msg, ERR_NOMEM, "sampler: memory ran out");
    }
    for (size_t i = 0; i < n_shards; i++) {
        r->shards[i].ids = r->ids + i * CANDIDATES;
        r->shards[i].vals = r->vals + i * CANDIDATES;
    }
    *out = r;
    return ERR_OK;
}

void sample_reduce_destroy(struct sample_reduce *r) {
    if (!r) return;
    mem_free(r->shards);
    mem_free(r->blocks);
    mem_free(r->floors);
    mem_free(r->ids);
    mem_free(r->vals);
    mem_free(r);
}

/* Takes work unit *i of n in a stage. */
static bool take(struct sample_reduce *r, int stage, int64_t n, int64_t *i) {
    *i = atomic_fetch_add_explicit(&r->next[stage].next, 1, memory_order_relaxed);
    return *i < n;
}

static struct shard *shard_at(const struct sample_reduce *r, int64_t unit) { return &r->shards[unit]; }

static int64_t shard_len(const struct sample_reduce *r, int64_t s) {
    const int64_t left = r->n_vocab - s * SHARD;
    return left < SHARD ? left : SHARD;
}

/* Stage 0: maximum of a shard, and of its blocks when the best are wanted. */
static void shard_max(struct sample_reduce *r, int64_t unit) {
    const int64_t row = unit / r->n_shards, s = unit % r->n_shards, n = shard_len(r, s);
    const struct sample_row *const q = &r->rows[row];
    const float *const x = q->logits + s * SHARD;
    struct shard *const out = shard_at(r, unit);
    if (!q->want_best) {
        r->kern->elem.max(x, n, &out->max, &out->argmax, &out->finite);
        return;
    }
    float *const blocks = r->blocks + row * r->n_blocks + s * (SHARD / BLOCK);
    *out = (struct shard){.max = -__builtin_inff(), .finite = 1, .ids = out->ids, .vals = out->vals};
    for (int64_t i = 0; i < n; i += BLOCK) {
        float max;
        int64_t arg;
        int finite;
        r->kern->elem.max(x + i, n - i < BLOCK ? n - i : BLOCK, &max, &arg, &finite);
        blocks[i / BLOCK] = max;
        out->finite &= finite;
        if (max > out->max) {
            out->max = max;
            out->argmax = i + arg;
        }
    }
}

/* Puts the k-th largest (0-based) of x[0..n) into place and returns it; reorders x. */
static float kth_largest(float *x, int64_t n, int64_t k) {
    int64_t lo = 0, hi = n - 1;
    while (lo < hi) {
        const float pivot = x[lo + (hi - lo) / 2];
        int64_t i = lo, j = hi;
        while (i <= j) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i <= j) {
                const float t = x[i];
                x[i++] = x[j];
                x[j--] = t;
            }
        }
        if (k <= j) hi = j;
        else if (k >= i) lo = i;
        else break;
    }
    return x[k];
}

/* Stage 1: a row's maximum from its shards, and the floor under its best. */
static void row_max(struct sample_reduce *r, int64_t row) {
    struct sample_row *const q = &r->rows[row];
    q->finite = true;
    q->max = -__builtin_inff();
    q->argmax = 0;
    for (int64_t s = 0; s < r->n_shards; s++) {
        const struct shard *const sh = shard_at(r, row * r->n_shards + s);
        q->finite = q->finite && sh->finite;
        if (sh->max > q->max) {
            q->max = sh->max;
            q->argmax = s * SHARD + sh->argmax;
        }
    }
    if (q->masked) q->finite = __builtin_isfinite(q->max);
    if (!q->want_best || !q->finite) return;
    r->floors[row] = r->n_blocks > SAMPLE_BEST_MAX
                         ? kth_largest(r->blocks + row * r->n_blocks, r->n_blocks, SAMPLE_BEST_MAX - 1)
                         : -__builtin_inff();
}

/* Stage 2: a shard's sum and candidates. */
static void shard_sum(struct sample_reduce *r, int64_t unit) {
    const int64_t row = unit / r->n_shards, s = unit % r->n_shards, n = shard_len(r, s);
    const struct sample_row *const q = &r->rows[row];
    const float *const x = q->logits + s * SHARD;
    struct shard *const out = shard_at(r, unit);
    if (!q->finite) return;
    if (q->want_sum) out->sum = r->kern->elem.sum_exp(x, n, q->max, 1.0f);
    if (q->want_best) out->n = r->kern->elem.select(x, n, r->floors[row], out->ids, out->vals, CANDIDATES);
}

struct candidate {
    float logit;
    int32_t id;
};

static bool before(struct candidate a, struct candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Keeps the SAMPLE_BEST_MAX first of a stream of candidates in a heap whose top is the last of them. */
static void heap_offer(struct candidate *h, int *n, struct candidate c) {
    int i = *n;
    if (i < SAMPLE_BEST_MAX) {
        (*n)++;
        for (; i > 0 && before(h[(i - 1) / 2], c); i = (i - 1) / 2) h[i] = h[(i - 1) / 2];
        h[i] = c;
        return;
    }
    if (!before(c, h[0])) return;
    for (i = 0;;) {
        int child = 2 * i + 1;
        if (child >= *n) break;
        if (child + 1 < *n && before(h[child], h[child + 1])) child++;
        if (!before(c, h[child])) break;
        h[i] = h[child];
        i = child;
    }
    h[i] = c;
}

/* Takes the last in order out of the heap. */
static struct candidate heap_pop(struct candidate *h, int *n) {
    const struct candidate top = h[0], c = h[--*n];
    int i = 0;
    for (int child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && before(h[child], h[child + 1])) child++;
        if (!before(c, h[child])) break;
        h[i] = h[child];
    }
    h[i] = c;
    return top;
}

/* Offers every candidate of the row; a shard with more than it could keep is read whole. */
static void row_candidates(const struct sample_reduce *r, int64_t row, struct candidate *heap, int *n) {
    const struct sample_row *const q = &r->rows[row];
    for (int64_t s = 0; s < r->n_shards; s++) {
        const struct shard *const sh = shard_at(r, row * r->n_shards + s);
        const bool whole = sh->n > CANDIDATES;
        const int64_t len = whole ? shard_len(r, s) : sh->n;
        for (int64_t i = 0; i < len; i++) {
            const int32_t id = whole ? (int32_t)i : sh->ids[i];
            const float x = whole ? q->logits[s * SHARD + i] : sh->vals[i];
            heap_offer(heap, n, (struct candidate){x, (int32_t)(s * SHARD) + id});
        }
    }
}

/* Stage 3: a row's sum in shard order, and its best in order. */
static void row_finish(struct sample_reduce *r, int64_t row) {
    struct sample_row *const q = &r->rows[row];
    q->sum_exp = 0;
    q->n_best = 0;
    if (!q->finite) return;
    for (int64_t s = 0; q->want_sum && s < r->n_shards; s++) q->sum_exp += shard_at(r, row * r->n_shards + s)->sum;
    if (!q->want_best) return;
    struct candidate heap[SAMPLE_BEST_MAX];
    row_candidates(r, row, heap, &q->n_best);
    for (int n = q->n_best; n > 0;) {
        const struct candidate c = heap_pop(heap, &n);
        q->best_ids[n] = c.id;
        q->best_logits[n] = c.logit;
    }
}

static void reduce_lane(const struct lane *l, void *arg) {
    struct sample_reduce *const r = arg;
    const int64_t n_units = r->n_rows * r->n_shards;
    int64_t i;
    while (take(r, 0, n_units, &i)) shard_max(r, i);
    pool_barrier(l);
    while (take(r, 1, r->n_rows, &i)) row_max(r, i);
    pool_barrier(l);
    while (take(r, 2, n_units, &i)) shard_sum(r, i);
    pool_barrier(l);
    while (take(r, 3, r->n_rows, &i)) row_finish(r, i);
}

void sample_reduce_run(struct sample_reduce *r, struct pool *pool, struct sample_row *rows, int n) {
    CHECK(n <= r->max_rows);
    if (n == 0) return;
    for (size_t i = 0; i < N_ELEMENTS(r->next); i++) atomic_store_explicit(&r->next[i].next, 0, memory_order_relaxed);
    r->rows = rows;
    r->n_rows = n;
    pool_run(pool, reduce_lane, r);
}
