/* Family "elem": every level of this CPU against double precision and against generic bit for bit, at every small
 * length and around the block sizes, with guard pages behind every array. `--bench` times the big rows. */
#include "kern/elem.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "guard.h"

struct level {
    const char *name;
    struct elem_kern k;
};

static struct level g_levels[3];
static int g_n_levels;

static void find_levels(void) {
    struct elem_kern k;
    elem_init_generic(&k);
    g_levels[g_n_levels++] = (struct level){"generic", k};
#if defined(XENON_EMULATE_AVX512)
    elem_init_avx512(&k);
    g_levels[g_n_levels++] = (struct level){"avx512 (emulated)", k};
#elif defined(__x86_64__)
    if (cpu_has(cpu_detect(), CPU_AVX2)) {
        elem_init_avx2(&k);
        g_levels[g_n_levels++] = (struct level){"avx2", k};
    }
    if (cpu_has(cpu_detect(), CPU_AVX512)) {
        elem_init_avx512(&k);
        g_levels[g_n_levels++] = (struct level){"avx512", k};
    }
#elif defined(__aarch64__)
    if (cpu_has(cpu_detect(), CPU_NEON)) {
        elem_init_neon(&k);
        g_levels[g_n_levels++] = (struct level){"neon", k};
    }
#endif
}

/* Lengths 0 .. 200 and some around the blocks of 1024. */
static int next_length(int n) { return n < 200 ? n + 1 : n < 1000 ? 1000 : n + 13; }
enum { LENGTH_MAX = 1100 };

static struct guard random_row(struct rng *rng, int n, float size) {
    const struct guard g = guard_alloc(4 * (size_t)n);
    for (int i = 0; i < n; i++) ((float *)g.data)[i] = size * rng_f32(rng);
    return g;
}

static void expect_near(const float *y, const double *want, int n, double bound, const char *what) {
    for (int i = 0; i < n; i++)
        if (!(fabs((double)y[i] - want[i]) <= bound * fabs(want[i]) + 1e-37))
            fail_msg("%s n %d [%d]: %.9g, want %.9g", what, n, i, (double)y[i], want[i]);
}

enum row_op { OP_RMSNORM, OP_SILU, OP_GELU, OP_ADD, OP_SCALE, N_ROW_OPS };
static const char *const op_names[] = {"rmsnorm", "silu_mul", "gelu_mul", "add", "scale"};

static void run_op(const struct elem_kern *k, enum row_op op, float *y, const float *a, const float *b, int n) {
    switch (op) {
    case OP_RMSNORM: k->rmsnorm(y, a, b, n, 1e-5f); break;
    case OP_SILU: k->silu_mul(y, a, b, n); break;
    case OP_GELU: k->gelu_mul(y, a, b, n); break;
    case OP_ADD: k->add(y, a, b, n); break;
    default: k->scale(y, a, 1.7f, n);
    }
}

static void reference_op(enum row_op op, double *y, const float *a, const float *b, int n) {
    double ss = 0;
    for (int i = 0; i < n; i++) ss += (double)a[i] * (double)a[i];
    for (int i = 0; i < n; i++) {
        const double x = (double)a[i], w = (double)b[i];
        switch (op) {
        case OP_RMSNORM: y[i] = x / sqrt(ss / n + 1e-5) * w; break;
        case OP_SILU: y[i] = x / (1 + exp(-x)) * w; break;
        case OP_GELU: y[i] = x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) * w; break;
        case OP_ADD: y[i] = x + w; break;
        default: y[i] = x * (double)1.7f;
        }
    }
}

