/* A real checkpoint, SmolLM2-135M-Instruct Q4_1, against the reference data of golden/real (its README defines the
 * measures).
 * float32: logprobs within 1e-3, choices equal except at near-ties, fed the reference's tokens and running freely.
 * auto: choices against the float32 reference, logprob rms no worse than llama.cpp's, and the loss on text.txt.
 * XENON_TEST_FULL=1 computes the whole text; sanitizer builds take a few prompts only. */
#include "api_client.h"

#include <jansson.h>
#include <math.h>

#include "../unit/load_golden.h"
#include "base/clock.h"
#include "base/mem.h"
#include "load/jsonio.h"

enum { N_PROMPTS = 20, N_STEPS = 48, N_BEST = 8, CHUNK = 512, IDS_MAX = 1024 };

/* What the reference says of one step. */
struct step_ref {
    double logprob[N_BEST], gap; /* best first; best minus second */
    int32_t id[N_BEST];
};

struct prompt_ref {
    const char *name, *text, *kind;
    const json_t *messages;
    int32_t ids[IDS_MAX]; /* the prompt, then the reference's greedy tokens */
    size_t n_prompt;
    struct step_ref steps[N_STEPS];
    double llamacpp_rms; /* distance of llama.cpp, fed the same tokens */
};

static struct {
    json_t *root;
    struct prompt_ref prompts[N_PROMPTS];
    int n;
    char file[1024];
} ref;

static size_t read_ids(const json_t *array, int32_t *out) {
    const size_t n = json_array_size(array);
    assert_true(n <= IDS_MAX - N_STEPS);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return n;
}

static void read_prompt(struct prompt_ref *p, const json_t *j) {
    const json_t *const f32 = json_object_get(j, "f32"), *const steps = json_object_get(f32, "steps");
    p->name = json_string_value(json_object_get(j, "name"));
    p->text = json_string_value(json_object_get(j, "text"));
    p->kind = json_string_value(json_object_get(j, "kind"));
    p->messages = json_object_get(j, "messages");
    p->llamacpp_rms = json_number_value(json_object_get(json_object_get(j, "llamacpp"), "forced_logprob_rms"));
    p->n_prompt = read_ids(json_object_get(j, "ids"), p->ids);
    assert_int_equal(read_ids(json_object_get(f32, "ids"), p->ids + p->n_prompt), N_STEPS);
    for (size_t s = 0; s < N_STEPS; s++) {
        const json_t *const step = json_array_get(steps, s), *const top = json_object_get(step, "top");
        const double lse = json_number_value(json_object_get(step, "lse"));
        assert_int_equal(json_array_size(top), N_BEST);
        for (size_t k = 0; k < N_BEST; k++) {
            p->steps[s].id[k] = (int32_t)json_integer_value(json_array_get(json_array_get(top, k), 0));
            p->steps[s].logprob[k] = json_number_value(json_array_get(json_array_get(top, k), 1)) - lse;
        }
        p->steps[s].gap = p->steps[s].logprob[0] - p->steps[s].logprob[1];
    }
}

static int setup(void **state) {
    (void)state;
    struct golden_path path;
    struct err_msg msg;
    char *text;
    size_t len;
    golden_need("real/smollm2.json");
    snprintf(ref.file, sizeof ref.file, "%s", api_client_smollm2());
    if (file_read_all(golden_path(&path, "real/smollm2.json"), 64 << 20, &text, &len, &msg)) fail_msg("%s", msg.text);
    if (jsonio_parse(&ref.root, text, len, true, path.text, &msg)) fail_msg("%s", msg.text);
    mem_free(text);
    const json_t *const list = json_object_get(ref.root, "prompts");
    assert_int_equal(json_array_size(list), N_PROMPTS);
    ref.n = api_client_is_slow() ? 3 : N_PROMPTS;
    for (size_t i = 0; i < N_PROMPTS; i++)
        read_prompt(&ref.prompts[i], json_array_get(list, i));
    /* A wrong file would fail everywhere without saying why. */
    struct file_map map;
    if (file_map_open(&map, ref.file, &msg)) fail_msg("%s", msg.text);
    assert_int_equal(map.size, json_integer_value(json_object_get(ref.root, "size")));
    file_map_close(&map);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    json_decref(ref.root);
    return 0;
}

