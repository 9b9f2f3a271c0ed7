/* Family "attn": every level of this CPU against a double-precision reference, against generic bit for bit, and
 * against itself: a row must not depend on the rows, chunks, pages or slices that it is computed with.
 * `--bench` times decode and prefill. */
#include "kern/attn.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "guard.h"

struct level {
    const char *name;
    struct attn_table t;
};

static struct level g_levels[3];
static int g_n_levels;

static void find_levels(void) {
    struct attn_table t;
    attn_init_generic(&t);
    g_levels[g_n_levels++] = (struct level){"generic", t};
#if defined(XENON_EMULATE_AVX512)
    attn_init_avx512(&t);
    g_levels[g_n_levels++] = (struct level){"avx512 (emulated)", t};
#elif defined(__x86_64__)
    if (cpu_has(cpu_detect(), CPU_AVX2)) {
        attn_init_avx2(&t);
        g_levels[g_n_levels++] = (struct level){"avx2", t};
    }
    if (cpu_has(cpu_detect(), CPU_AVX512)) {
        attn_init_avx512(&t);
        g_levels[g_n_levels++] = (struct level){"avx512", t};
    }
#elif defined(__aarch64__)
    if (cpu_has(cpu_detect(), CPU_NEON)) {
        attn_init_neon(&t);
        g_levels[g_n_levels++] = (struct level){"neon", t};
    }
#endif
}

/* A sequence of n tokens of one KV head in a paged cache whose pages lie in random order. */
struct seq {
    enum attn_cache kind;
    int d, dv, n_heads, n_tokens, groups_per_page, n_pages;
    float *q, *k, *v; /* [n_tokens, n_heads * d], [n_tokens, d], [n_tokens, dv] */
    int32_t *pages;
    struct guard cache;
    size_t page_stride, k_off, v_off, k_bytes, v_bytes;
};

static char *group_at(const struct seq *s, int token, int is_v) {
    const int g = token / ATTN_GROUP, in_page = g % s->groups_per_page;
    char *const page = (char *)s->cache.data + (size_t)s->pages[g / s->groups_per_page] * s->page_stride;
    return page + (is_v ? s->v_off + (size_t)in_page * s->v_bytes : s->k_off + (size_t)in_page * s->k_bytes);
}

static void seq_store(const struct level *lv, struct seq *s, int from, int to) {
    for (int t = from; t < to; t++)
        lv->t.cache[s->kind].store(group_at(s, t, 0), group_at(s, t, 1), t % ATTN_GROUP,
                                   s->k + (size_t)t * (size_t)s->d, s->v + (size_t)t * (size_t)s->dv, s->d, s->dv);
}

/* Lays the pages out anew (another order, another page size) and stores the first n tokens. */
static void seq_lay_out(struct seq *s, struct rng *rng, int groups_per_page, int n) {
    const struct attn_kern *const kern = &g_levels[0].t.cache[s->kind];
    guard_free(&s->cache);
    mem_free(s->pages);
    s->groups_per_page = groups_per_page;
    s->n_pages = (s->n_tokens + ATTN_GROUP * groups_per_page - 1) / (ATTN_GROUP * groups_per_page);
    s->k_bytes = kern->k_group_bytes(s->d);
    s->v_bytes = kern->v_group_bytes(s->dv);
    s->k_off = 0;
    s->v_off = s->k_bytes * (size_t)groups_per_page;
    s->page_stride = s->v_off + s->v_bytes * (size_t)groups_per_page;
    s->cache = guard_alloc(s->page_stride * (size_t)s->n_pages);
    s->pages = mem_xcalloc((size_t)s->n_pages, sizeof *s->pages);
    for (int i = 0; i < s->n_pages; i++) {
        const int j = (int)rng_below(rng, (uint32_t)i + 1);
        s->pages[i] = s->pages[j];
        s->pages[j] = i;
    }
    seq_store(&g_levels[0], s, 0, n);
}

