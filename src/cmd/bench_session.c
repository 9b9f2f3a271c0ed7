#include "cmd/bench_session.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { VOCAB_MAX = 1 << 30 };

static enum err open_scheduler(struct bench_session *s, struct err_msg *msg) {
    struct model_runner *const r = &s->runner;
    const struct block_manager_config blocks = {.groups = r->kv.groups,
                                                .n_groups = r->kv.n_groups,
                                                .block_size = r->block_size,
                                                .max_model_len = r->max_model_len};
    const struct scheduler_config config = {.policy = XENON_POLICY_MIXED,
                                            .max_num_seqs = r->max_num_seqs,
                                            .max_num_batched_tokens = r->max_num_batched_tokens,
                                            .max_queue = r->max_num_seqs,
                                            .max_model_len = r->max_model_len};
    TRY(block_manager_create(&s->blocks, &blocks, msg));
    TRY(scheduler_create(&s->scheduler, &config, s->blocks, msg));
    return batch_sampler_create(&s->sampler, &r->kern, r->pool, r->model.h.vocab, r->max_num_batched_tokens,
                                r->max_num_seqs, msg);
}

static enum err open_all(struct bench_session *s, const struct xenon_options *opt, struct err_msg *msg) {
    const bool dummy = opt->load_format && strcmp(opt->load_format, "dummy") == 0;
    TRY(dummy ? ckpt_open_config(&s->ckpt, opt->model, msg) : ckpt_open(&s->ckpt, opt->model, msg));
    TRY(model_runner_open(&s->runner, s->ckpt, opt, msg));
    return open_scheduler(s, msg);
}

enum err bench_session_open(struct bench_session *s, const struct xenon_options *opt, struct err_msg *msg) {
    memset(s, 0, sizeof *s);
    s->rng = rng_seeded(1);
    const enum err e = open_all(s, opt, msg);
    if (e) bench_session_close(s);
    return e;
}

/* Takes back the sequences that have ended; false when one ended by an error. */
static bool drain(struct bench_session *s) {
    bool ok = true;
    for (struct sequence *q; (q = scheduler_pop_finished(s->scheduler));) {
        ok = ok && q->finish != XENON_FINISH_ERROR;
        s->n_live--;
        sequence_destroy(q);
    }
    return ok;
}

void bench_session_abort(struct bench_session *s) {
    if (!s->scheduler) return;
    scheduler_abort_all(s->scheduler);
    (void)drain(s);
}

void bench_session_close(struct bench_session *s) {
    bench_session_abort(s);
    batch_sampler_destroy(&s->sampler);
    scheduler_destroy(s->scheduler);
    block_manager_destroy(s->blocks);
    model_runner_close(&s->runner);
    ckpt_close(s->ckpt);
    memset(s, 0, sizeof *s);
}

static enum err add_prompt(struct bench_session *s, const int32_t *prompt, int64_t n_prompt, int64_t n_answer,
                           struct err_msg *msg) {
    struct xenon_sampling sampling;
    struct sequence *seq = NULL;
    xenon_sampling_default(&sampling);
    sampling.temperature = 0;
    sampling.ignore_eos = true;
    sampling.max_tokens = (int32_t)n_answer;
    const struct sequence_spec spec = {.id = ++s->next_id,
                                       .prompt = prompt,
                                       .n_prompt = (size_t)n_prompt,
                                       .sampling = &sampling,
                                       .arrival_ns = clock_ns(),
                                       .max_model_len = s->runner.max_model_len,
                                       .n_groups = s->runner.kv.n_groups,
                                       .block_size = s->runner.block_size};
    TRY(sequence_create(&seq, &spec, msg));
    const enum err e = scheduler_add(s->scheduler, seq, msg);
    if (e) sequence_destroy(seq);
    else s->n_live++;
    return e;
}

enum err bench_session_add(struct bench_session *s, int64_t n_prompt, int64_t n_answer, struct err_msg *msg) {
    const int64_t vocab = s->runner.model.h.vocab;
    int32_t *const prompt = mem_calloc((size_t)n_prompt, sizeof *prompt);
    if (!prompt) return err_set(msg, ERR_NOMEM, "bench: memory ran out");
    for (int64_t i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)rng_below(&s->rng, (uint32_t)(vocab < VOCAB_MAX ? vocab : VOCAB_MAX));
    const enum err e = add_prompt(s, prompt, n_prompt, n_answer, msg);
    mem_free(prompt);
    return e;
}

enum err bench_session_step(struct bench_session *s, int64_t *n_tokens, struct err_msg *msg) {
    struct sched_batch batch;
    scheduler_schedule(s->scheduler, clock_ns(), &batch);
    *n_tokens = batch.n_tokens;
    if (batch.n_items > 0) {
        float *const logits = model_runner_step(&s->runner, &batch, NULL);
        struct sched_result *const results = batch_sampler_run(&s->sampler, &batch, logits);
        scheduler_commit(s->scheduler, clock_ns(), results);
    }
    if (drain(s)) return ERR_OK;
    return err_set(msg, ERR_FORMAT, "the model gave logits that are not finite; its weights are out of range");
}
