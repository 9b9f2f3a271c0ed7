/* Pages, prefix hits over all kinds of cache group, eviction order, windows, state checkpoints, operations, faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/block_manager.h"

enum { BLOCK = 16, LEN = 512 };

static struct block_manager *make(const struct cache_group_spec *groups, int n_groups, int grid, int64_t interval) {
    struct block_manager *bm = NULL;
    const struct block_manager_config config = {.groups = groups,
                                                .n_groups = n_groups,
                                                .block_size = BLOCK,
                                                .max_model_len = LEN,
                                                .prefix_caching = true,
                                                .chunk_grid = grid,
                                                .checkpoint_interval = interval};
    assert_int_equal(block_manager_create(&bm, &config, NULL), ERR_OK);
    return bm;
}

/* A sequence of n tokens first, first + 1, …; attached. */
static struct sequence *seq_of(struct block_manager *bm, int n_groups, int32_t first, int n, const char *salt) {
    static uint64_t last_id;
    int32_t prompt[LEN];
    for (int i = 0; i < n; i++)
        prompt[i] = first + i;
    const struct xenon_sampling sampling = {
        .top_p = 1, .repetition_penalty = 1, .max_tokens = -1, .logprobs = -1, .prompt_logprobs = -1};
    const struct sequence_spec spec = {.id = ++last_id,
                                       .prompt = prompt,
                                       .n_prompt = (size_t)n,
                                       .sampling = &sampling,
                                       .salt = salt,
                                       .max_model_len = LEN,
                                       .n_groups = n_groups,
                                       .block_size = BLOCK};
    struct sequence *seq = NULL;
    assert_int_equal(sequence_create(&seq, &spec, NULL), ERR_OK);
    assert_int_equal(block_manager_attach(bm, seq), ERR_OK);
    return seq;
}

static bool admit(struct block_manager *bm, struct sequence *seq) {
    if (!block_manager_admit(bm, seq, true, 0)) return false;
    seq->status = SEQUENCE_RUNNING;
    return true;
}

static void compute(struct block_manager *bm, struct sequence *seq, int64_t n) {
    assert_true(block_manager_allocate(bm, seq, n));
    seq->n_computed += n;
    block_manager_publish(bm, seq);
}

static void drop(struct block_manager *bm, struct sequence *seq) {
    block_manager_detach(bm, seq);
    sequence_destroy(seq);
}

static void check(const struct block_manager *bm, const struct sequence *a, const struct sequence *b) {
    const struct sequence *const seqs[] = {a, b};
    struct err_msg msg = {""};
    if (!block_manager_check(bm, seqs, a ? b ? 2 : 1 : 0, &msg)) fail_msg("%s", msg.text);
}

/* Tokens that a fresh request of the same n tokens finds in the cache. */
static int64_t hit(struct block_manager *bm, int n_groups, int32_t first, int n, const char *salt) {
    struct sequence *const seq = seq_of(bm, n_groups, first, n, salt);
    assert_true(admit(bm, seq));
    const int64_t got = seq->n_computed;
    drop(bm, seq);
    return got;
}

static const struct cache_group_spec paged_8[] = {{CACHE_PAGED, 0, 8}};

