/* Queue order, budgets, policies, chunks, preemption, ends, cancels, deadlines, limits. Tokens are made up: the
 * results of a step are given by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/scheduler.h"

enum { BLOCK = 16, LEN = 1024, EOS = 2 };

static const int32_t eos_ids[] = {EOS};

struct fixture {
    struct block_manager *bm;
    struct scheduler *s;
    struct sched_batch batch;
    struct sched_result results[64];
    int32_t ids[64];
    uint64_t last_id;
    int64_t now_ns;
};

static struct scheduler_config config_of(enum xenon_policy policy, int max_num_seqs, int budget) {
    return (struct scheduler_config){.policy = policy,
                                     .max_num_seqs = max_num_seqs,
                                     .max_num_batched_tokens = budget,
                                     .max_queue = 100,
                                     .max_model_len = LEN,
                                     .aging_ns = 1000,
                                     .eos_ids = eos_ids,
                                     .n_eos = 1};
}

static void setup(struct fixture *f, const struct scheduler_config *c, int32_t n_pages) {
    memset(f, 0, sizeof *f);
    const struct cache_group_spec groups[] = {{CACHE_PAGED, 0, n_pages}};
    const struct block_manager_config blocks = {.groups = groups,
                                                .n_groups = 1,
                                                .block_size = BLOCK,
                                                .max_model_len = LEN,
                                                .prefix_caching = true,
                                                .chunk_grid = c->chunk_grid};
    assert_int_equal(block_manager_create(&f->bm, &blocks, NULL), ERR_OK);
    assert_int_equal(scheduler_create(&f->s, c, f->bm, NULL), ERR_OK);
}

static void teardown(struct fixture *f) {
    scheduler_abort_all(f->s);
    for (struct sequence *seq; (seq = scheduler_pop_finished(f->s));)
        sequence_destroy(seq);
    scheduler_destroy(f->s);
    block_manager_destroy(f->bm);
}

static struct xenon_sampling greedy(int max_tokens) {
    return (struct xenon_sampling){
        .top_p = 1, .repetition_penalty = 1, .max_tokens = max_tokens, .logprobs = -1, .prompt_logprobs = -1};
}

/* A sequence of n tokens that no other one shares. */
static struct sequence *seq_of(struct fixture *f, int n, const struct xenon_sampling *sampling, int priority) {
    int32_t prompt[LEN];
    const uint64_t id = ++f->last_id;
    for (int i = 0; i < n; i++)
        prompt[i] = (int32_t)id * 10000 + i;
    const struct sequence_spec spec = {.id = id,
                                       .prompt = prompt,
                                       .n_prompt = (size_t)n,
                                       .sampling = sampling,
                                       .priority = priority,
                                       .arrival_ns = f->now_ns,
                                       .max_model_len = LEN,
                                       .n_groups = 1,
                                       .block_size = BLOCK};
    struct sequence *seq = NULL;
    assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_OK);
    return seq;
}

static struct sequence *add(struct fixture *f, int n, int max_tokens, int priority) {
    const struct xenon_sampling sampling = greedy(max_tokens);
    struct sequence *const seq = seq_of(f, n, &sampling, priority);
    struct err_msg msg = {""};
    if (scheduler_add(f->s, seq, &msg) != ERR_OK) fail_msg("%s", msg.text);
    return seq;
}

static void plan(struct fixture *f) {
    scheduler_schedule(f->s, ++f->now_ns, &f->batch);
}

/* Every item that samples gets token `id`. */
static void commit(struct fixture *f, int32_t id) {
    for (int i = 0; i < f->batch.n_items; i++) {
        f->ids[i] = id;
        f->results[i] = (struct sched_result){.ids = &f->ids[i], .n_ids = 1};
    }
    if (f->batch.n_items > 0) scheduler_commit(f->s, ++f->now_ns, f->results);
    struct err_msg msg = {""};
    if (!scheduler_check(f->s, &msg)) fail_msg("%s", msg.text);
}

static void step(struct fixture *f, int32_t id) {
    plan(f);
    commit(f, id);
}

static int tokens_of(const struct fixture *f, const struct sequence *seq) {
    for (int i = 0; i < f->batch.n_items; i++) {
        if (f->batch.items[i].seq == seq) return f->batch.items[i].n_tokens;
    }
    return 0;
}

