/* The whole engine against the reference, through the public API: with f32 everywhere the greedy continuation of every
 * tiny checkpoint is the reference's, token for token, and the logprobs on the way are its own. Folder and GGUF file;
 * plain ids and a chat request. */
#include "api_client.h"

#include <math.h>

#include "../unit/load_golden.h"

static const char *const folders[] = {"llama2",  "llama3",      "llama3_bf16", "llama_bias", "smollm2",
                                      "mistral", "mistral_swa", "qwen2",       "qwen2_swa",  "qwen3"};

static const char messages[] = "[{\"role\":\"system\",\"content\":\"You answer in one line.\"},"
                               "{\"role\":\"user\",\"content\":\"What did the miller write in 1024 small books?\"}]";

enum { IDS_MAX = 512 };

static size_t ids_of(const struct golden_file *g, const char *name, int32_t *out) {
    const struct ckpt_tensor *const t = golden_tensor(g, name);
    const int64_t *const ids = t->data;
    assert_true(t->shape[0] <= IDS_MAX);
    for (int64_t i = 0; i < t->shape[0]; i++)
        out[i] = (int32_t)ids[i];
    return (size_t)t->shape[0];
}

static double logprob_of(const float *logits, int64_t n, int32_t id) {
    double max = -(double)INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

/* Compares an answer with greedy ids, logits rows and gaps; nothing is compared behind a choice that was too close. */
static double check_answer(const struct golden_file *g, const char *prefix, const struct api_client_answer *a,
                           const char *what) {
    char name[64];
    int32_t want[IDS_MAX];
    double worst = 0;
    snprintf(name, sizeof name, "%sgreedy_ids", prefix);
    const size_t n = ids_of(g, name, want);
    snprintf(name, sizeof name, "%slogits_decode", prefix);
    const struct ckpt_tensor *const logits = golden_tensor(g, name);
    snprintf(name, sizeof name, "%sgreedy_gap", prefix);
    const float *const gaps = golden_tensor(g, name)->data;
    for (size_t i = 0; i < n && (double)gaps[i] >= 1e-3; i++) {
        if (i >= a->n || a->tokens[i].id != want[i])
            fail_msg("%s: token %zu is %d, the reference has %d", what, i, i < a->n ? a->tokens[i].id : -1, want[i]);
        const float *const row = (const float *)logits->data + (int64_t)i * logits->shape[1];
        const double d = fabs((double)a->tokens[i].logprob - logprob_of(row, logits->shape[1], want[i]));
        if (!(d < 1e-4)) fail_msg("%s: logprob of token %zu differs by %g", what, i, d);
        if (d > worst) worst = d;
    }
    return worst;
}

static void ask_greedy(struct xenon *x, const int32_t *ids, size_t n, int n_new, struct api_client_answer *a) {
    struct xenon_request req = {.prompt = ids, .n_prompt = n};
    xenon_sampling_default(&req.sampling);
    req.sampling.temperature = 0;
    req.sampling.max_tokens = n_new;
    req.sampling.logprobs = 0;
    api_client_ask(x, &req, a);
}

static double check_chat(struct xenon *x, const struct golden_file *g, const char *what) {
    const struct xenon_chat chat = {.messages = messages, .add_generation_prompt = true};
    struct xenon_error err = {{0}};
    struct api_client_answer a;
    int32_t want[IDS_MAX], *ids;
    char *text;
    size_t len, n;
    if (xenon_render_chat(x, &chat, &text, &len, &err)) fail_msg("%s: %s", what, err.text);
    if (xenon_tokenize(x, text, len, false, true, &ids, &n, &err)) fail_msg("%s: %s", what, err.text);
    assert_int_equal(n, ids_of(g, "chat_input_ids", want));
    assert_memory_equal(ids, want, n * sizeof *ids);
    ask_greedy(x, ids, n, 8, &a);
    const double worst = check_answer(g, "chat_", &a, what);
    api_client_free(&a);
    xenon_free(ids);
    xenon_free(text);
    return worst;
}

static void run(const char *folder, const char *file) {
    char name[256], what[160];
    struct golden_path path;
    struct golden_file g;
    struct api_client_answer a;
    int32_t ids[IDS_MAX];
    snprintf(name, sizeof name, "models/%s/expected.safetensors", folder);
    golden_need(name);
    golden_open(&g, name);
    snprintf(what, sizeof what, "%s/%s", folder, file);
    snprintf(name, sizeof name, "models/%s", what);
    const struct xenon_options opt = {.model = golden_path(&path, name),
                                      .dtype = "float32",
                                      .kv_cache_dtype = "f32",
                                      .num_kv_blocks = 40,
                                      .max_num_seqs = 4,
                                      .max_num_batched_tokens = 128};
    struct xenon *const x = api_client_open(&opt);
    const size_t n = ids_of(&g, "input_ids", ids);
    ask_greedy(x, ids, n, 24, &a);
    const double plain = check_answer(&g, "", &a, what), chat = check_chat(x, &g, what);
    print_message("%-12s %-10s logprobs of 24 tokens within %.1e, of the chat request within %.1e\n", folder,
                  *file ? file : "folder", plain, chat);
    api_client_free(&a);
    xenon_close(x);
    golden_close(&g);
}

static void test_folder(void **state) {
    run(*state, "");
}

static void test_gguf(void **state) {
    char name[128];
    snprintf(name, sizeof name, "models/%s/model.gguf", (const char *)*state);
    golden_need(name);
    run(*state, "model.gguf");
}

int main(void) {
    struct CMUnitTest tests[2 * sizeof folders / sizeof *folders];
    size_t n = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        void *const state = (void *)(uintptr_t)folders[i];
        tests[n++] = (struct CMUnitTest){folders[i], test_folder, NULL, NULL, state};
        tests[n++] = (struct CMUnitTest){folders[i], test_gguf, NULL, NULL, state};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
