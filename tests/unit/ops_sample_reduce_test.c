/* The reduction on the lanes against the sampler's own plain one: the best entries, their order, sums and maxima, for
 * every lane count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler.h"
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

static void compare(const struct sample_row *have, const float *x, int64_t n) {
    int32_t ids[SAMPLE_BEST_MAX];
    float logits[SAMPLE_BEST_MAX];
    struct sampler_input want;
    sampler_reduce(x, n, SAMPLE_BEST_MAX, ids, logits, &want);
    assert_int_equal(have->argmax, want.argmax);
    assert_true(have->max == want.max);
    assert_true(fabs(have->sum_exp - want.sum_exp) <= 1e-5 * want.sum_exp);
    assert_int_equal(have->n_best, want.n_best);
    assert_memory_equal(have->best_ids, want.best_ids, (size_t)want.n_best * sizeof(int32_t));
    assert_memory_equal(have->best_logits, want.best_logits, (size_t)want.n_best * sizeof(float));
}

static void test_against_sampler(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 63, 64, 257, 5000, 16384, 16385, 49152, 151936};
    struct fixture f;
    struct err_msg msg;
    open_fixture(&f, 2);
    for (size_t s = 0; s < N_ELEMENTS(sizes); s++) {
        const int64_t n = sizes[s];
        struct sample_reduce *r;
        static struct sample_row rows[4];
        float *const x = mem_xcalloc((size_t)n * 4, sizeof *x);
        assert_int_equal(sample_reduce_create(&r, &f.kern, n, 4, &msg), ERR_OK);
        for (int k = 0; k < 4; k++) {
            fill(x + k * n, n, k);
            rows[k] = (struct sample_row){.logits = x + k * n, .want_sum = true, .want_best = true};
        }
        sample_reduce_run(r, f.pool, rows, 4);
        for (int k = 0; k < 4; k++) {
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
    static struct sample_row rows[2];
    static float x[2][N];
    open_fixture(&f, 1);
    fill(x[0], N, 0);
    fill(x[1], N, 0);
    x[1][N - 1] = NAN;
    assert_int_equal(sample_reduce_create(&r, &f.kern, N, 2, &msg), ERR_OK);
    for (int best = 0; best < 2; best++) {
        for (int k = 0; k < 2; k++) rows[k] = (struct sample_row){.logits = x[k], .want_best = best, .want_sum = best};
        sample_reduce_run(r, f.pool, rows, 2);
        assert_true(rows[0].finite);
        assert_false(rows[1].finite);
    }
    sample_reduce_destroy(r);
    close_fixture(&f);
}

/* The bits must not depend on the lanes. */
static void test_lanes(void **state) {
    (void)state;
    enum { N = 151936 };
    static struct sample_row first, row;
    static float x[N];
    struct err_msg msg;
    fill(x, N, 0);
    for (int lanes = 1; lanes <= 5; lanes++) {
        struct fixture f;
        struct sample_reduce *r;
        open_fixture(&f, lanes);
        assert_int_equal(sample_reduce_create(&r, &f.kern, N, 1, &msg), ERR_OK);
        row = (struct sample_row){.logits = x, .want_sum = true, .want_best = true};
        sample_reduce_run(r, f.pool, &row, 1);
        if (lanes == 1) first = row;
        assert_memory_equal(&first.sum_exp, &row.sum_exp, sizeof row.sum_exp);
        assert_memory_equal(first.best_ids, row.best_ids, sizeof row.best_ids);
        sample_reduce_destroy(r);
        close_fixture(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_sampler), cmocka_unit_test(test_not_finite),
                                       cmocka_unit_test(test_lanes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
