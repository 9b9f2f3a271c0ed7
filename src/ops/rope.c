/* rope_table: the angles of the step's positions, once for all layers that share them. Angles, cosines and sines in
 * f32, as the reference computes them (models.md 0.3).   rope: rotates every head of a row with its position's angles.
 */
#include "ops/params.h"

#include <math.h>

static void rope_table_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct rope_params *const p = c->t->params;
    const int half = p->r / 2;
    int r, end;
    op_rows(l, s->n_tokens, &r, &end);
    for (; r < end; r++) {
        float *const y = c->y + r * c->t->width;
        const float pos = (float)s->positions[r];
        for (int i = 0; i < half; i++) {
            const float angle = pos * p->freq[i];
            y[i] = cosf(angle) * p->factor;
            y[half + i] = sinf(angle) * p->factor;
        }
    }
}

const struct op op_rope_table = {.name = "rope_table", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .run = rope_table_run};

static enum err rope_check(const struct tensor *t, const struct op_limits *lim, struct err_msg *msg) {
    (void)lim;
    const struct rope_params *const p = t->params;
    if (p->r >= 2 && p->r % 2 == 0 && p->r <= p->d && t->width == (int64_t)p->n_heads * p->d) return ERR_OK;
    return err_set(msg, ERR_FORMAT, "rope: %d rotary of %d elements in a head; an even number up to the head is wanted",
                   p->r, p->d);
}

static void rope_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct rope_params *const p = c->t->params;
    void (*const rotate)(float *, const float *, int) = p->pair ? c->kern->elem.rope_pair : c->kern->elem.rope_half;
    int r, end;
    op_rows(l, s->n_tokens, &r, &end);
    for (; r < end; r++) {
        const float *const cs = c->x[1] + r * c->t->src[1]->width;
        for (int h = 0; h < p->n_heads; h++) rotate(c->y + r * c->t->width + (int64_t)h * p->d, cs, p->r);
    }
}

/* In place: the graph gives it the buffer of its source. */
const struct op op_rope = {
    .name = "rope", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .check = rope_check, .run = rope_run};
