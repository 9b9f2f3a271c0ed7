/* sys/region: alignment, zero contents, discard, placement, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "sys/region.h"

#define MIB ((size_t)1 << 20)

static bool all_are(const char *p, size_t len, char c) {
    for (size_t i = 0; i < len; i++)
        if (p[i] != c) return false;
    return true;
}

static void test_create(void **state) {
    (void)state;
    struct err_msg msg;
    struct region r;
    assert_int_equal(region_create(&r, "weights", 0, 3 * MIB, &msg), ERR_OK);
    assert_int_equal(r.size, 4 * MIB);
    assert_int_equal((uintptr_t)r.base % (2 * MIB), 0);
    assert_int_equal(r.used, 0);
    assert_int_equal(r.node, 0);
    assert_true(all_are(r.base, r.size, 0));
    region_destroy(&r);
    assert_null(r.base);
    region_destroy(&r);
    assert_int_equal(region_create(&r, "nothing", -1, 0, &msg), ERR_OK);
    assert_int_equal(r.size, 2 * MIB);
    assert_false(r.bound);
    region_destroy(&r);
}

/* Far more than the memory of the machine may be reserved: only touched pages count. */
static void test_reserve_is_free(void **state) {
    (void)state;
    struct region r;
    assert_int_equal(region_create(&r, "KV pages", 0, (size_t)1 << 40, NULL), ERR_OK);
    r.base[r.size - 1] = 1;
    r.base[0] = 1;
    region_destroy(&r);
}

static void test_alloc(void **state) {
    (void)state;
    struct region r;
    assert_int_equal(region_create(&r, "scratch", -1, 2 * MIB, NULL), ERR_OK);
    char *const a = region_alloc(&r, 10, 64);
    char *const b = region_alloc(&r, 10, 64);
    char *const c = region_alloc(&r, 1, 1);
    char *const d = region_alloc(&r, 4096, 4096);
    assert_ptr_equal(a, r.base);
    assert_ptr_equal(b, r.base + 64);
    assert_ptr_equal(c, r.base + 74);
    assert_ptr_equal(d, r.base + 4096);
    assert_int_equal(r.used, 8192);
    assert_null(region_alloc(&r, 2 * MIB, 1));
    assert_null(region_alloc(&r, SIZE_MAX, 64));
    assert_null(region_alloc(&r, SIZE_MAX - 8192, 1));
    assert_int_equal(r.used, 8192);
    assert_ptr_equal(region_alloc(&r, 2 * MIB - 8192, 1), r.base + 8192);
    assert_null(region_alloc(&r, 1, 1));
    assert_non_null(region_alloc(&r, 0, 1));
    region_destroy(&r);
}

static void test_too_large(void **state) {
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 2 * MIB, (size_t)1 << 62, (size_t)1 << 50};
    for (size_t i = 0; i < N_ELEMENTS(sizes); i++) {
        struct err_msg msg = {{0}};
        struct region r;
        assert_int_equal(region_create(&r, "weights", 0, sizes[i], &msg), ERR_NOMEM);
        assert_null(r.base);
        if (!strstr(msg.text, "weights") || !strstr(msg.text, "MiB")) fail_msg("unclear: %s", msg.text);
        region_destroy(&r);
    }
}

static void test_discard(void **state) {
    (void)state;
    struct region r;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 2 * MIB;
    assert_int_equal(region_create(&r, "KV pages", -1, size, NULL), ERR_OK);
    memset(r.base, 7, size);
    region_discard(&r, 100, 3 * page);
    assert_true(all_are(r.base, 100, 7));
    assert_true(all_are(r.base + 100, 3 * page, 0));
    assert_true(all_are(r.base + 100 + 3 * page, size - 100 - 3 * page, 7));
    region_discard(&r, 8 * page, 2 * page);
    unsigned char resident[2];
    assert_int_equal(mincore(r.base + 8 * page, 2 * page, resident), 0);
    assert_int_equal((resident[0] | resident[1]) & 1, 0);
    region_discard(&r, 20 * page + 5, 10);
    assert_int_equal(r.base[20 * page + 4], 7);
    assert_true(all_are(r.base + 20 * page + 5, 10, 0));
    assert_int_equal(r.base[20 * page + 15], 7);
    region_discard(&r, size, 0);
    region_discard(&r, 0, size);
    assert_true(all_are(r.base, size, 0));
    region_destroy(&r);
}

static void test_verify(void **state) {
    (void)state;
    struct region r;
    int touched = -1;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(region_create(&r, "weights", 0, MIB, NULL), ERR_OK); /* small: no huge pages */
    assert_int_equal(region_verify(&r, 100, &touched), 0); /* nothing handed out */
    assert_int_equal(touched, 0);
    assert_non_null(region_alloc(&r, 200 * page, page));
    for (size_t i = 0; i < 100; i++) r.base[i * page] = 1;
    const int right = region_verify(&r, 1000, &touched);
    if (right < 0) {
        region_destroy(&r);
        print_message("the kernel does not tell where pages live\n");
        skip();
    }
    assert_int_equal(touched, 100);
    assert_int_equal(right, r.bound ? 100 : right);
    (void)region_verify(&r, 10, &touched);
    assert_int_equal(touched, 5);
    assert_int_equal(region_verify(&r, 0, &touched), 0);
    assert_int_equal(touched, 0);
    region_destroy(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),    cmocka_unit_test(test_reserve_is_free),
        cmocka_unit_test(test_alloc),     cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_discard),   cmocka_unit_test(test_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
