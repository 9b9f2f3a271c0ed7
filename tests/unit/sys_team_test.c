/* sys/team: sharing of lanes, jobs, barriers, sleep, more lanes than CPUs. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "sys/team.h"

enum { LANES_MAX = 128 };

struct work {
    int n_rounds;
    int team_rounds;              /* local barriers of each round: team + 1 times this */
    int64_t cells[LANES_MAX][16]; /* one line per lane, not atomic: the barriers order everything */
    int64_t errors[LANES_MAX];
    struct lane seen[LANES_MAX];
};

static void read_topology(struct topology *t, int fake_nodes) {
    const struct topology_options opt = {.fake_nodes = fake_nodes};
    struct err_msg msg;
    if (topology_read(t, &opt, &msg) != ERR_OK) fail_msg("%s", msg.text);
}

static struct pool *make_pool(const struct topology *t, int n_lanes, bool pin, int spin_us) {
    const struct pool_options opt = {.n_lanes = n_lanes, .pin = pin, .spin_us = spin_us};
    struct err_msg msg;
    struct pool *p;
    if (pool_create(&p, t, &opt, &msg) != ERR_OK) fail_msg("%s", msg.text);
    return p;
}

static void note_lane(const struct lane *lane, void *arg) {
    struct work *const w = arg;
    w->seen[lane->id] = *lane;
    w->cells[lane->id][0]++;
}

/* Every lane counts up its own cell, then checks everybody's, between two global barriers. */
static void count_globally(const struct lane *lane, void *arg) {
    struct work *const w = arg;
    for (int r = 1; r <= w->n_rounds; r++) {
        w->cells[lane->id][0]++;
        pool_barrier(lane);
        for (int i = 0; i < lane->n_lanes; i++) w->errors[lane->id] += w->cells[i][0] != w->cells[lane->id][0];
        pool_barrier(lane);
    }
}

/* Teams run different numbers of local barriers between the global ones, as a plan with views does. */
static void count_in_views(const struct lane *lane, void *arg) {
    struct work *const w = arg;
    const int first = lane->id - lane->team_lane;
    for (int r = 0; r < w->n_rounds; r++) {
        for (int k = 0; k < w->team_rounds * (lane->team + 1); k++) {
            w->cells[lane->id][1]++;
            team_barrier(lane);
            for (int i = first; i < first + lane->team_size; i++)
                w->errors[lane->id] += w->cells[i][1] != w->cells[lane->id][1];
            team_barrier(lane);
        }
        w->cells[lane->id][0]++;
        pool_barrier(lane);
        for (int i = 0; i < lane->n_lanes; i++) w->errors[lane->id] += w->cells[i][0] != w->cells[lane->id][0];
        pool_barrier(lane);
    }
}

static int64_t sum_errors(const struct work *w) {
    int64_t sum = 0;
    for (int i = 0; i < LANES_MAX; i++) sum += w->errors[i];
    return sum;
}

static void check_pool(int fake_nodes, int n_lanes, int n_jobs, int n_rounds, bool pin, int spin_us) {
    static struct work w;
    struct topology t;
    memset(&w, 0, sizeof w);
    read_topology(&t, fake_nodes);
    struct pool *const p = make_pool(&t, n_lanes, pin, spin_us);
    w.n_rounds = n_rounds;
    w.team_rounds = 2;
    for (int j = 0; j < n_jobs; j++) {
        pool_run(p, j % 2 ? count_in_views : count_globally, &w);
        for (int i = 0; i < n_lanes; i++) assert_int_equal(w.cells[i][0], (int64_t)(j + 1) * n_rounds);
    }
    assert_int_equal(sum_errors(&w), 0);
    pool_destroy(p);
    topology_deinit(&t);
}

