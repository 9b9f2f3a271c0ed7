/* Draws of sample_reduce against the definition in double precision: the row sorted, filtered and normalised. An
 * inverse CDF gives every id one interval of u, so draws at M evenly spaced u must give each id p * M times, within one
 * at either end: off by one token at a cut, a wrong tie or a wrong weight shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "ops/sample_reduce.h"

struct row {
    int64_t n;
    float *logits;
    int32_t *order; /* logit descending, id ascending */
    double *p;      /* by the definition */
    int *counts;
    int32_t in_doubt; /* the id at which top_p's cut hangs on rounding, or -1 */
    bool best; /* ask for the best as well */
    struct sample_reduce *reduce;
};

static struct kern g_kern;
static const float *g_logits;

static int by_order(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (g_logits[x] > g_logits[y]) return -1;
    if (g_logits[x] < g_logits[y]) return 1;
    return (x > y) - (x < y);
}

static void open_row(struct row *row, int64_t n) {
    *row = (struct row){.n = n};
    row->logits = mem_xcalloc((size_t)n, sizeof *row->logits);
    row->order = mem_xcalloc((size_t)n, sizeof *row->order);
    row->p = mem_xcalloc((size_t)n, sizeof *row->p);
    row->counts = mem_xcalloc((size_t)n, sizeof *row->counts);
    assert_int_equal(sample_reduce_create(&row->reduce, &g_kern, n, 1, 1, NULL), ERR_OK);
}

static void close_row(struct row *row) {
    sample_reduce_destroy(row->reduce);
    mem_free(row->logits);
    mem_free(row->order);
    mem_free(row->p);
    mem_free(row->counts);
}

enum kind { FLAT, PEAKED, TIES, EQUAL, MASKED, ONE, SIGNS, SAMPLE_LOW, SAMPLE_HIGH, N_KINDS };

/* SAMPLE_*: the logits that the guess of an edge looks at, one of each 64, are far from the others. */
static void fill(struct row *row, enum kind kind, uint64_t seed) {
    struct rng r = rng_seeded(seed * 100 + kind);
    for (int64_t i = 0; i < row->n; i++) {
        const float u = rng_f32(&r);
        const bool sampled = i % 64 == i / 64 * 37 % 64;
        float x = u * 2;
        if (kind == PEAKED) x = u * 12;
        if (kind == TIES) x = floorf(u * 1.5f);
        if (kind == EQUAL) x = -3.25f;
        if (kind == MASKED && i % 5) x = -INFINITY;
        if (kind == ONE && i != row->n / 2) x = -INFINITY;
        if (kind == SIGNS) x = i % 2 ? 0.0f : -0.0f;
        if (kind == SAMPLE_LOW && sampled) x -= 6;
        if (kind == SAMPLE_HIGH && !sampled) x -= 3;
        row->logits[i] = x;
        row->order[i] = (int32_t)i;
    }
    g_logits = row->logits;
    qsort(row->order, (size_t)row->n, sizeof row->order[0], by_order);
}

static void define(struct row *row, const struct sample_draw *d) {
    const double max = (double)row->logits[row->order[0]];
    const int64_t k = d->top_k > 0 && d->top_k < row->n ? d->top_k : row->n;
    double sum = 0, run = 0;
    int64_t n = 0;
    memset(row->p, 0, (size_t)row->n * sizeof *row->p);
    row->in_doubt = -1;
    for (; n < k; n++) {
        const double w = exp(((double)row->logits[row->order[n]] - max) / (double)d->temperature);
        if (w < (double)d->min_p * (1 - 1e-6) || w <= 0) break;
        row->p[row->order[n]] = w;
        sum += w;
    }
    int64_t kept = n;
    if (d->top_p < 1) {
        const double want = (double)d->top_p * sum;
        for (kept = 0; kept < n && (kept == 0 || run < want); kept++) {
            if (fabs(run - want) < 1e-6 * sum) row->in_doubt = row->order[kept];
            run += row->p[row->order[kept]];
        }
        if (fabs(run - want) < 1e-6 * sum && kept < n) row->in_doubt = row->order[kept];
        sum = run;
    }
    for (int64_t i = 0; i < n; i++) row->p[row->order[i]] = i < kept ? row->p[row->order[i]] / sum : 0;
}

static int32_t draw(const struct row *row, struct sample_draw d, double u) {
    struct sample_row q = {.logits = row->logits, .masked = true, .want_best = row->best, .draw = d};
    q.draw.u = u;
    sample_reduce_run(row->reduce, NULL, &q, 1);
    assert_in_range(q.token, 0, row->n - 1);
    return q.token;
}

/* Walks u and counts. */
static void check(struct row *row, const struct sample_draw *d, int n_draws, const char *what) {
    define(row, d);
    memset(row->counts, 0, (size_t)row->n * sizeof *row->counts);
    for (int i = 0; i < n_draws; i++) row->counts[draw(row, *d, (i + 0.5) / n_draws)]++;
    for (int64_t id = 0; id < row->n; id++) {
        const double want = row->p[id] * n_draws, slack = 1 + 1e-5 * n_draws;
        if (id == row->in_doubt) continue;
        const bool ruled_out = want <= 0 && row->counts[id] > 0;
        if (ruled_out || fabs(row->counts[id] - want) > slack)
            fail_msg("%s, n %lld, T %g top_p %g min_p %g top_k %lld: id %lld drawn %d times, want %.2f", what,
                     (long long)row->n, (double)d->temperature, (double)d->top_p, (double)d->min_p,
                     (long long)d->top_k, (long long)id, row->counts[id], want);
    }
}

