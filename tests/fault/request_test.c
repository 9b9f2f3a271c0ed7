/* Bad requests, bad options, and requests that end early: the right code and one clear line; all pages come back;
 * nobody else is hurt. */
#include "../golden/api_client.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../unit/load_golden.h"
#include "base/clock.h"
#include "base/mem.h"

enum { VOCAB = 320, LONGEST = 256 };

static struct golden_path model;

static struct xenon_options tiny_options(void) {
    golden_need("models/smollm2");
    return (struct xenon_options){.model = golden_path(&model, "models/smollm2"),
                                  .threads = 2,
                                  .no_pin = true,
                                  .max_num_seqs = 8,
                                  .max_num_batched_tokens = 16,
                                  .max_model_len = LONGEST,
                                  .num_kv_blocks = 100};
}

static struct xenon *open_tiny(void) {
    const struct xenon_options opt = tiny_options();
    return api_client_open(&opt);
}

static int32_t ids[512];

static void good_request(struct xenon_request *r, size_t n_prompt, int max_tokens) {
    for (int i = 0; i < 512; i++)
        ids[i] = 5 + i * 7 % (VOCAB - 5);
    *r = (struct xenon_request){.prompt = ids, .n_prompt = n_prompt};
    xenon_sampling_default(&r->sampling);
    r->sampling.temperature = 0;
    r->sampling.ignore_eos = true;
    r->sampling.max_tokens = max_tokens;
}

/* ---- Bad requests ---- */

static void refuse(struct xenon *x, const struct xenon_request *r, enum xenon_code code, const char *says) {
    struct xenon_handle *h = (struct xenon_handle *)(void *)x; /* must be cleared */
    struct xenon_error err = {{0}};
    const int64_t live = mem_live_blocks();
    const int rc = xenon_submit(x, r, &h, &err);
    if (rc != (int)code || !strstr(err.text, says) || strchr(err.text, '\n'))
        fail_msg("code %d instead of %d, or not \"%s\": %s", rc, (int)code, says, err.text);
    assert_null(h);
    assert_int_equal(mem_live_blocks(), live);
}

#define REFUSE(field, value, code, says)                                                                               \
    do {                                                                                                               \
        struct xenon_request r_;                                                                                       \
        good_request(&r_, 20, 10);                                                                                     \
        r_.sampling.field = (value);                                                                                   \
        refuse(x, &r_, (code), (says));                                                                                \
    } while (0)

static void test_bad_sampling(void **state) {
    (void)state;
    struct xenon *const x = open_tiny();
    REFUSE(temperature, -0.1f, XENON_EARG, "temperature is -0.1");
    REFUSE(temperature, NAN, XENON_EARG, "temperature is nan");
    REFUSE(temperature, INFINITY, XENON_EARG, "temperature is inf");
    REFUSE(top_p, 0.0f, XENON_EARG, "top_p is 0");
    REFUSE(top_p, 1.5f, XENON_EARG, "top_p is 1.5");
    REFUSE(top_p, NAN, XENON_EARG, "top_p is nan");
    REFUSE(min_p, -1.0f, XENON_EARG, "min_p is -1");
    REFUSE(min_p, 1.01f, XENON_EARG, "min_p is 1.01");
    REFUSE(presence_penalty, 2.5f, XENON_EARG, "presence_penalty is 2.5");
    REFUSE(frequency_penalty, -3.0f, XENON_EARG, "frequency_penalty is -3");
    REFUSE(repetition_penalty, 0.0f, XENON_EARG, "repetition_penalty is 0");
    REFUSE(repetition_penalty, NAN, XENON_EARG, "repetition_penalty is nan");
    REFUSE(max_tokens, -2, XENON_EARG, "max_tokens is -2");
    REFUSE(max_tokens, INT32_MIN, XENON_EARG, "max_tokens is -2147483648");
    REFUSE(min_tokens, -1, XENON_EARG, "min_tokens is -1");
    REFUSE(min_tokens, 11, XENON_EARG, "min_tokens is 11 but max_tokens is 10");
    REFUSE(logprobs, -2, XENON_EARG, "logprobs is -2");
    REFUSE(logprobs, XENON_TOP_LOGPROBS_MAX + 1, XENON_ELIMIT, "at most 20");
    REFUSE(prompt_logprobs, 1000000, XENON_ELIMIT, "at most 20");
    static const char *const many[XENON_STOP_MAX + 1] = {"a"};
    static const char *const empty[] = {""};
    struct xenon_request r;
    good_request(&r, 20, 10);
    r.sampling.stop = many;
    r.sampling.n_stop = XENON_STOP_MAX + 1;
    refuse(x, &r, XENON_EARG, "at most 16 strings");
    r.sampling.stop = empty;
    r.sampling.n_stop = 1;
    refuse(x, &r, XENON_EARG, "empty string");
    const struct xenon_bias bad[] = {{.id = 9, .bias = NAN}, {.id = VOCAB, .bias = 1}, {.id = -1, .bias = 1}};
    good_request(&r, 20, 10);
    r.sampling.n_bias = 1;
    for (int i = 0; i < 3; i++) {
        r.sampling.bias = &bad[i];
        refuse(x, &r, XENON_EARG, "logit_bias");
    }
    xenon_close(x);
}