static void mixed_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_MIXED, 8, 128);
    setup(&f, &c, 100);
    struct sequence *const a = add(&f, 20, 10, 0);
    plan(&f);
    assert_int_equal(f.batch.n_items, 1);
    assert_true(f.batch.items[0].samples && f.batch.items[0].first_logits == 19 && !f.batch.items[0].is_decode);
    assert_int_equal(f.batch.n_ops, 2);
    commit(&f, 7);
    assert_int_equal(a->tokens[20], 7);
    assert_int_equal(a->first_token_ns, f.now_ns);
    /* The decode goes on while a long prompt is computed, and a short one does not wait for the long one. */
    struct sequence *const b = add(&f, 600, 10, 0), *const d = add(&f, 30, 10, 0);
    plan(&f);
    assert_int_equal(f.batch.n_decodes, 1);
    assert_true(f.batch.items[0].seq == a && f.batch.items[0].n_tokens == 1);
    assert_int_equal(tokens_of(&f, b), 127); /* nothing else ran: all the rest */
    assert_false(f.batch.items[1].samples);
    assert_int_equal(f.batch.items[1].first_logits, f.batch.items[1].n_tokens);
    commit(&f, 7);
    plan(&f);
    assert_int_equal(f.batch.n_tokens, 128);
    assert_int_equal(tokens_of(&f, d), 30);
    assert_int_equal(tokens_of(&f, b), 97);
    commit(&f, 7);
    assert_int_equal(sequence_n_generated(d), 1);
    assert_int_equal(b->n_computed, 224);
    teardown(&f);
}

static void prefill_first_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_PREFILL_FIRST, 8, 64);
    setup(&f, &c, 100);
    struct sequence *const a = add(&f, 20, 10, 0);
    step(&f, 7);
    struct sequence *const b = add(&f, 100, 10, 0);
    plan(&f);
    assert_int_equal(f.batch.n_items, 1);
    assert_int_equal(tokens_of(&f, b), 64);
    commit(&f, 7);
    plan(&f);
    assert_int_equal(tokens_of(&f, b), 36);
    commit(&f, 7);
    plan(&f);
    assert_int_equal(f.batch.n_decodes, 2);
    assert_int_equal(tokens_of(&f, a), 1);
    commit(&f, 7);
    teardown(&f);
}

/* More decodes than the budget: in turns; a waiting prompt gets its part in the step after it got nothing. */
static void turns_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_MIXED, 16, 8);
    setup(&f, &c, 100);
    struct sequence *seqs[12];
    for (int i = 0; i < 12; i++)
        seqs[i] = add(&f, 2, 200, 0);
    for (int i = 0; i < 30; i++)
        step(&f, 7);
    int64_t before[12];
    for (int i = 0; i < 12; i++)
        before[i] = sequence_n_generated(seqs[i]);
    for (int i = 0; i < 30; i++)
        step(&f, 7);
    for (int i = 0; i < 12; i++) {
        const int64_t n = sequence_n_generated(seqs[i]) - before[i];
        assert_true(n == 20); /* 30 steps of 8 for 12 */
        before[i] += n;
    }
    struct sequence *const late = add(&f, 50, 5, 0);
    for (int i = 0; i < 60; i++)
        step(&f, 7);
    assert_true(sequence_n_generated(late) > 0);
    for (int i = 0; i < 12; i++)
        assert_true(sequence_n_generated(seqs[i]) > before[i] + 20);
    teardown(&f);
}

static void order_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_MIXED, 1, 64);
    setup(&f, &c, 100);
    struct sequence *const a = add(&f, 4, 1, 0), *const low = add(&f, 4, 1, 2), *const high = add(&f, 4, 1, -1);
    struct sequence *const b = add(&f, 4, 1, 0);
    f.now_ns += 2500; /* more than two steps of priority: the low one has waited long enough to be before a new 0 */
    struct sequence *const fresh = add(&f, 4, 1, 0);
    struct sequence *const want[] = {high, a, b, low, fresh};
    for (int i = 0; i < 5; i++) {
        plan(&f);
        assert_ptr_equal(f.batch.items[0].seq, want[i]);
        commit(&f, 7);
        struct sequence *const done = scheduler_pop_finished(f.s);
        assert_ptr_equal(done, want[i]);
        assert_int_equal(done->finish, XENON_FINISH_LENGTH);
        sequence_destroy(done);
    }
    assert_false(scheduler_has_work(f.s));
    teardown(&f);
}

