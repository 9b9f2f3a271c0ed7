/* The load generator's arithmetic: gaps between arrivals have the moments of their gamma distribution; prompts are a
 * function of the seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/bench_serve_load.c" /* src/cmd is not part of the library that tests link */
#include "cmd/bench_serve_prompt.c"
#include "cmd/progress.c"

enum { DRAWS = 200000 };

/* Gamma with shape k and mean m: variance m^2 / k, third central moment 2 m^3 / k^2. */
static void test_gaps(void **state) {
    static const double shapes[] = {0.1, 0.5, 1.0, 2.5, 50.0};
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(shapes); i++) {
        struct rng r = rng_seeded(7 + i);
        const double k = shapes[i], mean = 0.25;
        double m1 = 0, m2 = 0;
        for (int n = 0; n < DRAWS; n++) {
            const double x = bench_serve_load_gap(&r, k, mean);
            assert_true(x >= 0 && isfinite(x));
            m1 += x / DRAWS;
            m2 += x * x / DRAWS;
        }
        const double variance = m2 - m1 * m1, wanted = mean * mean / k;
        assert_true(fabs(m1 - mean) < 5 * sqrt(wanted / DRAWS));
        /* The variance's own deviation: sqrt((kurtosis - 1) / n), kurtosis 3 + 6 / k. */
        assert_true(fabs(variance - wanted) < 5 * wanted * sqrt((2 + 6 / k) / DRAWS));
    }
}

/* Exponential for shape 1: the share above t is exp(-t / mean). */
static void test_poisson(void **state) {
    struct rng r = rng_seeded(3);
    int above[3] = {0};
    (void)state;
    for (int n = 0; n < DRAWS; n++) {
        const double x = bench_serve_load_gap(&r, 1.0, 2.0);
        for (int t = 0; t < 3; t++) above[t] += x > t + 1;
    }
    for (int t = 0; t < 3; t++) assert_true(fabs((double)above[t] / DRAWS - exp(-(t + 1) / 2.0)) < 0.006);
}

static void prompt_of(const struct bench_serve_load *l, int i, struct strbuf *b, int *max_tokens) {
    strbuf_clear(b);
    bench_serve_prompt_write(l, i, b, max_tokens);
    assert_false(b->failed);
}

static void test_prompts(void **state) {
    int32_t pool[] = {5, 6, 7, 8, 9, 10, 11, 12};
    struct bench_serve_load l = {
        .opt = {.input_len = 40, .output_len = 20, .shared_prefix_len = 3, .range_ratio = 0.25},
        .pool = pool,
        .n_pool = N_ELEMENTS(pool)};
    struct strbuf a = {0}, b = {0};
    int first[3] = {0}, shortest = 1000, longest = 0;
    (void)state;
    for (int i = 0; i < 200; i++) {
        int max_a, max_b;
        prompt_of(&l, i, &a, &max_a);
        prompt_of(&l, i, &b, &max_b);
        assert_string_equal(strbuf_cstr(&a), strbuf_cstr(&b));
        assert_int_equal(max_a, max_b);
        assert_in_range(max_a, 15, 25);
        json_t *const ids = json_loads(strbuf_cstr(&a), 0, NULL);
        const int n = (int)json_array_size(ids) - 3;
        if (n < shortest) shortest = n;
        if (n > longest) longest = n;
        for (size_t k = 0; k < N_ELEMENTS(first); k++) {
            const int id = (int)json_integer_value(json_array_get(ids, k));
            if (i == 0) first[k] = id;
            assert_int_equal(id, first[k]);
        }
        json_decref(ids);
    }
    assert_int_equal(shortest, 30);
    assert_int_equal(longest, 50);
    strbuf_deinit(&a);
    strbuf_deinit(&b);
}

/* Runs with neighbouring seeds have no prompt in common: a server that is measured twice would find them in its cache.
 */
static void test_seeds(void **state) {
    int32_t pool[] = {5, 6, 7, 8, 9, 10, 11, 12};
    struct bench_serve_load l = {.opt = {.input_len = 40, .output_len = 1}, .pool = pool, .n_pool = N_ELEMENTS(pool)};
    struct strbuf b[2][20] = {{{0}}};
    int max_tokens;
    (void)state;
    for (int i = 0; i < 20; i++) prompt_of(&l, i, &b[0][i], &max_tokens);
    for (uint64_t seed = 1; seed < 5; seed++) {
        l.opt.dataset_seed = seed;
        for (int i = 0; i < 20; i++) {
            prompt_of(&l, i, &b[1][i], &max_tokens);
            for (int k = 0; k < 20; k++) assert_string_not_equal(strbuf_cstr(&b[0][k]), strbuf_cstr(&b[1][i]));
        }
    }
    for (int i = 0; i < 40; i++) strbuf_deinit(&b[i / 20][i % 20]);
}

/* Without ids: words between quotes that are JSON as they stand, as many as asked for. */
static void test_words(void **state) {
    struct bench_serve_load l = {.opt = {.input_len = 30, .output_len = 1, .shared_prefix_len = 4}};
    struct strbuf b = {0};
    int max_tokens, n = 1;
    (void)state;
    prompt_of(&l, 3, &b, &max_tokens);
    json_t *const text = json_loads(strbuf_cstr(&b), JSON_DECODE_ANY, NULL);
    assert_true(json_is_string(text));
    for (const char *p = json_string_value(text); *p; p++) n += *p == ' ';
    assert_int_equal(n, 34);
    json_decref(text);
    strbuf_deinit(&b);
}

static struct flight *flight_on(struct bench_serve_sample *s) {
    struct flight *const f = mem_calloc(1, sizeof *f);
    assert_non_null(f);
    *s = (struct bench_serve_sample){0};
    f->sample = s;
    return f;
}

/* A stream cut anywhere says the same. */
static void test_stream_pieces(void **state) {
    static const char text[] = ": keep-alive\n\n"
                               "data: {\"choices\":[{\"text\":\"a\"}],\"usage\":null}\r\n\r\n"
                               "data:{\"choices\":[{\"text\":\"\"}]}\n\n"
                               "data: {\"choices\":[{\"text\":\"b\"}]}\n\n"
                               "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n"
                               "data: [DONE]\n\n";
    (void)state;
    for (size_t cut = 0; cut < sizeof text; cut++) {
        struct bench_serve_sample s;
        struct flight *const f = flight_on(&s);
        on_body(f, text, cut);
        on_body(f, text + cut, sizeof text - 1 - cut);
        assert_true(f->done);
        assert_int_equal(s.n_gaps, 1);
        assert_int_equal(s.n_input, 7);
        assert_int_equal(s.n_output, 3);
        assert_string_equal(s.why, "");
        flight_free(f);
        mem_free(s.gaps);
    }
}

static void test_stream_errors(void **state) {
    static const char *const bad[] = {"data: {\"error\":{\"message\":\"gone\"}}\n\n", "data: {nonsense\n\n", "data: \n\n"};
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        struct bench_serve_sample s;
        struct flight *const f = flight_on(&s);
        on_body(f, bad[i], strlen(bad[i]));
        assert_string_not_equal(s.why, "");
        assert_false(f->done);
        flight_free(f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gaps),  cmocka_unit_test(test_poisson), cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_seeds), cmocka_unit_test(test_words),   cmocka_unit_test(test_stream_pieces),
        cmocka_unit_test(test_stream_errors),
    };
    return cmocka_run_group_tests_name("cmd_bench_serve_load", tests, NULL, NULL);
}
