/* The fast packers against gemm_layout_pack_rows, byte by byte: every format, panels of 8 and 16, any number of rows,
 * every tail of K, rows that are apart, at odd addresses, and end at a guard page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/rng.h"
#include "guard.h"
#include "kern/gemm_codes.h"
#include "kern/gemm_pack.h"
#include "kern/kern.h"

enum { APART = 13 }; /* bytes between rows that no packer may need */

static size_t row_size(enum gemm_format f, int64_t k) {
    const struct gemm_spec *const s = gemm_codes_spec(f);
    return s ? (size_t)(k / s->block) * (size_t)s->bytes : (size_t)k * (f == GEMM_F32 ? 4 : 2);
}

/* Rows of random bytes that end at a guard page; row_bytes is their distance. */
static struct guard rows_make(enum gemm_format f, int64_t k, int n_rows, size_t row_bytes) {
    struct rng r = rng_seeded((uint64_t)f * 1000003 + (uint64_t)k * 31 + (uint64_t)n_rows);
    struct guard g = guard_alloc(row_bytes * (size_t)(n_rows - 1) + row_size(f, k));
    for (size_t i = 0; i < g.bytes; i++) ((char *)g.data)[i] = (char)(rng_next(&r) >> 32);
    return g;
}

/* What a packer left at `have` is what the specification makes of the same rows. */
static void check_panel(struct gemm_shape s, const char *have, const struct guard *rows, size_t row_bytes, int n_rows) {
    const size_t bytes = gemm_layout_bytes(s);
    struct guard want = guard_alloc(bytes);
    memset(want.data, 0x55, bytes);
    gemm_layout_pack_rows(s, want.data, rows->data, row_bytes, n_rows);
    for (size_t i = 0; i < bytes; i++)
        if (have[i] != ((const char *)want.data)[i])
            fail_msg("format %d, panel %d, k %d, %d rows: byte %zu of %zu is %02x, not %02x", (int)s.format, s.panel,
                     (int)s.k, n_rows, i, bytes, (unsigned char)have[i], ((const unsigned char *)want.data)[i]);
    guard_free(&want);
}

/* The panel lies between guard pages, so that a byte too many is a fault. */
static void check_packer(const struct gemm_kern *kern, struct gemm_shape s, int n_rows, size_t apart) {
    const size_t row_bytes = row_size(s.format, s.k) + apart, bytes = gemm_layout_bytes(s);
    struct guard rows = rows_make(s.format, s.k, n_rows, row_bytes), panel = guard_alloc(bytes);
    memset(panel.data, 0xaa, bytes);
    if (kern) kern->pack(panel.data, rows.data, row_bytes, n_rows, s.k);
    else gemm_layout_pack(s, panel.data, rows.data, row_bytes, n_rows);
    check_panel(s, panel.data, &rows, row_bytes, n_rows);
    guard_free(&rows);
    guard_free(&panel);
}

/* The i-th K: all tails of floats and of units of 64 and 128. */
static int64_t some_k(enum gemm_format f, int i) {
    static const int64_t of_floats[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 257, 2048};
    const struct gemm_spec *const s = gemm_codes_spec(f);
    return s ? s->block * (i < 12 ? i + 1 : 64) : of_floats[i];
}

enum { N_K = 15 };

static void check_all(const struct gemm_kern *table, enum gemm_format f, int panel) {
    for (int i = 0; i < N_K; i++) {
        const struct gemm_shape s = {f, panel, some_k(f, i)};
        for (int n = i % 4 ? panel : 1; n <= panel; n++)
            check_packer(table ? &table[f] : NULL, s, n, n % 2 ? APART : 0);
    }
}

static void test_portable_packer(void **state) {
    (void)state;
    for (int f = 0; f < GEMM_N_FORMATS; f++)
        for (int panel = 8; panel <= 16; panel += 8) check_all(NULL, (enum gemm_format)f, panel);
}

static void test_packers_of_levels(void **state) {
    static struct kern k;
    (void)state;
    for (int l = 0; l < CPU_N_LEVELS; l++) {
        /* The generic level keeps blocks as they are. */
        if (l == CPU_GENERIC || !cpu_has(cpu_detect(), (enum cpu_level)l)) continue;
        kern_init(&k, (enum cpu_level)l);
        for (int f = 0; f < GEMM_N_FORMATS; f++) check_all(k.gemm, (enum gemm_format)f, k.gemm[f].panel);
        print_message("level %s\n", cpu_level_name((enum cpu_level)l));
    }
#ifdef XENON_EMULATE_AVX512
    gemm_init_avx512(k.gemm);
    for (int f = 0; f < GEMM_N_FORMATS; f++) check_all(k.gemm, (enum gemm_format)f, k.gemm[f].panel);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_portable_packer),
        cmocka_unit_test(test_packers_of_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
