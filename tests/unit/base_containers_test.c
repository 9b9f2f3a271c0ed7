/* Memory with fault points, arenas, string buffers, maps, random numbers, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"

static void test_mem_faults(void **state) {
    (void)state;
    const int64_t live = mem_live_blocks();
    mem_fault_after(2);
    void *const a = mem_alloc(8), *const b = mem_calloc(1, 8), *const c = mem_alloc_aligned(64, 1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_int_equal((uintptr_t)c % 64, 0);
    assert_int_equal(mem_live_blocks(), live + 2);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    assert_int_equal(mem_live_blocks(), live);
}

static void test_mem_overflow(void **state) {
    (void)state;
    size_t out;
    int *array = NULL;
    size_t cap = 0;
    assert_false(mem_mul_ok(SIZE_MAX / 2, 3, &out));
    assert_false(mem_add_ok(SIZE_MAX, 1, &out));
    assert_false(mem_grow(&array, &cap, SIZE_MAX / 2, sizeof *array));
    assert_true(array == NULL && cap == 0);
    assert_true(mem_grow(&array, &cap, 100, sizeof *array) && cap >= 100);
    mem_free(array);
}

static void test_strbuf(void **state) {
    (void)state;
    struct strbuf b = {0};
    assert_string_equal(strbuf_cstr(&b), "");
    strbuf_printf(&b, "%s-%d", "abc", 42);
    strbuf_append(&b, "\0x", 2);
    assert_int_equal(b.len, 8);
    assert_memory_equal(b.data, "abc-42\0x", 9);
    strbuf_truncate(&b, 3);
    assert_string_equal(strbuf_cstr(&b), "abc");
    mem_fault_after(1);
    for (int i = 0; i < 100; i++) strbuf_puts(&b, "0123456789");
    assert_true(b.failed);
    assert_null(strbuf_take(&b)); /* a failed buffer gives nothing */
    mem_fault_after(0);
    strbuf_puts(&b, "again");
    char *const taken = strbuf_take(&b);
    assert_string_equal(taken, "again");
    mem_free(taken);
}

static void test_map(void **state) {
    (void)state;
    struct map m = {.copy_keys = true};
    char key[16];
    int64_t v;
    for (int i = 0; i < 5000; i++) {
        const int n = snprintf(key, sizeof key, "key%d", i);
        assert_true(map_put(&m, key, (size_t)n, i));
    }
    for (int i = 0; i < 5000; i++) {
        const int n = snprintf(key, sizeof key, "key%d", i);
        assert_true(map_get(&m, key, (size_t)n, &v) && v == i);
    }
    assert_true(map_put(&m, "key7", 4, -1) && map_get(&m, "key7", 4, &v) && v == -1);
    assert_false(map_get(&m, "key", 3, NULL));
    assert_true(map_put(&m, "a\0b", 3, 1) && !map_get(&m, "a", 1, NULL) && map_get(&m, "a\0b", 3, NULL));
    map_deinit(&m);
}

static void test_arena(void **state) {
    (void)state;
    struct arena a = {0};
    for (size_t n = 0; n < 3000; n += 7) {
        const unsigned char *const p = arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++) assert_int_equal(p[i], 0);
    }
    assert_non_null(arena_alloc(&a, 1 << 20));
    assert_null(arena_alloc(&a, SIZE_MAX - 4));
    arena_deinit(&a);
}

static void test_rng(void **state) {
    (void)state;
    double sum = 0;
    assert_true(rng_at(1, 2) == rng_at(1, 2));
    assert_true(rng_at(1, 2) != rng_at(1, 3) && rng_at(1, 2) != rng_at(2, 2) && rng_at(2, 1) != rng_at(1, 2));
    for (uint64_t i = 0; i < 100000; i++) {
        const double u = rng_at(7, i);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(sum > 49500 && sum < 50500); /* 0.5 within 5 standard errors */
}

static void test_err(void **state) {
    (void)state;
    struct err_msg m;
    assert_int_equal(err_set(&m, ERR_IO, "%s: gone", "file"), ERR_IO);
    assert_int_equal(err_prefix(&m, ERR_IO, "line %d", 3), ERR_IO);
    assert_string_equal(m.text, "line 3: file: gone");
    assert_int_equal(err_set(NULL, ERR_ARG, "nobody reads this"), ERR_ARG);
    assert_string_equal(err_name(ERR_LIMIT), "limit");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mem_faults), cmocka_unit_test(test_mem_overflow),
                                       cmocka_unit_test(test_strbuf),     cmocka_unit_test(test_map),
                                       cmocka_unit_test(test_arena),      cmocka_unit_test(test_rng),
                                       cmocka_unit_test(test_err)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