static void preemption_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_MIXED, 4, 64);
    setup(&f, &c, 6);
    struct sequence *const a = add(&f, 30, 60, 0);
    f.now_ns++;
    struct sequence *const b = add(&f, 20, 60, 0);
    struct scheduler_stats stats;
    int n_steps = 0;
    for (; b->n_preempted == 0 && n_steps < 100; n_steps++)
        step(&f, 100 + n_steps);
    assert_int_equal(a->n_preempted, 0); /* the older one keeps its pages */
    assert_int_equal(b->status, SEQUENCE_WAITING);
    assert_int_equal(b->n_computed, 0);
    const int64_t kept = sequence_n_generated(b);
    assert_true(kept > 0);
    int32_t answer[60];
    memcpy(answer, b->tokens + b->n_prompt, (size_t)kept * sizeof *answer);
    for (; b->status != SEQUENCE_FINISHED && n_steps < 300; n_steps++)
        step(&f, 100 + n_steps);
    assert_int_equal(sequence_n_generated(b), 60);
    assert_memory_equal(answer, b->tokens + b->n_prompt, (size_t)kept * sizeof *answer);
    scheduler_stats(f.s, &stats);
    assert_true(stats.preemptions >= 1);
    assert_int_equal(stats.finished, 2);
    assert_int_equal(stats.generation_tokens, 120);
    teardown(&f);
}

static void ends_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_MIXED, 8, 64);
    setup(&f, &c, 100);
    const int32_t stop[] = {50};
    struct xenon_sampling s = greedy(10);
    s.stop_ids = stop;
    s.n_stop_ids = 1;
    s.min_tokens = 2;
    struct sequence *seq = seq_of(&f, 4, &s, 0);
    assert_int_equal(scheduler_add(f.s, seq, NULL), ERR_OK);
    step(&f, 50); /* before min_tokens */
    assert_int_equal(seq->status, SEQUENCE_RUNNING);
    step(&f, 50);
    assert_ptr_equal(scheduler_pop_finished(f.s), seq);
    assert_int_equal(seq->finish, XENON_FINISH_STOP);
    assert_int_equal(seq->stop_id, 50);
    sequence_destroy(seq);

    seq = add(&f, 4, 10, 0);
    step(&f, EOS);
    assert_ptr_equal(scheduler_pop_finished(f.s), seq);
    assert_int_equal(seq->finish, XENON_FINISH_STOP);
    assert_int_equal(seq->stop_id, -1);
    assert_int_equal(sequence_n_generated(seq), 1);
    sequence_destroy(seq);

    s = greedy(2);
    s.ignore_eos = true;
    seq = seq_of(&f, 4, &s, 0);
    assert_int_equal(scheduler_add(f.s, seq, NULL), ERR_OK);
    step(&f, EOS);
    assert_int_equal(seq->status, SEQUENCE_RUNNING);
    step(&f, EOS);
    assert_int_equal(seq->finish, XENON_FINISH_LENGTH);

    seq = add(&f, 4, 0, 0); /* only the prompt */
    plan(&f);
    assert_false(f.batch.items[0].samples);
    commit(&f, 7);
    assert_int_equal(seq->finish, XENON_FINISH_LENGTH);
    assert_int_equal(sequence_n_generated(seq), 0);

    seq = add(&f, LEN - 1, -1, 0); /* as many as fit: one */
    for (int i = 0; i < 16; i++)
        step(&f, 7);
    assert_int_equal(seq->finish, XENON_FINISH_LENGTH);
    assert_int_equal(seq->n_tokens, LEN);
    teardown(&f);
}