static struct seq seq_make(enum attn_cache kind, int d, int dv, int n_heads, int n_tokens, struct rng *rng) {
    struct seq s = {.kind = kind, .d = d, .dv = dv, .n_heads = n_heads, .n_tokens = n_tokens};
    const size_t nq = (size_t)n_tokens * (size_t)n_heads * (size_t)d, nk = (size_t)n_tokens * (size_t)d;
    const size_t nv = (size_t)n_tokens * (size_t)dv;
    s.q = mem_xcalloc(nq, sizeof *s.q);
    s.k = mem_xcalloc(nk, sizeof *s.k);
    s.v = mem_xcalloc(nv, sizeof *s.v);
    for (size_t i = 0; i < nq; i++) s.q[i] = 3.0f * rng_f32(rng);
    for (size_t i = 0; i < nk; i++) s.k[i] = 2.0f * rng_f32(rng);
    for (size_t i = 0; i < nv; i++) s.v[i] = rng_f32(rng);
    seq_lay_out(&s, rng, 1 + (int)rng_below(rng, 3), n_tokens);
    return s;
}

static void seq_free(struct seq *s) {
    mem_free(s->q);
    mem_free(s->k);
    mem_free(s->v);
    mem_free(s->pages);
    guard_free(&s->cache);
}

/* How one call set is made. */
struct how {
    int pos, n_q;      /* query tokens pos .. pos + n_q - 1 */
    int h0, n_heads;   /* heads h0 .. of the sequence's */
    int64_t window;
    const float *sink; /* [n_heads of the sequence] or NULL */
    int by_merge;      /* every slice into a state of its own, joined by merge */
};

static float scale_for(const struct seq *s) { return 1.0f / sqrtf((float)s->d); }

static void state_reset(struct attn_state *st, int rows) {
    for (int r = 0; r < rows; r++) st->m[r] = -INFINITY, st->l[r] = NAN; /* what m = -inf guards is never read */
}

/* y: [n_q, n_heads, dv]. State, scratch and queries end at guard pages. */
static void attend(const struct level *lv, const struct seq *s, const struct how *how, float *y) {
    const struct attn_kern *const kern = &lv->t.cache[s->kind];
    const int rows = how->n_q * how->n_heads, end = how->pos + how->n_q;
    const size_t n = (size_t)rows, q_len = (size_t)(how->n_q - 1) * (size_t)s->n_heads * (size_t)s->d +
                                           (size_t)how->n_heads * (size_t)s->d;
    struct guard m[2], l[2], o[2], q = guard_alloc(4 * q_len);
    struct guard scratch = guard_alloc((4 * kern->scratch_floats(rows, s->d, s->dv) + 63) / 64 * 64);
    for (int i = 0; i < 2; i++) {
        m[i] = guard_alloc(4 * n);
        l[i] = guard_alloc(4 * n);
        o[i] = guard_alloc(4 * n * (size_t)s->dv);
    }
    memcpy(q.data, s->q + ((size_t)how->pos * (size_t)s->n_heads + (size_t)how->h0) * (size_t)s->d, q.bytes);
    struct attn_state st = {m[0].data, l[0].data, o[0].data}, part = {m[1].data, l[1].data, o[1].data};
    state_reset(&st, rows);
    struct attn_args a = {.q = q.data, .ldq = (int64_t)s->n_heads * s->d, .n_q = how->n_q, .n_heads = how->n_heads,
                          .pos = how->pos, .d = s->d, .dv = s->dv, .scale = scale_for(s), .window = how->window,
                          .base = s->cache.data, .pages = s->pages, .page_stride = s->page_stride, .k_off = s->k_off,
                          .v_off = s->v_off, .k_group_bytes = s->k_bytes, .v_group_bytes = s->v_bytes,
                          .groups_per_page = s->groups_per_page, .scratch = scratch.data};
    for (a.ctx0 = 0; a.ctx0 < end; a.ctx0 += ATTN_SLICE) {
        a.ctx1 = a.ctx0 + ATTN_SLICE < end ? a.ctx0 + ATTN_SLICE : end;
        state_reset(&part, rows);
        kern->slice(how->by_merge ? &part : &st, &a);
        if (how->by_merge) lv->t.merge(&st, &part, rows, s->dv);
    }
    lv->t.finish(y, (int64_t)how->n_heads * s->dv, &st, how->n_q, how->n_heads, s->dv,
                 how->sink ? how->sink + how->h0 : NULL);
    for (int i = 0; i < 2; i++) guard_free(&m[i]), guard_free(&l[i]), guard_free(&o[i]);
    guard_free(&q);
    guard_free(&scratch);
}