static void share_test(void **state) {
    (void)state;
    struct block_manager *const bm = make(paged_8, 1, 0, 0);
    struct sequence *const a = seq_of(bm, 1, 0, 40, NULL);
    assert_true(admit(bm, a));
    assert_int_equal(a->n_computed, 0);
    compute(bm, a, 40);
    /* 40 tokens: two full pages are published, the third belongs to a alone. */
    struct sequence *const b = seq_of(bm, 1, 0, 40, NULL);
    assert_true(admit(bm, b));
    assert_int_equal(b->n_computed, 32);
    assert_int_equal(b->n_cached, 32);
    assert_memory_equal(a->pages[0], b->pages[0], 2 * sizeof(int32_t));
    compute(bm, b, 8);
    assert_true(a->pages[0][2] != b->pages[0][2]);
    check(bm, a, b);
    struct block_stats stats;
    block_manager_stats(bm, &stats);
    assert_int_equal(stats.groups[0].n_used, 4);
    assert_int_equal(stats.query_tokens, 80);
    assert_int_equal(stats.hit_tokens, 32);
    drop(bm, a);
    drop(bm, b);
    block_manager_stats(bm, &stats);
    assert_int_equal(stats.groups[0].n_used, 0);
    assert_int_equal(stats.groups[0].n_cached, 2);
    assert_int_equal(hit(bm, 1, 0, 33, NULL), 32);
    assert_int_equal(hit(bm, 1, 0, 32, NULL), 16); /* one token at least is computed */
    assert_int_equal(hit(bm, 1, 1, 40, NULL), 0);
    assert_int_equal(hit(bm, 1, 0, 40, ""), 32); /* no salt is the empty salt */
    assert_int_equal(hit(bm, 1, 0, 40, "x"), 0);
    block_manager_clear_cache(bm);
    assert_int_equal(hit(bm, 1, 0, 40, NULL), 0);
    check(bm, NULL, NULL);
    block_manager_destroy(bm);
}

/* Two sequences compute the same block at once: the second is moved over to the published page. */
static void merge_test(void **state) {
    (void)state;
    struct block_manager *const bm = make(paged_8, 1, 0, 0);
    struct sequence *const a = seq_of(bm, 1, 0, 40, NULL), *const b = seq_of(bm, 1, 0, 40, NULL);
    assert_true(admit(bm, a));
    assert_true(admit(bm, b));
    assert_true(block_manager_allocate(bm, a, 40));
    assert_true(block_manager_allocate(bm, b, 40));
    a->n_computed = b->n_computed = 40;
    block_manager_publish(bm, a);
    block_manager_publish(bm, b);
    assert_memory_equal(a->pages[0], b->pages[0], 2 * sizeof(int32_t));
    check(bm, a, b);
    struct block_stats stats;
    block_manager_stats(bm, &stats);
    assert_int_equal(stats.groups[0].n_used, 4);
    drop(bm, a);
    check(bm, b, NULL);
    drop(bm, b);
    block_manager_destroy(bm);
}

/* The tail of a prefix goes before its head, older prefixes before younger ones, vacant pages before any. */
static void eviction_test(void **state) {
    (void)state;
    struct block_manager *const bm = make(paged_8, 1, 0, 0);
    for (int32_t first = 0; first <= 1000; first += 1000) {
        struct sequence *const seq = seq_of(bm, 1, first, 49, NULL);
        assert_true(admit(bm, seq));
        compute(bm, seq, 49);
        drop(bm, seq);
    }
    struct block_stats stats;
    block_manager_stats(bm, &stats);
    assert_int_equal(stats.groups[0].n_cached, 6);
    struct sequence *const big = seq_of(bm, 1, 5000, 63, NULL);
    assert_true(admit(bm, big));
    compute(bm, big, 62);
    block_manager_stats(bm, &stats);
    assert_int_equal(stats.evictions, 2);
    assert_int_equal(hit(bm, 1, 0, 49, NULL), 16);    /* of the older prefix only the head is left */
    assert_int_equal(hit(bm, 1, 1000, 49, NULL), 48); /* the younger one is whole */
    check(bm, big, NULL);
    drop(bm, big);
    block_manager_destroy(bm);
}

