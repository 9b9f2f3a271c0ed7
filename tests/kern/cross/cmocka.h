/* The part of cmocka's interface that the kernel tests use, for machines that run here in emulation and have no
 * libcmocka: the same lines on stdout, which tests/run counts. The first failure ends a case.
 * Threads: one. */
#ifndef TESTS_KERN_CROSS_CMOCKA_H
#define TESTS_KERN_CROSS_CMOCKA_H

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/attr.h"

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};

static jmp_buf cmocka_case;

#define print_message(...) printf(__VA_ARGS__)
#define print_error(...)   printf("[  ERROR   ] --- " __VA_ARGS__)

#define fail_msg(...)                                                                                                  \
    (print_error(__VA_ARGS__), printf("\n[   LINE   ] --- %s:%d: error\n", __FILE__, __LINE__), longjmp(cmocka_case, 1))
#define fail() fail_msg("failure")

#define assert_true(c) ((c) ? (void)0 : fail_msg("not true: %s", #c))
#define assert_int_equal(a, b)                                                                                         \
    ((long long)(a) == (long long)(b) ? (void)0 : fail_msg("%s is %lld, not %s", #a, (long long)(a), #b))
#define assert_float_equal(a, b, e)                                                                                    \
    ((a) - (b) <= (e) && (b) - (a) <= (e) ? (void)0 : fail_msg("%s is %.9g, not %s", #a, (double)(a), #b))
#define assert_memory_equal(a, b, n)                                                                                   \
    (memcmp((a), (b), (n)) == 0 ? (void)0 : fail_msg("%s and %s differ", #a, #b))

#define cmocka_unit_test(f)                        {#f, f}
#define cmocka_run_group_tests(t, setup, teardown) cmocka_run((t), N_ELEMENTS(t))

static inline int cmocka_run(const struct CMUnitTest *tests, size_t n) {
    volatile int failed = 0;
    for (volatile size_t i = 0; i < n; i++) {
        printf("[ RUN      ] %s\n", tests[i].name);
        fflush(stdout);
        if (setjmp(cmocka_case) == 0) {
            tests[i].run(NULL);
            printf("[       OK ] %s\n", tests[i].name);
        } else {
            printf("[  FAILED  ] %s\n", tests[i].name);
            failed++;
        }
        fflush(stdout);
    }
    return failed;
}

#endif