static void cancel_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_MIXED, 1, 64);
    setup(&f, &c, 100);
    struct sequence *const a = add(&f, 10, 10, 0), *const b = add(&f, 10, 10, 0);
    scheduler_finish(f.s, b, XENON_FINISH_ABORT); /* waiting: at once */
    assert_ptr_equal(scheduler_pop_finished(f.s), b);
    sequence_destroy(b);
    plan(&f);
    scheduler_finish(f.s, a, XENON_FINISH_ABORT); /* in the step: at commit, without its token */
    assert_null(scheduler_pop_finished(f.s));
    assert_int_equal(a->n_pages[0], 1);
    commit(&f, 7);
    assert_int_equal(f.results[0].n_kept, 0);
    assert_ptr_equal(scheduler_pop_finished(f.s), a);
    assert_int_equal(a->finish, XENON_FINISH_ABORT);
    assert_int_equal(a->n_tokens, 10);
    sequence_destroy(a);

    struct sequence *const late = add(&f, 10, 10, 0);
    late->deadline_ns = f.now_ns + 100;
    assert_int_equal(scheduler_next_deadline(f.s), late->deadline_ns);
    step(&f, 7);
    assert_int_equal(late->status, SEQUENCE_RUNNING);
    f.now_ns += 100;
    plan(&f);
    assert_int_equal(f.batch.n_items, 0);
    assert_int_equal(late->finish, XENON_FINISH_ABORT);
    assert_int_equal(scheduler_next_deadline(f.s), 0);

    struct sequence *const bad = add(&f, 10, 10, 0);
    plan(&f);
    f.results[0] = (struct sched_result){.failed = true};
    scheduler_commit(f.s, f.now_ns, f.results);
    assert_int_equal(bad->finish, XENON_FINISH_ERROR);
    struct block_stats stats;
    block_manager_stats(f.bm, &stats);
    assert_int_equal(stats.groups[0].n_used, 0);

    struct sequence *const stopped = add(&f, 10, 10, 0);
    step(&f, 7);
    scheduler_finish(f.s, stopped, XENON_FINISH_STOP); /* a stop string */
    scheduler_finish(f.s, stopped, XENON_FINISH_ABORT);
    assert_int_equal(stopped->finish, XENON_FINISH_STOP);
    teardown(&f);
}

static void limits_test(void **state) {
    (void)state;
    struct fixture f;
    struct scheduler_config c = config_of(XENON_POLICY_MIXED, 1, 64);
    c.max_queue = 2;
    setup(&f, &c, 6);
    const struct xenon_sampling s = greedy(20), as_many = greedy(-1);
    struct err_msg msg = {""};
    struct sequence *seq = seq_of(&f, 90, &s, 0);
    assert_int_equal(scheduler_add(f.s, seq, &msg), ERR_LIMIT); /* 109 rows: 7 pages of 6 */
    assert_non_null(strstr(msg.text, "90 tokens"));
    assert_non_null(strstr(msg.text, "7 cache pages"));
    sequence_destroy(seq);
    seq = seq_of(&f, 97, &as_many, 0);
    assert_int_equal(scheduler_add(f.s, seq, &msg), ERR_LIMIT);
    sequence_destroy(seq);
    seq = seq_of(&f, 90, &as_many, 0); /* cut to what fits: 96 rows and a last token */
    assert_int_equal(scheduler_add(f.s, seq, &msg), ERR_OK);
    assert_int_equal(seq->max_len, 97);
    add(&f, 10, 5, 0);
    struct sequence *const third = seq_of(&f, 10, &s, 0);
    assert_int_equal(scheduler_add(f.s, third, &msg), ERR_BUSY);
    assert_null(third->salt_ref);
    sequence_destroy(third);
    struct scheduler_stats stats;
    scheduler_stats(f.s, &stats);
    assert_int_equal(stats.refused, 3);
    assert_int_equal(stats.n_waiting, 2);
    for (int i = 0; i < 20; i++)
        step(&f, 7);
    assert_int_equal(seq->n_tokens, 97);
    assert_int_equal(seq->finish, XENON_FINISH_LENGTH);
    teardown(&f);

    struct scheduler *none = NULL;
    c.chunk_grid = 128;
    assert_int_equal(scheduler_create(&none, &c, NULL, &msg), ERR_ARG);
    assert_non_null(strstr(msg.text, "at least 128"));
    c.chunk_grid = 0;
    c.max_num_seqs = 0;
    assert_int_equal(scheduler_create(&none, &c, NULL, &msg), ERR_ARG);
    c.max_num_seqs = 1;
    for (int n = 1; n <= 3; n++) {
        mem_fault_after(n);
        assert_int_equal(scheduler_create(&none, &c, NULL, &msg), ERR_NOMEM);
        mem_fault_after(0);
    }
}

