/* The gemm family: every level of this CPU against the generic kernels, bit for bit, on random and extreme data, with a
 * guard page behind every buffer; the generic kernels against the reference decoder in double. `--bench` times the
 * kernels instead. XENON_EMULATE_AVX512 (a build flag) tests the avx512 folders compiled for the emulation of their
 * instructions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/half.h"
#include "base/rng.h"
#include "kern/gemm_codes.h"
#include "kern/kern.h"
#include "quant/quant.h"

static const struct {
    const char *name;
    enum dtype dtype;
    int block, bytes;
    int d_at, m_at; /* offsets of the binary16 scale and minimum in a block, -1: none */
} formats[GEMM_N_FORMATS] = {
    // clang-format off
    [GEMM_F32]    = {"F32",    DTYPE_F32,    1,   4,   -1, -1}, [GEMM_F16]  = {"F16",  DTYPE_F16,  1,   2,   -1, -1},
    [GEMM_BF16]   = {"BF16",   DTYPE_BF16,   1,   2,   -1, -1}, [GEMM_Q8_0] = {"Q8_0", DTYPE_Q8_0, 32,  34,  0,  -1},
    [GEMM_Q4_0]   = {"Q4_0",   DTYPE_Q4_0,   32,  18,  0,  -1}, [GEMM_Q4_1] = {"Q4_1", DTYPE_Q4_1, 32,  20,  0,  2},
    [GEMM_Q5_0]   = {"Q5_0",   DTYPE_Q5_0,   32,  22,  0,  -1}, [GEMM_Q5_1] = {"Q5_1", DTYPE_Q5_1, 32,  24,  0,  2},
    [GEMM_Q2_K]   = {"Q2_K",   DTYPE_Q2_K,   256, 84,  80, 82}, [GEMM_Q3_K] = {"Q3_K", DTYPE_Q3_K, 256, 110, 108, -1},
    [GEMM_Q4_K]   = {"Q4_K",   DTYPE_Q4_K,   256, 144, 0,  2},  [GEMM_Q5_K] = {"Q5_K", DTYPE_Q5_K, 256, 176, 0,  2},
    [GEMM_Q6_K]   = {"Q6_K",   DTYPE_Q6_K,   256, 210, 208, -1},
    [GEMM_IQ4_NL] = {"IQ4_NL", DTYPE_IQ4_NL, 32,  18,  0,  -1},
    [GEMM_IQ4_XS] = {"IQ4_XS", DTYPE_IQ4_XS, 256, 136, 0,  -1}, [GEMM_MXFP4] = {"MXFP4", DTYPE_MXFP4, 32, 17, -1, -1},
    // clang-format on
};

/* The levels under test; index 0 is generic. */
static struct gemm_kern levels[CPU_N_LEVELS + 2][GEMM_N_FORMATS];
static const char *level_names[CPU_N_LEVELS + 2];
static int n_levels;

/* Generic, but BF16 with bf16 activations. */
static struct gemm_kern bf16_spec[GEMM_N_FORMATS];

static void levels_init(void) {
    static struct kern k;
    for (int l = 0; l < CPU_N_LEVELS; l++) {
        if (!cpu_has(cpu_detect(), (enum cpu_level)l)) {
            print_message("skipped: this CPU lacks level %s\n", cpu_level_name((enum cpu_level)l));
            continue;
        }
        kern_init(&k, (enum cpu_level)l);
        memcpy(levels[n_levels], k.gemm, sizeof k.gemm);
        level_names[n_levels++] = cpu_level_name((enum cpu_level)l);
    }
    memcpy(bf16_spec, levels[0], sizeof bf16_spec);
    gemm_init_generic_bf16(bf16_spec);
#ifdef XENON_EMULATE_AVX512
    for (int pairs = 0; pairs < 2; pairs++) {
        memcpy(levels[n_levels], levels[0], sizeof levels[0]);
        gemm_init_avx512(levels[n_levels]);
        if (pairs) gemm_init_avx512bf16(levels[n_levels]);
        level_names[n_levels++] = pairs ? "avx512bf16 (emulated)" : "avx512 (emulated)";
    }
#endif
}

/* ---- memory with a guard page behind it ---- */

