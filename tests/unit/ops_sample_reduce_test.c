/* The reduction on the lanes against a plain one: the best entries, their order, sums and maxima; the same bits and
 * tokens for every lane count and kernel level. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "ops/sample_reduce.h"

struct fixture {
    struct topology topo;
    struct pool *pool;
    struct kern kern;
};

static void open_fixture(struct fixture *f, int lanes) {
    struct err_msg msg;
    const struct topology_options opt = {0};
    const struct pool_options pool = {.n_lanes = lanes};
    kern_init(&f->kern, cpu_detect());
    assert_int_equal(topology_read(&f->topo, &opt, &msg), ERR_OK);
    assert_int_equal(pool_create(&f->pool, &f->topo, &pool, &msg), ERR_OK);
}

static void close_fixture(struct fixture *f) {
    pool_destroy(f->pool);
    topology_deinit(&f->topo);
}

/* Rows of several kinds: spread out, many equal, all equal, one peak, negative infinities. */
static void fill(float *x, int64_t n, int kind) {
    struct rng r = rng_seeded((uint64_t)kind * 77 + 1);
    for (int64_t i = 0; i < n; i++) {
        const float u = rng_f32(&r) * 10;
        x[i] = kind == 0 ? u : kind == 1 ? floorf(u) : kind == 2 ? 3.25f : kind == 3 ? (i == n / 2 ? 50.0f : u)
                                                                         : (i % 3 ? -INFINITY : u);
    }
}

/* By insertion and libm. */
static void compare(const struct sample_row *have, const float *x, int64_t n) {
    int32_t ids[SAMPLE_BEST_MAX];
    int n_best = 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (n_best == SAMPLE_BEST_MAX && !(x[i] > x[ids[n_best - 1]])) continue;
        int at = n_best < SAMPLE_BEST_MAX ? n_best++ : n_best - 1;
        for (; at > 0 && x[i] > x[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)i;
    }
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)x[ids[0]]);
    assert_int_equal(have->argmax, ids[0]);
    assert_int_equal(have->token, ids[0]);
    assert_true(have->max == x[ids[0]]);
    assert_true(fabs(have->sum_exp - sum) <= 1e-6 * sum);
    assert_int_equal(have->n_best, n_best);
    assert_memory_equal(have->best_ids, ids, (size_t)n_best * sizeof *ids);
    for (int i = 0; i < n_best; i++) assert_true(have->best_logits[i] == x[ids[i]]);
}

static void test_against_plain(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 63, 64, 255, 256, 257, 5000, 16384, 16385, 21000, 49152, 151936};
    struct fixture f;
    struct err_msg msg;
    open_fixture(&f, 2);
    for (size_t s = 0; s < N_ELEMENTS(sizes); s++) {
        const int64_t n = sizes[s];
        struct sample_reduce *r;
        static struct sample_row rows[5];
        float *const x = mem_xcalloc((size_t)n * 5, sizeof *x);
        assert_int_equal(sample_reduce_create(&r, &f.kern, n, 5, 2, &msg), ERR_OK);
        for (int k = 0; k < 5; k++) {
            fill(x + k * n, n, k);
            rows[k] = (struct sample_row){.logits = x + k * n, .want_best = true, .masked = k == 4};
        }
        sample_reduce_run(r, f.pool, rows, 5);
        for (int k = 0; k < 5; k++) {
            assert_true(rows[k].finite);
            compare(&rows[k], x + k * n, n);
        }
        sample_reduce_destroy(r);
        mem_free(x);
    }
    close_fixture(&f);
}