static void grid_test(void **state) {
    (void)state;
    struct fixture f;
    struct scheduler_config c = config_of(XENON_POLICY_MIXED, 4, 80);
    c.chunk_grid = 64;
    setup(&f, &c, 100);
    struct sequence *const a = add(&f, 150, 20, 0);
    const int64_t want[] = {64, 128, 150};
    for (int i = 0; i < 3; i++) {
        step(&f, 7);
        assert_int_equal(a->n_computed, want[i]);
    }
    assert_int_equal(sequence_n_generated(a), 1);
    teardown(&f);
}

static void prompt_logprobs_test(void **state) {
    (void)state;
    struct fixture f;
    const struct scheduler_config c = config_of(XENON_POLICY_MIXED, 1, 32);
    setup(&f, &c, 100);
    int32_t prompt[50];
    for (int i = 0; i < 50; i++)
        prompt[i] = i;
    struct xenon_sampling s = greedy(1);
    struct sequence_spec spec = {.id = 900,
                                 .prompt = prompt,
                                 .n_prompt = 50,
                                 .sampling = &s,
                                 .max_model_len = LEN,
                                 .n_groups = 1,
                                 .block_size = BLOCK};
    for (int round = 0; round < 3; round++) {
        struct sequence *seq = NULL;
        spec.id++;
        s.prompt_logprobs = round == 1 ? 5 : -1;
        assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_OK);
        assert_int_equal(scheduler_add(f.s, seq, NULL), ERR_OK);
        plan(&f);
        /* The second round finds the prompt in the cache and must compute it all the same. */
        assert_int_equal(f.batch.items[0].first, round == 2 ? 48 : 0);
        assert_int_equal(f.batch.items[0].first_logits, round == 1 ? 0 : round == 0 ? 32 : 1);
        commit(&f, 7);
        if (round < 2) {
            plan(&f);
            assert_int_equal(f.batch.items[0].first_logits, round == 1 ? 0 : 17);
            commit(&f, 7);
        }
        assert_int_equal(seq->n_prompt_logprobs, round == 1 ? 49 : 0);
        assert_int_equal(seq->finish, XENON_FINISH_LENGTH);
    }
    teardown(&f);
}

static void drafts_test(void **state) {
    (void)state;
    struct fixture f;
    struct scheduler_config c = config_of(XENON_POLICY_MIXED, 1, 32);
    c.n_draft = 3;
    setup(&f, &c, 100);
    struct sequence *const a = add(&f, 10, 6, 0);
    step(&f, 7);
    a->n_drafts = 3;
    a->drafts[0] = 8, a->drafts[1] = 9, a->drafts[2] = 10;
    plan(&f);
    assert_true(f.batch.items[0].n_tokens == 4 && f.batch.items[0].n_draft == 3 &&
                f.batch.items[0].first_logits == 0);
    const int32_t ids[] = {8, 9, 33}; /* two accepted, the third refused */
    f.results[0] = (struct sched_result){.ids = ids, .n_ids = 3};
    scheduler_commit(f.s, ++f.now_ns, f.results);
    assert_int_equal(f.results[0].n_kept, 3);
    assert_int_equal(a->n_tokens, 14);
    assert_int_equal(a->n_computed, 13);
    /* Two tokens are left: at most one draft makes sense, and what is beyond an end is cut. */
    a->n_drafts = 3;
    plan(&f);
    assert_int_equal(f.batch.items[0].n_draft, 1);
    const int32_t end[] = {EOS, 44};
    f.results[0] = (struct sched_result){.ids = end, .n_ids = 2};
    scheduler_commit(f.s, ++f.now_ns, f.results);
    assert_int_equal(f.results[0].n_kept, 1);
    assert_int_equal(a->n_tokens, 15);
    assert_int_equal(a->finish, XENON_FINISH_STOP);
    teardown(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixed_test),  cmocka_unit_test(prefill_first_test),   cmocka_unit_test(turns_test),
        cmocka_unit_test(order_test),  cmocka_unit_test(preemption_test),      cmocka_unit_test(ends_test),
        cmocka_unit_test(cancel_test), cmocka_unit_test(limits_test),          cmocka_unit_test(grid_test),
        cmocka_unit_test(drafts_test), cmocka_unit_test(prompt_logprobs_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