struct guarded {
    char *map, *p; /* p: bytes long, ends at the guard page */
    size_t map_bytes;
};

/* bytes is rounded up to align, so that p is aligned; filled with 0xff (NaNs). */
static struct guarded guard_alloc(size_t bytes, size_t align) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (bytes + align - 1) / align * align;
    struct guarded g = {.map_bytes = (size + page - 1) / page * page + page};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(g.map != MAP_FAILED);
    CHECK(mprotect(g.map + g.map_bytes - page, page, PROT_NONE) == 0);
    g.p = g.map + g.map_bytes - page - size;
    memset(g.p, 0xff, size);
    return g;
}

static void guard_free(struct guarded *g) {
    munmap(g->map, g->map_bytes);
}

/* ---- data ---- */

/* TINY: products of two are about as large as the smallest normal number. */
enum data { DATA_RANDOM, DATA_ZERO, DATA_HUGE, DATA_DENORMAL, DATA_LOW, DATA_HIGH, DATA_TINY, N_DATA };

static size_t row_bytes(enum gemm_format f, int64_t k) {
    return (size_t)(k / formats[f].block * formats[f].bytes);
}

static f16 scale_bits(struct rng *r, enum data kind) {
    const uint16_t sign = (uint16_t)(rng_below(r, 2) << 15);
    if (kind == DATA_ZERO) return 0;
    if (kind == DATA_HUGE) return (f16)(sign | 0x7bff);
    if (kind == DATA_DENORMAL) return (f16)(sign | (1 + rng_below(r, 1023)));
    return half_to_f16(rng_f32(r) * 0.05f);
}

static void float_fill(char *p, enum gemm_format f, enum data kind, struct rng *r) {
    static const float top[3] = {1e37f, 65504.0f, 1e37f};
    float x = rng_f32(r);
    if (kind == DATA_ZERO) x = rng_below(r, 2) ? 0.0f : -0.0f;
    if (kind == DATA_HUGE) x *= top[f];
    if (kind == DATA_DENORMAL) x *= f == GEMM_F16 ? 1e-6f : 1e-39f;
    if (kind == DATA_TINY) x *= f == GEMM_F16 ? 1e-3f : 1e-19f;
    if (kind == DATA_LOW || kind == DATA_HIGH) x = kind == DATA_LOW ? -1.5f : 1.5f;
    const uint16_t h = f == GEMM_F16 ? half_to_f16(x) : half_to_bf16(x);
    if (f == GEMM_F32)
        memcpy(p, &x, 4);
    else
        memcpy(p, &h, 2);
}

static void weights_fill(char *p, enum gemm_format f, enum data kind, int64_t n_blocks, struct rng *r) {
    for (int64_t i = 0; i < n_blocks; i++, p += formats[f].bytes) {
        if (formats[f].block == 1) {
            float_fill(p, f, kind, r);
            continue;
        }
        for (int b = 0; b < formats[f].bytes; b++) p[b] = (char)rng_next(r);
        if (kind == DATA_ZERO || kind == DATA_LOW)
            memset(p, f == GEMM_Q8_0 && kind == DATA_LOW ? 0x80 : 0, (size_t)formats[f].bytes);
        if (kind == DATA_HIGH) memset(p, f == GEMM_Q8_0 ? 0x7f : 0xff, (size_t)formats[f].bytes);
        const f16 d = scale_bits(r, kind), m = scale_bits(r, kind);
        if (formats[f].d_at >= 0) memcpy(p + formats[f].d_at, &d, 2);
        if (formats[f].m_at >= 0) memcpy(p + formats[f].m_at, &m, 2);
        if (f == GEMM_MXFP4)
            p[0] = (char)(kind == DATA_HUGE ? 254 : kind == DATA_DENORMAL ? rng_below(r, 3) : 110 + rng_below(r, 20));
    }
}