static void test_not_finite(void **state) {
    (void)state;
    enum { N = 20000 };
    struct fixture f;
    struct sample_reduce *r;
    struct err_msg msg;
    static struct sample_row rows[4];
    static float x[4][N];
    static const float bad[] = {0, NAN, INFINITY, -INFINITY};
    open_fixture(&f, 1);
    for (int k = 0; k < 4; k++) {
        fill(x[k], N, 0);
        if (k > 0) x[k][N - 1] = bad[k];
    }
    assert_int_equal(sample_reduce_create(&r, &f.kern, N, 4, 1, &msg), ERR_OK);
    for (int kind = 0; kind < 4; kind++) {
        const struct sample_draw draw = {kind < 2 ? 0.0f : 1.0f, kind < 3 ? 1.0f : 0.9f, 0, 0, 0.7};
        for (int k = 0; k < 4; k++) rows[k] = (struct sample_row){.logits = x[k], .want_best = kind == 1, .draw = draw};
        sample_reduce_run(r, f.pool, rows, 4);
        for (int k = 0; k < 4; k++) {
            assert_int_equal(rows[k].finite, k == 0);
            assert_int_equal(rows[k].token >= 0, k == 0);
        }
    }
    /* Masked rows: nothing is left, or one. Whatever is between finite ones of a broken row, nothing hangs. */
    for (int i = 0; i < N; i++) x[1][i] = x[2][i] = -INFINITY;
    x[2][77] = -5;
    for (int i = 0; i < N; i += 3) x[3][i] = NAN;
    const struct sample_draw draw = {1, 0.9f, 0, 0, 0.7};
    for (int k = 0; k < 4; k++) rows[k] = (struct sample_row){.logits = x[k], .masked = true, .draw = draw};
    sample_reduce_run(r, f.pool, rows, 4);
    assert_int_equal(rows[1].token, -1);
    assert_int_equal(rows[2].token, 77);
    sample_reduce_destroy(r);
    close_fixture(&f);
}

/* The bits must not depend on the lanes, the kernel level or the rows beside. */
static void test_same_everywhere(void **state) {
    (void)state;
    enum { N = 151936, ROWS = 10 };
    static const struct sample_draw draws[ROWS] = {
        {1, 1, 0, 0, 0.3},       {1.5f, 1, 0, 0, 0.99},      {1, 0.9f, 0, 0, 0.01}, {0.7f, 0.95f, 0, 0, 0.6},
        {1, 0.95f, 0, 1000, 0.5}, {1, 1, 0.05f, 0, 0.2},      {1, 0.9f, 0.01f, 0, 0.9}, {1, 0.9f, 0, 2000, 0.001},
        {0.8f, 0.95f, 0, 40, 0.5}, {3, 0.5f, 0, 0, 0.002}};
    static struct sample_row first[ROWS], rows[ROWS];
    static float x[N];
    struct err_msg msg;
    fill(x, N, 0);
    for (int i = 0; i < N; i++) x[i] *= 0.5f;
    for (int run = 0; run < 5; run++) {
        static const int lanes[] = {1, 2, 5, 2, 1};
        struct fixture f;
        struct sample_reduce *r;
        open_fixture(&f, lanes[run]);
        if (run == 3) kern_init(&f.kern, CPU_GENERIC);
        assert_int_equal(sample_reduce_create(&r, &f.kern, N, ROWS, 5, &msg), ERR_OK);
        for (int k = 0; k < ROWS; k++)
            rows[k] = (struct sample_row){.logits = x, .want_best = k % 2, .draw = draws[k]};
        if (run == 4)
            for (int k = 0; k < ROWS; k++) sample_reduce_run(r, NULL, rows + k, 1);
        else sample_reduce_run(r, f.pool, rows, ROWS);
        if (run == 0) memcpy(first, rows, sizeof rows);
        for (int k = 0; k < ROWS; k++) {
            assert_int_equal(first[k].token, rows[k].token);
            assert_memory_equal(&first[k].sum_exp, &rows[k].sum_exp, sizeof rows[k].sum_exp);
            assert_memory_equal(first[k].best_ids, rows[k].best_ids, sizeof rows[k].best_ids);
        }
        sample_reduce_destroy(r);
        close_fixture(&f);
    }
}

/* More rows than the scratch holds at a time, greedy and drawn ones mixed. */
static void test_many_rows(void **state) {
    (void)state;
    enum { N = 300, ROWS = 150 };
    static struct sample_row rows[ROWS];
    static float x[ROWS][N];
    struct fixture f;
    struct sample_reduce *r;
    struct err_msg msg;
    open_fixture(&f, 2);
    assert_int_equal(sample_reduce_create(&r, &f.kern, N, ROWS, 2, &msg), ERR_OK);
    for (int k = 0; k < ROWS; k++) {
        fill(x[k], N, 0);
        x[k][k + 7] = 60; /* takes all */
        rows[k] = (struct sample_row){.logits = x[k], .draw = {k % 3 ? 1.0f : 0.0f, 1, 0, 0, 0.5}};
    }
    sample_reduce_run(r, f.pool, rows, ROWS);
    for (int k = 0; k < ROWS; k++) assert_int_equal(rows[k].token, k + 7);
    sample_reduce_destroy(r);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_plain), cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_same_everywhere), cmocka_unit_test(test_many_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
