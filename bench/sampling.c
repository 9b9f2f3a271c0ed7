/* Time of a step's sampling: 32 rows of a vocabulary of 151,936, reduced on the lanes and drawn, for several settings.
 * Beside it the time that reading the same rows once takes. Prints medians; run it on a machine that does nothing else.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/batch_sampler.h"
#include "engine/request.h"

enum { ROWS = 32, VOCAB = 151936, ROUNDS = 21 };

static const struct {
    const char *name;
    float temperature, top_p, min_p, presence;
    int32_t top_k, logprobs;
} settings[] = {
    {"greedy", 0.0f, 1.0f, 0.0f, 0.0f, 0, -1},
    {"temperature 1", 1.0f, 1.0f, 0.0f, 0.0f, 0, -1},
    {"temperature 1.5", 1.5f, 1.0f, 0.0f, 0.0f, 0, -1},
    {"top_p 0.9", 1.0f, 0.9f, 0.0f, 0.0f, 0, -1},
    {"temp 0.7, top_p 0.95", 0.7f, 0.95f, 0.0f, 0.0f, 0, -1},
    {"top_k 40, top_p 0.95", 0.8f, 0.95f, 0.0f, 0.0f, 40, -1},
    {"top_k 1000, top_p 0.95", 1.0f, 0.95f, 0.0f, 0.0f, 1000, -1},
    {"min_p 0.05", 1.0f, 1.0f, 0.05f, 0.0f, 0, -1},
    {"top_p 0.9, min_p 0.01", 1.0f, 0.9f, 0.01f, 0.0f, 0, -1},
    {"top_p 0.9, presence 1", 1.0f, 0.9f, 0.0f, 1.0f, 0, -1},
    {"top_p 0.9, logprobs 5", 1.0f, 0.9f, 0.0f, 0.0f, 0, 5},
};

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Fifty ids in front of a bell-like rest. Sure: as models give them, the rest has about a hundredth of the mass.
 * Unsure: it has half, so that a nucleus has thousands of ids and almost no draw is decided by the best. */
static void fill(float *x, uint64_t seed, bool sure) {
    struct rng r = rng_seeded(seed);
    const float front = sure ? 10 : 6;
    for (int i = 0; i < VOCAB; i++) x[i] = rng_f32(&r) * 3 + rng_f32(&r) * 3;
    for (int i = 0; i < 50; i++) x[rng_below(&r, VOCAB)] = front + 6 * (rng_f32(&r) * 0.5f + 0.5f);
}

static void measure(struct batch_sampler *s, struct sequence **seqs, const float *rows, float *logits, size_t which) {
    struct sched_item items[ROWS];
    double ms[ROUNDS];
    for (int i = 0; i < ROWS; i++) {
        struct sampling_params *const p = &seqs[i]->sampling;
        p->temperature = settings[which].temperature;
        p->top_p = settings[which].top_p;
        p->min_p = settings[which].min_p;
        p->top_k = settings[which].top_k;
        p->presence_penalty = settings[which].presence;
        p->logprobs = settings[which].logprobs;
        items[i] = (struct sched_item){.seq = seqs[i], .first = 0, .n_tokens = 1, .samples = true, .is_decode = true};
    }
    const struct sched_batch batch = {.items = items, .n_items = ROWS, .n_decodes = ROWS, .n_tokens = ROWS};
    for (int round = 0; round < ROUNDS; round++) {
        for (int64_t i = 0; i < (int64_t)ROWS * VOCAB; i++) logits[i] = rows[i];
        const int64_t start = clock_ns();
        batch_sampler_run(s, &batch, logits);
        ms[round] = (double)(clock_ns() - start) * 1e-6;
    }
    qsort(ms, ROUNDS, sizeof *ms, by_value);
    printf("  %-22s %6.2f ms (%.2f to %.2f)\n", settings[which].name, ms[ROUNDS / 2], ms[0], ms[ROUNDS - 1]);
}

static int fail(const struct err_msg *msg) {
    fprintf(stderr, "sampling: %s\n", msg->text);
    return 1;
}

int main(void) {
    struct err_msg msg;
    struct topology topo;
    struct pool *pool;
    struct batch_sampler s;
    struct kern kern;
    struct sequence *seqs[ROWS];
    struct xenon_handle *handles[ROWS]; /* own the sequences, and take the logprobs */
    struct xenon_sampling sampling;
    const struct topology_options topo_opt = {0};
    const int32_t prompt[1] = {1};
    float *const rows = mem_xcalloc((size_t)ROWS * VOCAB, sizeof *rows);
    float *const logits = mem_xcalloc((size_t)ROWS * VOCAB, sizeof *logits);
    if (topology_read(&topo, &topo_opt, &msg)) return fail(&msg);
    const struct pool_options pool_opt = {.n_lanes = topology_default_lanes(&topo), .pin = true};
    kern_init(&kern, cpu_detect());
    if (pool_create(&pool, &topo, &pool_opt, &msg)) return fail(&msg);
    if (batch_sampler_create(&s, &kern, pool, VOCAB, ROWS, ROWS, &msg)) return fail(&msg);
    xenon_sampling_default(&sampling);
    sampling.logprobs = 5;
    for (int i = 0; i < ROWS; i++) {
        const struct sequence_spec spec = {.prompt = prompt,
                                           .n_prompt = 1,
                                           .sampling = &sampling,
                                           .seed = (uint64_t)i + 1,
                                           .max_model_len = 64,
                                           .n_groups = 1,
                                           .block_size = 16};
        if (sequence_create(&seqs[i], &spec, &msg)) return fail(&msg);
        if (request_create(&handles[i], NULL, seqs[i], NULL, &sampling, &msg)) return fail(&msg);
        sequence_append(seqs[i], 2);
    }
    printf("%s, %s, %d lanes: %d rows of %d\n", cpu_model_name(), cpu_level_name(kern.level), pool_n_lanes(pool), ROWS,
           VOCAB);
    for (int sure = 1; sure >= 0; sure--) {
        for (int i = 0; i < ROWS; i++) fill(rows + (int64_t)i * VOCAB, (uint64_t)i, sure);
        printf("%s rows\n", sure ? "sure" : "unsure");
        for (size_t i = 0; i < N_ELEMENTS(settings); i++) measure(&s, seqs, rows, logits, i);
    }
    for (int i = 0; i < 2 * ROWS; i++) request_unref(handles[i / 2]); /* the engine's and the client's */
    batch_sampler_destroy(&s);
    pool_destroy(pool);
    topology_deinit(&topo);
    mem_free(rows);
    mem_free(logits);
    return 0;
}