static void x_fill(float *x, int64_t n, enum data kind, struct rng *r) {
    for (int64_t i = 0; i < n; i++) {
        x[i] = rng_f32(r) * (rng_below(r, 32) ? 1.0f : 20.0f);
        if (kind == DATA_ZERO) x[i] = rng_below(r, 2) ? 0.0f : -0.0f;
        if (kind == DATA_HUGE) x[i] *= 1e30f;
        if (kind == DATA_DENORMAL) x[i] *= rng_below(r, 2) ? 1e-39f : 1e-44f;
        if (kind == DATA_TINY) x[i] *= 1e-19f;
        if (kind == DATA_LOW) x[i] = -3.0f;
        if (kind == DATA_HIGH) x[i] = i % 2 ? -3.0f : 3.0f;
    }
}

/* ---- one multiplication ---- */

struct problem {
    enum gemm_format f;
    int m;
    int64_t n, k;
    struct guarded w, x; /* file rows, activations [m, k] */
};

static struct problem problem_make(enum gemm_format f, int m, int64_t n, int64_t k, enum data wk, enum data xk) {
    struct rng r = rng_seeded((uint64_t)(f * 1000 + m) * 7919 + (uint64_t)(n * 31 + k) + (uint64_t)(wk * 8 + xk) * 77);
    struct problem p = {f, m, n, k, guard_alloc((size_t)n * row_bytes(f, k), 1), guard_alloc((size_t)(m * k) * 4, 4)};
    weights_fill(p.w.p, f, wk, n * (k / formats[f].block), &r);
    x_fill((float *)(void *)p.x.p, m * k, xk, &r);
    return p;
}

static void problem_free(struct problem *p) {
    guard_free(&p->w);
    guard_free(&p->x);
}

static struct guarded panels_make(const struct gemm_kern *g, const struct problem *p) {
    const size_t bytes = g->panel_bytes(p->k), rb = row_bytes(p->f, p->k);
    struct guarded panels = guard_alloc(bytes * (size_t)((p->n + g->panel - 1) / g->panel), 64);
    for (int64_t i = 0; i < p->n; i += g->panel) {
        const int rows = p->n - i < g->panel ? (int)(p->n - i) : g->panel;
        g->pack(panels.p + bytes * (size_t)(i / g->panel), p->w.p + (size_t)i * rb, rb, rows, p->k);
    }
    return panels;
}

/* Rows row0 .. row0+m-1 of x; y [m, n] ends at its guard page. Activations are packed in two parts when split. */
static struct guarded gemm_rows(const struct gemm_kern *g, const struct problem *p, const char *panels, int row0, int m,
                                bool split) {
    struct guarded act = guard_alloc(g->act_bytes(m, p->k), 64), y = guard_alloc((size_t)(m * p->n) * 4, 4);
    const float *const x = (const float *)(const void *)p->x.p + row0 * p->k;
    int cut = split ? m / 2 / g->act_tile(m) * g->act_tile(m) : 0;
    if (cut) g->act_pack(act.p, x, p->k, m, cut, m, p->k);
    g->act_pack(act.p, x, p->k, m, 0, cut ? cut : m, p->k);
    const struct gemm_args a = {(float *)(void *)y.p, p->n, panels, p->n, act.p, m, p->k};
    g->run(&a);
    guard_free(&act);
    return y;
}

/* Bit-equal, any NaN equal to any NaN. */
static void check_same(const float *a, const float *b, int64_t count, const struct problem *p, const char *what) {
    for (int64_t i = 0; i < count; i++) {
        if (half_bits(a[i]) == half_bits(b[i]) || (isnan(a[i]) && isnan(b[i]))) continue;
        print_error("%s %s: m %d n %d k %d: output %d is %a, not %a\n", what, formats[p->f].name, p->m, (int)p->n,
                    (int)p->k, (int)i, (double)a[i], (double)b[i]);
        fail();
    }
}

#define FLOATS(g) ((const float *)(const void *)(g).p)

/* All m rows of the problem. */
static struct guarded outputs(const struct gemm_kern *g, const struct problem *p, bool split) {
    struct guarded panels = panels_make(g, p), y = gemm_rows(g, p, panels.p, 0, p->m, split);
    guard_free(&panels);
    return y;
}