static void test_rows(void **state) {
    (void)state;
    static const double bounds[] = {6e-7, 6e-7, 6e-6, 1.2e-7, 1.2e-7}; /* gelu: the error of u counts 2u times */
    struct rng rng = rng_seeded(1);
    double want[LENGTH_MAX];
    for (int n = 1; n < LENGTH_MAX; n = next_length(n))
        for (int op = 0; op < N_ROW_OPS; op++) {
            struct guard a = random_row(&rng, n, 6.0f), b = random_row(&rng, n, 2.0f);
            struct guard first = guard_alloc(a.bytes), y = guard_alloc(a.bytes);
            reference_op((enum row_op)op, want, a.data, b.data, n);
            for (int lv = 0; lv < g_n_levels; lv++) {
                run_op(&g_levels[lv].k, (enum row_op)op, y.data, a.data, b.data, n);
                expect_near(y.data, want, n, op == OP_ADD ? 1e-6 : bounds[op], op_names[op]);
                if (lv == 0) memcpy(first.data, y.data, y.bytes);
                else if (memcmp(first.data, y.data, y.bytes) != 0)
                    fail_msg("%s %s n %d differs from generic", g_levels[lv].name, op_names[op], n);
                memcpy(y.data, a.data, y.bytes); /* in place */
                run_op(&g_levels[lv].k, (enum row_op)op, y.data, y.data, b.data, n);
                assert_memory_equal(first.data, y.data, y.bytes);
            }
            guard_free(&a), guard_free(&b), guard_free(&first), guard_free(&y);
        }
}

/* The result of an element does not depend on where it stands or on what stands beside it. */
static void test_position(void **state) {
    (void)state;
    struct rng rng = rng_seeded(2);
    struct guard a = random_row(&rng, 100, 20.0f), b = random_row(&rng, 100, 1.0f);
    float whole[100], part[100];
    for (int lv = 0; lv < g_n_levels; lv++)
        for (int op = OP_SILU; op < N_ROW_OPS; op++) {
            run_op(&g_levels[lv].k, (enum row_op)op, whole, a.data, b.data, 100);
            for (int from = 0; from < 40; from++)
                for (int n = 1; n <= 40; n += 1 + n / 8) {
                    run_op(&g_levels[lv].k, (enum row_op)op, part, (float *)a.data + from, (float *)b.data + from, n);
                    assert_memory_equal(part, whole + from, (size_t)n * sizeof *part);
                }
        }
    guard_free(&a), guard_free(&b);
}

static void test_rope(void **state) {
    (void)state;
    struct rng rng = rng_seeded(3);
    for (int pair = 0; pair < 2; pair++)
        for (int r = 2; r <= 258; r += 2) {
            struct guard x = random_row(&rng, r, 3.0f), cs = guard_alloc(4 * (size_t)r), y = guard_alloc(x.bytes);
            struct guard first = guard_alloc(x.bytes);
            float *const c = cs.data;
            double want[258], size = 0;
            for (int i = 0; i < r / 2; i++) {
                const double angle = 3 * (double)rng_f32(&rng);
                const int p = pair ? 2 * i : i, q = pair ? 2 * i + 1 : i + r / 2;
                const double x0 = (double)((float *)x.data)[p], x1 = (double)((float *)x.data)[q];
                c[i] = (float)cos(angle), c[r / 2 + i] = (float)sin(angle);
                want[p] = x0 * (double)c[i] - x1 * (double)c[r / 2 + i];
                want[q] = x1 * (double)c[i] + x0 * (double)c[r / 2 + i];
                size = fmax(size, fmax(fabs(x0), fabs(x1)));
            }
            for (int lv = 0; lv < g_n_levels; lv++) {
                memcpy(y.data, x.data, x.bytes);
                (pair ? g_levels[lv].k.rope_pair : g_levels[lv].k.rope_half)(y.data, c, r);
                if (lv == 0) memcpy(first.data, y.data, y.bytes);
                for (int i = 0; i < r; i++) assert_true(fabs((double)((float *)y.data)[i] - want[i]) < 2e-7 * size);
                assert_memory_equal(first.data, y.data, y.bytes);
            }
            guard_free(&x), guard_free(&cs), guard_free(&y), guard_free(&first);
        }
}

static double exp_of(const struct elem_kern *k, float x) {
    const struct elem_weights all = {0.0f, 1.0f, -INFINITY, -INFINITY};
    double block = -1;
    const double sum = k->sum_exp(&x, 1, &all, &block);
    assert_true(block == sum);
    return sum;
}

/* exp up to 0, through sum_exp of one element: at most 1 ulp off; exactly 1 and 0 where due. What is above, and NaN,
 * through silu. */
