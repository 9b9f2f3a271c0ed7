/* The loops around a tile kernel, shared by the vector levels: panel groups outer, row tiles inner, so weights leave
 * DRAM once for any m. Private to src/kern/<isa>/gemm_*.c, compiled there with that folder's flags.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_GEMM_RUN_INT_H
#define KERN_GEMM_RUN_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attr.h"
#include "kern/gemm.h"
#include "kern/gemm_act.h"
#include "kern/gemm_layout.h"

/* Full unrolling keeps arrays of accumulators in registers; a rolled k-group loop keeps the compiler from hoisting
 * all of its loads and spilling. */
#if defined(XENON_EMULATE_AVX512) /* of no use there, and slow to compile */
#define GEMM_UNROLL
#define GEMM_ROLLED
#elif defined(__clang__)
#define GEMM_UNROLL _Pragma("clang loop unroll(full)")
#define GEMM_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define GEMM_UNROLL _Pragma("GCC unroll 16")
#define GEMM_ROLLED _Pragma("GCC unroll 1")
#endif
#define GEMM_INLINE static inline ATTR_ALWAYS_INLINE

/* R rows times one panel over the whole K. */
struct gemm_tile {
    float *y; /* [R, ldy], columns 0 .. panel-1 are written */
    int64_t ldy;
    const char *panel;
    const char *act; /* packed tile of R rows */
    int64_t k;
    const char *ahead; /* where to prefetch while this tile runs, or NULL */
    size_t ahead_step; /* bytes to prefetch there per 256 weights along K */
};

typedef void gemm_tile_fn(const struct gemm_tile *t);

struct gemm_walk {
    int panel; /* outputs */
    size_t panel_bytes;
    int layout;                 /* of the activations */
    int max_rows;               /* of a tile */
    gemm_tile_fn *const *tiles; /* [R - 1] */
};

enum {
    GEMM_GROUP_BYTES = 160 << 10, /* panels that stay in L2 while the row tiles pass */
    GEMM_MAX_PANEL = 16,
    GEMM_MAX_TILE = 16
};

/* One tile of `rows` rows on one panel whose last columns may not exist. */
static inline void gemm_walk_tile(const struct gemm_walk *w, struct gemm_tile *t, int rows, int64_t cols) {
    float buf[GEMM_MAX_TILE * GEMM_MAX_PANEL];
    if (cols >= w->panel) {
        w->tiles[rows - 1](t);
        return;
    }
    float *const y = t->y;
    const int64_t ldy = t->ldy;
    t->y = buf;
    t->ldy = w->panel;
    w->tiles[rows - 1](t);
    for (int r = 0; r < rows; r++) memcpy(y + r * ldy, buf + r * w->panel, (size_t)cols * sizeof *y);
}

static inline void gemm_walk_run(const struct gemm_args *a, const struct gemm_walk *w) {
    const int tile = gemm_act_tile(a->m, w->max_rows), n_tiles = (a->m + tile - 1) / tile;
    const int64_t n_panels = (a->n_rows + w->panel - 1) / w->panel;
    const size_t row_bytes = gemm_act_row_bytes(w->layout, a->k);
    /* Few tiles: a panel stays in cache until they have passed, and meanwhile the next one is prefetched in equal
     * shares. Many tiles: groups of panels in L2 save rereading the activations; the arithmetic hides the rest. */
    const size_t share = (w->panel_bytes / (size_t)n_tiles + 63) & ~(size_t)63;
    const bool stream = n_tiles <= 4;
    int64_t group = stream ? 1 : (int64_t)(GEMM_GROUP_BYTES / w->panel_bytes);
    if (group < 1) group = 1;
    for (int64_t p0 = 0; p0 < n_panels; p0 += group)
        for (int row = 0; row < a->m; row += tile)
            for (int64_t p = p0; p < p0 + group && p < n_panels; p++) {
                const char *const panel = (const char *)a->panels + (size_t)p * w->panel_bytes;
                struct gemm_tile t = {a->y + row * a->ldy + p * w->panel,
                                      a->ldy,
                                      panel,
                                      (const char *)a->act + (size_t)row * row_bytes,
                                      a->k,
                                      NULL,
                                      share * 256 / (size_t)a->k};
                if (stream && p + 1 < n_panels) t.ahead = panel + w->panel_bytes + share * (size_t)(row / tile);
                gemm_walk_tile(w, &t, a->m - row < tile ? a->m - row : tile, a->n_rows - p * w->panel);
            }
}