static void check_levels(enum gemm_format f, int m, int64_t n, int64_t k, enum data wk, enum data xk) {
    struct problem p = problem_make(f, m, n, k, wk, xk);
    struct guarded want = outputs(&levels[0][f], &p, false), want_bf16 = outputs(&bf16_spec[f], &p, false);
    for (int l = 1; l < n_levels; l++) {
        const struct gemm_kern *const g = &levels[l][f];
        struct guarded y = outputs(g, &p, true);
        check_same(FLOATS(y), FLOATS(g->act == GEMM_ACT_BF16 ? want_bf16 : want), m * n, &p, level_names[l]);
        guard_free(&y);
    }
    guard_free(&want);
    guard_free(&want_bf16);
    problem_free(&p);
}

/* ---- tests ---- */

static void test_levels_equal_generic(void **state) {
    (void)state;
    static const int64_t float_k[] = {1, 2, 12, 31, 88, 100, 172, 511, 513, 1100};
    static const int ms[] = {1, 2, 3, 5, 6, 7, 13, 33};
    int cases = 0;
    for (int f = 0; f < GEMM_N_FORMATS; f++)
        for (int i = 0; i < 10; i++)
            for (size_t j = 0; j < N_ELEMENTS(ms); j++) {
                const int b = formats[f].block;
                const int64_t k = b == 1 ? float_k[i] : b == 32 ? 32 * (i < 6 ? i + 1 : 2 * i + 5) : 256 * (i % 5 + 1);
                const int64_t n = 1 + (i * 7 + (int64_t)j * 13) % 70;
                check_levels((enum gemm_format)f, ms[j], n, k, DATA_RANDOM, DATA_RANDOM);
                cases++;
            }
    print_message("%d shapes, %d levels\n", cases, n_levels);
}

static void test_extreme_data(void **state) {
    (void)state;
    for (int f = 0; f < GEMM_N_FORMATS; f++)
        for (int w = 0; w < N_DATA; w++)
            for (int x = 0; x < N_DATA; x++)
                check_levels((enum gemm_format)f, 1 + (w + x) % 7, 19, formats[f].block == 256 ? 512 : 160,
                             (enum data)w, (enum data)x);
}

/* What the definition of BF16 with bf16 activations says, case by case: y of one row of k <= 4. */
static const struct {
    const char *what;
    int k;
    float w[4], x[4], y;
} bf16_cases[] = {
    // clang-format off
    {"the odd one of a pair first",        4, {0, 0x1p24f, -0x1p24f, 1},     {1, 1, 1, 1},           0.0f},
    {"a rounding for each product",        4, {0, 0x1p24f, 1, 1},            {1, 1, 1, 1},           0x1p24f},
    {"no rounding of a product",           2, {0x1p127f, -0x1p127f},         {2, 1},                 0x1p127f},
    {"x to nearest even",                  3, {1, 16, 256},
                                              {0x1.01p0f, 0x1.03p0f, 0x1.01001p0f},                  275.25f},
    {"x may round to the smallest normal", 1, {1},                           {0x1.fffffcp-127f},     0x1p-126f},
    {"sums that are denormal vanish",      2, {0x1p-64f, 0x1p-64f},          {0x1p-63f, 0x1p-63f},   0.0f},
    {"and keep their sign",                2, {-0.0f, -0x1p-64f},            {1, 0x1p-63f},          -0.0f},
    {"which a missing element does not",   3, {-0.0f, -0x1p-64f, -0.0f},     {1, 0x1p-63f, 1},       0.0f},
    {"denormal weights are zeros",         2, {0x1p-130f, 0x1p-127f},        {0x1p100f, 0x1p100f},   0.0f},
    {"denormal activations are zeros",     2, {0x1p100f, 0x1p100f},          {0x1p-130f, 0x1p-127f}, 0.0f},
    {"denormal after rounding to 24 bits", 2, {-0x1p-75f, 0x1p-63f},         {0x1p-75f, 0x1p-63f},   0.0f},
    {"normal after rounding to 24 bits",   2, {-0x1p-76f, 0x1p-63f},         {0x1p-75f, 0x1p-63f},   0x1p-126f},
    // clang-format on
};