static void test_exp(void **state) {
    (void)state;
    for (int lv = 0; lv < g_n_levels; lv++) {
        const struct elem_kern *const k = &g_levels[lv].k;
        double worst = 0;
        for (uint32_t i = 0; i <= 400000; i++) {
            const float x = -87.3365f + (float)i * (87.3365f / 400000.0f);
            const double y = exp_of(k, x < 0 ? x : 0), want = exp((double)(x < 0 ? x : 0));
            int e;
            frexp(want, &e);
            worst = fmax(worst, fabs(y - want) / ldexp(1.0, e - 24));
        }
        if (!(worst <= 1.0)) fail_msg("%s: exp is %.3f ulp off", g_levels[lv].name, worst);
        assert_true(exp_of(k, 0.0f) == 1.0 && exp_of(k, -1e-42f) == 1.0);
        assert_true(exp_of(k, -INFINITY) == 0.0 && exp_of(k, -87.4f) == 0.0 && exp_of(k, -3e38f) == 0.0);
        const float bad[] = {NAN, half_float(0x7fc12345u)}, one[] = {1, 1};
        float y[2];
        k->silu_mul(y, bad, one, 2);
        assert_true(isnan(y[0]) && isnan(y[1]));
    }
}

/* Activations of huge, tiny and zero gates: finite, right sign, right limit. */
static void test_activation_limits(void **state) {
    (void)state;
    const float g[] = {0.0f, -0.0f, 1e-42f, -1e-42f, 88.0f, -88.0f, 100.0f, -100.0f, 1e20f, -1e20f, 3e38f, -3e38f};
    enum { N = N_ELEMENTS(g) };
    float up[N], y[2][2][N];
    for (int i = 0; i < N; i++) up[i] = 1.0f;
    for (int lv = 0; lv < g_n_levels; lv++) {
        float(*const out)[N] = y[lv > 0];
        g_levels[lv].k.silu_mul(out[0], g, up, N);
        g_levels[lv].k.gelu_mul(out[1], g, up, N);
        for (int f = 0; f < 2; f++)
            for (int i = 0; i < N; i++) {
                assert_true(isfinite(out[f][i]));
                if (g[i] >= 88.0f) assert_true(out[f][i] == g[i]);
                if (g[i] <= -88.0f) assert_true(fabsf(out[f][i]) < 1e-30f);
                if (fabsf(g[i]) < 1e-30f) assert_true(fabsf(out[f][i] - 0.5f * g[i]) <= 2e-45f);
            }
        if (lv) assert_memory_equal(y[0], y[1], sizeof y[0]);
    }
}

static void test_max(void **state) {
    (void)state;
    struct rng rng = rng_seeded(4);
    for (int n = 1; n < 3000; n = n < 200 ? n + 1 : n + 397)
        for (int kind = 0; kind < 6; kind++) {
            struct guard x = random_row(&rng, n, 5.0f);
            float *const v = x.data;
            const int at = (int)rng_below(&rng, (uint32_t)n), other = (int)rng_below(&rng, (uint32_t)n);
            if (kind == 1) v[at] = v[other] = 9.0f; /* a tie: the lower index */
            if (kind == 2) v[at] = NAN;
            if (kind == 3) v[at] = -INFINITY;
            if (kind == 4) v[at] = INFINITY;
            if (kind == 5)
                for (int i = 0; i < n; i++) v[i] = at == i ? -1.0f : -1.5f;
            float want = -INFINITY;
            int64_t arg = 0;
            for (int i = n - 1; i >= 0; i--)
                if (v[i] >= want) want = v[i], arg = i;
            for (int lv = 0; lv < g_n_levels; lv++) {
                float m = 0;
                int64_t a = -1;
                int finite = -1;
                g_levels[lv].k.max(v, n, &m, &a, &finite);
                assert_true(m == want);
                assert_int_equal(a, arg);
                assert_int_equal(finite, kind < 2 || kind == 5);
            }
            guard_free(&x);
        }
}

static void test_max_of_nothing(void **state) {
    (void)state;
    float x[40];
    for (int lv = 0; lv < g_n_levels; lv++)
        for (int kind = 0; kind < 2; kind++) {
            float m = 0;
            int64_t arg = -1;
            int finite = -1;
            for (int i = 0; i < 40; i++) x[i] = kind ? NAN : -INFINITY;
            g_levels[lv].k.max(x, 40, &m, &arg, &finite);
            assert_true(m == -INFINITY);
            assert_int_equal(arg, 0);
            assert_int_equal(finite, 0);
        }
}

