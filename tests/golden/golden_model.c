#include "golden_model.h"

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != ERR_OK) fail_msg("%s", msg.text);                                                                \
    } while (0)

void golden_model_open(struct golden_model *g, const char *folder, const char *file, const struct xenon_options *opt) {
    char name[256];
    struct golden_path path;
    struct err_msg msg = {{0}};
    memset(g, 0, sizeof *g);
    snprintf(name, sizeof name, "models/%s/expected.safetensors", folder);
    golden_need(name);
    golden_open(&g->expected, name);
    snprintf(name, sizeof name, "models/%s/%s", folder, file);
    MUST(ckpt_open(&g->ckpt, golden_path(&path, name), &msg));
    struct xenon_options o = *opt;
    o.dtype = "float32";
    o.kv_cache_dtype = "f32";
    MUST(model_runner_open(&g->runner, g->ckpt, &o, &msg));

    const int32_t first = 0;
    struct xenon_sampling sampling;
    xenon_sampling_default(&sampling);
    const struct sequence_spec spec = {.prompt = &first,
                                       .n_prompt = 1,
                                       .sampling = &sampling,
                                       .max_model_len = g->runner.max_model_len,
                                       .n_groups = g->runner.kv.n_groups,
                                       .block_size = g->runner.block_size};
    MUST(sequence_create(&g->seq, &spec, &msg));
    /* Pages in descending order: the tables are really followed. */
    for (int i = 0; i < g->seq->n_groups; i++) {
        const int32_t n = g->runner.kv.groups[i].n_pages;
        for (int64_t p = 0; p < g->seq->cap_pages; p++) g->seq->pages[i][p] = p < n ? n - 1 - (int32_t)p : -1;
    }
}

void golden_model_close(struct golden_model *g) {
    sequence_destroy(g->seq);
    if (g->ckpt) model_runner_close(&g->runner);
    ckpt_close(g->ckpt);
    golden_close(&g->expected);
    memset(g, 0, sizeof *g);
}

const float *golden_model_chunk(struct golden_model *g, const int64_t *ids, int64_t first, int n) {
    for (int i = 0; i < n; i++) g->seq->tokens[first + i] = (int32_t)ids[i];
    const struct sched_item item = {.seq = g->seq, .first = first, .n_tokens = n, .first_logits = 0};
    const struct sched_batch batch = {.items = &item, .n_items = 1, .n_tokens = n};
    return model_runner_step(&g->runner, &batch, NULL);
}