static void check_bf16_cases(const struct gemm_kern *g, const char *what) {
    for (size_t i = 0; i < N_ELEMENTS(bf16_cases); i++) {
        struct problem p = problem_make(GEMM_BF16, 1, 1, bf16_cases[i].k, DATA_ZERO, DATA_ZERO);
        for (int j = 0; j < bf16_cases[i].k; j++) {
            const bf16 w = half_to_bf16(bf16_cases[i].w[j]);
            memcpy(p.w.p + 2 * j, &w, 2);
            memcpy(p.x.p + 4 * j, &bf16_cases[i].x[j], 4);
        }
        struct guarded y = outputs(g, &p, false);
        if (half_bits(FLOATS(y)[0]) != half_bits(bf16_cases[i].y))
            fail_msg("%s, %s: %a, not %a", what, bf16_cases[i].what, (double)FLOATS(y)[0], (double)bf16_cases[i].y);
        guard_free(&y);
        problem_free(&p);
    }
}

static void test_bf16_definition(void **state) {
    (void)state;
    check_bf16_cases(&bf16_spec[GEMM_BF16], "specification");
    for (int l = 0; l < n_levels; l++)
        if (levels[l][GEMM_BF16].act == GEMM_ACT_BF16) check_bf16_cases(&levels[l][GEMM_BF16], level_names[l]);
}

/* A NaN or an infinity in one row of x reaches every output of that row and of no other. */
static void test_not_finite(void **state) {
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int f = 0; f < GEMM_N_FORMATS; f++) {
            struct problem p = problem_make((enum gemm_format)f, 5, 24, 512, DATA_RANDOM, DATA_RANDOM);
            float *const x = (float *)(void *)p.x.p;
            x[1 * 512 + 300] = half_float(0x7fffffffu); /* a NaN that rounding must not carry into the sign */
            x[3 * 512 + 40] = -INFINITY;
            struct guarded panels = panels_make(&levels[l][f], &p);
            struct guarded y = gemm_rows(&levels[l][f], &p, panels.p, 0, 5, false);
            for (int r = 0; r < 5; r++)
                for (int i = 0; i < 24; i++) assert_int_equal(!isfinite(FLOATS(y)[24 * r + i]), r % 2);
            guard_free(&panels);
            guard_free(&y);
            problem_free(&p);
        }
}

/* Every row of every m from 1 to 64 has the bits of that row alone. */
static void test_rows_are_independent(void **state) {
    (void)state;
    enum { N = 37, M = 64 };
    for (int l = 0; l < n_levels; l++)
        for (int f = 0; f < GEMM_N_FORMATS; f++) {
            const int64_t k = formats[f].block == 256 ? 512 : formats[f].block == 32 ? 224 : 172;
            struct problem p = problem_make((enum gemm_format)f, M, N, k, DATA_RANDOM, DATA_RANDOM);
            struct guarded panels = panels_make(&levels[l][f], &p), want = guard_alloc(M * N * 4, 4);
            for (int r = 0; r < M; r++) {
                struct guarded y = gemm_rows(&levels[l][f], &p, panels.p, r, 1, false);
                memcpy(want.p + r * N * 4, y.p, N * 4);
                guard_free(&y);
            }
            for (int m = 2; m <= (l ? M : 9); m++) {
                struct guarded y = gemm_rows(&levels[l][f], &p, panels.p, M - m, m, m % 2);
                check_same(FLOATS(y), FLOATS(want) + (M - m) * N, m * N, &p, level_names[l]);
                guard_free(&y);
            }
            guard_free(&panels);
            guard_free(&want);
            problem_free(&p);
        }
}

static void test_unpack_row(void **state) {
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int f = 0; f < GEMM_N_FORMATS; f++)
            for (int kind = 0; kind < N_DATA; kind++) {
                const struct gemm_kern *const g = &levels[l][f];
                const int64_t k = formats[f].block == 256 ? 768 : formats[f].block == 32 ? 288 : 33, n = 21;
                struct problem p = problem_make((enum gemm_format)f, 1, n, k, (enum data)kind, DATA_RANDOM);
                struct guarded panels = panels_make(g, &p), want = guard_alloc((size_t)k * 4, 4);
                struct guarded out = guard_alloc((size_t)k * 4, 4);
                for (int64_t i = 0; i < n; i++) {
                    quant_decode_row(formats[f].dtype, (float *)(void *)want.p, p.w.p + (size_t)i * row_bytes(p.f, k),
                                     k);
                    g->unpack_row((float *)(void *)out.p, panels.p + g->panel_bytes(k) * (size_t)(i / g->panel),
                                  (int)(i % g->panel), k);
                    check_same(FLOATS(out), FLOATS(want), k, &p, level_names[l]);
                }
                guard_free(&panels);
                guard_free(&want);
                guard_free(&out);
                problem_free(&p);
            }
}

