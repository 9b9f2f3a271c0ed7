/* The ledger: time adds up for every lane, bytes are those of the file's formats, labels name what a reader looks
 * for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "graph/exec.h"
#include "graph/ledger.h"
#include "graph/lower.h"

enum { WIDTH = 64, LANES = 3, SPIN_NS = 200000 };

static struct kern kern;
static struct topology topology;
static struct pool *pool;

static int set_up(void **state) {
    (void)state;
    const struct topology_options topo = {.fake_nodes = 1};
    const struct pool_options opt = {.n_lanes = LANES};
    struct err_msg msg;
    kern_init(&kern, CPU_GENERIC);
    if (topology_read(&topology, &topo, &msg)) return 1;
    return pool_create(&pool, &topology, &opt, &msg) != ERR_OK;
}

static int tear_down(void **state) {
    (void)state;
    pool_destroy(pool);
    topology_deinit(&topology);
    return 0;
}

/* Lane 0 works, the others wait at the next barrier. */
static void slow_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)c, (void)s, (void)phase;
    const int64_t end = clock_ns() + (l->id == 0 ? SPIN_NS : 0);
    while (clock_ns() < end) {}
}

static const struct op op_slow = {.name = "slow", .n_phases = 1, .split = {OP_SPLIT_WORK}, .run = slow_run};

/* embed -> slow -> linear, with a matrix of zeros in Q8_0. */
struct fixture {
    struct weight w;
    struct graph g;
    struct plan p;
    struct op_limits lim;
    int32_t ids[2], positions[2], row_seq[2];
    struct step_seq seq;
    struct step step;
};

static void fixture_init(struct fixture *f) {
    const int sizes[] = {LANES};
    struct err_msg msg;
    memset(f, 0, sizeof *f);
    const char *const name = "model.layers.12.mlp.down_proj.weight";
    assert_int_equal(weight_init(&f->w, name, WIDTH, WIDTH, DTYPE_Q8_0, &kern, sizes, 1, &msg), ERR_OK);
    const size_t bytes = weight_team_bytes(&f->w, 0);
    f->w.base[0] = mem_alloc_aligned(64, bytes);
    assert_non_null(f->w.base[0]);
    memset(f->w.base[0], 0, bytes);
    graph_init(&f->g, 2);
    const struct tensor *x = gb_embed(&f->g, &f->w);
    x = graph_add(&f->g, &op_slow, TENSOR_ROWS_TOKENS, WIDTH, NULL, 0, &x, 1);
    gb_output(&f->g, gb_linear(&f->g, x, &f->w, NULL));
    f->lim = (struct op_limits){
        .max_tokens = 2, .max_logits = 2, .max_len = 16, .n_lanes = LANES, .n_teams = 1, .kern = &kern};
    assert_int_equal(lower_graph(&f->g, 1, &msg), ERR_OK);
    assert_int_equal(plan_make(&f->p, &f->g, &f->lim, 1, -1, &msg), ERR_OK);
    f->seq = (struct step_seq){.n_rows = 2};
    f->step = (struct step){.n_tokens = 2,
                            .token_ids = f->ids,
                            .positions = f->positions,
                            .row_seq = f->row_seq,
                            .n_seqs = 1,
                            .seqs = &f->seq};
}

static void fixture_deinit(struct fixture *f) {
    plan_deinit(&f->p);
    graph_deinit(&f->g);
    mem_free(f->w.base[0]);
}

static void test_time_adds_up(void **state) {
    (void)state;
    struct fixture f;
    struct ledger k;
    struct err_msg msg;
    fixture_init(&f);
    assert_int_equal(ledger_create(&k, &f.p, LANES, 2 * f.p.n_tape, &msg), ERR_OK);
    f.p.ledger = &k;
    for (int i = 0; i < 3; i++) (void)exec_run(&f.p, &f.step, pool, NULL);
    assert_int_equal(k.n_steps, 3);
    for (int i = 0; i < LANES; i++) {
        const struct ledger_lane *const l = &k.lanes[i];
        int64_t sum = l->late_ns;
        for (size_t e = 0; e < f.p.n_tape; e++) sum += l->cells[e].run_ns + l->cells[e].wait_ns;
        assert_int_equal(sum, k.step_ns - k.prepare_ns);
        assert_int_equal(l->n_barriers, k.lanes[0].n_barriers);
        assert_int_equal(l->n_events, 2 * f.p.n_tape); /* the room there was */
        assert_int_equal(l->events[f.p.n_tape].step, 1);
    }
    ledger_reset(&k);
    assert_int_equal(k.step_ns + k.lanes[1].cells[0].run_ns + (int64_t)k.lanes[1].n_events, 0);
    ledger_destroy(&k);
    fixture_deinit(&f);
}