/* What the cache holds for component c of token t. */
static double cached(const struct seq *s, int t, int is_v, int c) {
    const char *const g = group_at(s, t, is_v);
    const int n = is_v ? s->dv : s->d, slot = t % ATTN_GROUP;
    const size_t i = is_v ? (size_t)slot * (size_t)n + (size_t)c : (size_t)c * ATTN_GROUP + (size_t)slot;
    float f, scale;
    bf16 b;
    if (s->kind == ATTN_CACHE_F32) return memcpy(&f, g + 4 * i, 4), (double)f;
    if (s->kind == ATTN_CACHE_BF16) return memcpy(&b, g + 2 * i, 2), (double)half_from_bf16(b);
    memcpy(&scale, g + (size_t)n * ATTN_GROUP + 4 * (size_t)slot, 4);
    if (s->kind == ATTN_CACHE_INT8) return (double)(int8_t)g[i] * (double)scale;
    return (double)half_from_e4m3((uint8_t)g[i]) * (double)scale / 256.0;
}

/* One row in double precision from the cache's content; returns the largest |v| seen. */
static double reference_row(const struct seq *s, const struct how *how, int i, int h, double *y) {
    const int pos = how->pos + i, first = how->window && pos + 1 > how->window ? pos + 1 - (int)how->window : 0;
    double top = (double)(how->sink ? how->sink[h] : -INFINITY), l = 0, v_max = 0;
    double *const p = mem_xcalloc((size_t)pos + 1, sizeof *p);
    const float *const q = s->q + ((size_t)pos * (size_t)s->n_heads + (size_t)h) * (size_t)s->d;
    for (int j = first; j <= pos; j++) {
        for (int c = 0; c < s->d; c++) p[j] += (double)q[c] * cached(s, j, 0, c);
        p[j] *= (double)scale_for(s);
        top = fmax(top, p[j]);
    }
    if (how->sink) l = exp((double)how->sink[h] - top);
    for (int c = 0; c < s->dv; c++) y[c] = 0;
    for (int j = first; j <= pos; j++) {
        const double e = exp(p[j] - top);
        l += e;
        for (int c = 0; c < s->dv; c++) {
            const double v = cached(s, j, 1, c);
            y[c] += e * v;
            v_max = fmax(v_max, fabs(v));
        }
    }
    for (int c = 0; c < s->dv; c++) y[c] /= l;
    mem_free(p);
    return v_max;
}

static float *outputs(const struct seq *s, const struct how *how) {
    return mem_xcalloc((size_t)how->n_q * (size_t)how->n_heads * (size_t)s->dv, sizeof(float));
}

static void check_reference(const struct seq *s, const struct how *how, const float *y, const char *name) {
    double *const want = mem_xcalloc((size_t)s->dv, sizeof *want);
    for (int i = 0; i < how->n_q; i++)
        for (int h = 0; h < how->n_heads; h++) {
            const double v_max = reference_row(s, how, i, how->h0 + h, want);
            const float *const row = y + ((size_t)i * (size_t)how->n_heads + (size_t)h) * (size_t)s->dv;
            for (int c = 0; c < s->dv; c++)
                if (!(fabs((double)row[c] - want[c]) <= 1e-5 * v_max)) /* also catches NaN */
                    fail_msg("%s cache %d d %d dv %d row %d head %d comp %d: %g, want %g", name, (int)s->kind, s->d,
                             s->dv, i, h, c, (double)row[c], want[c]);
        }
    mem_free(want);
}