static void test_bad_prompts(void **state) {
    (void)state;
    char salt[2000];
    struct xenon_options opt = tiny_options();
    opt.num_kv_blocks = 8; /* 128 rows */
    struct xenon *const x = api_client_open(&opt);
    struct xenon_request r;
    good_request(&r, 0, 10);
    refuse(x, &r, XENON_EARG, "the prompt is empty");
    r.prompt = NULL;
    refuse(x, &r, XENON_EARG, "the prompt is empty");
    good_request(&r, 20, 10);
    ids[3] = -1;
    refuse(x, &r, XENON_EARG, "prompt token 3 is -1");
    ids[3] = VOCAB;
    refuse(x, &r, XENON_EARG, "prompt token 3 is 320");
    ids[3] = INT32_MAX;
    refuse(x, &r, XENON_EARG, "prompt token 3 is 2147483647");
    good_request(&r, LONGEST, 10);
    refuse(x, &r, XENON_ELIMIT, "256 tokens");
    good_request(&r, LONGEST + 1, 0);
    refuse(x, &r, XENON_ELIMIT, "257 tokens");
    good_request(&r, 129, 0);
    refuse(x, &r, XENON_ELIMIT, "the KV cache holds 128");
    good_request(&r, 100, 30);
    refuse(x, &r, XENON_ELIMIT, "the KV cache holds 128");
    good_request(&r, 20, 10);
    memset(salt, 's', sizeof salt);
    salt[sizeof salt - 1] = '\0';
    r.cache_salt = salt;
    refuse(x, &r, XENON_EARG, "cache_salt");
    /* As long as it may be, and as much as fits. */
    struct api_client_answer a;
    good_request(&r, 100, 29);
    api_client_ask(x, &r, &a);
    assert_int_equal(a.n, 29);
    api_client_free(&a);
    good_request(&r, 100, -1);
    api_client_ask(x, &r, &a);
    assert_int_equal(a.n, 29);
    assert_int_equal(a.finish, XENON_FINISH_LENGTH);
    api_client_free(&a);
    good_request(&r, 128, 0);
    api_client_ask(x, &r, &a);
    assert_int_equal(a.n, 0);
    api_client_free(&a);
    xenon_close(x);
}

/* More than fits into the model's length ends there. */
static void test_longest(void **state) {
    (void)state;
    struct xenon *const x = open_tiny();
    struct xenon_request r;
    struct api_client_answer a;
    static const int wishes[] = {-1, 57, 1000000, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        good_request(&r, LONGEST - 56, wishes[i]);
        api_client_ask(x, &r, &a);
        assert_int_equal(a.n, 56);
        assert_int_equal(a.finish, XENON_FINISH_LENGTH);
        api_client_free(&a);
    }
    good_request(&r, LONGEST, 0);
    api_client_ask(x, &r, &a);
    assert_int_equal(a.n, 0);
    api_client_free(&a);
    xenon_close(x);
}

/* ---- Bad options ---- */

static void refuse_options(const struct xenon_options *opt, enum xenon_code code, const char *says) {
    struct xenon *x = NULL;
    struct xenon_error err = {{0}};
    const int64_t live = mem_live_blocks();
    const int rc = xenon_open(&x, opt, &err);
    if (rc != (int)code || !strstr(err.text, says) || strchr(err.text, '\n'))
        fail_msg("code %d instead of %d, or not \"%s\": %s", rc, (int)code, says, err.text);
    assert_null(x);
    assert_int_equal(mem_live_blocks(), live);
}

#define REFUSE_OPTION(field, value, code, says)                                                                        \
    do {                                                                                                               \
        struct xenon_options o_ = tiny_options();                                                                      \
        o_.field = (value);                                                                                            \
        refuse_options(&o_, (code), (says));                                                                           \
    } while (0)