static struct xenon *open_model(const char *dtype, const char *kv) {
    if (!ref.root) skip();
    const struct xenon_options opt = {.model = ref.file,
                                      .dtype = dtype,
                                      .kv_cache_dtype = kv,
                                      .max_model_len = 1024,
                                      .max_num_seqs = 32,
                                      .num_kv_blocks = 1400,
                                      .max_num_batched_tokens = 512};
    return api_client_open(&opt);
}

/* ---- Text ---- */

static void check_ids(struct xenon *x, const struct prompt_ref *p, const char *text, size_t len) {
    struct xenon_error err = {{0}};
    int32_t *ids;
    size_t n;
    if (xenon_tokenize(x, text, len, true, true, &ids, &n, &err)) fail_msg("%s: %s", p->name, err.text);
    if (n != p->n_prompt || memcmp(ids, p->ids, n * sizeof *ids) != 0)
        fail_msg("%s: %zu ids that are not the reference's %zu", p->name, n, p->n_prompt);
    xenon_free(ids);
}

static void test_ids(void **state) {
    (void)state;
    struct xenon *const x = open_model("auto", "auto");
    for (int i = 0; i < N_PROMPTS; i++) {
        const struct prompt_ref *const p = &ref.prompts[i];
        struct xenon_error err = {{0}};
        char *text;
        size_t len;
        check_ids(x, p, p->text, strlen(p->text));
        if (!p->messages) continue;
        char *const messages = json_dumps(p->messages, 0);
        const struct xenon_chat chat = {.messages = messages, .add_generation_prompt = true};
        if (xenon_render_chat(x, &chat, &text, &len, &err)) fail_msg("%s: %s", p->name, err.text);
        assert_string_equal(text, p->text);
        check_ids(x, p, text, len);
        xenon_free(text);
        mem_free(messages);
    }
    xenon_close(x);
}

/* ---- Fed the reference's tokens ---- */

struct forced {
    int n_choices, n_equal, n_far; /* far: differs although the reference's gap is above the bound */
    double worst;                  /* logprob difference */
    double rms_mean;               /* of the prompts' rms over the eight best */
    double rms_llamacpp;           /* the same of llama.cpp */
    int n_unknown;                 /* of the reference's best that are not among ours */
    double gap_max;                /* largest reference gap at a choice that differs */
};

static const struct xenon_logprob *find(const struct api_client_token *t, int32_t id) {
    for (int i = 0; i < t->n_top; i++)
        if (t->top[i].id == id) return &t->top[i];
    return NULL;
}

static void compare_prompt(struct forced *f, const struct prompt_ref *p, const struct api_client_answer *a,
                           double gap) {
    double sum = 0;
    assert_non_null(a->prompt);
    for (size_t s = 0; s < N_STEPS; s++) {
        const struct api_client_token *const t = &a->prompt[p->n_prompt + s];
        const struct step_ref *const r = &p->steps[s];
        assert_int_equal(t->n_top, API_CLIENT_TOP);
        for (size_t k = 0; k < N_BEST; k++) {
            const struct xenon_logprob *const have = find(t, r->id[k]);
            f->n_unknown += !have;
            /* One that we rank below our best 20 is at least that far off. */
            const double d = (double)(have ? have->logprob : t->top[API_CLIENT_TOP - 1].logprob) - r->logprob[k];
            sum += d * d;
            f->worst = fmax(f->worst, fabs(d));
        }
        f->n_choices++;
        f->n_equal += t->top[0].id == r->id[0];
        if (t->top[0].id == r->id[0]) continue;
        if (r->gap > gap)
            print_message("%s, step %zu: chooses %d, the reference %d with a gap of %.3f\n", p->name, s, t->top[0].id,
                          r->id[0], r->gap);
        f->gap_max = fmax(f->gap_max, r->gap);
        f->n_far += r->gap > gap;
    }
    f->rms_llamacpp += p->llamacpp_rms / ref.n;
    f->rms_mean += sqrt(sum / (N_STEPS * N_BEST)) / ref.n;
}

