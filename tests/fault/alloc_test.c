/* Memory runs out at every place: each allocation of opening a model, and of a request's life, fails once. Every
 * failure is one clear error, leaves nothing behind, and hurts nobody else. And a step of the engine allocates nothing
 * at all. Sanitizer builds fail a part of the allocations of opening only. */
#include "../golden/api_client.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../unit/load_golden.h"
#include "base/mem.h"

static struct xenon_options tiny_options(struct golden_path *path, const char *name) {
    char file[128];
    snprintf(file, sizeof file, "models/%s", name);
    golden_need(file);
    return (struct xenon_options){.model = golden_path(path, file),
                                  .threads = 1,
                                  .no_pin = true,
                                  .max_num_seqs = 8,
                                  .max_num_batched_tokens = 64,
                                  .num_kv_blocks = 80};
}

/* Entries of a folder of /proc/self: open files, threads. */
static int count_entries(const char *folder) {
    DIR *const d = opendir(folder);
    int n = 0;
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int count_maps(void) {
    FILE *const f = fopen("/proc/self/maps", "r");
    int n = 0;
    assert_non_null(f);
    for (int c; (c = fgetc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

/* ---- Opening ---- */

struct sweep {
    int64_t live;                  /* blocks before */
    struct api_client_answer good; /* of an engine that nothing failed in */
    double default_temperature;
    int n_failed, n_survived;
};

static void ask_short(struct xenon *x, struct api_client_answer *a) {
    static const int32_t ids[] = {72, 80, 90};
    struct xenon_request req = {.prompt = ids, .n_prompt = 3};
    xenon_sampling_default(&req.sampling);
    req.sampling.temperature = 0;
    req.sampling.max_tokens = 4;
    req.sampling.logprobs = 2;
    api_client_ask(x, &req, a);
}

/* A failure that opening gets over must do no harm: a just-in-time compiler or a limit of the system that could not be
 * had. */
static void survive(struct xenon *x, struct sweep *s) {
    struct api_client_answer a;
    const double t = xenon_info(x)->default_temperature;
    s->n_survived++;
    ask_short(x, &a);
    api_client_same(&s->good, &a, "after a failure that was survived");
    assert_memory_equal(&t, &s->default_temperature, sizeof t);
    api_client_free(&a);
    xenon_close(x);
}

static void fail_open(const struct xenon_options *opt, int64_t n, struct sweep *s) {
    struct xenon *x = NULL;
    struct xenon_error err = {{0}};
    mem_fault_after(n);
    const int rc = xenon_open(&x, opt, &err);
    mem_fault_after(0);
    if (rc == XENON_OK) {
        survive(x, s);
    } else {
        s->n_failed++;
        assert_null(x);
        if (rc != XENON_ENOMEM)
            fail_msg("allocation %lld: code %d instead of no memory: %s", (long long)n, rc, err.text);
        if (strlen(err.text) < 10 || strchr(err.text, '\n'))
            fail_msg("allocation %lld: no clear line: \"%s\"", (long long)n, err.text);
    }
    if (mem_live_blocks() != s->live)
        fail_msg("allocation %lld: %lld blocks were left behind (%s)", (long long)n,
                 (long long)(mem_live_blocks() - s->live), err.text);
}

static void test_open(void **state) {
    struct golden_path path;
    const struct xenon_options opt = tiny_options(&path, *state);
    struct sweep s = {0};
    struct xenon *const x = api_client_open(&opt); /* what is made once for the process is there now */
    ask_short(x, &s.good);
    s.default_temperature = xenon_info(x)->default_temperature;
    xenon_close(x);
    s.live = mem_live_blocks();
    const int64_t before = mem_n_allocs();
    xenon_close(api_client_open(&opt));
    const int64_t n_allocs = mem_n_allocs() - before;
    const int64_t all = api_client_is_slow() ? 60 : n_allocs, step = 37;
    const int n_files = count_entries("/proc/self/fd"), n_threads = count_entries("/proc/self/task");
    const int n_maps = count_maps();
    for (int64_t n = 1; n <= n_allocs; n += n < all ? 1 : step)
        fail_open(&opt, n, &s);
    for (int64_t n = n_allocs - 40; all < n_allocs && n <= n_allocs; n++)
        fail_open(&opt, n, &s);
    assert_int_equal(count_entries("/proc/self/fd"), n_files);
    assert_int_equal(count_entries("/proc/self/task"), n_threads);
    /* The C library's own arenas may come; the memory of a sanitizer grows with every thread. */
    if (!api_client_is_slow()) assert_true(count_maps() < n_maps + 32);
    print_message("%s: %d of %lld allocations failed with their error, %d more without harm\n", (const char *)*state,
                  s.n_failed, (long long)n_allocs, s.n_survived);
    assert_true(s.n_survived <= 24 && s.n_failed > 100);
    api_client_free(&s.good);
}

/* ---- A request's life ---- */

static const int32_t prompt[] = {72, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200, 210, 220, 230, 240};

static void full_request(struct xenon_request *r, const struct xenon_bias *bias, const int32_t *stop_ids,
                         const char *const *stop) {
    *r = (struct xenon_request){.prompt = prompt, .n_prompt = sizeof prompt / sizeof *prompt, .cache_salt = "salt"};
    xenon_sampling_default(&r->sampling);
    r->sampling.max_tokens = 40;
    r->sampling.ignore_eos = true;
    r->sampling.temperature = 0.8f;
    r->sampling.top_p = 0.9f;
    r->sampling.repetition_penalty = 1.1f;
    r->sampling.logprobs = 3;
    r->sampling.prompt_logprobs = 2;
    r->sampling.has_seed = true;
    r->sampling.bias = bias;
    r->sampling.n_bias = 1;
    r->sampling.stop_ids = stop_ids;
    r->sampling.n_stop_ids = 1;
    r->sampling.stop = stop;
    r->sampling.n_stop = 2;
}

/* How much came of an answer: nothing may get lost without an error. */
struct heard {
    size_t n_tokens, n_text, n_prompt;
    enum xenon_finish finish;
    char error[480];
};

static struct heard drain(struct xenon_handle *h) {
    struct heard r = {0};
    struct xenon_output o;
    while (r.finish == XENON_FINISH_NONE) {
        xenon_wait(h, -1);
        if (!xenon_poll(h, &o)) continue;
        r.n_tokens += o.n_tokens;
        r.n_text += o.text_len;
        if (o.prompt_tokens) r.n_prompt += o.n_prompt;
        r.finish = o.finish;
    }
    snprintf(r.error, sizeof r.error, "%s", o.error ? o.error : "");
    xenon_release(h);
    return r;
}

static void test_request(void **state) {
    (void)state;
    static const struct xenon_bias bias = {.id = 9, .bias = 1.0f};
    static const int32_t stop_id = 300;
    static const char *const stop[] = {"never to be seen", "this neither"};
    struct golden_path path;
    const struct xenon_options opt = tiny_options(&path, "smollm2");
    struct xenon *const x = api_client_open(&opt);
    struct xenon_request req;
    struct xenon_stats stats;
    struct api_client_answer good, again;
    full_request(&req, &bias, &stop_id, stop);
    api_client_ask(x, &req, &good);
    api_client_idle(x, &stats);
    const int64_t live = mem_live_blocks();
    int n_refused = 0, n_ended = 0, n_whole = 0;
    for (int64_t n = 1; n_whole < 3; n++) {
        struct xenon_handle *h = NULL;
        struct xenon_error err = {{0}};
        struct heard r = {0};
        mem_fault_after(n);
        const int rc = xenon_submit(x, &req, &h, &err);
        if (rc == XENON_OK) r = drain(h);
        mem_fault_after(0);
        n_refused += rc != XENON_OK;
        n_ended += r.finish == XENON_FINISH_ERROR;
        if (r.finish == good.finish) {
            n_whole++;
            assert_int_equal(r.n_tokens, good.n);
            assert_int_equal(r.n_text, strlen(good.text));
            assert_int_equal(r.n_prompt, good.n_prompt);
        }
        if (rc != XENON_OK && (rc != XENON_ENOMEM || strlen(err.text) < 10))
            fail_msg("submit: code %d: %s", rc, err.text);
        if (r.finish == XENON_FINISH_ERROR && !strstr(r.error, "memory"))
            fail_msg("the request ended with: %s", r.error);
        api_client_idle(x, &stats);
        for (int i = 0; i < 1000 && mem_live_blocks() != live; i++)
            usleep(1000); /* the engine lets go last */
        if (mem_live_blocks() != live)
            fail_msg("allocation %lld: %lld blocks were left behind", (long long)n,
                     (long long)(mem_live_blocks() - live));
    }
    assert_true(n_refused >= 10);
    assert_true(n_ended >= 2);
    api_client_ask(x, &req, &again);
    api_client_same(&good, &again, "after all failures");
    print_message("%d submissions refused, %d requests ended, the engine goes on\n", n_refused, n_ended);
    api_client_free(&good);
    api_client_free(&again);
    xenon_close(x);
}

static void test_text(void **state) {
    struct golden_path path;
    const struct xenon_options opt = tiny_options(&path, *state);
    const struct xenon_chat chat = {.messages = "[{\"role\":\"user\",\"content\":\"What is it?\"}]",
                                    .kwargs = "{\"x\":1}",
                                    .add_generation_prompt = true};
    struct xenon *const x = api_client_open(&opt);
    int n_failed = 0, n_whole = 0;
    for (int64_t n = 1; n_whole < 3; n++) {
        struct xenon_error err = {{0}};
        char *text = NULL, *back = NULL;
        int32_t *ids = NULL;
        size_t len, n_ids;
        const int64_t live = mem_live_blocks();
        mem_fault_after(n);
        int rc = xenon_render_chat(x, &chat, &text, &len, &err);
        if (!rc) rc = xenon_tokenize(x, text, len, false, true, &ids, &n_ids, &err);
        if (!rc) rc = xenon_detokenize(x, ids, n_ids, false, &back, &len, &err);
        mem_fault_after(0);
        if (!rc) assert_string_equal(back, text);
        n_whole += !rc;
        n_failed += rc != 0;
        if (rc && (rc != XENON_ENOMEM || strlen(err.text) < 10))
            fail_msg("allocation %lld: code %d: %s", (long long)n, rc, err.text);
        xenon_free(text);
        xenon_free(ids);
        xenon_free(back);
        if (mem_live_blocks() > live)
            fail_msg("allocation %lld: %lld blocks were left behind", (long long)n,
                     (long long)(mem_live_blocks() - live));
    }
    print_message("%s: %d allocations of rendering and tokenizing failed, each with its error\n", (const char *)*state,
                  n_failed);
    xenon_close(x);
}

/* ---- Steps ---- */

static void wait_tokens(const struct xenon *x, int64_t n) {
    struct xenon_stats s;
    for (xenon_stats(x, &s); s.generation_tokens < n; xenon_stats(x, &s))
        usleep(200);
}

/* Decoding with every kind of sampling, prompt chunks in between: no allocation. */
static void test_step(void **state) {
    (void)state;
    static const struct xenon_bias bias = {.id = 9, .bias = 1.0f};
    static const int32_t stop_id = 300;
    static const char *const stop[] = {"never to be seen", "this neither"};
    struct golden_path path;
    struct xenon_options opt = tiny_options(&path, "mistral_swa");
    opt.max_num_batched_tokens = 16;
    struct xenon *const x = api_client_open(&opt);
    struct xenon_handle *h[6];
    int32_t longer[200];
    for (int i = 0; i < 200; i++)
        longer[i] = 5 + i;
    for (int i = 0; i < 6; i++) {
        struct xenon_request req;
        full_request(&req, &bias, &stop_id, stop);
        req.sampling.max_tokens = 180;
        req.sampling.seed = (uint64_t)i;
        req.sampling.n_stop_ids = 0;
        if (i == 5) {
            req.prompt = longer;
            req.n_prompt = 200;
        }
        h[i] = api_client_submit(x, &req);
    }
    wait_tokens(x, 12);
    const int64_t before = mem_n_allocs();
    wait_tokens(x, 800);
    assert_int_equal(mem_n_allocs(), before);
    for (int i = 0; i < 6; i++)
        assert_int_equal(drain(h[i]).finish, XENON_FINISH_LENGTH);
    xenon_close(x);
}

int main(void) {
    static char folder[] = "smollm2", gguf[] = "qwen3/model.gguf";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_open, folder),
        cmocka_unit_test_prestate(test_open, gguf),
        cmocka_unit_test(test_request),
        cmocka_unit_test_prestate(test_text, folder),
        cmocka_unit_test_prestate(test_text, gguf),
        cmocka_unit_test(test_step),
    };
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