static void test_bad_options(void **state) {
    (void)state;
    xenon_close(open_tiny());
    REFUSE_OPTION(model, NULL, XENON_EARG, "--model");
    REFUSE_OPTION(model, "/nowhere/model.gguf", XENON_EIO, "/nowhere/model.gguf");
    REFUSE_OPTION(model, "/dev/null", XENON_EIO, "/dev/null");
    REFUSE_OPTION(model, "/proc/self", XENON_EIO, "/proc/self");
    REFUSE_OPTION(dtype, "float8", XENON_EARG, "--dtype float8");
    REFUSE_OPTION(load_format, "magic", XENON_EARG, "--load-format magic");
    REFUSE_OPTION(quantize, "q1", XENON_EARG, "--quantize q1");
    REFUSE_OPTION(kv_cache_dtype, "int4", XENON_EARG, "--kv-cache-dtype int4");
    REFUSE_OPTION(max_model_len, 100000, XENON_EARG, "--max-model-len 100000");
    REFUSE_OPTION(block_size, 7, XENON_EARG, "--block-size 7");
    REFUSE_OPTION(level, 9, XENON_EARG, "--level 8");
    REFUSE_OPTION(chat_template, "/nowhere/template.jinja", XENON_EARG, "/nowhere/template.jinja");
    REFUSE_OPTION(chat_template, "{% if %}", XENON_EFORMAT, "chat template, line 1");
    struct xenon_options opt = tiny_options();
    opt.num_kv_blocks = 0;
    opt.kv_cache_memory = 100;
    refuse_options(&opt, XENON_ENOMEM, "KV cache");
}

/* ---- Ending early ---- */

static size_t collect_any(struct xenon_handle *h, enum xenon_finish *finish) {
    struct api_client_answer a;
    api_client_collect(h, &a);
    const size_t n = a.n;
    *finish = a.finish;
    api_client_free(&a);
    return n;
}

static void test_cancel_prefill(void **state) {
    (void)state;
    struct xenon *const x = open_tiny();
    struct xenon_handle *h[7];
    struct xenon_request r;
    struct xenon_stats s;
    int n_without_token = 0;
    for (int i = 0; i < 7; i++) {
        good_request(&r, 240, 5);
        ids[0] = 5 + i; /* nothing to share */
        h[i] = api_client_submit(x, &r);
    }
    do
        xenon_stats(x, &s);
    while (s.prefill_chunks < 3);
    for (int i = 0; i < 7; i++)
        xenon_cancel(h[i]);
    for (int i = 0; i < 7; i++) {
        enum xenon_finish f;
        const size_t n = collect_any(h[i], &f);
        n_without_token += f == XENON_FINISH_ABORT && n == 0;
    }
    assert_true(n_without_token >= 3);
    api_client_idle(x, &s);
    assert_int_equal(s.requests_aborted + s.requests_finished, 7);
    xenon_close(x);
}

static void test_cancel_decode(void **state) {
    (void)state;
    struct xenon *const x = open_tiny();
    struct xenon_request r;
    struct xenon_stats s;
    struct xenon_output o;
    enum xenon_finish f;
    good_request(&r, 20, 230);
    struct xenon_handle *const h = api_client_submit(x, &r), *const other = api_client_submit(x, &r);
    size_t n = 0;
    while (n < 3) {
        xenon_wait(h, -1);
        if (xenon_poll(h, &o)) n += o.n_tokens;
    }
    xenon_stats(x, &s);
    assert_true(s.kv_blocks_used > 0);
    xenon_cancel(h);
    xenon_cancel(h);
    n += collect_any(h, &f);
    assert_int_equal(f, XENON_FINISH_ABORT);
    assert_true(n < 230);
    assert_int_equal(collect_any(other, &f), 230); /* hurts nobody else */
    assert_int_equal(f, XENON_FINISH_LENGTH);
    xenon_release(api_client_submit(x, &r)); /* gone at once */
    api_client_idle(x, &s);
    assert_int_equal(s.requests_aborted, 2);
    xenon_close(x);
}

/* However a cancellation meets the engine's turn, it is heard. */
static void test_cancel_at_once(void **state) {
    (void)state;
    struct xenon *const x = open_tiny();
    struct xenon_stats s;
    struct xenon_request r;
    good_request(&r, 10, 240);
    struct xenon_handle *const busy = api_client_submit(x, &r);
    for (int i = 0; i < 300; i++) {
        enum xenon_finish f;
        struct xenon_handle *const h = api_client_submit(x, &r);
        if (i % 3 == 0) usleep((unsigned)(i % 50));
        xenon_cancel(h);
        const size_t n = collect_any(h, &f);
        if (f != XENON_FINISH_ABORT) fail_msg("cancellation %d was not heard: %zu tokens", i, n);
    }
    xenon_release(busy);
    api_client_idle(x, &s);
    xenon_close(x);
}