static void lack_test(void **state) {
    (void)state;
    struct block_manager *const bm = make(paged_8, 1, 0, 0);
    struct sequence *const a = seq_of(bm, 1, 0, 80, NULL), *const b = seq_of(bm, 1, 900, 80, NULL);
    assert_true(admit(bm, a));
    compute(bm, a, 80);
    assert_false(admit(bm, b)); /* needs 6 pages with the next token, 3 are left */
    assert_int_equal(b->n_pages[0], 0);
    assert_int_equal(block_manager_room(bm, a), 48);
    assert_false(block_manager_allocate(bm, a, 49)); /* nothing is taken */
    assert_int_equal(a->n_pages[0], 5);
    assert_true(block_manager_allocate(bm, a, 48));
    block_manager_release(bm, a);
    assert_int_equal(a->n_computed, 0);
    assert_false(block_manager_admit(bm, b, true, 3)); /* others are promised 3 */
    assert_true(block_manager_admit(bm, b, true, 2));
    b->status = SEQUENCE_RUNNING;
    check(bm, b, NULL);
    assert_true(block_manager_fits(bm, 128, NULL, NULL));
    int group = -1;
    int64_t need = 0;
    assert_false(block_manager_fits(bm, 129, &group, &need));
    assert_int_equal(group, 0);
    assert_int_equal(need, 9);
    assert_int_equal(block_manager_max_tokens(bm), 128);
    drop(bm, a);
    drop(bm, b);
    block_manager_destroy(bm);
}

static void window_test(void **state) {
    (void)state;
    const struct cache_group_spec groups[] = {{CACHE_PAGED, 0, 32}, {CACHE_WINDOW, 20, 8}};
    struct block_manager *const bm = make(groups, 2, 0, 0);
    struct sequence *const a = seq_of(bm, 2, 0, 200, NULL);
    assert_true(admit(bm, a));
    for (int i = 0; i < 4; i++)
        compute(bm, a, 32);
    /* 128 rows, the last 20 from 108: pages 6 and 7 are held. */
    assert_int_equal(a->first_page[1], 6);
    assert_int_equal(a->pages[1][5], -1);
    assert_true(a->pages[1][6] >= 0);
    assert_true(a->pages[0][0] >= 0);
    check(bm, a, NULL);
    /* A hit needs the window's pages before it: of 8 pages, those of blocks 0 and 1 have been reused. */
    struct sequence *const b = seq_of(bm, 2, 0, 129, NULL);
    assert_true(admit(bm, b));
    assert_int_equal(b->n_computed, 128);
    assert_int_equal(b->first_page[1], 6);
    assert_int_equal(b->pages[1][6], a->pages[1][6]);
    assert_int_equal(b->pages[1][0], -1);
    check(bm, a, b);
    drop(bm, b);
    compute(bm, a, 64); /* blocks 8 to 11 take the oldest window pages */
    assert_int_equal(hit(bm, 2, 0, 49, NULL), 0);
    assert_int_equal(hit(bm, 2, 0, 193, NULL), 192);
    /* Window pages do not limit a long sequence. */
    assert_true(block_manager_fits(bm, 512, NULL, NULL));
    check(bm, a, NULL);
    drop(bm, a);
    block_manager_destroy(bm);
}

/* Only windows: the chain is walked through blocks whose pages are gone. */
static void ghost_chain_test(void **state) {
    (void)state;
    const struct cache_group_spec groups[] = {{CACHE_WINDOW, 20, 6}};
    struct block_manager *const bm = make(groups, 1, 0, 0);
    struct sequence *const a = seq_of(bm, 1, 0, 400, NULL);
    assert_true(admit(bm, a));
    for (int i = 0; i < 20; i++)
        compute(bm, a, 16);
    check(bm, a, NULL);
    assert_int_equal(hit(bm, 1, 0, 321, NULL), 320);
    assert_int_equal(hit(bm, 1, 0, 100, NULL), 0);
    drop(bm, a);
    check(bm, NULL, NULL);
    block_manager_destroy(bm);
}

static int64_t last_ops(const struct block_manager *bm, const struct block_op **ops) {
    int64_t n = 0;
    *ops = block_manager_ops(bm, &n);
    return n;
}

