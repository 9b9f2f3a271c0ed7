/* Sampler: what a request's parameters make of a draw, the noise, edits, logprobs, as a chain with sample_reduce. The
 * filters' arithmetic is ops_sample_draw_test's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/sampler.h"

enum { VOCAB = 400, DRAWS = 3000 };

static struct sample_reduce *g_reduce;

static void fill(float *logits, float spread, uint64_t seed) {
    struct rng rng = rng_seeded(seed);
    for (int i = 0; i < VOCAB; i++) logits[i] = floorf(rng_f32(&rng) * 40) / 40 * spread;
}

static int32_t draw(const float *logits, const struct sampling_params *p, uint64_t position) {
    struct sample_row row = {.logits = logits, .draw = sampler_draw(p, position)};
    sample_reduce_run(g_reduce, NULL, &row, 1);
    return row.token;
}

static void params_test(void **state) {
    (void)state;
    struct sampling_params p = {
        .temperature = 0.5f, .top_p = 0.9f, .min_p = 0.1f, .top_k = 30, .repetition_penalty = 1, .seed = 1234};
    const struct sample_draw d = sampler_draw(&p, 17);
    assert_true(d.temperature == 0.5f && d.top_p == 0.9f && d.min_p == 0.1f && d.top_k == 30);
    assert_true(d.u == rng_at(1234, 17));
    p.temperature = 0;
    assert_true(sampler_draw(&p, 17).temperature == 0);
}

/* Seeds and positions give independent draws: chi-square of the counts, Wilson and Hilferty's normal approximation; the
 * seeds are fixed, so this either always holds or never. */
static void noise_test(void **state) {
    (void)state;
    static float logits[VOCAB];
    static int counts[VOCAB];
    double sum = 0, chi = 0;
    for (int way = 0; way < 2; way++) {
        struct sampling_params p = {.temperature = 0.8f, .top_p = 1, .repetition_penalty = 1, .seed = 99};
        memset(counts, 0, sizeof counts);
        fill(logits, 1, 3);
        for (uint64_t i = 0; i < DRAWS; i++) {
            if (way == 1) p.seed = i;
            counts[draw(logits, &p, way == 1 ? 5 : i)]++;
        }
        sum = chi = 0;
        for (int i = 0; i < VOCAB; i++) sum += exp((double)logits[i] / (double)0.8f);
        for (int i = 0; i < VOCAB; i++) {
            const double want = DRAWS * exp((double)logits[i] / (double)0.8f) / sum;
            chi += (counts[i] - want) * (counts[i] - want) / want;
        }
        const double df = VOCAB - 1, v = 2 / (9 * df), z = (cbrt(chi / df) - (1 - v)) / sqrt(v);
        assert_true(fabs(z) < 4);
    }
}

static void greedy_test(void **state) {
    (void)state;
    float logits[VOCAB];
    fill(logits, 1, 5);
    logits[300] = logits[200] = logits[350] = 9;
    struct sampling_params p = {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .seed = 3};
    assert_int_equal(draw(logits, &p, 3), 200);
    p.temperature = 1e-6f; /* the limit: only the equals are left */
    int seen = 0;
    for (uint64_t i = 0; i < 100; i++) {
        const int32_t id = draw(logits, &p, i);
        assert_true(id == 200 || id == 300 || id == 350);
        seen |= 1 << (id / 50 - 4);
    }
    assert_int_equal(seen, 1 | 1 << 2 | 1 << 3);
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
    float logits[VOCAB];
    double sum = 0;
    fill(logits, 3, 9);
    logits[7] = 20;
    logits[5] = logits[6] = 19;
    struct sample_row row = {.logits = logits, .want_best = true};
    sample_reduce_run(g_reduce, NULL, &row, 1);
    for (int i = 0; i < VOCAB; i++) sum += exp((double)logits[i]);
    for (int id = 0; id < VOCAB; id++) {
        const struct sampler_logprobs lp = sampler_logprobs(&row, VOCAB, id, 3);
        int rank = 1;
        for (int i = 0; i < VOCAB; i++) rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id);
        assert_true(fabs((double)lp.logprob - ((double)logits[id] - log(sum))) < 1e-5);
        assert_int_equal(lp.rank, rank <= SAMPLE_BEST_MAX ? rank : 0);
        assert_int_equal(lp.n_top, 3);
        assert_true(lp.top[0].id == 7 && lp.top[1].id == 5 && lp.top[2].id == 6);
        assert_true(fabs((double)lp.top[2].logprob - (19 - log(sum))) < 1e-5);
    }
    assert_int_equal(sampler_logprobs(&row, VOCAB, 0, 0).n_top, 0);
    assert_int_equal(sampler_logprobs(&row, VOCAB, 0, 1000).n_top, XENON_TOP_LOGPROBS_MAX);
    assert_true(isinf(sampler_logprobs(&row, VOCAB, VOCAB + 5, 0).logprob));
    assert_true(isinf(sampler_logprobs(&row, VOCAB, -1, 0).logprob));
}

int main(void) {
    struct kern kern;
    kern_init(&kern, cpu_detect());
    if (sample_reduce_create(&g_reduce, &kern, VOCAB, 1, 1, NULL)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(params_test), cmocka_unit_test(noise_test),    cmocka_unit_test(greedy_test),
        cmocka_unit_test(edits_test),  cmocka_unit_test(logprobs_test),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sample_reduce_destroy(g_reduce);
    return failed;
}
