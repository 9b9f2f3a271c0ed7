/* Sampler: every filter against probabilities computed here by the definition, as distributions (chi-square, fixed
 * seeds) and draw by draw (inverse CDF), with many, few and all candidates reduced; edits; logprobs; rows that are
 * not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler.h"

enum { VOCAB = 400, DRAWS = 3000 };

struct row {
    float logits[VOCAB];
    int32_t best_ids[VOCAB];
    float best_logits[VOCAB];
    struct sampler_input in;
    int32_t order[VOCAB]; /* logit descending, id ascending */
    double p[VOCAB];      /* by the definition */
    int32_t cdf_ids[VOCAB];
    int n_cdf;
    int32_t scratch[VOCAB];
};

static const float *order_logits;

static int by_logit(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (order_logits[x] > order_logits[y]) return -1;
    if (order_logits[x] < order_logits[y]) return 1;
    return (x > y) - (x < y);
}

/* Peaked (spread 12) or flat (spread 1) logits, with ties, a few ids ruled out. */
static void fill_row(struct row *row, float spread, uint64_t seed) {
    struct rng rng = rng_seeded(seed);
    for (int i = 0; i < VOCAB; i++)
        row->logits[i] = floorf(rng_f32(&rng) * 40) / 40 * spread;
    for (int i = 0; i < VOCAB; i += 37)
        row->logits[i] = -INFINITY;
    for (int i = 0; i < VOCAB; i++)
        row->order[i] = i;
    order_logits = row->logits;
    qsort(row->order, VOCAB, sizeof row->order[0], by_logit);
}

static struct sampling_params params(float temperature) {
    return (struct sampling_params){.temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = 1234};
}

/* The definition: probabilities in the order, filters one after the other, then normalised. cdf_ids: the ids in the
 * order in which the draw adds them up, given that n_best are reduced. */
static void define(struct row *row, const struct sampling_params *p, int n_best) {
    double w[VOCAB], sum = 0, run = 0, left = 0;
    const double max = (double)row->logits[row->order[0]];
    int n = 0;
    memset(row->p, 0, sizeof row->p);
    for (int i = 0; i < VOCAB; i++) {
        w[i] = exp(((double)row->logits[row->order[i]] - max) / (double)p->temperature);
        if (w[i] < (double)p->min_p || (p->top_k > 0 && i >= p->top_k)) w[i] = 0;
        sum += w[i];
    }
    for (int i = 0; i < VOCAB && w[i] > 0; i++) {
        if (p->top_p < 1 && i > 0 && run >= (double)p->top_p * sum) break;
        run += w[i];
        n = i + 1;
    }
    for (int i = 0; i < n; i++)
        left += w[i];
    for (int i = 0; i < n; i++)
        row->p[row->order[i]] = w[i] / left;
    const bool is_ordered = p->top_p < 1 || (p->top_k > 0 && p->top_k < VOCAB);
    row->n_cdf = 0;
    for (int i = 0; i < n && (is_ordered || i < n_best); i++)
        row->cdf_ids[row->n_cdf++] = row->order[i];
    for (int id = 0; id < VOCAB && !is_ordered; id++) {
        bool is_best = false;
        for (int i = 0; i < n_best && i < VOCAB; i++)
            is_best |= row->order[i] == id;
        if (!is_best && row->p[id] > 0) row->cdf_ids[row->n_cdf++] = id;
    }
}

/* Chi-square of counts against row->p; bins that expect fewer than 5 go together. Wilson and Hilferty's normal
 * approximation; the seeds are fixed, so this either always holds or never. */
static void assert_distribution(const struct row *row, const int *counts) {
    double chi = 0, rest_want = 0, rest_got = 0;
    int n_bins = 0;
    for (int id = 0; id < VOCAB; id++) {
        const double want = row->p[id] * DRAWS;
        if (want <= 0) assert_int_equal(counts[id], 0);
        if (want < 5) {
            rest_want += want;
            rest_got += counts[id];
            continue;
        }
        chi += (counts[id] - want) * (counts[id] - want) / want;
        n_bins++;
    }
    if (rest_want >= 1) {
        chi += (rest_got - rest_want) * (rest_got - rest_want) / rest_want;
        n_bins++;
    }
    if (n_bins < 2) return;
    const double df = n_bins - 1, v = 2 / (9 * df), z = (cbrt(chi / df) - (1 - v)) / sqrt(v);
    assert_true(z < 4);
}

