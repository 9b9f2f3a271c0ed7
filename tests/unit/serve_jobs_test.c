/* The text workers' queue: jobs run in order, one that nobody wants any more is taken back, and at the end every job's
 * done() is called, whether it ran or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/attr.h"
#include "serve/jobs.h"

enum { N = 5 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool entered, open; /* a gate job is inside run(); it may go on */
    int n_woken;
    int ran[N], n_ran, done[N], n_done, n_skipped;
} t = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct job all[N];

static void wait_for(const bool *flag) {
    while (!*flag) pthread_cond_wait(&t.changed, &t.lock);
}

/* Stays inside until the test opens the gate. */
static void run_gate(struct job *j) {
    (void)j;
    pthread_mutex_lock(&t.lock);
    t.entered = true;
    pthread_cond_broadcast(&t.changed);
    wait_for(&t.open);
    pthread_mutex_unlock(&t.lock);
}

static void run(struct job *j) {
    t.ran[t.n_ran++] = (int)(j - all);
}

static void done(struct job *j) {
    t.done[t.n_done++] = (int)(j - all);
    t.n_skipped += j->skipped;
}

static void wake(void *user) {
    (void)user;
    pthread_mutex_lock(&t.lock);
    t.n_woken++;
    pthread_cond_broadcast(&t.changed);
    pthread_mutex_unlock(&t.lock);
}

/* One worker, which is inside the first job; the others wait. */
static struct jobs *start(void) {
    struct jobs *const p = jobs_create(1, N - 1, wake, NULL);
    assert_non_null(p);
    t.entered = t.open = false;
    t.n_woken = t.n_ran = t.n_done = t.n_skipped = 0;
    for (int i = 0; i < N; i++) all[i] = (struct job){.run = i == 0 ? run_gate : run, .done = done};
    assert_true(jobs_submit(p, &all[0]));
    pthread_mutex_lock(&t.lock);
    wait_for(&t.entered);
    pthread_mutex_unlock(&t.lock);
    for (int i = 1; i < N; i++) assert_true(jobs_submit(p, &all[i]));
    assert_int_equal(jobs_n_pending(p), N);
    return p;
}

static void open_gate(void) {
    pthread_mutex_lock(&t.lock);
    t.open = true;
    pthread_cond_broadcast(&t.changed);
    pthread_mutex_unlock(&t.lock);
}

static void wait_woken(int n) {
    pthread_mutex_lock(&t.lock);
    while (t.n_woken < n) pthread_cond_wait(&t.changed, &t.lock);
    pthread_mutex_unlock(&t.lock);
}

static void check_order(const int *got, int n_got, const int *want, int n_want) {
    assert_int_equal(n_got, n_want);
    for (int i = 0; i < n_want; i++) assert_int_equal(got[i], want[i]);
}

static void test_in_order_and_bounded(void **state) {
    (void)state;
    static const int ran[] = {1, 2, 3, 4}, ended[] = {0, 1, 2, 3, 4};
    struct job extra = {.run = run, .done = done};
    struct jobs *const p = start();
    assert_false(jobs_submit(p, &extra));
    open_gate();
    wait_woken(N);
    jobs_reap(p);
    check_order(t.ran, t.n_ran, ran, 4);
    check_order(t.done, t.n_done, ended, 5);
    assert_int_equal(jobs_n_pending(p), 0);
    assert_int_equal(t.n_skipped, 0);
    jobs_destroy(p);
    assert_int_equal(t.n_done, N);
}

static void test_cancel(void **state) {
    (void)state;
    static const int ran[] = {1, 3}, ended[] = {0, 1, 3};
    struct jobs *const p = start();
    assert_false(jobs_cancel(p, &all[0])); /* it runs */
    assert_true(jobs_cancel(p, &all[2]));  /* in the middle, at the end, once */
    assert_true(jobs_cancel(p, &all[4]));
    assert_false(jobs_cancel(p, &all[4]));
    assert_int_equal(jobs_n_pending(p), N - 2);
    open_gate();
    wait_woken(N - 2);
    assert_false(jobs_cancel(p, &all[3])); /* it has run */
    jobs_reap(p);
    check_order(t.ran, t.n_ran, ran, 2);
    check_order(t.done, t.n_done, ended, 3);
    jobs_destroy(p);
    assert_int_equal(t.n_done, N - 2);
}

/* What was taken back leaves its place, at both ends of the queue. */
static void test_cancel_all_and_submit(void **state) {
    (void)state;
    static const int ran[] = {3, 1};
    struct jobs *const p = start();
    for (int i = N - 1; i > 0; i--) assert_true(jobs_cancel(p, &all[i]));
    assert_int_equal(jobs_n_pending(p), 1);
    assert_true(jobs_submit(p, &all[3]));
    assert_true(jobs_submit(p, &all[2]));
    assert_true(jobs_cancel(p, &all[2]));
    assert_true(jobs_submit(p, &all[1]));
    open_gate();
    wait_woken(3);
    jobs_reap(p);
    check_order(t.ran, t.n_ran, ran, 2);
    assert_int_equal(jobs_n_pending(p), 0);
    jobs_destroy(p);
}

static void *open_later(void *arg) {
    (void)arg;
    open_gate();
    return NULL;
}

static void test_destroy_skips(void **state) {
    (void)state;
    struct jobs *const p = start();
    pthread_t opener;
    assert_true(jobs_cancel(p, &all[2]));
    /* destroy tells the worker to stop and waits for it; the gate is opened meanwhile. */
    assert_int_equal(pthread_create(&opener, NULL, open_later, NULL), 0);
    jobs_destroy(p);
    pthread_join(opener, NULL);
    assert_int_equal(t.n_done, N - 1);
    assert_int_equal(t.n_ran + t.n_skipped, N - 2);
    jobs_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_order_and_bounded), cmocka_unit_test(test_cancel),
                                       cmocka_unit_test(test_cancel_all_and_submit),
                                       cmocka_unit_test(test_destroy_skips)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
