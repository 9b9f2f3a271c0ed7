/* The loops around the float kernels (F32, F16, BF16 weights, no int8), shared by the vector levels. An
 * output is one fma chain over k in order. Few rows have too few chains for the latency of an fma, so a kernel may take
 * several panels at once; many rows get K in parts, so that a panel's part stays in L1 or L2: the chains go on from y,
 * which changes no bit. Private to src/kern/<isa>/gemm_float_*.c.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_GEMM_FLOAT_INT_H
#define KERN_GEMM_FLOAT_INT_H

#include "kern/gemm_run_int.h"

enum { GEMM_FLOAT_K = 512 };

/* The part k0 .. k1 of a row tile of R rows on some panels. */
struct gemm_part {
    float *y;
    int64_t ldy;
    const char *panel; /* first panel, at k0 */
    size_t panel_bytes;
    const void *act; /* [k1 - k0][R] f32, or [ceil((k1 - k0) / 2)][R] pairs of bf16 */
    int64_t n;        /* k1 - k0; even unless it ends the row */
    bool first;       /* k0 == 0: chains start at zero */
};

typedef void gemm_part_fn(const struct gemm_part *p);

/* Kernels of one row count: one panel, and `wide` panels at once. */
struct gemm_part_fns {
    gemm_part_fn *one, *many;
    int wide;
};

struct gemm_float_walk {
    int panel, max_rows;
    size_t panel_bytes, k_bytes;     /* k_bytes: of one k in a panel */
    const struct gemm_part_fns *fns; /* [R - 1] */
};

/* Runs p on a panel with cols outputs left, through a buffer when it is not whole. */
static inline void gemm_part_cols(const struct gemm_float_walk *w, struct gemm_part *p, int R, int64_t cols) {
    float buf[GEMM_MAX_TILE * GEMM_MAX_PANEL];
    if (cols >= w->panel) {
        w->fns[R - 1].one(p);
        return;
    }
    float *const y = p->y;
    const int64_t ldy = p->ldy;
    memset(buf, 0, sizeof buf);
    if (!p->first)
        for (int r = 0; r < R; r++) memcpy(buf + w->panel * r, y + r * ldy, (size_t)cols * sizeof *y);
    p->y = buf;
    p->ldy = w->panel;
    w->fns[R - 1].one(p);
    for (int r = 0; r < R; r++) memcpy(y + r * ldy, buf + w->panel * r, (size_t)cols * sizeof *y);
}

/* All panels p0 .. p1-1 for one row tile and the part of K that starts at k0; part->y is the tile's first output. */
static inline void gemm_float_tile(const struct gemm_args *a, const struct gemm_float_walk *w, struct gemm_part *part,
                                   int R, int64_t p0, int64_t p1, int64_t k0) {
    float *const y = part->y;
    const struct gemm_part_fns *const fn = &w->fns[R - 1];
    for (int64_t p = p0; p < p1;) {
        const int64_t cols = a->n_rows - p * w->panel;
        part->y = y + p * w->panel;
        part->ldy = a->ldy;
        part->panel = (const char *)a->panels + (size_t)p * w->panel_bytes + (size_t)k0 * w->k_bytes;
        if (fn->wide > 1 && p + fn->wide <= p1 && cols >= fn->wide * w->panel) {
            fn->many(part);
            p += fn->wide;
        } else {
            gemm_part_cols(w, part, R, cols);
            p++;
        }
    }
}

/* layout: of the activations, GEMM_LAYOUT_FLOAT or GEMM_LAYOUT_BF16. */
static inline void gemm_float_run_act(const struct gemm_args *a, const struct gemm_float_walk *w, int layout) {
    const int tile = gemm_act_tile(a->m, w->max_rows);
    const bool one_pass = a->m <= w->max_rows;
    const int64_t n_panels = (a->n_rows + w->panel - 1) / w->panel, kb = one_pass ? a->k : GEMM_FLOAT_K;
    const size_t row_bytes = gemm_act_row_bytes(layout, a->k);
    const int64_t group = one_pass ? n_panels : (int64_t)(GEMM_GROUP_BYTES / (GEMM_FLOAT_K * w->k_bytes));
    for (int64_t p0 = 0; p0 < n_panels; p0 += group) {
        const int64_t p1 = p0 + group < n_panels ? p0 + group : n_panels;
        for (int64_t k0 = 0; k0 < a->k; k0 += kb)
            for (int row = 0; row < a->m; row += tile) {
                const int R = a->m - row < tile ? a->m - row : tile;
                struct gemm_part part = {.y = a->y + row * a->ldy,
                                         .panel_bytes = w->panel_bytes,
                                         .act = (const char *)a->act + (size_t)row * row_bytes +
                                                (size_t)R * gemm_act_row_bytes(layout, k0),
                                         .n = a->k - k0 < kb ? a->k - k0 : kb,
                                         .first = k0 == 0};
                gemm_float_tile(a, w, &part, R, p0, p1, k0);
            }
    }
}

static inline void gemm_float_run(const struct gemm_args *a, const struct gemm_float_walk *w) {
    gemm_float_run_act(a, w, GEMM_LAYOUT_FLOAT);
}

#endif