static void check_draws(struct row *row, const struct sampling_params *p, int n_best) {
    static int counts[VOCAB];
    memset(counts, 0, sizeof counts);
    sampler_reduce(row->logits, VOCAB, n_best, row->best_ids, row->best_logits, &row->in);
    define(row, p, n_best);
    for (uint64_t position = 0; position < DRAWS; position++) {
        const int32_t id = sampler_draw(&row->in, p, position, row->scratch);
        assert_in_range(id, 0, VOCAB - 1);
        counts[id]++;
        /* The draw by the definition, where u is not within rounding of an edge. */
        const double u = rng_at(p->seed, position);
        double before = 0;
        int i = 0;
        while (i < row->n_cdf - 1 && before + row->p[row->cdf_ids[i]] <= u)
            before += row->p[row->cdf_ids[i++]];
        const double after = before + row->p[row->cdf_ids[i]];
        if (u - before > 1e-9 && after - u > 1e-9) assert_int_equal(id, row->cdf_ids[i]);
    }
    assert_distribution(row, counts);
}

/* One setting over peaked and flat rows, with all, 256 and very few of the best known. */
static void check_setting(struct sampling_params p) {
    static struct row row;
    static const int n_best[] = {VOCAB, 256, 5};
    for (uint64_t seed = 0; seed < 2; seed++) {
        fill_row(&row, seed == 0 ? 12 : 1, seed);
        for (size_t i = 0; i < N_ELEMENTS(n_best); i++) {
            p.seed = 99 * seed + i;
            check_draws(&row, &p, n_best[i]);
        }
    }
}

static void temperature_test(void **state) {
    (void)state;
    static const float temperatures[] = {1, 0.25f, 0.7f, 1.5f, 20};
    for (size_t i = 0; i < N_ELEMENTS(temperatures); i++)
        check_setting(params(temperatures[i]));
}

static void top_k_test(void **state) {
    (void)state;
    static const int32_t ks[] = {1, 2, 40, 256, 257, 350, VOCAB, 5000};
    for (size_t i = 0; i < N_ELEMENTS(ks); i++) {
        struct sampling_params p = params(i % 2 ? 1 : 1.3f);
        p.top_k = ks[i];
        check_setting(p);
    }
}

static void top_p_test(void **state) {
    (void)state;
    static const float ps[] = {1e-6f, 0.1f, 0.5f, 0.9f, 0.99f, 0.99999f};
    static const float temperatures[] = {1, 0.6f, 3};
    for (size_t i = 0; i < N_ELEMENTS(ps); i++) {
        struct sampling_params p = params(temperatures[i % 3]);
        p.top_p = ps[i];
        check_setting(p);
    }
}

static void min_p_test(void **state) {
    (void)state;
    static const float ps[] = {0.01f, 0.1f, 0.5f, 1};
    for (size_t i = 0; i < N_ELEMENTS(ps); i++) {
        struct sampling_params p = params(i % 2 ? 1 : 2);
        p.min_p = ps[i];
        check_setting(p);
    }
}

static void all_filters_test(void **state) {
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } settings[] = {
        {0.8f, 0.95f, 0, 50}, {1.2f, 0.9f, 0.02f, 0}, {2, 0.7f, 0.05f, 300}, {1, 1, 0.1f, 30}, {5, 0.98f, 0, 500}};
    for (size_t i = 0; i < N_ELEMENTS(settings); i++) {
        struct sampling_params p = params(settings[i].temperature);
        p.top_p = settings[i].top_p;
        p.min_p = settings[i].min_p;
        p.top_k = settings[i].top_k;
        check_setting(p);
    }
}

/* With an order, what is drawn does not depend on how many of the best were reduced. */
static void reduced_test(void **state) {
    (void)state;
    static struct row many, few;
    for (uint64_t seed = 0; seed < 4; seed++) {
        fill_row(&many, seed % 2 ? 8 : 2, seed);
        fill_row(&few, seed % 2 ? 8 : 2, seed);
        sampler_reduce(many.logits, VOCAB, VOCAB, many.best_ids, many.best_logits, &many.in);
        sampler_reduce(few.logits, VOCAB, 4, few.best_ids, few.best_logits, &few.in);
        struct sampling_params p = params(1.1f);
        p.top_p = 0.9f;
        p.seed = seed;
        for (uint64_t position = 0; position < 2000; position++)
            assert_int_equal(sampler_draw(&many.in, &p, position, many.scratch),
                             sampler_draw(&few.in, &p, position, few.scratch));
    }
}

