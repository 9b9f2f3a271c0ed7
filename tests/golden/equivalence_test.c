/* The promise: a request's tokens and the bits of its logprobs do not depend on what else runs, on the prefix cache, on
 * how prompts are cut into chunks, on preemption, on lanes, nodes, policy or level. Every request is first asked alone
 * on one lane without a cache; then all of them together in every kind of engine, cold, warm, and in a crowd that comes
 * and goes. The counters must show that what is claimed to be harmless really happened. XENON_TEST_FULL=1 tries every
 * kind of engine with every cache type; sanitizer builds take fewer models. */
#include "api_client.h"

#include <stdio.h>
#include <string.h>

#include "../unit/load_golden.h"
#include "base/mem.h"
#include "base/rng.h"

enum { N_REQUESTS = 8, N_OTHERS = 40, LONG = N_REQUESTS - 1, PROMPT_MAX = 2048, SHARED = 64 };

/* What is asked of every engine. */
struct workload {
    struct xenon_request req[N_REQUESTS];
    int32_t prompts[N_REQUESTS][PROMPT_MAX];
    int64_t vocab;
    struct xenon_bias bias[2];
    struct api_client_answer alone[N_REQUESTS];
};

struct model_case {
    const char *model, *dtype, *kv, *quantize;
    int64_t long_len; /* prompt of the last request */
    int max_tokens;
};

/* What to run, what must show. ALWAYS: for every cache type, not for the default alone. */
enum { COLD = 1, WARM = 2, CROWD = 4, NO_LONG = 8, MANY_CHUNKS = 16, PREEMPTS = 32, ALWAYS = 64 };

/* A kind of engine; zeros are defaults. More lanes than cores are slow on a busy machine: one round each. */
struct kind {
    const char *name;
    int threads, fake_nodes, level, tokens, blocks;
    enum xenon_policy policy;
    bool no_cache;
    int flags;
};

// clang-format off
static const struct kind kinds[] = {
    {"one lane",            1, 0, 0, 512,  0, XENON_POLICY_MIXED,         false, COLD | WARM},
    {"two lanes, crowd",    2, 0, 0, 512,  0, XENON_POLICY_MIXED,         false, COLD | WARM | CROWD},
    {"five lanes",          5, 0, 0, 512,  0, XENON_POLICY_MIXED,         false, COLD},
    {"two nodes",           2, 2, 0,  64,  0, XENON_POLICY_PREFILL_FIRST, false, COLD | WARM | CROWD | ALWAYS},
    {"two nodes, 3 lanes",  3, 2, 0, 512,  0, XENON_POLICY_MIXED,         false, COLD},
    {"level 0",             2, 0, 1, 512,  0, XENON_POLICY_MIXED,         false, COLD | WARM},
    {"level 1",             2, 0, 2,  64,  0, XENON_POLICY_MIXED,         false, COLD | WARM},
    {"prefill first",       2, 0, 0, 512,  0, XENON_POLICY_PREFILL_FIRST, false, COLD | CROWD},
    {"chunks of 16",        2, 0, 0,  16,  0, XENON_POLICY_MIXED,         false, COLD | WARM | MANY_CHUNKS | ALWAYS},
    {"chunks of 64",        2, 0, 0,  64,  0, XENON_POLICY_PREFILL_FIRST, false, COLD | WARM | MANY_CHUNKS},
    {"no cache, chunks",    2, 0, 0,  32,  0, XENON_POLICY_MIXED,         true,  COLD | CROWD | MANY_CHUNKS},
    {"few pages",           2, 0, 0,  64, 12, XENON_POLICY_MIXED,         false, COLD | WARM | CROWD | NO_LONG | PREEMPTS | ALWAYS},
    {"few pages, no cache", 1, 0, 0,  48, 12, XENON_POLICY_PREFILL_FIRST, true,  COLD | CROWD | NO_LONG | PREEMPTS},
};
// clang-format on

/* ---- The requests ---- */

