/* embed: y[r] = row token_ids[r] of the packed embedding.   gather: y[i] = x[logit_rows[i]]. */
#include "ops/params.h"

#include <string.h>

static enum err embed_check(const struct tensor *t, const struct op_limits *lim, struct err_msg *msg) {
    (void)lim;
    const struct weight *const w = ((const struct linear_params *)t->params)->w;
    if (w->k == t->width) return ERR_OK;
    return err_set(msg, ERR_FORMAT, "tensor %s: embedding rows of %lld, hidden size %lld", w->name, (long long)w->k,
                   (long long)t->width);
}

static void embed_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const struct weight *const w = ((const struct linear_params *)c->t->params)->w;
    int r, end;
    op_rows(l, s->n_tokens, &r, &end);
    for (; r < end; r++) weight_row(w, s->token_ids[r], c->y + r * c->t->width);
}

const struct op op_embed = {
    .name = "embed", .n_phases = 1, .split = {OP_SPLIT_ROWS}, .check = embed_check, .run = embed_run};

static void gather_run(const struct op_call *c, const struct step *s, const struct lane *l, int phase) {
    (void)phase;
    const int64_t width = c->t->width;
    int i, end;
    op_rows(l, s->n_logits, &i, &end);
    for (; i < end; i++)
        memcpy(c->y + i * width, c->x[0] + s->logit_rows[i] * width, (size_t)width * sizeof(float));
}

/* Its rows are not those of its source, so lanes must meet before it. */
const struct op op_gather = {.name = "gather", .n_phases = 1, .split = {OP_SPLIT_WORK}, .run = gather_run};