/* One pass per prompt: the logprobs of prompt + answer hold the eight best of every step. */
static struct forced feed_reference(struct xenon *x, double gap) {
    struct forced f = {0};
    struct xenon_handle *h[N_PROMPTS];
    for (int i = 0; i < ref.n; i++) {
        struct xenon_request req = {.prompt = ref.prompts[i].ids, .n_prompt = ref.prompts[i].n_prompt + N_STEPS};
        xenon_sampling_default(&req.sampling);
        req.sampling.max_tokens = 0;
        req.sampling.prompt_logprobs = API_CLIENT_TOP;
        h[i] = api_client_submit(x, &req);
    }
    for (int i = 0; i < ref.n; i++) {
        struct api_client_answer a;
        api_client_collect(h[i], &a);
        compare_prompt(&f, &ref.prompts[i], &a, gap);
        api_client_free(&a);
    }
    return f;
}

static void test_float32_forced(void **state) {
    (void)state;
    struct xenon *const x = open_model("float32", "f32");
    const struct forced f = feed_reference(x, 2e-3);
    print_message(
        "float32, fed the reference's tokens: %d of %d choices equal, logprobs of the eight best within %.1e\n",
        f.n_equal, f.n_choices, f.worst);
    assert_int_equal(f.n_unknown, 0);
    assert_int_equal(f.n_far, 0);
    assert_true(f.worst < 1e-3);
    xenon_close(x);
}

static void test_auto_forced(void **state) {
    (void)state;
    struct xenon *const x = open_model("auto", "auto");
    const struct forced f = feed_reference(x, 0.5);
    print_message("auto, fed the reference's tokens: %d of %d choices equal (largest gap at a difference %.2f), logprob rms "
                  "%.4f, llama.cpp's %.4f (%d alternatives beyond our best %d)\n",
                  f.n_equal, f.n_choices, f.gap_max, f.rms_mean, f.rms_llamacpp, f.n_unknown, API_CLIENT_TOP);
    assert_int_equal(f.n_far, 0);
    assert_true(f.n_equal * 100 >= f.n_choices * 95);
    assert_true(f.rms_mean <= f.rms_llamacpp);
    xenon_close(x);
}

/* ---- Running freely ---- */

static void test_float32_greedy(void **state) {
    (void)state;
    struct xenon *const x = open_model("float32", "f32");
    struct xenon_handle *h[N_PROMPTS];
    int n_equal = 0;
    for (int i = 0; i < ref.n; i++) {
        struct xenon_request req = {.prompt = ref.prompts[i].ids, .n_prompt = ref.prompts[i].n_prompt};
        xenon_sampling_default(&req.sampling);
        req.sampling.temperature = 0;
        req.sampling.max_tokens = N_STEPS;
        req.sampling.ignore_eos = true;
        h[i] = api_client_submit(x, &req);
    }
    for (int i = 0; i < ref.n; i++) {
        const struct prompt_ref *const p = &ref.prompts[i];
        struct api_client_answer a;
        api_client_collect(h[i], &a);
        assert_int_equal(a.n, N_STEPS);
        size_t s = 0;
        while (s < N_STEPS && a.tokens[s].id == p->ids[p->n_prompt + s])
            s++;
        /* Behind a near-tie the two texts may part. */
        if (s < N_STEPS && p->steps[s].gap >= 2e-3)
            fail_msg("%s: token %zu is %d, the reference has %d with a gap of %.4f", p->name, s, a.tokens[s].id,
                     p->ids[p->n_prompt + s], p->steps[s].gap);
        n_equal += (int)s;
        api_client_free(&a);
    }
    print_message("float32, greedy: %d of %d tokens equal\n", n_equal, ref.n * N_STEPS);
    xenon_close(x);
}

/* ---- The loss of a text ---- */