static void set_prompt(struct workload *w, int i, struct rng *rng, int64_t n, bool shared) {
    for (int64_t t = 0; t < n; t++) {
        /* The beginning that several prompts share depends on the position alone. */
        const uint32_t r = shared && t < SHARED ? (uint32_t)(t * t * 7 + t * 31 + 11) : rng_below(rng, 1 << 30);
        w->prompts[i][t] = (int32_t)(5 + r % (uint32_t)(w->vocab - 5));
    }
    w->req[i] = (struct xenon_request){.prompt = w->prompts[i], .n_prompt = (size_t)n};
}

static void set_sampling(struct workload *w, int i, int max_tokens) {
    struct xenon_sampling *const s = &w->req[i].sampling;
    xenon_sampling_default(s);
    s->max_tokens = max_tokens;
    s->ignore_eos = true;
    s->logprobs = 4;
    s->has_seed = true;
    s->seed = (uint64_t)(1000 + i);
    s->temperature = i == 0 || i == 2 || i == LONG ? 0.0f : 0.9f;
}

static void make_workload(struct workload *w, int64_t vocab, const struct model_case *m) {
    static const int lengths[N_REQUESTS] = {77, 104, 3, 100, 90, 33, 17, 0};
    struct rng rng = rng_seeded(42);
    memset(w, 0, sizeof *w);
    w->vocab = vocab;
    for (int i = 0; i < N_REQUESTS; i++) {
        set_prompt(w, i, &rng, i == LONG ? m->long_len : lengths[i], i == 0 || i == 1 || i == 4);
        set_sampling(w, i, m->max_tokens);
    }
    w->req[1].sampling.top_k = 20;
    w->req[3].sampling.prompt_logprobs = 2;
    w->req[4].sampling.top_p = 0.8f;
    w->req[5].sampling.min_p = 0.05f;
    struct xenon_sampling *const s = &w->req[6].sampling;
    s->repetition_penalty = 1.3f;
    s->presence_penalty = 0.5f;
    s->frequency_penalty = -0.25f;
    s->min_tokens = 3;
    w->bias[0] = (struct xenon_bias){.id = 9, .bias = 2.5f};
    w->bias[1] = (struct xenon_bias){.id = 7, .bias = -100.0f};
    s->bias = w->bias;
    s->n_bias = 2;
}

/* ---- Engines ---- */

static struct xenon *open_kind(const struct model_case *m, const struct kind *k) {
    const int64_t pages = (m->long_len + 1000) / 16;
    const struct xenon_options opt = {.model = m->model,
                                      .dtype = m->dtype,
                                      .kv_cache_dtype = m->kv,
                                      .quantize = m->quantize,
                                      .max_model_len = m->long_len > 488 ? m->long_len + 64 : 512,
                                      .max_num_seqs = 24,
                                      .max_num_batched_tokens = k->tokens,
                                      .num_kv_blocks = k->blocks ? k->blocks : pages,
                                      .disable_prefix_caching = k->no_cache,
                                      .policy = k->policy,
                                      .threads = k->threads,
                                      .fake_nodes = k->fake_nodes,
                                      .level = k->level,
                                      .no_pin = true};
    return api_client_open(&opt);
}

static void ask_alone(struct workload *w, const struct model_case *m) {
    const struct kind k = {.threads = 1, .tokens = 512, .no_cache = true};
    struct xenon *const x = open_kind(m, &k);
    make_workload(w, xenon_info(x)->vocab_size, m);
    for (int i = 0; i < N_REQUESTS; i++) {
        api_client_ask(x, &w->req[i], &w->alone[i]);
        assert_int_equal(w->alone[i].n, m->max_tokens);
    }
    xenon_close(x);
}

static void compare(const struct workload *w, const struct model_case *m, const struct kind *k, const char *round,
                    int i, struct xenon_handle *h) {
    struct api_client_answer a;
    char what[256];
    snprintf(what, sizeof what, "%s %s %s: %s, %s: request %d", m->model, m->dtype, m->kv, k->name, round, i);
    api_client_collect(h, &a);
    api_client_same(&w->alone[i], &a, what);
    api_client_free(&a);
}