/* Runs all levels: each near the reference, all with the bits of the first. */
static void check_levels(const struct seq *s, const struct how *how) {
    float *const first = outputs(s, how), *const y = outputs(s, how);
    const size_t bytes = (size_t)how->n_q * (size_t)how->n_heads * (size_t)s->dv * sizeof *y;
    for (int i = 0; i < g_n_levels; i++) {
        attend(&g_levels[i], s, how, i ? y : first);
        if (i == 0) check_reference(s, how, first, g_levels[0].name);
        else if (memcmp(first, y, bytes) != 0) {
            check_reference(s, how, y, g_levels[i].name);
            fail_msg("%s differs from generic in bits: cache %d d %d dv %d heads %d n_q %d pos %d window %d",
                     g_levels[i].name, (int)s->kind, s->d, s->dv, how->n_heads, how->n_q, how->pos, (int)how->window);
        }
    }
    mem_free(first);
    mem_free(y);
}

static void test_reference(void **state) {
    (void)state;
    static const int dims[][2] = {{1, 1},   {3, 5},   {12, 12},  {16, 16},   {18, 24},  {24, 18},
                                  {64, 64}, {80, 80}, {128, 128}, {192, 128}, {256, 256}, {72, 33}};
    static const int shapes[][4] = {/* pos, n_q, heads, window */
                                    {0, 1, 1, 0},     {0, 17, 1, 0},      {5, 3, 2, 0},      {530, 1, 8, 0},
                                    {500, 20, 3, 0}, {1100, 2, 7, 600}, {600, 9, 2, 20}, {700, 1, 4, 1}};
    struct rng rng = rng_seeded(1);
    for (int kind = 0; kind < ATTN_N_CACHES; kind++)
        for (size_t i = 0; i < N_ELEMENTS(dims); i++)
            for (size_t k = 0; k < N_ELEMENTS(shapes); k++) {
                if (dims[i][0] > 64 && (i + k) % 4 != 0) continue;
                const int *const sh = shapes[k];
                struct seq s = seq_make((enum attn_cache)kind, dims[i][0], dims[i][1], sh[2], sh[0] + sh[1], &rng);
                const float sinks[8] = {0.0f, 3.0f, -2.0f, 8.0f, -1000.0f, 1.0f, 50.0f, -INFINITY};
                const struct how how = {.pos = sh[0], .n_q = sh[1], .n_heads = sh[2], .window = sh[3],
                                        .sink = k % 2 ? sinks : NULL};
                check_levels(&s, &how);
                seq_free(&s);
            }
}

/* y of `how` in one call, and the same rows from other call sets must have the same bits. */
static void expect_same(const struct level *lv, const struct seq *s, const struct how *how, const float *whole,
                        int whole_pos, int whole_heads) {
    float *const y = outputs(s, how);
    attend(lv, s, how, y);
    for (int i = 0; i < how->n_q; i++)
        for (int h = 0; h < how->n_heads; h++) {
            const float *const a = y + ((size_t)i * (size_t)how->n_heads + (size_t)h) * (size_t)s->dv;
            const size_t row = (size_t)(how->pos + i - whole_pos) * (size_t)whole_heads + (size_t)(how->h0 + h);
            if (memcmp(a, whole + row * (size_t)s->dv, (size_t)s->dv * sizeof *a) != 0)
                fail_msg("%s cache %d d %d dv %d: token %d head %d depends on its call (pos %d n_q %d heads %d+%d)",
                         lv->name, (int)s->kind, s->d, s->dv, how->pos + i, how->h0 + h, how->pos, how->n_q, how->h0,
                         how->n_heads);
        }
    mem_free(y);
}