/* Blocks, thresholds and totals, against libm and against generic bit for bit. */
static void test_sum_exp(void **state) {
    (void)state;
    struct rng rng = rng_seeded(5);
    for (int n = 0; n < 3000; n = n < 600 ? n + 1 : n + 397)
        for (int kind = 0; kind < 4; kind++) {
            static const float froms[] = {-INFINITY, -5, -5, 21}, aboves[] = {-INFINITY, -5, 10, INFINITY};
            const struct elem_weights w = {20, 0.7f, froms[kind], aboves[kind]};
            struct guard x = random_row(&rng, n, 20.0f), sums = guard_alloc(8 * (size_t)((n + 255) / 256));
            const float *const v = x.data;
            double want[12] = {0}, all = 0, first[12] = {0}, first_all = 0;
            for (int i = 3; i < n; i += 50) ((float *)x.data)[i] = i % 3 ? w.from : w.above < 20 ? w.above : 20;
            for (int i = 0; i < n; i++) {
                const double e = exp(((double)v[i] - 20.0) * (double)0.7f);
                if (v[i] >= w.from) all += e;
                if (v[i] >= w.above) want[i / 256] += e;
            }
            for (int lv = 0; lv < g_n_levels; lv++) {
                const double sum = g_levels[lv].k.sum_exp(v, n, &w, sums.data);
                if (lv == 0) memcpy(first, sums.data, sums.bytes), first_all = sum;
                assert_true(fabs(sum - all) <= 2e-6 * all); /* the argument's rounding counts up to 28 times */
                for (int b = 0; b < (n + 255) / 256; b++)
                    assert_true(fabs(((double *)sums.data)[b] - want[b]) <= 2e-6 * want[b]);
                assert_true(sum == first_all);
                assert_memory_equal(first, sums.data, sums.bytes);
            }
            guard_free(&x), guard_free(&sums);
        }
}

static void test_max_blocks(void **state) {
    (void)state;
    struct rng rng = rng_seeded(9);
    for (int n = 1; n < 1500; n = n < 300 ? n + 1 : n + 97)
        for (int kind = 0; kind < 4; kind++) {
            static const float bad[] = {0, NAN, INFINITY, -INFINITY};
            struct guard x = random_row(&rng, n, 5.0f), blocks = guard_alloc(4 * (size_t)((n + 63) / 64));
            float *const v = x.data, want[24];
            if (kind) v[rng_below(&rng, (uint32_t)n)] = bad[kind];
            for (int b = 0; b < (n + 63) / 64; b++) want[b] = -INFINITY;
            for (int i = 0; i < n; i++)
                if (v[i] > want[i / 64]) want[i / 64] = v[i];
            for (int lv = 0; lv < g_n_levels; lv++) {
                assert_int_equal(g_levels[lv].k.max_blocks(v, n, blocks.data), kind == 0);
                assert_memory_equal(blocks.data, want, blocks.bytes);
            }
            guard_free(&x), guard_free(&blocks);
        }
}

/* Ascending keys are descending logits, then ascending ids; the logit comes back. */
static void test_key(void **state) {
    (void)state;
    static const float x[] = {INFINITY, 3e38f, 2, 1, 1e-42f, 0, -1e-42f, -1, -2, -3e38f, -INFINITY};
    for (size_t i = 0; i < N_ELEMENTS(x); i++) {
        assert_true(elem_key_value(elem_key(x[i], 7)) == x[i]);
        assert_true(elem_key(x[i], 7) < elem_key(x[i], 8));
        if (i > 0) assert_true(elem_key(x[i - 1], UINT32_MAX) < elem_key(x[i], 0));
    }
    assert_true(elem_key(-0.0f, 5) == elem_key(0.0f, 5));
}