/* The whole text's ids, checked against the reference's. */
static int32_t *text_ids(struct xenon *x, const struct golden_file *g, size_t *n) {
    const struct ckpt_tensor *const want = golden_tensor(g, "ids");
    struct xenon_error err = {{0}};
    struct err_msg msg = {{0}};
    struct golden_path path;
    char *text;
    size_t len;
    int32_t *ids;
    if (file_read_all(golden_path(&path, "real/text.txt"), 1 << 20, &text, &len, &msg)) fail_msg("%s", msg.text);
    if (xenon_tokenize(x, text, len, true, true, &ids, n, &err)) fail_msg("%s", err.text);
    mem_free(text);
    assert_int_equal(*n, want->shape[0]);
    assert_memory_equal(ids, want->data, *n * sizeof *ids);
    return ids;
}

static double chunk_loss(struct xenon_handle *h) {
    struct api_client_answer a;
    double sum = 0;
    api_client_collect(h, &a);
    assert_int_equal(a.n_prompt, CHUNK);
    assert_non_null(a.prompt);
    for (size_t i = 1; i < CHUNK; i++)
        sum -= (double)a.prompt[i].logprob;
    api_client_free(&a);
    return sum;
}

/* The loss of every step-th chunk: ours and the reference's. */
struct loss {
    double have, want;
    size_t n_chunks, n_done;
};

static struct loss text_loss(const char *kv, size_t step) {
    struct xenon *const x = open_model("auto", kv);
    struct golden_file g;
    struct loss l = {0};
    size_t n;
    golden_open(&g, "real/smollm2_nll.safetensors");
    int32_t *const ids = text_ids(x, &g, &n);
    const float *const want = golden_tensor(&g, "nll")->data;
    l.n_chunks = n / CHUNK;
    for (size_t c = 0; c < l.n_chunks; c += step, l.n_done++) {
        struct xenon_request req = {.prompt = ids + c * CHUNK, .n_prompt = CHUNK};
        xenon_sampling_default(&req.sampling);
        req.sampling.max_tokens = 0;
        req.sampling.prompt_logprobs = 0;
        l.have += chunk_loss(api_client_submit(x, &req));
        for (size_t i = 0; i < CHUNK - 1; i++)
            l.want += (double)want[c * (CHUNK - 1) + i];
    }
    print_message("%s cache: loss of %zu of %zu chunks %.5f, reference %.5f, ratio %.5f\n", kv, l.n_done, l.n_chunks,
                  l.have / (double)(l.n_done * (CHUNK - 1)), l.want / (double)(l.n_done * (CHUNK - 1)),
                  l.have / l.want);
    xenon_free(ids);
    golden_close(&g);
    xenon_close(x);
    return l;
}

/* How far llama.cpp's loss of the whole text is from the reference's. */
static double llamacpp_loss_distance(void) {
    struct golden_path path;
    struct err_msg msg;
    char *text;
    size_t len;
    json_t *root;
    double totals[2];
    if (file_read_all(golden_path(&path, "real/smollm2_nll.json"), 64 << 20, &text, &len, &msg))
        fail_msg("%s", msg.text);
    if (jsonio_parse(&root, text, len, true, path.text, &msg)) fail_msg("%s", msg.text);
    for (int i = 0; i < 2; i++) {
        const json_t *const full = json_object_get(json_object_get(root, i ? "llamacpp" : "f32"), "full");
        totals[i] = json_number_value(json_object_get(full, "total"));
    }
    mem_free(text);
    json_decref(root);
    return fabs(totals[1] / totals[0] - 1);
}

static void test_auto_loss(void **state) {
    (void)state;
    const size_t step = api_client_wants_all() ? 1 : api_client_is_slow() ? 20 : 4;
    golden_need("real/smollm2_nll.safetensors");
    const struct loss bf16 = text_loss("bf16", step);
    assert_true(fabs(bf16.have / bf16.want - 1) < 0.005);
    if (bf16.n_done == bf16.n_chunks) assert_true(fabs(bf16.have / bf16.want - 1) <= llamacpp_loss_distance());
    static const char *const small[] = {"int8", "fp8"};
    for (size_t i = 0; i < 2; i++) assert_true(fabs(text_loss(small[i], step).have / bf16.have - 1) < 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_float32_forced),
        cmocka_unit_test(test_float32_greedy),
        cmocka_unit_test(test_auto_forced),
        cmocka_unit_test(test_auto_loss),
    };
    return cmocka_run_group_tests_name("real", tests, setup, teardown);
}