static void check_independence(const struct level *lv, struct seq *s, int pos, int n_q, int64_t window,
                               struct rng *rng) {
    const struct how all = {.pos = pos, .n_q = n_q, .n_heads = s->n_heads, .window = window};
    float *const whole = outputs(s, &all);
    attend(lv, s, &all, whole);
    struct how how = all;
    how.by_merge = 1;
    expect_same(lv, s, &how, whole, pos, s->n_heads);
    how = all;
    how.n_q = 1;
    for (how.pos = pos; how.pos < pos + n_q; how.pos++) /* one by one, as decode does */
        expect_same(lv, s, &how, whole, pos, s->n_heads);
    how = all;
    for (how.n_q = 1; how.n_q < n_q; how.n_q += 1 + how.n_q / 3) /* every batch size from the end */
        how.pos = pos + n_q - how.n_q, expect_same(lv, s, &how, whole, pos, s->n_heads);
    how = all;
    for (how.h0 = 0; how.h0 < s->n_heads; how.h0 += how.n_heads) { /* any groups of heads */
        how.n_heads = 1 + (int)rng_below(rng, (uint32_t)(s->n_heads - how.h0));
        expect_same(lv, s, &how, whole, pos, s->n_heads);
    }
    for (how = all; how.pos < pos + n_q; how.pos += how.n_q) { /* chunks; what follows is not written yet, or garbage */
        how.n_q = 1 + (int)rng_below(rng, (uint32_t)(pos + n_q - how.pos));
        seq_lay_out(s, rng, 1 + (int)rng_below(rng, 4), how.pos + how.n_q);
        expect_same(lv, s, &how, whole, pos, s->n_heads);
        float *const after = s->k + (size_t)(how.pos + how.n_q) * (size_t)s->d;
        const int left = pos + n_q - how.pos - how.n_q;
        if (left == 0) continue;
        const float k0 = after[0], v0 = s->v[(size_t)(how.pos + how.n_q) * (size_t)s->dv];
        after[0] = NAN, s->v[(size_t)(how.pos + how.n_q) * (size_t)s->dv] = INFINITY;
        seq_store(&g_levels[0], s, how.pos + how.n_q, how.pos + how.n_q + 1);
        expect_same(lv, s, &how, whole, pos, s->n_heads);
        after[0] = k0, s->v[(size_t)(how.pos + how.n_q) * (size_t)s->dv] = v0;
    }
    seq_lay_out(s, rng, 2, s->n_tokens);
    mem_free(whole);
}

#ifdef XENON_EMULATE_NEON /* every call costs 20 */
enum { INDEPENDENT_ROWS = 16 };
#else
enum { INDEPENDENT_ROWS = 40 };
#endif

static void test_rows_are_independent(void **state) {
    (void)state;
    static const int shapes[][5] = {/* d, dv, heads, pos, window */
                                    {12, 12, 1, 0, 0},   {16, 24, 3, 490, 0}, {64, 64, 4, 1010, 0},
                                    {18, 7, 5, 505, 30}, {32, 32, 13, 3, 0},  {8, 16, 2, 1020, 515}};
    struct rng rng = rng_seeded(2);
    for (int kind = 0; kind < ATTN_N_CACHES; kind++)
        for (size_t i = 0; i < N_ELEMENTS(shapes); i++)
            for (int lv = g_n_levels > 1; lv < g_n_levels; lv++) {
                const int *const sh = shapes[i];
                for (int n_q = 1; n_q <= INDEPENDENT_ROWS; n_q += n_q < 8 ? 1 : 8) {
                    struct seq s = seq_make((enum attn_cache)kind, sh[0], sh[1], sh[2], sh[3] + n_q, &rng);
                    check_independence(&g_levels[lv], &s, sh[3], n_q, sh[4], &rng);
                    seq_free(&s);
                }
            }
}