static void test_select(void **state) {
    (void)state;
    struct rng rng = rng_seeded(6);
    for (int n = 0; n < 700; n = n < 150 ? n + 1 : n + 97)
        for (int kind = 0; kind < 6; kind++) {
            static const float los[] = {0.9f, 0.0f, -INFINITY, 2.0f, 0.5f, -0.5f};
            static const float his[] = {INFINITY, INFINITY, INFINITY, INFINITY, INFINITY, 0.25f};
            const float lo = los[kind], hi = his[kind];
            struct guard x = random_row(&rng, n, 1.0f);
            const int64_t cap = kind == 4 ? n / 8 : n;
            struct guard keys = guard_alloc(8 * (size_t)cap);
            float *const v = x.data;
            for (int i = 0; i < n; i += 7) v[i] = i % 2 ? NAN : i % 3 ? lo : hi; /* lo counts, hi and NaN do not */
            for (int lv = 0; lv < g_n_levels; lv++) {
                const int64_t found = g_levels[lv].k.select(v, n, lo, hi, keys.data, cap);
                int64_t want = 0;
                for (int i = 0; i < n; i++) {
                    if (!(v[i] >= lo && v[i] < hi)) continue;
                    if (want < cap) assert_true(((uint64_t *)keys.data)[want] == elem_key(v[i], (uint32_t)i));
                    want++;
                }
                assert_int_equal(found, want);
            }
            guard_free(&x), guard_free(&keys);
        }
}

enum { VOCAB = 151936 };

struct bench_data {
    float *x, *y;
    uint64_t *keys;
    double *sums;
};

static double bench_vocab(const struct elem_kern *k, int what, const struct bench_data *b) {
    double best = 1e9, keep = 0;
    for (int pass = 0; pass < 9; pass++) {
        const int64_t t0 = clock_ns();
        float m;
        int64_t arg;
        int finite;
        if (what == 0) k->max(b->x, VOCAB, &m, &arg, &finite), keep += (double)m;
        if (what == 1) keep += k->sum_exp(b->x, VOCAB, &(struct elem_weights){12, 1, 0, 0}, b->sums);
        if (what == 2) keep += (double)k->select(b->x, VOCAB, 11.97f, INFINITY, b->keys, VOCAB);
        if (what == 3) k->silu_mul(b->y, b->x, b->x, VOCAB);
        if (what == 4) k->rmsnorm(b->y, b->x, b->x, 4096, 1e-6f);
        if (what == 5) keep += k->max_blocks(b->x, VOCAB, b->y);
        if (what == 6) keep += k->sum_exp(b->x, VOCAB, &(struct elem_weights){12, 1, 0, 6}, b->sums);
        best = fmin(best, (double)(clock_ns() - t0) * 1e-3);
    }
    return keep == 1.5 ? 0 : best;
}

static int bench(void) {
    static const char *const names[] = {"max 151936", "sum_exp 151936", "select 151936 (0.1 %)", "silu_mul 151936",
                                        "rmsnorm 4096",           "max_blocks 151936", "sum_exp 151936, split"};
    const struct bench_data b = {mem_xcalloc(VOCAB, 4), mem_xcalloc(VOCAB, 4), mem_xcalloc(VOCAB, 8),
                                 mem_xcalloc(VOCAB / 256 + 1, 8)};
    struct rng rng = rng_seeded(8);
    for (int i = 0; i < VOCAB; i++) b.x[i] = 12.0f * rng_f32(&rng);
    for (int lv = 0; lv < g_n_levels; lv++)
        for (int what = 0; what < 7; what++)
            printf("%-18s %-24s %8.2f us\n", g_levels[lv].name, names[what], bench_vocab(&g_levels[lv].k, what, &b));
    mem_free(b.x), mem_free(b.y), mem_free(b.keys), mem_free(b.sums);
    return 0;
}

int main(int argc, char **argv) {
#if defined(XENON_EMULATE_AVX512)
    if (!cpu_has(cpu_detect(), CPU_AVX2)) return printf("skipped: the emulation needs AVX2\n"), 0;
#endif
    find_levels();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench();
    printf("levels:");
    for (int i = 0; i < g_n_levels; i++) printf(" %s", g_levels[i].name);
    printf(g_n_levels == 1 ? " (no vector level on this CPU)\n" : "\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_position),
        cmocka_unit_test(test_rope),
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_activation_limits),
        cmocka_unit_test(test_max),
        cmocka_unit_test(test_max_of_nothing),
        cmocka_unit_test(test_max_blocks),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_sum_exp),
        cmocka_unit_test(test_select),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