static void test_time_limit(void **state) {
    (void)state;
    struct xenon_options opt = tiny_options();
    opt.max_model_len = 512;
    struct xenon *const x = api_client_open(&opt);
    struct xenon_request r;
    struct xenon_stats s;
    enum xenon_finish f;
    good_request(&r, 10, 500);
    r.timeout_s = 1e-5;
    assert_true(collect_any(api_client_submit(x, &r), &f) < 500);
    assert_int_equal(f, XENON_FINISH_ABORT);
    r.timeout_s = 100;
    assert_int_equal(collect_any(api_client_submit(x, &r), &f), 500);
    api_client_idle(x, &s);
    xenon_close(x);
}

static void count_news(void *user) {
    atomic_fetch_add((_Atomic int *)user, 1);
}

static void test_close_running(void **state) {
    (void)state;
    xenon_close(open_tiny());
    const int64_t live = mem_live_blocks();
    for (int round = 0; round < 20; round++) {
        _Atomic int n_news = 0;
        struct xenon_options opt = tiny_options();
        opt.notify = count_news;
        opt.user = &n_news;
        struct xenon *const x = api_client_open(&opt);
        struct xenon_handle *h[20];
        struct xenon_request r;
        for (int i = 0; i < 20; i++) {
            good_request(&r, 10 + (size_t)i, 200);
            h[i] = api_client_submit(x, &r);
        }
        if (round % 2) usleep((unsigned)round * 200);
        for (int i = 0; i < 20; i++)
            xenon_release(h[i]);
        xenon_close(x);
        assert_true(n_news > 0);
        assert_int_equal(mem_live_blocks(), live);
    }
}

static void test_full_queue(void **state) {
    (void)state;
    struct xenon_options opt = tiny_options();
    opt.max_num_seqs = 1;
    opt.max_queue = 3;
    struct xenon *const x = api_client_open(&opt);
    struct xenon_handle *h[64];
    struct xenon_request r;
    struct xenon_error err = {{0}};
    struct xenon_stats s;
    int n = 0, rc = XENON_OK;
    good_request(&r, 10, 200);
    while (n < 64 && (rc = xenon_submit(x, &r, &h[n], &err)) == XENON_OK)
        n++;
    assert_int_equal(rc, XENON_EBUSY);
    assert_non_null(strstr(err.text, "3 requests are waiting"));
    assert_true(n >= 3);
    for (int i = 0; i < n; i++) {
        enum xenon_finish f;
        assert_int_equal(collect_any(h[i], &f), 200);
    }
    api_client_idle(x, &s);
    assert_int_equal(s.requests_refused, 1);
    xenon_close(x);
}

/* Ends by a stop string, a stop id, and the end of the text. */
static void test_stops(void **state) {
    (void)state;
    struct xenon *const x = open_tiny();
    struct xenon_request r;
    struct xenon_stats s;
    struct api_client_answer whole, a;
    good_request(&r, 20, 60);
    api_client_ask(x, &r, &whole);
    r.sampling.stop_ids = &whole.tokens[10].id;
    r.sampling.n_stop_ids = 1;
    api_client_ask(x, &r, &a);
    assert_int_equal(a.finish, XENON_FINISH_STOP);
    assert_int_equal(a.stop_id, whole.tokens[10].id);
    assert_true(a.n <= 11);
    api_client_free(&a);
    const char *const stop = "\n"; /* whatever the text is: once it is there, it ends the answer */
    r.sampling.n_stop_ids = 0;
    r.sampling.stop = &stop;
    r.sampling.n_stop = 1;
    api_client_ask(x, &r, &a);
    assert_int_equal(a.finish == XENON_FINISH_STOP, strchr(whole.text, '\n') != NULL);
    assert_null(strchr(a.text, '\n'));
    api_client_free(&a);
    api_client_free(&whole);
    api_client_idle(x, &s);
    xenon_close(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_sampling),   cmocka_unit_test(test_bad_prompts),
        cmocka_unit_test(test_longest),        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_cancel_prefill), cmocka_unit_test(test_cancel_decode),
        cmocka_unit_test(test_cancel_at_once), cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_close_running),  cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_stops),
    };
    return cmocka_run_group_tests_name("request", tests, NULL, NULL);
}