static void test_lanes(void **state) {
    (void)state;
    static struct work w;
    struct topology t;
    memset(&w, 0, sizeof w);
    read_topology(&t, 3);
    struct pool *const p = make_pool(&t, 7, false, 0);
    assert_int_equal(pool_n_lanes(p), 7);
    assert_int_equal(pool_n_teams(p), 3);
    pool_run(p, note_lane, &w);
    int id = 0;
    for (int team = 0; team < 3; team++) {
        assert_int_equal(pool_team_node(p, team), team);
        for (int i = 0; i < pool_team_size(p, team); i++, id++) {
            assert_int_equal(w.cells[id][0], 1);
            assert_int_equal(w.seen[id].id, id);
            assert_int_equal(w.seen[id].n_lanes, 7);
            assert_int_equal(w.seen[id].team, team);
            assert_int_equal(w.seen[id].n_teams, 3);
            assert_int_equal(w.seen[id].team_lane, i);
            assert_int_equal(w.seen[id].team_size, pool_team_size(p, team));
            assert_ptr_equal(w.seen[id].pool, p);
        }
    }
    assert_int_equal(id, 7);
    pool_destroy(p);
    topology_deinit(&t);
}

static void check_shares(const char *machine, int n_lanes, int n_teams, const int *want) {
    const struct topology_options opt = {.synthetic = machine};
    struct topology t;
    assert_int_equal(topology_read(&t, &opt, NULL), ERR_OK);
    struct pool *const p = make_pool(&t, n_lanes, false, 0);
    assert_int_equal(pool_n_teams(p), n_teams);
    for (int i = 0; i < n_teams; i++) assert_int_equal(pool_team_size(p, i), want[i]);
    pool_destroy(p);
    topology_deinit(&t);
}

static void test_shares(void **state) {
    (void)state;
    check_shares("node:2 core:4 pu:2", 8, 2, (const int[]){4, 4});
    check_shares("node:2 core:4 pu:2", 7, 2, (const int[]){4, 3});
    check_shares("node:4 core:4 pu:1", 2, 2, (const int[]){1, 1});
    check_shares("node:4 core:2 pu:1", 6, 4, (const int[]){2, 2, 1, 1});
    check_shares("core:4 pu:1", 1, 1, (const int[]){1});
}

static void test_one_lane(void **state) {
    (void)state;
    check_pool(0, 1, 2000, 3, true, 0);
}

static void test_two_lanes(void **state) {
    (void)state;
    check_pool(0, 2, 3000, 20, true, 0);
    check_pool(2, 2, 1000, 20, true, 0);
}

static void test_five_lanes(void **state) {
    (void)state;
    check_pool(0, 5, 200, 5, true, 0);
    check_pool(2, 5, 200, 5, false, 0);
    check_pool(5, 5, 100, 5, true, 0);
}

/* Teams deep enough for two and three levels of the tree. */
static void test_64_lanes(void **state) {
    (void)state;
    check_pool(0, 64, 10, 5, true, 0);
    check_pool(4, 64, 10, 5, true, 0);
    check_pool(64, 64, 4, 5, false, 0);
    check_pool(1, 100, 4, 5, false, 0);
}

static void sleep_ms(int ms) {
    const struct timespec ts = {0, (long)ms * 1000000};
    nanosleep(&ts, NULL);
}

/* CPU time of the whole process, which sleeping workers do not add to. */
static int64_t cpu_time_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void test_sleep_and_wake(void **state) {
    (void)state;
    static struct work w;
    struct topology t;
    memset(&w, 0, sizeof w);
    w.n_rounds = 3;
    read_topology(&t, 2);
    struct pool *const p = make_pool(&t, 2, false, 0);
    for (int j = 0; j < 30; j++) {
        pool_run(p, count_globally, &w);
        if (j % 3 == 1) pool_idle(p);
        if (j % 3 != 0) sleep_ms(2);
    }
    assert_int_equal(sum_errors(&w), 0);
    assert_int_equal(w.cells[1][0], 90);
    pool_idle(p);
    pool_idle(p);
    sleep_ms(1);
    const int64_t before = cpu_time_ns();
    sleep_ms(100);
    assert_true(cpu_time_ns() - before < 50000000);
    pool_run(p, count_globally, &w);
    assert_int_equal(w.cells[1][0], 93);
    pool_idle(p);
    pool_destroy(p);
    topology_deinit(&t);
}