/* Every n_q from 1 to 40 against rows one by one. */
static void test_all_batches(void **state) {
    (void)state;
    struct rng rng = rng_seeded(3);
    struct seq s = seq_make(ATTN_CACHE_BF16, 20, 20, 3, 540, &rng);
    for (int lv = 0; lv < g_n_levels; lv++) {
        const struct how all = {.pos = 500, .n_q = 40, .n_heads = 3};
        float *const whole = outputs(&s, &all);
        for (int i = 0; i < 40; i++) {
            const struct how one = {.pos = 500 + i, .n_q = 1, .n_heads = 3};
            attend(&g_levels[lv], &s, &one, whole + (size_t)i * 3 * 20);
        }
        for (int n = 1; n <= 40; n++) {
            const struct how how = {.pos = 500, .n_q = n, .n_heads = 3};
            expect_same(&g_levels[lv], &s, &how, whole, 500, 3);
        }
        mem_free(whole);
    }
    seq_free(&s);
}

/* Pages in front of a window are gone: their table entries are garbage and must not be followed. */
static void test_released_pages(void **state) {
    (void)state;
    struct rng rng = rng_seeded(4);
    struct seq s = seq_make(ATTN_CACHE_BF16, 32, 32, 2, 1300, &rng);
    seq_lay_out(&s, &rng, 1, 1300);
    const struct how how = {.pos = 1290, .n_q = 10, .n_heads = 2, .window = 700};
    for (int lv = 0; lv < g_n_levels; lv++) {
        float *const y = outputs(&s, &how), *const z = outputs(&s, &how);
        int32_t saved[36];
        attend(&g_levels[lv], &s, &how, y);
        memcpy(saved, s.pages, sizeof saved);
        for (int i = 0; i < 36; i++) s.pages[i] = 0x7fffffff;
        attend(&g_levels[lv], &s, &how, z);
        memcpy(s.pages, saved, sizeof saved);
        assert_memory_equal(y, z, 20 * 32 * sizeof *y);
        mem_free(y);
        mem_free(z);
    }
    seq_free(&s);
}

static void test_store(void **state) {
    (void)state;
    struct rng rng = rng_seeded(5);
    for (int kind = 0; kind < ATTN_N_CACHES; kind++) {
        struct seq s = seq_make((enum attn_cache)kind, 50, 37, 1, 40, &rng);
        assert_int_equal(s.k_bytes % 64, 0);
        assert_int_equal(s.v_bytes % 64, 0);
        for (int t = 0; t < 40; t++)
            for (int is_v = 0; is_v < 2; is_v++) {
                const int n = is_v ? 37 : 50;
                const float *const x = is_v ? s.v + t * 37 : s.k + t * 50;
                double amax = 0;
                for (int c = 0; c < n; c++) amax = fmax(amax, fabs((double)x[c]));
                for (int c = 0; c < n; c++) {
                    const double err = fabs((double)x[c] - cached(&s, t, is_v, c)), a = fabs((double)x[c]);
                    const double bound[] = {0, a / 256, amax / 253.99, fmax(a / 15.99, amax / 448 / 1023)};
                    assert_true(err <= bound[kind]);
                }
            }
        seq_free(&s);
    }
}

/* A non-finite component must reach the output; zero and denormal tokens are ordinary. */
static void test_store_extremes(void **state) {
    (void)state;
    struct rng rng = rng_seeded(6);
    for (int kind = 0; kind < ATTN_N_CACHES; kind++)
        for (int bad = 0; bad < 4; bad++) {
            struct seq s = seq_make((enum attn_cache)kind, 24, 24, 2, 30, &rng);
            if (bad == 0) s.k[20 * 24 + 3] = NAN;
            if (bad == 1) s.v[20 * 24 + 23] = -INFINITY;
            if (bad == 2)
                for (int c = 0; c < 24; c++) s.k[20 * 24 + c] = 1e-42f, s.v[20 * 24 + c] = c ? -3e-45f : 0.0f;
            if (bad == 3)
                for (int c = 0; c < 24; c++) s.k[20 * 24 + c] = 0.0f, s.v[20 * 24 + c] = -0.0f;
            seq_lay_out(&s, &rng, 1, 30);
            const struct how how = {.pos = 29, .n_q = 1, .n_heads = 2};
            float y[48];
            for (int lv = 0; lv < g_n_levels; lv++) {
                attend(&g_levels[lv], &s, &how, y);
                int finite = 1;
                for (int c = 0; c < 48; c++) finite &= isfinite(y[c]) != 0;
                assert_int_equal(finite, bad >= 2);
            }
            if (bad >= 2) check_levels(&s, &how);
            seq_free(&s);
        }
}

