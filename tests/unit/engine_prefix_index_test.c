/* The index of published pages: identity by parent and tokens whatever the hash, serials, ghosts, salts, faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/prefix_index.h"

enum { SIZE = 16 };

static void fill(int32_t *tokens, int32_t first) {
    for (int i = 0; i < SIZE; i++)
        tokens[i] = first + i;
}

static void identity_test(void **state) {
    (void)state;
    struct prefix_index ix;
    int32_t a[SIZE], b[SIZE];
    fill(a, 0);
    fill(b, 100);
    assert_true(prefix_index_init(&ix, 8, SIZE));
    /* Everything under one hash: only parent and tokens tell entries apart. */
    const uint64_t hash = 42;
    const int32_t ea = prefix_index_insert(&ix, 1, hash, a, NULL);
    const int32_t eb = prefix_index_insert(&ix, 1, hash, b, NULL);
    const int32_t ea2 = prefix_index_insert(&ix, 2, hash, a, NULL);
    assert_int_equal(prefix_index_find(&ix, 1, hash, a), ea);
    assert_int_equal(prefix_index_find(&ix, 1, hash, b), eb);
    assert_int_equal(prefix_index_find(&ix, 2, hash, a), ea2);
    assert_int_equal(prefix_index_find(&ix, 2, hash, b), -1);
    assert_int_equal(prefix_index_find(&ix, 3, hash, a), -1);
    assert_true(prefix_index_check(&ix));
    prefix_index_deinit(&ix);
}

static void serial_test(void **state) {
    (void)state;
    struct prefix_index ix;
    int32_t a[SIZE], b[SIZE], c[SIZE];
    fill(a, 0);
    fill(b, 100);
    fill(c, 200);
    assert_true(prefix_index_init(&ix, 2, SIZE));
    const int32_t parent = prefix_index_insert(&ix, 1, 7, a, NULL);
    const uint64_t serial = ix.entries[parent].serial;
    const int32_t child = prefix_index_insert(&ix, serial, 7, c, NULL);
    prefix_index_set_page(&ix, child, 0, 5);
    /* The parent's place is recycled for another block: its child must not become that one's. */
    const int32_t other = prefix_index_insert(&ix, 1, 7, b, NULL);
    assert_int_equal(other, parent);
    assert_true(ix.entries[other].serial != serial);
    assert_int_equal(prefix_index_find(&ix, ix.entries[other].serial, 7, c), -1);
    assert_int_equal(prefix_index_find(&ix, 1, 7, a), -1);
    assert_int_equal(prefix_index_find(&ix, serial, 7, c), child);
    assert_true(prefix_index_check(&ix));
    prefix_index_deinit(&ix);
}

static void ghost_test(void **state) {
    (void)state;
    struct prefix_index ix;
    int32_t t[SIZE];
    assert_true(prefix_index_init(&ix, 4, SIZE));
    int32_t e[4];
    for (int i = 0; i < 4; i++) {
        fill(t, i);
        e[i] = prefix_index_insert(&ix, 1, (uint64_t)i, t, NULL);
        prefix_index_set_page(&ix, e[i], i % 2, i);
    }
    fill(t, 50);
    assert_int_equal(prefix_index_insert(&ix, 1, 50, t, NULL), -1); /* no ghost to recycle */
    prefix_index_clear_page(&ix, e[2], 0);
    prefix_index_clear_page(&ix, e[1], 1);
    assert_true(prefix_index_check(&ix));
    prefix_index_set_page(&ix, e[2], 1, 9); /* a ghost that gets a page again is none */
    assert_int_equal(prefix_index_insert(&ix, 1, 50, t, NULL), e[1]);
    prefix_index_remove(&ix, e[3]);
    fill(t, 60);
    assert_int_equal(prefix_index_insert(&ix, 1, 60, t, NULL), e[3]);
    assert_true(prefix_index_check(&ix));
    prefix_index_deinit(&ix);
}

static void salt_test(void **state) {
    (void)state;
    struct prefix_index ix;
    int32_t t[SIZE];
    fill(t, 0);
    assert_true(prefix_index_init(&ix, 4, SIZE));
    const int64_t live = mem_live_blocks();
    struct prefix_salt *const a = prefix_index_salt_ref(&ix, "a");
    struct prefix_salt *const b = prefix_index_salt_ref(&ix, "b");
    assert_non_null(a);
    assert_non_null(b);
    assert_true(a->serial != b->serial);
    assert_ptr_equal(prefix_index_salt_ref(&ix, "a"), a);
    const int32_t entry = prefix_index_insert(&ix, a->serial, 3, t, a);
    prefix_index_salt_unref(&ix, a);
    prefix_index_salt_unref(&ix, a);
    /* The first block keeps its salt, so that a later request with the same one finds it. */
    struct prefix_salt *const again = prefix_index_salt_ref(&ix, "a");
    assert_ptr_equal(again, a);
    assert_int_equal(prefix_index_find(&ix, again->serial, 3, t), entry);
    assert_int_equal(prefix_index_find(&ix, b->serial, 3, t), -1);
    prefix_index_salt_unref(&ix, again);
    prefix_index_salt_unref(&ix, b);
    prefix_index_remove(&ix, entry);
    assert_int_equal(mem_live_blocks(), live);
    prefix_index_deinit(&ix);
}

static void fault_test(void **state) {
    (void)state;
    const int64_t live = mem_live_blocks();
    for (int n = 1; n <= 4; n++) {
        struct prefix_index ix;
        mem_fault_after(n);
        const bool ok = prefix_index_init(&ix, 16, SIZE);
        mem_fault_after(0);
        assert_true(ok == (n == 4));
        prefix_index_deinit(&ix);
        assert_int_equal(mem_live_blocks(), live);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(identity_test), cmocka_unit_test(serial_test),
                                       cmocka_unit_test(ghost_test), cmocka_unit_test(salt_test),
                                       cmocka_unit_test(fault_test)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