static void state_test(void **state) {
    (void)state;
    const struct cache_group_spec groups[] = {{CACHE_PAGED, 0, 64}, {CACHE_STATE, 0, 4}};
    struct block_manager *const bm = make(groups, 2, 64, 128);
    const struct block_op *ops = NULL;
    struct sequence *const a = seq_of(bm, 2, 0, 210, NULL);
    assert_true(admit(bm, a));
    assert_int_equal(last_ops(bm, &ops), 1);
    assert_true(ops[0].kind == BLOCK_OP_ZERO && ops[0].group == 1 && ops[0].page == a->pages[1][0]);
    /* Wanted: every 128 tokens and the last grid point of the prompt. */
    assert_int_equal(block_manager_next_checkpoint(bm, a, 0), 128);
    assert_int_equal(block_manager_next_checkpoint(bm, a, 128), 192);
    assert_int_equal(block_manager_next_checkpoint(bm, a, 192), 256);
    compute(bm, a, 64);
    block_manager_clear_ops(bm);
    compute(bm, a, 64);
    const int64_t n = last_ops(bm, &ops);
    assert_true(n == 5 && ops[4].kind == BLOCK_OP_COPY && ops[4].from == a->pages[1][0]);
    const int32_t checkpoint = ops[4].page;
    check(bm, a, NULL);
    block_manager_clear_ops(bm);
    /* The paged group would serve 144 tokens, the state 128; the branch gets a checkpoint at a grid point. */
    compute(bm, a, 20);
    struct sequence *const b = seq_of(bm, 2, 0, 145, NULL);
    assert_true(admit(bm, b));
    assert_int_equal(b->n_computed, 128);
    const int64_t m = last_ops(bm, &ops);
    assert_true(ops[m - 1].kind == BLOCK_OP_COPY && ops[m - 1].from == checkpoint &&
                ops[m - 1].page == b->pages[1][0]);
    check(bm, a, b);
    drop(bm, b);
    compute(bm, a, 44); /* 192: the last grid point of the prompt */
    assert_int_equal(hit(bm, 2, 0, 210, NULL), 192);
    drop(bm, a);
    check(bm, NULL, NULL);
    block_manager_destroy(bm);
}

static void branch_test(void **state) {
    (void)state;
    const struct cache_group_spec groups[] = {{CACHE_PAGED, 0, 64}, {CACHE_STATE, 0, 4}};
    struct block_manager *const bm = make(groups, 2, 64, 0);
    struct sequence *const a = seq_of(bm, 2, 0, 300, NULL);
    assert_true(admit(bm, a));
    compute(bm, a, 256);
    compute(bm, a, 44);
    struct sequence *const b = seq_of(bm, 2, 0, 200, NULL); /* leaves a's prompt at 200: no checkpoint near */
    assert_true(admit(bm, b));
    assert_int_equal(b->n_computed, 0);
    assert_int_equal(b->checkpoint_at, 192);
    assert_int_equal(block_manager_next_checkpoint(bm, b, 0), 192);
    compute(bm, b, 192);
    check(bm, a, b);
    assert_int_equal(hit(bm, 2, 0, 250, NULL), 192);
    drop(bm, a);
    drop(bm, b);
    block_manager_destroy(bm);
}

static void slots_test(void **state) {
    (void)state;
    const struct cache_group_spec groups[] = {{CACHE_PAGED, 0, 64}, {CACHE_STATE, 0, 1}};
    struct block_manager *const bm = make(groups, 2, 64, 64);
    struct sequence *const a = seq_of(bm, 2, 0, 100, NULL), *const b = seq_of(bm, 2, 0, 100, NULL);
    assert_true(admit(bm, a));
    assert_false(admit(bm, b)); /* the only slot is taken */
    compute(bm, a, 64);         /* no room for a checkpoint: declined */
    drop(bm, a);
    assert_true(admit(bm, b));
    assert_int_equal(b->n_computed, 0);
    struct block_stats stats;
    block_manager_stats(bm, &stats);
    assert_int_equal(stats.checkpoints, 0);
    check(bm, b, NULL);
    drop(bm, b);
    block_manager_destroy(bm);
}