static const struct sample_draw settings[] = {
    {1, 1, 0, 0, 0},          {0.25f, 1, 0, 0, 0},      {20, 1, 0, 0, 0},         {1e-3f, 1, 0, 0, 0},
    {100, 0.5f, 0, 0, 0},     {1e-3f, 0.9f, 0, 0, 0},   {1, 1e-6f, 0, 0, 0},      {1, 0.1f, 0, 0, 0},
    {0.7f, 0.5f, 0, 0, 0},    {1, 0.9f, 0, 0, 0},       {1.5f, 0.99f, 0, 0, 0},   {1, 0.999999f, 0, 0, 0},
    {3, 0.9f, 0, 0, 0},       {1, 1, 0, 1, 0},          {1, 1, 0, 2, 0},          {1.3f, 1, 0, 40, 0},
    {1, 1, 0, 256, 0},        {1, 1, 0, 257, 0},        {1.3f, 1, 0, 350, 0},     {1, 1, 0, 5000, 0},
    {1, 1, 0.01f, 0, 0},      {2, 1, 0.3f, 0, 0},       {1, 1, 1, 0, 0},          {0.8f, 0.95f, 0, 50, 0},
    {1.2f, 0.9f, 0.02f, 0, 0}, {2, 0.7f, 0.05f, 300, 0}, {1, 1, 0.1f, 30, 0},      {5, 0.98f, 0, 500, 0},
    {1, 0.9f, 0.5f, 350, 0},  {1.4e-45f, 0.9f, 0, 0, 0}};

/* All kinds of rows with all settings. */
static void check_sizes(const int64_t *sizes, size_t n_sizes, int draws) {
    static const char *const names[] = {"flat", "peaked", "ties", "equal", "masked", "one", "signs", "low", "high"};
    for (size_t s = 0; s < n_sizes; s++) {
        struct row row;
        open_row(&row, sizes[s]);
        for (int kind = 0; kind < N_KINDS; kind++) {
            fill(&row, (enum kind)kind, s);
            row.best = (kind + s) % 2;
            for (size_t i = 0; i < N_ELEMENTS(settings); i++) check(&row, &settings[i], draws, names[kind]);
        }
        close_row(&row);
    }
}

static void test_small(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 2, 63, 255, 256, 257, 400};
    check_sizes(sizes, N_ELEMENTS(sizes), 400);
}

/* Vocabularies in which the best are found through blocks and samples, and edges are guessed; few draws each, so that
 * this shows what is ruled out and gross errors. */
static void test_medium(void **state) {
    (void)state;
    static const int64_t sizes[] = {16384, 40000};
    check_sizes(sizes, N_ELEMENTS(sizes), 12);
}

/* Exactly the definition's ids can be drawn: u is walked so finely that few intervals are missed. */
static void test_exact_edges(void **state) {
    (void)state;
    enum { N = 40000, DRAWS = 12000 };
    static const struct {
        enum kind kind;
        struct sample_draw draw;
    } edges[] = {{FLAT, {0.5f, 0.25f, 0, 0, 0}},
                 {TIES, {2, 0.2f, 0, 0, 0}},
                 {FLAT, {0.5f, 0.9f, 0, 2500, 0}},
                 {SAMPLE_LOW, {0.5f, 0.5f, 0, 0, 0}},
                 {SAMPLE_HIGH, {0.5f, 0.5f, 0, 0, 0}}};
    struct row row;
    open_row(&row, N);
    for (size_t i = 0; i < N_ELEMENTS(edges); i++) {
        fill(&row, edges[i].kind, 3);
        define(&row, &edges[i].draw);
        memset(row.counts, 0, N * sizeof *row.counts);
        for (int k = 0; k < DRAWS; k++) row.counts[draw(&row, edges[i].draw, (k + 0.5) / DRAWS)]++;
        for (int64_t id = 0; id < N; id++) {
            if (id == row.in_doubt) continue;
            if (row.p[id] * DRAWS > 1.5 || row.p[id] <= 0) assert_int_equal(row.counts[id] > 0, row.p[id] > 0);
        }
    }
    close_row(&row);
}

/* The size of real vocabularies: what comes out is in the nucleus, and its halves have their shares. */
static void test_large(void **state) {
    (void)state;
    enum { N = 151936, DRAWS = 150 };
    static const struct sample_draw large[] = {{1, 0.9f, 0, 0, 0},      {0.7f, 0.95f, 0, 0, 0}, {1.5f, 1, 0, 0, 0},
                                               {1, 0.95f, 0, 1000, 0},  {1, 0.9f, 0.01f, 0, 0}, {1, 0.9f, 0, 100000, 0},
                                               {1, 0.999999f, 0, 0, 0}, {1, 1e-6f, 0, 0, 0}};
    struct row row;
    open_row(&row, N);
    for (int kind = 0; kind < 2; kind++) {
        fill(&row, kind ? SAMPLE_HIGH : FLAT, 11);
        for (size_t i = 0; i < N_ELEMENTS(large); i++) {
            define(&row, &large[i]);
            double low = 0;
            int n_low = 0;
            for (int64_t id = 0; id < N / 2; id++) low += row.p[id];
            for (uint64_t k = 0; k < DRAWS; k++) {
                const int32_t id = draw(&row, large[i], rng_at(5, k));
                assert_true(row.p[id] > 0 || id == row.in_doubt);
                n_low += id < N / 2;
            }
            assert_true(fabs(n_low - DRAWS * low) < 4 * sqrt(DRAWS / 4.0));
        }
    }
    close_row(&row);
}

int main(void) {
    kern_init(&g_kern, cpu_detect());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_medium),
                                       cmocka_unit_test(test_exact_edges), cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