/* All requests at once. */
static void run_together(struct xenon *x, const struct workload *w, const struct model_case *m, const struct kind *k,
                         const char *round) {
    const int n = k->flags & NO_LONG ? LONG : N_REQUESTS;
    struct xenon_handle *h[N_REQUESTS];
    for (int i = 0; i < n; i++)
        h[i] = api_client_submit(x, &w->req[i]);
    for (int i = 0; i < n; i++)
        compare(w, m, k, round, i, h[i]);
}

/* Somebody else's request: some share our beginnings, some are cut off in the middle. */
static struct xenon_handle *submit_other(struct xenon *x, const struct workload *w, struct rng *rng) {
    struct xenon_request r = w->req[rng_below(rng, LONG)];
    int32_t ids[128];
    const size_t same = rng_below(rng, (uint32_t)r.n_prompt), n = 1 + rng_below(rng, 120);
    for (size_t i = 0; i < n; i++)
        ids[i] = i < same ? r.prompt[i] : (int32_t)(5 + rng_below(rng, (uint32_t)w->vocab - 5));
    r.prompt = ids;
    r.n_prompt = n;
    r.sampling.seed = rng_next(rng);
    r.sampling.logprobs = -1;
    r.sampling.max_tokens = (int32_t)(1 + rng_below(rng, 30));
    r.sampling.min_tokens = 0;
    return api_client_submit(x, &r);
}

static void run_crowd(struct xenon *x, const struct workload *w, const struct model_case *m, const struct kind *k) {
    const int n = k->flags & NO_LONG ? LONG : N_REQUESTS;
    struct xenon_handle *h[N_REQUESTS], *others[N_OTHERS];
    struct rng rng = rng_seeded(7);
    int n_others = 0;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < N_OTHERS / N_REQUESTS; j++)
            others[n_others++] = submit_other(x, w, &rng);
        h[i] = api_client_submit(x, &w->req[i]);
    }
    for (int i = 0; i < n; i++) {
        xenon_release(others[3 * i]); /* leaves before its end */
        others[3 * i] = NULL;
        compare(w, m, k, "in a crowd", i, h[i]);
    }
    for (int i = 0; i < n_others; i++) {
        struct api_client_answer a;
        if (!others[i]) continue;
        api_client_collect(others[i], &a);
        api_client_free(&a);
    }
}

static void run_kind(const struct workload *w, const struct model_case *m, const struct kind *k) {
    struct xenon_stats s;
    struct xenon *const x = open_kind(m, k);
    run_together(x, w, m, k, "cold");
    api_client_idle(x, &s);
    const int64_t cold_hits = s.prefix_hits;
    if (k->flags & MANY_CHUNKS) assert_true(s.prefill_chunks > N_REQUESTS + 4);
    if (k->fake_nodes) assert_int_equal(xenon_info(x)->nodes, k->fake_nodes);
    assert_int_equal(xenon_info(x)->threads, k->threads);
    if (k->flags & WARM) {
        run_together(x, w, m, k, "warm");
        api_client_idle(x, &s);
        if (s.prefix_hits - cold_hits < SHARED)
            fail_msg("%s: only %lld hits", k->name, (long long)(s.prefix_hits - cold_hits));
    }
    if (k->flags & CROWD) run_crowd(x, w, m, k);
    api_client_idle(x, &s);
    if (k->no_cache) assert_int_equal(s.prefix_hits, 0);
    if ((k->flags & PREEMPTS) && s.preemptions == 0) fail_msg("%s: nothing was preempted", k->name);
    xenon_close(x);
}

