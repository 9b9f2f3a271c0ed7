/* Sequences: what is copied, how long they may get, which requests are refused, faults. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/sequence.h"

static const int32_t prompt[] = {1, 2, 3}, stop[] = {9};
static const struct xenon_bias bias[] = {{5, 1.0f}};

static struct xenon_sampling sampling_of(int max_tokens) {
    return (struct xenon_sampling){
        .top_p = 1, .repetition_penalty = 1, .max_tokens = max_tokens, .logprobs = -1, .prompt_logprobs = -1};
}

static struct sequence_spec spec_of(const struct xenon_sampling *s, int64_t max_model_len) {
    return (struct sequence_spec){.id = 1,
                                  .prompt = prompt,
                                  .n_prompt = 3,
                                  .sampling = s,
                                  .seed = 77,
                                  .max_model_len = max_model_len,
                                  .n_groups = 2,
                                  .block_size = 16};
}

static enum err create(const struct xenon_sampling *s, int64_t max_model_len, size_t n_prompt, struct err_msg *msg) {
    struct sequence_spec spec = spec_of(s, max_model_len);
    struct sequence *seq = NULL;
    spec.n_prompt = n_prompt;
    const enum err e = sequence_create(&seq, &spec, msg);
    assert_true((e == ERR_OK) == (seq != NULL));
    sequence_destroy(seq);
    return e;
}

static void copy_test(void **state) {
    (void)state;
    struct xenon_sampling s = sampling_of(4);
    s.stop_ids = stop, s.n_stop_ids = 1;
    s.bias = bias, s.n_bias = 1;
    struct sequence_spec spec = spec_of(&s, 10);
    spec.salt = "tenant";
    struct sequence *seq = NULL;
    assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_OK);
    assert_int_equal(seq->max_len, 7);
    assert_int_equal(seq->sampling.seed, 77);
    assert_true(seq->tokens != prompt && memcmp(seq->tokens, prompt, sizeof prompt) == 0);
    assert_true(seq->sampling.stop_ids != stop && seq->sampling.stop_ids[0] == 9);
    assert_true(seq->sampling.bias != bias && seq->sampling.bias[0].id == 5);
    assert_string_equal(seq->salt, "tenant");
    assert_true(sequence_is_prefill(seq));
    sequence_append(seq, 8);
    assert_int_equal(sequence_n_generated(seq), 1);
    seq->n_computed = 3;
    assert_false(sequence_is_prefill(seq));
    seq->n_computed = 2;
    assert_true(sequence_is_prefill(seq));
    sequence_destroy(seq);
    s.has_seed = true;
    s.seed = 5;
    assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_OK);
    assert_int_equal(seq->sampling.seed, 5);
    sequence_destroy(seq);
    sequence_destroy(NULL);
}

static void length_test(void **state) {
    (void)state;
    struct err_msg msg = {""};
    const struct xenon_sampling some = sampling_of(4), none = sampling_of(0), all = sampling_of(-1);
    assert_int_equal(create(&some, 10, 0, &msg), ERR_ARG);
    assert_int_equal(create(&some, 3, 3, &msg), ERR_LIMIT);
    assert_non_null(strstr(msg.text, "3 tokens"));
    assert_int_equal(create(&none, 3, 3, &msg), ERR_OK); /* nothing is generated: the whole length is fine */
    assert_int_equal(create(&none, 2, 3, &msg), ERR_LIMIT);
    assert_int_equal(create(&all, 4, 3, &msg), ERR_OK);
    assert_int_equal(create(&some, 10, SIZE_MAX, &msg), ERR_LIMIT);
}

static void assert_refused(const struct xenon_sampling *s) {
    struct err_msg msg = {""};
    assert_int_equal(create(s, 10, 3, &msg), ERR_ARG);
    assert_true(strlen(msg.text) > 0);
}

static void ranges_test(void **state) {
    (void)state;
    const struct xenon_sampling good = sampling_of(4);
    struct xenon_sampling s = good;
    static const struct {
        size_t offset;
        float low, high; /* just outside */
    } floats[] = {{offsetof(struct xenon_sampling, temperature), -0.1f, INFINITY},
                  {offsetof(struct xenon_sampling, top_p), 0, 1.01f},
                  {offsetof(struct xenon_sampling, min_p), -0.1f, 1.01f},
                  {offsetof(struct xenon_sampling, presence_penalty), -2.1f, 2.1f},
                  {offsetof(struct xenon_sampling, frequency_penalty), -2.1f, 2.1f},
                  {offsetof(struct xenon_sampling, repetition_penalty), 0, INFINITY}};
    assert_int_equal(create(&good, 10, 3, NULL), ERR_OK);
    for (size_t i = 0; i < N_ELEMENTS(floats); i++) {
        const float bad[] = {floats[i].low, floats[i].high, NAN};
        for (int k = 0; k < 3; k++) {
            s = good;
            memcpy((char *)&s + floats[i].offset, &bad[k], sizeof bad[k]);
            assert_refused(&s);
        }
    }
    const struct xenon_bias infinite[] = {{5, INFINITY}};
    s = good, s.max_tokens = -2, assert_refused(&s);
    s = good, s.min_tokens = -1, assert_refused(&s);
    s = good, s.min_tokens = 5, assert_refused(&s);
    s = good, s.logprobs = XENON_TOP_LOGPROBS_MAX + 1, assert_refused(&s);
    s = good, s.prompt_logprobs = -2, assert_refused(&s);
    s = good, s.bias = infinite, s.n_bias = 1, assert_refused(&s);
}

static void salt_test(void **state) {
    (void)state;
    static char salt[SEQUENCE_SALT_MAX + 2];
    const struct xenon_sampling s = sampling_of(4);
    struct sequence_spec spec = spec_of(&s, 10);
    struct sequence *seq = NULL;
    memset(salt, 'x', SEQUENCE_SALT_MAX + 1);
    spec.salt = salt;
    assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_ARG);
    salt[SEQUENCE_SALT_MAX] = '\0';
    assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_OK);
    sequence_destroy(seq);
}

static void fault_test(void **state) {
    (void)state;
    struct xenon_sampling s = sampling_of(4);
    s.stop_ids = stop, s.n_stop_ids = 1;
    s.bias = bias, s.n_bias = 1;
    const struct sequence_spec spec = spec_of(&s, 10);
    const int64_t live = mem_live_blocks();
    struct sequence *seq = NULL;
    enum err e = ERR_NOMEM;
    int n_failed = 0;
    for (int n = 1; e != ERR_OK; n++, n_failed += e != ERR_OK) {
        mem_fault_after(n);
        e = sequence_create(&seq, &spec, NULL);
        mem_fault_after(0);
        assert_true(e == ERR_OK || e == ERR_NOMEM);
        if (e != ERR_OK) assert_int_equal(mem_live_blocks(), live);
    }
    assert_int_equal(n_failed, 7);
    sequence_destroy(seq);
    assert_int_equal(mem_live_blocks(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(copy_test), cmocka_unit_test(length_test),
                                       cmocka_unit_test(ranges_test), cmocka_unit_test(salt_test),
                                       cmocka_unit_test(fault_test)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