/* The activation of a row as the definition rounds it, for the check in double. */
static void round_row(double *out, const float *x, int64_t k, int block, enum gemm_act act) {
    for (int64_t i = 0; i < k; i += block) {
        if (act == GEMM_ACT_BF16) {
            out[i] = (double)half_from_bf16(half_to_bf16(x[i]));
            continue;
        }
        float max = 0.0f;
        for (int64_t j = i; j < i + block; j++) max = fmaxf(max, fabsf(x[j]));
        const float d = max / 127.0f;
        for (int64_t j = i; j < i + block; j++)
            out[j] = block == 1 ? (double)x[j] : d > 0.0f ? rint((double)(x[j] / d)) * (double)d : 0.0;
    }
}

static void check_against_double(const struct gemm_kern table[GEMM_N_FORMATS], int first, int end) {
    for (int f = first; f < end; f++) {
        const int64_t k = 1024, n = 20;
        struct problem p = problem_make((enum gemm_format)f, 3, n, k, DATA_RANDOM, DATA_RANDOM);
        struct guarded y = outputs(&table[f], &p, false);
        float w[1024];
        double x[1024];
        for (int r = 0; r < 3; r++) {
            round_row(x, FLOATS(p.x) + r * k, k, formats[f].block, table[f].act);
            for (int64_t i = 0; i < n; i++) {
                double sum = 0.0, size = 0.0;
                quant_decode_row(formats[f].dtype, w, p.w.p + (size_t)i * row_bytes(p.f, k), k);
                for (int64_t j = 0; j < k; j++) {
                    sum += (double)w[j] * x[j];
                    size += fabs((double)w[j] * x[j]);
                }
                assert_true(fabs(sum - (double)FLOATS(y)[r * n + i]) <= 4e-6 * size);
            }
        }
        guard_free(&y);
        problem_free(&p);
    }
}

static void test_generic_against_double(void **state) {
    (void)state;
    check_against_double(levels[0], 0, GEMM_N_FORMATS);
    check_against_double(bf16_spec, GEMM_BF16, GEMM_BF16 + 1);
}

/* Kernels that name one layout and one tile make the same bytes; any split of the rows makes them too. */
static void test_act_layouts(void **state) {
    (void)state;
    for (int l = 0; l < n_levels; l++)
        for (int f = 0; f < GEMM_N_FORMATS; f++) {
            struct problem p = problem_make((enum gemm_format)f, 29, 1, 512, DATA_ZERO, DATA_RANDOM);
            const struct gemm_kern *const g = &levels[l][f];
            struct guarded whole = guard_alloc(g->act_bytes(29, 512), 64),
                           part = guard_alloc(g->act_bytes(29, 512), 64);
            g->act_pack(whole.p, FLOATS(p.x), 512, 29, 0, 29, 512);
            for (int r = 0, t = g->act_tile(29); r < 29; r += t)
                g->act_pack(part.p, FLOATS(p.x), 512, 29, r, r + t < 29 ? r + t : 29, 512);
            assert_memory_equal(whole.p, part.p, g->act_bytes(29, 512));
            for (int h = 0; h < f; h++) {
                const struct gemm_kern *const o = &levels[l][h];
                if (o->act_layout != g->act_layout || o->act_tile(29) != g->act_tile(29)) continue;
                memset(part.p, 0xff, g->act_bytes(29, 512));
                o->act_pack(part.p, FLOATS(p.x), 512, 29, 0, 29, 512);
                assert_memory_equal(whole.p, part.p, g->act_bytes(29, 512));
            }
            guard_free(&whole);
            guard_free(&part);
            problem_free(&p);
        }
}

/* ---- bench ---- */