static void greedy_test(void **state) {
    (void)state;
    static struct row row;
    fill_row(&row, 1, 5);
    row.logits[300] = row.logits[200] = row.logits[350] = 9;
    sampler_reduce(row.logits, VOCAB, 256, row.best_ids, row.best_logits, &row.in);
    assert_int_equal(row.in.argmax, 200);
    assert_true(row.in.best_ids[1] == 300 && row.in.best_ids[2] == 350);
    struct sampling_params p = params(0);
    assert_int_equal(sampler_draw(&row.in, &p, 3, NULL), 200); /* never needs the row or scratch */
    assert_false(sampler_may_need_row(&p));
    p.temperature = 1e-6f; /* the limit: only the equals are left */
    for (uint64_t i = 0; i < 100; i++) {
        const int32_t id = sampler_draw(&row.in, &p, i, row.scratch);
        assert_true(id == 200 || id == 300 || id == 350);
    }
    p.temperature = 1.4e-45f;
    assert_in_range(sampler_draw(&row.in, &p, 0, row.scratch), 200, 350);
    p.temperature = 1;
    assert_true(sampler_may_need_row(&p));
    p.top_k = 256;
    assert_false(sampler_may_need_row(&p));
}

static void not_finite_test(void **state) {
    (void)state;
    static struct row row;
    const struct sampling_params p = params(1);
    static const float bad[] = {NAN, INFINITY};
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        fill_row(&row, 1, 5);
        row.logits[77] = bad[i];
        sampler_reduce(row.logits, VOCAB, 256, row.best_ids, row.best_logits, &row.in);
        assert_false(sampler_is_finite(&row.in));
        assert_int_equal(sampler_draw(&row.in, &p, 0, row.scratch), -1);
    }
    for (int i = 0; i < VOCAB; i++)
        row.logits[i] = -INFINITY;
    sampler_reduce(row.logits, VOCAB, 256, row.best_ids, row.best_logits, &row.in);
    assert_int_equal(sampler_draw(&row.in, &p, 0, row.scratch), -1);
    row.logits[9] = -5; /* one id is left */
    sampler_reduce(row.logits, VOCAB, 256, row.best_ids, row.best_logits, &row.in);
    assert_int_equal(sampler_draw(&row.in, &p, 0, row.scratch), 9);
}

/* A vocabulary of realistic size: the tail decides some draws. */
static void large_test(void **state) {
    (void)state;
    enum { LARGE = 50000 };
    float *const logits = mem_xcalloc(LARGE, sizeof *logits);
    int32_t *const scratch = mem_xcalloc(LARGE, sizeof *scratch);
    struct rng rng = rng_seeded(8);
    for (int i = 0; i < LARGE; i++)
        logits[i] = rng_f32(&rng);
    int32_t best_ids[SAMPLER_BEST_MAX];
    float best_logits[SAMPLER_BEST_MAX];
    struct sampler_input in;
    sampler_reduce(logits, LARGE, SAMPLER_BEST_MAX, best_ids, best_logits, &in);
    int n_low = 0;
    double low = 0, all = 0;
    for (int i = 0; i < LARGE; i++) {
        const double w = exp((double)logits[i] - (double)in.max);
        all += w;
        if (i < LARGE / 2) low += w;
    }
    const struct sampling_params p = params(1);
    for (uint64_t position = 0; position < 2000; position++)
        n_low += sampler_draw(&in, &p, position, scratch) < LARGE / 2;
    const double want = 2000 * low / all;
    assert_true(fabs(n_low - want) < 4 * sqrt(want / 2));
    struct sampling_params nucleus = p;
    nucleus.top_p = 0.9f;
    nucleus.temperature = 1.5f;
    for (uint64_t position = 0; position < 50; position++) {
        const int32_t id = sampler_draw(&in, &nucleus, position, scratch);
        assert_true(logits[id] > -0.9f); /* the lowest tenth of the mass lies below */
    }
    mem_free(logits);
    mem_free(scratch);
}