/* With a budget of a minute only pool_idle can end the spinning; skipped where one CPU must serve both lanes. */
static void test_idle_ends_spinning(void **state) {
    (void)state;
    static struct work w;
    struct topology t;
    memset(&w, 0, sizeof w);
    w.n_rounds = 1;
    read_topology(&t, 0);
    if (t.n_cpus < 2 || (t.cpus_limit && t.cpus_limit < 2)) {
        topology_deinit(&t);
        skip();
    }
    struct pool *const p = make_pool(&t, 2, false, 60000000);
    pool_run(p, count_globally, &w);
    pool_idle(p);
    sleep_ms(5);
    const int64_t before = cpu_time_ns();
    sleep_ms(100);
    assert_true(cpu_time_ns() - before < 50000000);
    pool_run(p, count_globally, &w);
    assert_int_equal(w.cells[1][0], 2);
    pool_destroy(p);
    topology_deinit(&t);
}

static void wait_then_count(const struct lane *lane, void *arg) {
    if (lane->id == lane->n_lanes - 1) sleep_ms(3); /* far beyond the budget of the others */
    count_globally(lane, arg);
}

static void test_late_lane(void **state) {
    (void)state;
    static struct work w;
    struct topology t;
    memset(&w, 0, sizeof w);
    w.n_rounds = 2;
    read_topology(&t, 2);
    struct pool *const p = make_pool(&t, 2, true, 5);
    for (int j = 0; j < 10; j++) pool_run(p, wait_then_count, &w);
    assert_int_equal(sum_errors(&w), 0);
    assert_int_equal(w.cells[0][0], 20);
    pool_destroy(p);
    topology_deinit(&t);
}

static void note_cpu(const struct lane *lane, void *arg) { ((int *)arg)[lane->id] = sched_getcpu(); }

static void test_pinning(void **state) {
    (void)state;
    struct topology t;
    cpu_set_t before, during, after;
    int cpus[2] = {-1, -1};
    read_topology(&t, 0);
    if (t.n_cores < 2) {
        topology_deinit(&t);
        skip();
    }
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    struct pool *const p = make_pool(&t, 2, true, 0);
    assert_int_equal(sched_getaffinity(0, sizeof during, &during), 0);
    assert_int_equal(CPU_COUNT(&during), 1);
    pool_run(p, note_cpu, cpus);
    assert_int_equal(cpus[0], t.nodes[0].cpus[0]);
    assert_int_not_equal(cpus[1], cpus[0]);
    pool_destroy(p);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    topology_deinit(&t);
}

static void test_create_and_destroy(void **state) {
    (void)state;
    struct topology t;
    const int64_t live = mem_live_blocks();
    read_topology(&t, 2);
    for (int i = 0; i < 50; i++) pool_destroy(make_pool(&t, 1 + i % 6, i % 2, 0));
    pool_destroy(NULL);
    topology_deinit(&t);
    assert_int_equal(mem_live_blocks(), live);
}

static void test_refusals(void **state) {
    (void)state;
    static const int wrong[] = {0, -1, 1000000};
    struct topology t;
    struct pool *p;
    struct err_msg msg;
    const int64_t live = mem_live_blocks();
    read_topology(&t, 0);
    for (size_t i = 0; i < N_ELEMENTS(wrong); i++) {
        const struct pool_options opt = {.n_lanes = wrong[i]};
        assert_int_equal(pool_create(&p, &t, &opt, &msg), ERR_ARG);
        assert_null(p);
    }
    const struct pool_options two = {.n_lanes = 2};
    for (int n = 1; n <= 3; n++) {
        mem_fault_after(n);
        assert_int_equal(pool_create(&p, &t, &two, &msg), ERR_NOMEM);
        mem_fault_after(0);
        assert_null(p);
    }
    topology_deinit(&t);
    assert_int_equal(mem_live_blocks(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lanes),          cmocka_unit_test(test_shares),
        cmocka_unit_test(test_one_lane),       cmocka_unit_test(test_two_lanes),
        cmocka_unit_test(test_five_lanes),     cmocka_unit_test(test_64_lanes),
        cmocka_unit_test(test_sleep_and_wake), cmocka_unit_test(test_idle_ends_spinning),
        cmocka_unit_test(test_late_lane),      cmocka_unit_test(test_pinning),
        cmocka_unit_test(test_create_and_destroy), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