/* Scores that are huge, overflow to -inf, are all equal, or are denormal: never NaN, never a wrong level. */
static void test_extreme_scores(void **state) {
    (void)state;
    static const float factors[] = {1e4f, 1e-30f, 0.0f, 1e18f};
    struct rng rng = rng_seeded(7);
    for (int kind = 0; kind < ATTN_N_CACHES; kind++)
        for (size_t f = 0; f < N_ELEMENTS(factors); f++) {
            struct seq s = seq_make((enum attn_cache)kind, 16, 16, 2, 700, &rng);
            for (size_t i = 0; i < 700 * 16; i++) s.k[i] = -fabsf(s.k[i] * factors[f]);
            for (size_t i = 0; i < 700 * 32; i++) s.q[i] = f == 3 ? 1e20f : s.q[i];
            for (int c = 0; f == 3 && c < 16; c++) s.k[550 * 16 + c] = 0.0f; /* one finite score among -inf */
            seq_lay_out(&s, &rng, 2, 700);
            const struct how how = {.pos = 690, .n_q = 10, .n_heads = 2};
            float first[320], y[320];
            for (int lv = 0; lv < g_n_levels; lv++) {
                attend(&g_levels[lv], &s, &how, lv ? y : first);
                for (int c = 0; c < 320; c++) assert_true(isfinite((lv ? y : first)[c]));
                if (lv) assert_memory_equal(first, y, sizeof y);
            }
            for (int c = 0; f == 3 && c < 16; c++) /* that one has all the weight */
                assert_float_equal(first[c], (float)cached(&s, 550, 1, c), 1e-6f);
            seq_free(&s);
        }
}

/* Runs n_q query tokens at the end of a context of n_ctx tokens over n_kv KV heads (pages of their own) and
 * returns the seconds of one pass over all of them. */