static struct sequence *seq_of(const int32_t *prompt, size_t n, const struct xenon_sampling *s) {
    const struct sequence_spec spec = {.id = 1,
                                       .prompt = prompt,
                                       .n_prompt = n,
                                       .sampling = s,
                                       .max_model_len = 50,
                                       .n_groups = 1,
                                       .block_size = 16};
    struct sequence *seq = NULL;
    assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_OK);
    return seq;
}

static void edits_test(void **state) {
    (void)state;
    const int32_t prompt[] = {1, 2, 2, 99}, eos[] = {7}, stop[] = {6, -3, 1000};
    const struct xenon_bias bias[] = {{0, 2.5f}, {3, -1}, {-1, 5}, {100, 5}};
    int32_t counts[8] = {0};
    struct xenon_sampling s = {
        .top_p = 1, .repetition_penalty = 1, .max_tokens = 10, .logprobs = -1, .prompt_logprobs = -1};
    struct sequence *seq = seq_of(prompt, 4, &s);
    assert_false(sequence_has_edits(seq));
    sequence_destroy(seq);

    s.bias = bias;
    s.n_bias = 4;
    s.stop_ids = stop;
    s.n_stop_ids = 3;
    s.min_tokens = 5;
    s.repetition_penalty = 2;
    s.frequency_penalty = 0.5f;
    s.presence_penalty = 0.25f;
    seq = seq_of(prompt, 4, &s);
    assert_true(sequence_has_edits(seq));
    sequence_append(seq, 3);
    sequence_append(seq, 4);
    sequence_append(seq, 3);
    sequence_append(seq, 2);
    float row[8] = {1, 2, -3, 5, -1, 8, 1, 1};
    sampler_edit(seq, eos, 1, row, 8, counts);
    const float want[8] = {
        3.5f,                 /* bias */
        1,                    /* in the prompt: halved */
        -6 - 0.75f,           /* negative: doubled; once in the answer */
        4.0f / 2 - 1 - 0.25f, /* biased to 4, halved, twice in the answer */
        -2 - 0.75f,           /* once in the answer */
        8,
        -INFINITY,
        -INFINITY, /* untouched; stop id; EOS */
    };
    for (int i = 0; i < 8; i++)
        assert_true(row[i] == want[i]);
    for (int i = 0; i < 8; i++)
        assert_int_equal(counts[i], 0);
    sequence_append(seq, 5);
    float later[8] = {0};
    sampler_edit(seq, eos, 1, later, 8, counts); /* min_tokens is reached */
    assert_true(later[7] == 0 && later[6] == 0);
    sequence_destroy(seq);
}

static void logprobs_test(void **state) {
    (void)state;
    static struct row row;
    fill_row(&row, 3, 9);
    sampler_reduce(row.logits, VOCAB, 256, row.best_ids, row.best_logits, &row.in);
    double sum = 0;
    for (int i = 0; i < VOCAB; i++)
        sum += exp((double)row.logits[i]);
    struct xenon_logprob top[XENON_TOP_LOGPROBS_MAX];
    int n_top = 0;
    int32_t rank = 0;
    for (int i = 0; i < VOCAB; i += 7) {
        const int32_t id = row.order[i];
        const float got = sampler_logprobs(&row.in, id, 5, top, &n_top, &rank);
        const double want = (double)row.logits[id] - log(sum);
        assert_true(isinf(want) ? isinf(got) : fabs((double)got - want) < 1e-5);
        assert_int_equal(rank, i < 256 ? i + 1 : 0);
        assert_int_equal(n_top, 5);
        for (int t = 0; t < 5; t++) {
            assert_int_equal(top[t].id, row.order[t]);
            assert_true(fabs((double)top[t].logprob - ((double)row.logits[top[t].id] - log(sum))) < 1e-5);
        }
    }
    sampler_logprobs(&row.in, 0, 0, NULL, &n_top, &rank);
    assert_int_equal(n_top, 0);
    assert_true(isinf(sampler_logprobs(&row.in, VOCAB + 5, 0, NULL, &n_top, &rank)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_test), cmocka_unit_test(top_k_test),       cmocka_unit_test(top_p_test),
        cmocka_unit_test(min_p_test),       cmocka_unit_test(all_filters_test), cmocka_unit_test(reduced_test),
        cmocka_unit_test(greedy_test),      cmocka_unit_test(not_finite_test),  cmocka_unit_test(large_test),
        cmocka_unit_test(edits_test),       cmocka_unit_test(logprobs_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
