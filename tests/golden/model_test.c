/* Every built architecture against the reference: hidden state after every layer, logits of the prompt and of the
 * decode rows, within bounds that follow from the folder's own noise; for the folder and, where there is one, its GGUF
 * file. */
#include "golden_model.h"

#include <math.h>

static const char *const folders[] = {"llama2", "llama3",      "llama3_bf16", "llama_bias", "smollm2",
                                      "mistral", "mistral_swa", "qwen2",       "qwen2_swa",  "qwen3"};

static double max_diff(const float *a, const float *b, int64_t n) {
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= worst)) worst = d; /* NaN as well */
    }
    return worst;
}

/* Hidden states of a level 0 run; the last rows of the step are still in their buffers. */
static void check_hidden(const struct golden_model *g, int64_t rows) {
    for (int l = 0; l <= g->runner.model.h.n_layers; l++) {
        char name[32];
        const struct tensor *t;
        snprintf(name, sizeof name, "hidden_%d", l);
        const struct ckpt_tensor *const want = golden_tensor(&g->expected, name);
        const float *const have = plan_value(&g->runner.plan, name, &t);
        assert_non_null(have);
        assert_int_equal(t->width, want->shape[1]);
        const double d = max_diff(have, want->data, rows * t->width);
        if (!(d < 2e-4)) fail_msg("%s: differs by %g", name, d);
    }
    const struct ckpt_tensor *const want = golden_tensor(&g->expected, "final_norm");
    const double d = max_diff(plan_value(&g->runner.plan, "final_norm", NULL), want->data, rows * want->shape[1]);
    if (!(d < 2e-4)) fail_msg("final_norm: differs by %g", d);
}

static void run(const char *folder, const char *file, int level) {
    struct golden_model g;
    const struct xenon_options opt = {
        .level = level + 1, .max_num_batched_tokens = 128, .max_num_seqs = 4, .num_kv_blocks = 12};
    golden_model_open(&g, folder, file, &opt);
    const struct ckpt_tensor *const ids = golden_tensor(&g.expected, "input_ids");
    const struct ckpt_tensor *const logits = golden_tensor(&g.expected, "logits");
    const struct ckpt_tensor *const greedy = golden_tensor(&g.expected, "greedy_ids");
    const struct ckpt_tensor *const decode = golden_tensor(&g.expected, "logits_decode");
    const int64_t n = ids->shape[0], vocab = logits->shape[1];
    const float *const have = golden_model_chunk(&g, ids->data, 0, (int)n);
    const double d = max_diff(have, logits->data, n * vocab);
    if (!(d < 1e-3)) fail_msg("%s/%s: logits differ by %g", folder, file, d);
    if (level == 0) check_hidden(&g, n);
    /* Decode rows: the reference's tokens one at a time. */
    double worst = 0;
    for (int64_t s = 0; s + 1 < greedy->shape[0]; s++) {
        const float *const row = golden_model_chunk(&g, (const int64_t *)greedy->data + s, n + s, 1);
        const double e = max_diff(row, (const float *)decode->data + (s + 1) * vocab, vocab);
        if (!(e <= worst)) worst = e;
    }
    if (!(worst < 1e-3)) fail_msg("%s/%s: decode logits differ by %g", folder, file, worst);
    print_message("%-12s %-10s level %d: logits %.1e, decode %.1e\n", folder, *file ? file : "folder", level, d, worst);
    golden_model_close(&g);
}

static void test_folder_level0(void **state) { run(*state, "", 0); }
static void test_folder_level1(void **state) { run(*state, "", 1); }

static void test_gguf(void **state) {
    char name[128];
    snprintf(name, sizeof name, "models/%s/model.gguf", (const char *)*state);
    golden_need(name);
    run(*state, "model.gguf", 1);
}

int main(void) {
    struct CMUnitTest tests[3 * N_ELEMENTS(folders)];
    size_t n = 0;
    for (size_t i = 0; i < N_ELEMENTS(folders); i++) {
        void *const state = (void *)(uintptr_t)folders[i];
        tests[n++] = (struct CMUnitTest){folders[i], test_folder_level0, NULL, NULL, state};
        tests[n++] = (struct CMUnitTest){folders[i], test_folder_level1, NULL, NULL, state};
        tests[n++] = (struct CMUnitTest){folders[i], test_gguf, NULL, NULL, state};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