static double bench_pass(const struct level *lv, enum attn_cache kind, int d, int n_ctx, int n_q, int n_heads,
                         int n_kv) {
    const struct attn_kern *const kern = &lv->t.cache[kind];
    const int rows = n_q * n_heads, groups = (n_ctx + ATTN_GROUP - 1) / ATTN_GROUP;
    const size_t kb = kern->k_group_bytes(d), vb = kern->v_group_bytes(d), head_bytes = (kb + vb) * (size_t)groups;
    char *const cache = mem_alloc_aligned(4096, head_bytes * (size_t)n_kv);
    float *const q = mem_xcalloc((size_t)rows * (size_t)d, 4), *const y = mem_xcalloc((size_t)rows * (size_t)d, 4);
    float *const o = mem_xcalloc((size_t)rows * (size_t)(d + 2), 4);
    float *const scratch = mem_alloc_aligned(64, 4 * kern->scratch_floats(rows, d, d));
    int32_t *const pages = mem_xcalloc((size_t)groups, 4);
    if (!cache || !scratch) return 0;
    struct rng rng = rng_seeded(9);
    for (int g = 0; g < groups; g++) pages[g] = g;
    for (int i = 0; i < rows * d; i++) q[i] = rng_f32(&rng);
    for (int h = 0; h < n_kv; h++)
        for (int t = 0; t < n_ctx; t++) {
            char *const g = cache + (size_t)h * head_bytes + (size_t)(t / 16) * (kb + vb);
            kern->store(g, g + kb, t % 16, q + (t % rows) * d, q + (t % rows) * d, d, d);
        }
    struct attn_args a = {.q = q, .ldq = (int64_t)n_heads * d, .n_q = n_q, .n_heads = n_heads, .pos = n_ctx - n_q,
                          .d = d, .dv = d, .scale = 0.1f, .pages = pages, .page_stride = kb + vb, .v_off = kb,
                          .k_group_bytes = kb, .v_group_bytes = vb, .groups_per_page = 1, .scratch = scratch};
    double best = 1e9;
    for (int pass = 0; pass < 7; pass++) {
        const int64_t t0 = clock_ns();
        for (int h = 0; h < n_kv; h++) {
            struct attn_state st = {o + (size_t)rows * (size_t)d, o + (size_t)rows * (size_t)(d + 1), o};
            for (int r = 0; r < rows; r++) st.m[r] = -INFINITY;
            a.base = cache + (size_t)h * head_bytes;
            for (a.ctx0 = 0; a.ctx0 < n_ctx; a.ctx0 += ATTN_SLICE) {
                a.ctx1 = a.ctx0 + ATTN_SLICE < n_ctx ? a.ctx0 + ATTN_SLICE : n_ctx;
                kern->slice(&st, &a);
            }
            lv->t.finish(y, (int64_t)n_heads * d, &st, n_q, n_heads, d, NULL);
        }
        const double s = (double)(clock_ns() - t0) * 1e-9;
        best = s < best ? s : best;
    }
    mem_free(cache), mem_free(q), mem_free(y), mem_free(o), mem_free(scratch), mem_free(pages);
    return best;
}

static int bench(void) {
    static const char *const kinds[] = {"f32", "bf16", "int8", "fp8"};
    enum { D = 128 };
    printf("%-18s %-5s %-34s %9s %9s\n", "level", "cache", "shape (d = 128, one thread)", "GB/s", "GFLOP/s");
    for (int lv = g_n_levels > 1; lv < g_n_levels; lv++)
        for (int k = 0; k < ATTN_N_CACHES; k++) {
            const struct attn_kern *const kern = &g_levels[lv].t.cache[k];
            const double group = (double)(kern->k_group_bytes(D) + kern->v_group_bytes(D));
            for (int heads = 1; heads <= 8; heads *= 2)
                for (int ctx = 512; ctx <= 4096; ctx *= 8) {
                    const int n_kv = 64 * 4096 / ctx; /* out of cache */
                    const double s = bench_pass(&g_levels[lv], (enum attn_cache)k, D, ctx, 1, heads, n_kv);
                    printf("%-18s %-5s decode  ctx %4d, %d heads / KV head    %7.1f %9.1f\n", g_levels[lv].name,
                           kinds[k], ctx, heads, group * ctx / 16 * n_kv / s * 1e-9,
                           4.0 * D * heads * ctx * n_kv / s * 1e-9);
                }
            const double s = bench_pass(&g_levels[lv], (enum attn_cache)k, D, 512, 512, 4, 8);
            printf("%-18s %-5s prefill 512 tokens, 32 / 8 heads     %7.1f %9.1f\n", g_levels[lv].name, kinds[k],
                   group * 512 / 16 * 8 / s * 1e-9, 4.0 * D * 32 * (512.0 * 513 / 2) / s * 1e-9);
        }
    return 0;
}

int main(int argc, char **argv) {
#if defined(XENON_EMULATE_AVX512)
    if (!cpu_has(cpu_detect(), CPU_AVX2)) return printf("skipped: the emulation needs AVX2\n"), 0;
#endif
    find_levels();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench();
    printf("levels:");
    for (int i = 0; i < g_n_levels; i++) printf(" %s", g_levels[i].name);
    printf(g_n_levels == 1 ? " (no vector level on this CPU)\n" : "\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_store_extremes),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_all_batches),
        cmocka_unit_test(test_released_pages),
        cmocka_unit_test(test_extreme_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