/* Bytes of a panel's unit of 256, of the formats that have such units. */
GEMM_INLINE int gemm_unit_bytes(const enum gemm_format f, const int panel) {
    return panel * (f == GEMM_Q2_K   ? 84
                    : f == GEMM_Q3_K ? 108
                    : f == GEMM_Q4_K ? 144
                    : f == GEMM_Q5_K ? 176
                    : f == GEMM_Q6_K ? 208
                                     : 136);
}

/* ---- the table entry of a format ---- */

#define GEMM_PACKING(F, PANEL)                                                                                         \
    static size_t panel_bytes_##F(int64_t k) {                                                                         \
        return gemm_layout_bytes((struct gemm_shape){GEMM_##F, PANEL, k});                                             \
    }                                                                                                                  \
    static void pack_##F(void *panel, const void *rows, size_t row_bytes, int n_rows, int64_t k) {                     \
        gemm_layout_pack((struct gemm_shape){GEMM_##F, PANEL, k}, panel, rows, row_bytes, n_rows);                     \
    }                                                                                                                  \
    static void unpack_##F(float *out, const void *panel, int row, int64_t k) {                                        \
        gemm_layout_unpack((struct gemm_shape){GEMM_##F, PANEL, k}, out, panel, row);                                  \
    }

#define GEMM_RUN(F, PANEL, ROWS, LAYOUT)                                                                               \
    static void run_##F(const struct gemm_args *a) {                                                                   \
        const struct gemm_walk w = {PANEL, panel_bytes_##F(a->k), LAYOUT, ROWS, tiles_##F};                            \
        gemm_walk_run(a, &w);                                                                                          \
    }

/* All but the activation functions, which table_acts adds. */
#define GEMM_ENTRY(ISA, F, PANEL, ACT, LAYOUT)                                                                         \
    (struct gemm_kern) {                                                                                               \
        .isa = ISA, .panel = PANEL, .act = ACT, .act_layout = LAYOUT, .panel_bytes = panel_bytes_##F,                  \
        .pack = pack_##F, .unpack_row = unpack_##F, .run = run_##F                                                     \
    }

/* act_tile, act_bytes_* and act_pack_* of the three layouts, and table_acts(), which enters them. */
#define GEMM_ACTS(ROWS, QUANT)                                                                                         \
    static int act_tile(int m) {                                                                                       \
        return gemm_act_tile(m, ROWS);                                                                                 \
    }                                                                                                                  \
    GEMM_ACT_LAYOUT(float, GEMM_LAYOUT_FLOAT, QUANT)                                                                   \
    GEMM_ACT_LAYOUT(q8_32, GEMM_LAYOUT_Q8_32, QUANT)                                                                   \
    GEMM_ACT_LAYOUT(q8_256, GEMM_LAYOUT_Q8_256, QUANT)                                                                 \
    static void table_acts(struct gemm_kern table[GEMM_N_FORMATS]) {                                                   \
        for (int f = 0; f < GEMM_N_FORMATS; f++) {                                                                     \
            const int l = table[f].act_layout;                                                                         \
            table[f].act_tile = act_tile;                                                                              \
            table[f].act_bytes = l == GEMM_LAYOUT_FLOAT   ? act_bytes_float                                            \
                                 : l == GEMM_LAYOUT_Q8_32 ? act_bytes_q8_32                                            \
                                                          : act_bytes_q8_256;                                          \
            table[f].act_pack = l == GEMM_LAYOUT_FLOAT   ? act_pack_float                                              \
                                : l == GEMM_LAYOUT_Q8_32 ? act_pack_q8_32                                              \
                                                         : act_pack_q8_256;                                            \
        }                                                                                                              \
    }

#define GEMM_ACT_LAYOUT(NAME, LAYOUT, QUANT)                                                                           \
    static size_t act_bytes_##NAME(int m, int64_t k) {                                                                 \
        return gemm_act_total(LAYOUT, m, k);                                                                           \
    }                                                                                                                  \
    static void act_pack_##NAME(void *act, const float *x, int64_t ldx, int m, int row0, int row1, int64_t k) {        \
        const struct gemm_act_job j = {act, x, ldx, k, m, act_tile(m), row0, row1};                                    \
        gemm_act_run(&j, LAYOUT, QUANT);                                                                               \
    }

#endif
