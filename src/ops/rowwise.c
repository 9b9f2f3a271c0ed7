/* The operators that turn rows into rows. Every lane does the rows that op_rows gives it.
 *
 *   rmsnorm    y = x * rsqrt(mean(x^2) + eps) * w        head_norm  the same over each head
 *   add        y = a + b                                 scale      y = x * s
 *   silu_mul   y = silu(gate) * up                       gelu_mul   y = gelu_tanh(gate) * up */
#include "ops/params.h"

/* Calls body with r, the row number, for this lane's rows. */
#define FOR_ROWS(c, s, l, r)                                                                                           \
    int r, rows_end_;                                                                                                  \
    op_rows((l), op_n_rows((c)->t, (s)), &r, &rows_end_);                                                              \
    for (; r < rows_end_; r++)

static void rmsnorm_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct norm_params *const p = c->t->params;
    const int64_t n = c->t->width;
    FOR_ROWS(c, s, l, r) c->kern->elem.rmsnorm(c->y + r * n, c->x[0] + r * n, p->w, n, p->eps);
}

const struct op op_rmsnorm = {.name = "rmsnorm", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = rmsnorm_run};

static void head_norm_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct norm_params *const p = c->t->params;
    FOR_ROWS(c, s, l, r) {
        for (int h = 0; h < p->n_heads; h++) {
            const int64_t at = r * c->t->width + (int64_t)h * p->d;
            c->kern->elem.rmsnorm(c->y + at, c->x[0] + at, p->w, p->d, p->eps);
        }
    }
}

const struct op op_head_norm = {.name = "head_norm", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = head_norm_run};

static void add_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const int64_t n = c->t->width;
    FOR_ROWS(c, s, l, r) c->kern->elem.add(c->y + r * n, c->x[0] + r * n, c->x[1] + r * n, n);
}

const struct op op_add = {.name = "add", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = add_run};

static void scale_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct scale_params *const p = c->t->params;
    const int64_t n = c->t->width;
    FOR_ROWS(c, s, l, r) c->kern->elem.scale(c->y + r * n, c->x[0] + r * n, p->s, n);
}

const struct op op_scale = {.name = "scale", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = scale_run};

static void silu_mul_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const int64_t n = c->t->width;
    FOR_ROWS(c, s, l, r) c->kern->elem.silu_mul(c->y + r * n, c->x[0] + r * n, c->x[1] + r * n, n);
}

const struct op op_silu_mul = {.name = "silu_mul", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = silu_mul_run};

static void gelu_mul_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const int64_t n = c->t->width;
    FOR_ROWS(c, s, l, r) c->kern->elem.gelu_mul(c->y + r * n, c->x[0] + r * n, c->x[1] + r * n, n);
}

const struct op op_gelu_mul = {.name = "gelu_mul", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = gelu_mul_run};