/* A page is on the list of operations once, however often it changes hands before the list is cleared. */
static void ops_test(void **state) {
    (void)state;
    struct block_manager *const bm = make(paged_8, 1, 0, 0);
    const struct block_op *ops = NULL;
    for (int i = 0; i < 10; i++) {
        struct sequence *const seq = seq_of(bm, 1, 1000 * i, 100, NULL);
        assert_true(admit(bm, seq));
        assert_true(block_manager_allocate(bm, seq, 100));
        drop(bm, seq);
    }
    assert_true(last_ops(bm, &ops) <= 8);
    for (int64_t i = 0; i < last_ops(bm, &ops); i++)
        assert_true(ops[i].kind == BLOCK_OP_ZERO && ops[i].group == 0);
    block_manager_clear_ops(bm);
    assert_int_equal(last_ops(bm, &ops), 0);
    block_manager_destroy(bm);
}

static void off_test(void **state) {
    (void)state;
    struct block_manager *bm = NULL;
    const struct block_manager_config config = {
        .groups = paged_8, .n_groups = 1, .block_size = BLOCK, .max_model_len = LEN};
    assert_int_equal(block_manager_create(&bm, &config, NULL), ERR_OK);
    struct sequence *const a = seq_of(bm, 1, 0, 100, NULL);
    assert_true(admit(bm, a));
    compute(bm, a, 100);
    check(bm, a, NULL);
    drop(bm, a);
    assert_int_equal(hit(bm, 1, 0, 100, NULL), 0);
    block_manager_clear_cache(bm);
    block_manager_destroy(bm);
}

static void config_test(void **state) {
    (void)state;
    struct block_manager *bm = NULL;
    struct err_msg msg = {""};
    const struct cache_group_spec none[] = {{CACHE_PAGED, 0, 0}}, bad_window[] = {{CACHE_WINDOW, 0, 4}};
    struct block_manager_config c = {.groups = paged_8, .n_groups = 1, .block_size = 20, .max_model_len = 10};
    assert_int_equal(block_manager_create(&bm, &c, &msg), ERR_ARG);
    assert_non_null(strstr(msg.text, "20"));
    c.block_size = 16;
    c.groups = none;
    assert_int_equal(block_manager_create(&bm, &c, &msg), ERR_ARG);
    c.groups = bad_window;
    assert_int_equal(block_manager_create(&bm, &c, &msg), ERR_ARG);
    c.groups = paged_8;
    c.n_groups = SEQUENCE_GROUP_MAX + 1;
    assert_int_equal(block_manager_create(&bm, &c, &msg), ERR_ARG);
    c.n_groups = 1;
    c.max_model_len = 0;
    assert_int_equal(block_manager_create(&bm, &c, &msg), ERR_ARG);
    assert_null(bm);
}

static void fault_test(void **state) {
    (void)state;
    const int64_t live = mem_live_blocks();
    const struct block_manager_config c = {
        .groups = paged_8, .n_groups = 1, .block_size = BLOCK, .max_model_len = LEN, .prefix_caching = true};
    enum err e = ERR_NOMEM;
    for (int n = 1; e != ERR_OK; n++) {
        struct block_manager *bm = NULL;
        mem_fault_after(n);
        e = block_manager_create(&bm, &c, NULL);
        mem_fault_after(0);
        assert_true(e == ERR_NOMEM || n > 5);
        block_manager_destroy(bm);
        assert_int_equal(mem_live_blocks(), live);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(share_test), cmocka_unit_test(merge_test),  cmocka_unit_test(eviction_test),
        cmocka_unit_test(lack_test),  cmocka_unit_test(window_test), cmocka_unit_test(ghost_chain_test),
        cmocka_unit_test(state_test), cmocka_unit_test(branch_test), cmocka_unit_test(slots_test),
        cmocka_unit_test(ops_test),   cmocka_unit_test(off_test),    cmocka_unit_test(config_test),
        cmocka_unit_test(fault_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