/* Every kind, or a few. */
static void run_case(const struct model_case *m, bool every) {
    struct workload *const w = mem_calloc(1, sizeof *w);
    int n = 0;
    assert_non_null(w);
    ask_alone(w, m);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!every && !(kinds[i].flags & ALWAYS) && !api_client_wants_all()) continue;
        run_kind(w, m, &kinds[i]);
        n++;
    }
    print_message("%s %s, %s cache%s%s: the same bits in %d kinds of engine\n", strrchr(m->model, '/') + 1, m->dtype,
                  m->kv, m->quantize ? ", " : "", m->quantize ? m->quantize : "", n);
    for (int i = 0; i < N_REQUESTS; i++)
        api_client_free(&w->alone[i]);
    mem_free(w);
}

/* ---- Cases ---- */

/* Between them they have everything that differs: one kv head, windows in all or in some layers, bf16 weights, biases.
 */
static bool is_thorough(const char *folder) {
    static const char *const names[] = {"smollm2", "mistral_swa", "qwen2_swa", "llama3_bf16"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(folder, names[i]) == 0) return true;
    return api_client_wants_all();
}

static void test_tiny(void **state) {
    static const struct {
        const char *dtype, *kv, *quantize;
    } types[] = {{"auto", "bf16", NULL},
                 {"float32", "f32", NULL},
                 {"auto", "int8", NULL},
                 {"auto", "fp8", "q8_0"},
                 {"auto", "f32", "q4_1"}};
    char name[128];
    struct golden_path path;
    snprintf(name, sizeof name, "models/%s", (const char *)*state);
    golden_need(name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct model_case m = {.model = golden_path(&path, name),
                                     .dtype = types[i].dtype,
                                     .kv = types[i].kv,
                                     .quantize = types[i].quantize,
                                     .long_len = 480,
                                     .max_tokens = 24};
        if (i > 1 && !is_thorough(*state)) continue;
        run_case(&m, i == 0 && is_thorough(*state) && !api_client_is_slow());
    }
}

/* Contexts of three attention slices; a few kinds of engine. */
static void test_real(void **state) {
    (void)state;
    static const struct kind real_kinds[] = {
        {"two lanes", 2, 0, 0, 512, 0, XENON_POLICY_MIXED, false, COLD | WARM},
        {"five lanes", 5, 0, 0, 512, 0, XENON_POLICY_MIXED, false, COLD},
        {"two nodes", 2, 2, 1, 64, 0, XENON_POLICY_PREFILL_FIRST, false, COLD | MANY_CHUNKS},
        {"few pages", 2, 0, 0, 96, 12, XENON_POLICY_MIXED, false, COLD | WARM | CROWD | NO_LONG | PREEMPTS},
    };
    const struct model_case m = {.model = api_client_smollm2(),
                                 .dtype = "auto",
                                 .kv = "bf16",
                                 .long_len = api_client_is_slow() ? 540 : 1100,
                                 .max_tokens = 24};
    struct workload *const w = mem_calloc(1, sizeof *w);
    assert_non_null(w);
    ask_alone(w, &m);
    for (size_t i = 0; i < sizeof real_kinds / sizeof *real_kinds; i++) {
        if (api_client_is_slow() && i > 0) break;
        run_kind(w, &m, &real_kinds[i]);
    }
    for (int i = 0; i < N_REQUESTS; i++)
        api_client_free(&w->alone[i]);
    mem_free(w);
}

int main(void) {
    static const char *const folders[] = {"smollm2", "mistral_swa", "qwen2_swa",  "llama3_bf16", "qwen3",
                                          "llama2",  "llama3",      "llama_bias", "mistral",     "qwen2"};
    struct CMUnitTest tests[sizeof folders / sizeof *folders + 1];
    const size_t n_folders = api_client_is_slow() ? 4 : sizeof folders / sizeof *folders;
    size_t n = 0;
    for (size_t i = 0; i < n_folders; i++)
        tests[n++] = (struct CMUnitTest){folders[i], test_tiny, NULL, NULL, (void *)(uintptr_t)folders[i]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_real);
    return _cmocka_run_group_tests("equivalence", tests, n, NULL, NULL);
}
