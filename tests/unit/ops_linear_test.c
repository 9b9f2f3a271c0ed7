/* linear: what the fine form adds. A coarse product has the error of its rounded activations, a fine one 16 bits or
 * more, for every way of rounding; rows and splits over lanes change nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ops/params.h"
#include "quant/quant.h"

enum { N = 21, K = 512, M = 5, LANES = 3 };

static struct kern kern;
static float x[M * K];

/* Random bytes of a format as a weight, and the same decoded. */
struct matrix {
    struct weight w;
    float decoded[N * K];
};

static void matrix_init(struct matrix *a, enum dtype t) {
    const int sizes[] = {LANES};
    const struct dtype_info *const info = dtype_info(t);
    const size_t row_bytes = (size_t)(K / info->block_elems * info->block_bytes);
    struct rng r = rng_seeded(7);
    struct err_msg msg;
    char rows[16 * K * 4];
    assert_int_equal(weight_init(&a->w, "k_proj", N, K, t, &kern, sizes, 1, &msg), ERR_OK);
    a->w.base[0] = mem_alloc_aligned(64, weight_team_bytes(&a->w, 0));
    assert_non_null(a->w.base[0]);
    for (int64_t p = 0; p < a->w.n_panels; p++) {
        const int64_t first = p * a->w.kern->panel;
        for (int64_t i = first; i < N && i < first + a->w.kern->panel; i++) {
            char *const row = rows + (size_t)(i - first) * row_bytes;
            for (size_t b = 0; b < row_bytes; b++) row[b] = (char)rng_next(&r);
            for (size_t b = 0; b < row_bytes; b += (size_t)info->block_bytes) {
                const uint16_t h = t == DTYPE_BF16 ? half_to_bf16(rng_f32(&r)) : half_to_f16(rng_f32(&r) * 0.02f);
                memcpy(row + b + (t == DTYPE_Q6_K ? 208 : 0), &h, 2);
            }
            quant_decode_row(t, a->decoded + i * K, row, K);
        }
        weight_pack_panel(&a->w, p, rows, row_bytes);
    }
}

/* y [M, N] of pack and linear as LANES lanes run them. */
static void multiply(float *y, const struct weight *w, int m, bool fine) {
    const struct linear_params p = {.w = w, .fine = fine};
    const struct tensor in = {.width = K}, pack = {.width = K, .op = &op_pack, .params = &p, .src = {&in}};
    const struct tensor out = {.width = N, .op = &op_linear, .params = &p, .src = {&pack}};
    const struct op_limits lim = {.max_tokens = m, .max_logits = m, .n_lanes = LANES, .n_teams = 1, .kern = &kern};
    const struct step s = {.n_tokens = m};
    static struct op_counter counters[OP_PHASES_MAX];
    memset(counters, 0, sizeof counters);
    void *const act = mem_alloc_aligned(64, op_pack.out_bytes(&pack, &lim));
    void *const rows = mem_alloc_aligned(64, op_pack.scratch(&pack, &lim) + 64);
    void *const halves = mem_alloc_aligned(64, op_linear.scratch(&out, &lim) + 64);
    assert_true(act && rows && halves);
    const struct op_call c_pack = {&pack, &kern, act, {x}, rows, NULL, 0, counters};
    const struct op_call c_out = {&out, &kern, y, {act}, halves, NULL, 0, counters};
    for (int i = 0; i < 2 * LANES; i++) {
        const int id = i % LANES;
        const struct lane l = {.id = id, .n_lanes = LANES, .n_teams = 1, .team_lane = id, .team_size = LANES};
        if (i < LANES)
            op_pack.run(&c_pack, &s, &l, 0);
        else
            op_linear.run(&c_out, &s, &l, 0);
    }
    mem_free(act);
    mem_free(rows);
    mem_free(halves);
}

/* The largest error, as a share of sum |w x|. */
static double error_of(const float *y, const struct matrix *a) {
    double worst = 0.0;
    for (int i = 0; i < M * N; i++) {
        double sum = 0.0, size = 0.0;
        for (int k = 0; k < K; k++) {
            const double v = (double)a->decoded[i % N * K + k] * (double)x[i / N * K + k];
            sum += v;
            size += fabs(v);
        }
        worst = fmax(worst, fabs((double)y[i] - sum) / size);
    }
    return worst;
}

static void check_fine(enum dtype t, enum gemm_act act) {
    static struct matrix a;
    float fine[M * N], coarse[M * N], one[N];
    matrix_init(&a, t);
    assert_int_equal(a.w.kern->act, act);
    multiply(fine, &a.w, M, true);
    multiply(coarse, &a.w, M, false);
    print_message("%s: fine %.1e, coarse %.1e\n", dtype_info(t)->name, error_of(fine, &a), error_of(coarse, &a));
    assert_true(error_of(fine, &a) < 6e-6);
    assert_true(error_of(coarse, &a) > 1e-4);
    multiply(one, &a.w, 1, true);
    assert_memory_equal(one, fine, sizeof one);
    mem_free(a.w.base[0]);
}

static void test_fine(void **state) {
    (void)state;
    struct rng r = rng_seeded(3);
    for (int i = 0; i < M * K; i++) x[i] = rng_f32(&r);
    kern_init(&kern, CPU_GENERIC);
    check_fine(DTYPE_Q8_0, GEMM_ACT_Q8_32);
    check_fine(DTYPE_Q6_K, GEMM_ACT_Q8_256);
    gemm_init_generic_bf16(kern.gemm);
    check_fine(DTYPE_BF16, GEMM_ACT_BF16);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