static const struct ledger_row *row_named(const struct ledger_row *rows, size_t n, const char *label) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].label, label) == 0) return &rows[i];
    fail_msg("no row called %s", label);
    return NULL;
}

static void test_rows(void **state) {
    (void)state;
    struct fixture f;
    struct ledger k;
    struct ledger_row rows[8];
    struct err_msg msg;
    const double matrix = WIDTH * WIDTH / 32 * 34, embedded = 2.0 * WIDTH / 32 * 34;
    fixture_init(&f);
    assert_int_equal(ledger_create(&k, &f.p, LANES, 0, &msg), ERR_OK);
    assert_int_equal(ledger_rows(&k, rows, 8), 0);
    f.p.ledger = &k;
    for (int i = 0; i < 2; i++) (void)exec_run(&f.p, &f.step, pool, NULL);
    const size_t n = ledger_rows(&k, rows, 8);
    assert_int_equal(n, 4);
    assert_true(row_named(rows, n, "linear mlp.down_proj")->bytes == matrix);
    assert_true(row_named(rows, n, "embed")->bytes == embedded);
    assert_true(row_named(rows, n, "pack")->bytes == 0);
    const struct ledger_row *const slow = row_named(rows, n, "slow");
    assert_int_equal(slow->n_calls, 1);
    assert_true(slow->run_max_ns >= SPIN_NS && slow->run_ns >= (double)SPIN_NS / LANES);
    for (size_t i = 1; i < n; i++)
        assert_true(rows[i - 1].run_ns + rows[i - 1].wait_ns >= rows[i].run_ns + rows[i].wait_ns);
    ledger_destroy(&k);
    fixture_deinit(&f);
}

static void test_same_result(void **state) {
    (void)state;
    struct fixture f;
    struct ledger k;
    struct err_msg msg;
    float plain[WIDTH * 2];
    fixture_init(&f);
    (void)exec_run(&f.p, &f.step, pool, NULL);
    memcpy(plain, f.p.output_data, sizeof plain);
    assert_int_equal(ledger_create(&k, &f.p, LANES, 0, &msg), ERR_OK);
    f.p.ledger = &k;
    (void)exec_run(&f.p, &f.step, pool, NULL);
    assert_memory_equal(plain, f.p.output_data, sizeof plain);
    ledger_destroy(&k);
    fixture_deinit(&f);
}

static void test_cache_bytes(void **state) {
    (void)state;
    struct paged_layer c = {.n_kv = 2, .k_group_bytes = 16 * 128, .v_group_bytes = 16 * 64};
    const struct attn_params params = {.cache = &c, .n_heads = 2};
    const struct tensor t = {.op = &op_attn, .params = &params, .rows = TENSOR_ROWS_TOKENS};
    const struct step_seq seqs[] = {{.n_rows = 1, .pos0 = 99}, {.row0 = 1, .n_rows = 4, .pos0 = 6}};
    const struct step s = {.n_tokens = 5, .n_seqs = 2, .seqs = seqs};
    assert_int_equal(ledger_call_bytes(&t, &s), (100 + 10) * 2 * (128 + 64));
    c.window = 8; /* one row sees 8; four rows 11 together, but there are only 10 */
    assert_int_equal(ledger_call_bytes(&t, &s), (8 + 10) * 2 * (128 + 64));
}

static void test_no_memory(void **state) {
    (void)state;
    struct fixture f;
    struct ledger k;
    struct err_msg msg;
    fixture_init(&f);
    const int64_t live = mem_live_blocks();
    for (int i = 1; i < 4; i++) {
        mem_fault_after(i);
        assert_int_equal(ledger_create(&k, &f.p, LANES, 4, &msg), ERR_NOMEM);
        mem_fault_after(0);
        assert_int_equal(mem_live_blocks(), live);
    }
    fixture_deinit(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_adds_up), cmocka_unit_test(test_rows),      cmocka_unit_test(test_same_result),
        cmocka_unit_test(test_cache_bytes),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