/* Nanoseconds of CPU that this thread has used: a neighbour on the core does not count. */
static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static volatile uint64_t read_sink;

/* GB/s of plain reads of `bytes` in four streams (one word of every cache line), the best of three. */
static double read_rate(const char *p, size_t bytes) {
    const size_t quarter = bytes / 256 * 64;
    double best = 0.0;
    for (int i = 0; i < 3; i++) {
        uint64_t s[4] = {0};
        const int64_t t0 = cpu_ns();
        for (size_t b = 0; b < quarter; b += 64)
            for (size_t j = 0; j < 4; j++) s[j] += *(const uint64_t *)(const void *)(p + j * quarter + b);
        const double rate = (double)bytes / (double)(cpu_ns() - t0);
        read_sink = s[0] + s[1] + s[2] + s[3];
        if (rate > best) best = rate;
    }
    return best;
}

/* Huge pages where the system grants them, as the engine's regions ask for. */
static struct guarded bench_alloc(size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    struct guarded g = {.map_bytes = bytes + 2 * huge};
    g.map = mmap(NULL, g.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(g.map != MAP_FAILED);
    madvise(g.map, g.map_bytes, MADV_HUGEPAGE);
    g.p = g.map + (huge - (uintptr_t)g.map % huge);
    return g;
}

static void bench_one(const struct gemm_kern *g, const char *level, enum gemm_format f, int64_t n, int64_t k) {
    static const int ms[] = {1, 2, 4, 8, 16, 32, 128};
    struct problem p = problem_make(f, 1, 64, k, DATA_RANDOM, DATA_RANDOM);
    const size_t pb = g->panel_bytes(k), bytes = pb * (size_t)(n / g->panel);
    struct guarded panels = bench_alloc(bytes), few = panels_make(g, &p);
    for (int64_t i = 0; i < n / g->panel; i++)
        memcpy(panels.p + pb * (size_t)i, few.p + pb * (size_t)(i % (64 / g->panel)), pb);
    for (size_t j = 0; j < N_ELEMENTS(ms); j++) {
        const int m = ms[j];
        float *const x = calloc((size_t)(m * k), 4), *const y = malloc((size_t)(m * n) * 4);
        for (int64_t i = 0; i < m * k; i++) x[i] = (float)(i * 7919 % 1001) - 500.0f;
        char *const act = aligned_alloc(64, g->act_bytes(m, k));
        const double read = read_rate(panels.p, bytes);
        g->act_pack(act, x, k, m, 0, m, k);
        const struct gemm_args a = {y, n, panels.p, n, act, m, k};
        double best = 1e30;
        for (int rep = 0; rep < (m > 16 ? 2 : 4); rep++) {
            const int64_t t0 = cpu_ns();
            g->run(&a);
            const double ns = (double)(cpu_ns() - t0);
            if (ns < best) best = ns;
        }
        printf("%-8s %-7s m %3d  %7.2f GB/s (%3.0f %% of read %5.1f)  %8.1f GOPS\n", level, formats[f].name, m,
               (double)bytes / best, 100.0 * (double)bytes / best / read, read,
               2.0 * (double)m * (double)n * (double)k / best);
        free(x);
        free(y);
        free(act);
    }
    guard_free(&panels);
    guard_free(&few);
    problem_free(&p);
}

/* --bench [FORMAT]: one thread, matrices of 134 M weights, larger than the caches. */
static int bench(const char *only) {
    for (int l = 1; l < n_levels; l++)
        for (int f = 0; f < GEMM_N_FORMATS; f++)
            if (!only || !strcmp(only, formats[f].name))
                bench_one(&levels[l][f], level_names[l], (enum gemm_format)f, 65536, 2048);
    return 0;
}

int main(int argc, char **argv) {
    levels_init();
    if (argc > 1 && !strcmp(argv[1], "--bench")) return bench(argc > 2 ? argv[2] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generic_against_double),
        cmocka_unit_test(test_unpack_row),
        cmocka_unit_test(test_act_layouts),
        cmocka_unit_test(test_levels_equal_generic),
        cmocka_unit_test(test_extreme_data),
        cmocka_unit_test(test_bf16_definition),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_rows_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
