/* The bodies of family "attn" for any level with the sixteen-lane vocabulary v16 (avx2/math_avx2.h,
 * avx512/math_avx512.h): included once, by the file that fills the level's table, after that header.
 *
 * Query rows are taken in blocks of up to ATTN_TILES tiles of up to V16_TILE_ROWS rows. For a block:
 *     scores   16 tokens are the lanes, a tile's rows share each load of K; p[row][slot of the slice]
 *     softmax  row by row over the slots that the row sees
 *     values   16 components are the lanes, a tile's rows share each load of V; o[row][dv]
 *     merge    into the caller's state
 * Groups go outside, tiles inside, so that a group comes from memory once per block. The accumulators of a tile
 * are registers: every function named *_tile is a template whose constant rows R and columns C unroll it.
 *
 * A row's chain over j holds exactly the slots that the row sees: where the rows of a tile differ (the causal edge,
 * a window's start) the rest is added row by row. So no bit depends on a row's neighbours.
 * Threads: pure functions. */
#ifndef KERN_ATTN_SIMD_H
#define KERN_ATTN_SIMD_H

#include <string.h>

#include "kern/attn_int.h"

#ifdef V16_ISA

enum {
    ATTN_TILES = 4,
    ATTN_ROWS = ATTN_TILES * V16_TILE_ROWS,
    ATTN_LDP = ATTN_SLICE + 16, /* not a power of two: rows must not share cache sets */
    ATTN_AHEAD = 4,             /* groups of one tile call at most, prefetched while the ones before are read */
};

/* One call of a tile template. */
struct attn_job {
    const char *const *part; /* scores: K of consecutive groups, and the parts that are read after them */
    const char *v, *v_next;  /* values: the first of n tokens of one group; what is read after it */
    size_t v_row_bytes;
    const float *q; /* [d][rows] */
    float *p;       /* [rows, ATTN_LDP], at the first slot of the job */
    float *o;       /* [rows, ldo] */
    int rows, n;    /* n: groups (scores) or tokens (values) */
    int d;          /* scores: components; values: output columns in sixteens */
    int ldo;
    float scale;
};

/* What differs between cache types. */
struct attn_ops {
    enum attn_cache kind;
    void (*scores)(const struct attn_job *j);
    void (*values)(const struct attn_job *j);
};

struct attn_block {
    const struct attn_args *a;
    const struct attn_ops *ops;
    /* The parts of the slice in the order of reading: K of groups g0 .. g1 - 1, then V, then a few ends to
     * prefetch from. */
    const char *part[2 * ATTN_SLICE_GROUPS + ATTN_AHEAD];
    int g0, g1;
    int64_t row0;                 /* first row of the block */
    int rows, tiles, ldo;
    int tile_row[ATTN_TILES + 1]; /* first row of each tile */
    int lo[ATTN_ROWS], hi[ATTN_ROWS]; /* slots that a row sees */
    float m[ATTN_ROWS], l[ATTN_ROWS];
    float *q, *p, *o; /* q: tile after tile, each [d][its rows] */
};

/* K, V of group g of the slice, and the parts that are read after it. */
static const char *const *attn_k_part(const struct attn_block *b, int g) { return b->part + (g - b->g0); }
static const char *const *attn_v_part(const struct attn_block *b, int g) { return attn_k_part(b, g) + (b->g1 - b->g0); }

/* Sixteen elements from element i of a part. */
V16_FN v16 attn_load(enum attn_cache kind, const char *part, size_t i) {
    switch (kind) {
    case ATTN_CACHE_F32: return v16_load((const float *)(const void *)part + i);
    case ATTN_CACHE_BF16: return v16_load_bf16((const uint16_t *)(const void *)part + i);
    case ATTN_CACHE_INT8: return v16_load_i8((const int8_t *)part + i);
    default: return v16_load_e4m3((const uint8_t *)part + i);
    }
}

/* R rows x C groups: p[r][16 g + lane] = factor * sum over c of q[c][r] * k[g][c][lane]. */
V16_FN void attn_scores_tile(enum attn_cache kind, int R, int C, const struct attn_job *j, int g0) {
    v16 acc[V16_TILE_ACC];
    const char *k[ATTN_AHEAD], *next[ATTN_AHEAD];
    V16_UNROLL
    for (int g = 0; g < C; g++) k[g] = j->part[g0 + g], next[g] = j->part[g0 + g + C];
    V16_UNROLL
    for (int i = 0; i < R * C; i++) acc[i] = v16_set1(0.0f);
    const float *q = j->q;
    const size_t d = (size_t)j->d;
    for (size_t c = 0; c < d; c++, q += R) {
        V16_UNROLL
        for (int g = 0; g < C; g++) {
            const v16 x = attn_load(kind, k[g], c * ATTN_GROUP);
            v16_prefetch(next[g] + c * ATTN_GROUP * attn_elem_bytes(kind));
            V16_UNROLL
            for (int r = 0; r < R; r++) acc[g * R + r] = v16_fma(v16_set1(q[r]), x, acc[g * R + r]);
        }
    }
    V16_UNROLL
    for (int g = 0; g < C; g++) {
        v16 factor = v16_set1(j->scale);
        if (attn_is_scaled(kind))
            factor = v16_mul(v16_load((const float *)(const void *)(k[g] + attn_scale_off(kind, j->d))), factor);
        V16_UNROLL
        for (int r = 0; r < R; r++)
            v16_store(j->p + (size_t)r * ATTN_LDP + (size_t)(g0 + g) * ATTN_GROUP, v16_mul(acc[g * R + r], factor));
    }
}

V16_FN void attn_scores_rows(enum attn_cache kind, int R, const struct attn_job *j) {
    int g = 0;
    for (; g + V16_TILE_COLS(R) <= j->n; g += V16_TILE_COLS(R)) attn_scores_tile(kind, R, V16_TILE_COLS(R), j, g);
    if (V16_TILE_COLS(R) > 1)
        for (; g < j->n; g++) attn_scores_tile(kind, R, 1, j, g);
}

/* R rows x C sixteens of columns: o[r][c] += sum over t of p[r][t] * v[t][c], ascending t. */
V16_FN void attn_values_tile(enum attn_cache kind, int R, int C, const struct attn_job *j, int c0) {
    v16 acc[V16_TILE_ACC];
    float *const o = j->o + (size_t)c0 * 16;
    const char *v = j->v + (size_t)c0 * 16 * attn_elem_bytes(kind);
    const char *next = j->v_next + (size_t)c0 * 16 * attn_elem_bytes(kind);
    const float *p = j->p;
    V16_UNROLL
    for (int r = 0; r < R; r++)
        V16_UNROLL
        for (int c = 0; c < C; c++) acc[c * R + r] = v16_load(o + (size_t)r * (size_t)j->ldo + 16 * c);
    for (int t = 0; t < j->n; t++, v += j->v_row_bytes, next += j->v_row_bytes, p++) {
        V16_UNROLL
        for (int c = 0; c < C; c++) {
            const v16 x = attn_load(kind, v, (size_t)c * 16);
            v16_prefetch(next + (size_t)c * 16 * attn_elem_bytes(kind));
            V16_UNROLL
            for (int r = 0; r < R; r++)
                acc[c * R + r] = v16_fma(v16_set1(p[(size_t)r * ATTN_LDP]), x, acc[c * R + r]);
        }
    }
    V16_UNROLL
    for (int r = 0; r < R; r++)
        V16_UNROLL
        for (int c = 0; c < C; c++) v16_store(o + (size_t)r * (size_t)j->ldo + 16 * c, acc[c * R + r]);
}

V16_FN void attn_values_rows(enum attn_cache kind, int R, const struct attn_job *j) {
    int c = 0;
    for (; c + V16_TILE_COLS(R) <= j->d; c += V16_TILE_COLS(R)) attn_values_tile(kind, R, V16_TILE_COLS(R), j, c);
    if (V16_TILE_COLS(R) > 1)
        for (; c < j->d; c++) attn_values_tile(kind, R, 1, j, c);
}

#if V16_TILE_ROWS > 6
#define ATTN_SWITCH_MORE(f, kind, j)                                                                                   \
    case 7: f(kind, 7, j); break;                                                                                      \
    case 8: f(kind, 8, j); break;
#else
#define ATTN_SWITCH_MORE(f, kind, j)
#endif
#define ATTN_SWITCH(f, kind, j)                                                                                        \
    switch ((j)->rows) {                                                                                               \
    case 1: f(kind, 1, j); break;                                                                                      \
    case 2: f(kind, 2, j); break;                                                                                      \
    case 3: f(kind, 3, j); break;                                                                                      \
    case 4: f(kind, 4, j); break;                                                                                      \
    case 5: f(kind, 5, j); break;                                                                                      \
    case 6: f(kind, 6, j); break;                                                                                      \
        ATTN_SWITCH_MORE(f, kind, j)                                                                                   \
    default: break;                                                                                                    \
    }

/* p = exp(p - max) over the slots lo .. hi - 1, 0 in the rest of their groups; see the generic softmax for the
 * treatment of -inf and NaN. Scaled caches then have V's scales folded into p. */
static void attn_softmax_row(const struct attn_block *b, int r, float *m_out, float *l_out) {
    const v16 none = v16_set1(-INFINITY);
    float *const p = b->p + (size_t)r * ATTN_LDP;
    const int lo = b->lo[r], hi = b->hi[r], g0 = lo / ATTN_GROUP, g1 = (hi + ATTN_GROUP - 1) / ATTN_GROUP;
    v16 top = none, sum = v16_set1(0.0f);
    for (int g = g0; g < g1; g++) {
        v16 s = v16_load(p + g * ATTN_GROUP);
        if (g == g0 || g == g1 - 1) {
            s = v16_range(s, lo - g * ATTN_GROUP, hi - g * ATTN_GROUP, none);
            v16_store(p + g * ATTN_GROUP, s);
        }
        top = v16_max(s, top);
    }
    float m = v16_max_lane(top);
    const v16 base = v16_set1(m == -INFINITY ? 0.0f : m);
    const enum attn_cache kind = b->ops->kind;
    const size_t scale_off = attn_scale_off(kind, b->a->dv);
    for (int g = g0; g < g1; g++) {
        v16 e = v16_exp(v16_sub(v16_load(p + g * ATTN_GROUP), base));
        sum = v16_add(sum, e);
        if (attn_is_scaled(kind)) {
            const char *const scales = attn_v_part(b, g)[0] + scale_off;
            e = v16_mul(e, v16_load((const float *)(const void *)scales));
        }
        v16_store(p + g * ATTN_GROUP, e);
    }
    const float l = v16_sum(sum);
    if (m == -INFINITY && l != 0.0f) m = l;
    *m_out = m;
    *l_out = l;
}

/* exp of one number, with the vector code. */
V16_FN float attn_exp(float x) { return v16_first(v16_exp(v16_set1(x))); }

/* Joins a later state (ms, ls, os) to row r of st. A side that has seen nothing changes no bit of the other. */
static void attn_merge_row(struct attn_state *st, int64_t r, float ms, float ls, const float *os, int dv) {
    float *const o = st->o + r * dv;
    if (ms == -INFINITY) return;
    if (st->m[r] == -INFINITY) {
        st->m[r] = ms;
        st->l[r] = ls;
        memcpy(o, os, (size_t)dv * sizeof *o);
        return;
    }
    const float top = ms > st->m[r] ? ms : st->m[r];
    const float a = attn_exp(st->m[r] - top), b = attn_exp(ms - top);
    const v16 av = v16_set1(a), bv = v16_set1(b);
    st->m[r] = top;
    st->l[r] = v16_first(v16_fma(v16_set1(st->l[r]), av, v16_set1(ls * b)));
    int c = 0;
    for (; c + 16 <= dv; c += 16) v16_store(o + c, v16_fma(v16_load(o + c), av, v16_mul(v16_load(os + c), bv)));
    if (c == dv) return;
    const v16 rest = v16_fma(v16_load_n(o + c, dv - c), av, v16_mul(v16_load_n(os + c, dv - c), bv));
    v16_store_n(o + c, rest, dv - c);
}

/* Cuts the block into equal tiles and packs their queries as [d][rows]. */
static void attn_block_pack(struct attn_block *b) {
    const struct attn_args *const a = b->a;
    b->tiles = (b->rows + V16_TILE_ROWS - 1) / V16_TILE_ROWS;
    for (int t = 0; t <= b->tiles; t++) b->tile_row[t] = b->rows * t / b->tiles;
    for (int t = 0; t < b->tiles; t++) {
        const int r0 = b->tile_row[t], n = b->tile_row[t + 1] - r0;
        float *const packed = b->q + (size_t)r0 * (size_t)a->d;
        for (int r = 0; r < n; r++) {
            const int64_t row = b->row0 + r0 + r, i = row / a->n_heads, h = row % a->n_heads;
            const float *const q = a->q + i * a->ldq + h * a->d;
            attn_visible(a, (int)i, &b->lo[r0 + r], &b->hi[r0 + r]);
            for (int64_t c = 0; c < a->d; c++) packed[c * n + r] = q[c];
        }
    }
}

static int attn_min(int a, int b) { return a < b ? a : b; }
static int attn_max(int a, int b) { return a > b ? a : b; }

/* Slots that any row of tile t sees (*lo, *hi), and those that all see (*all_lo, *all_hi). */
static void attn_tile_span(const struct attn_block *b, int t, int *span) {
    span[0] = ATTN_SLICE, span[1] = 0, span[2] = 0, span[3] = ATTN_SLICE;
    for (int r = b->tile_row[t]; r < b->tile_row[t + 1]; r++) {
        if (b->lo[r] < b->hi[r]) {
            span[0] = attn_min(span[0], b->lo[r]);
            span[1] = attn_max(span[1], b->hi[r]);
        }
        span[2] = attn_max(span[2], b->lo[r]);
        span[3] = attn_min(span[3], b->hi[r]);
    }
}

/* Scores of the groups g0 .. g1 - 1 for every tile that sees any of them. */
static void attn_block_scores(const struct attn_block *b, int (*span)[4], int g0, int g1) {
    for (int t = 0; t < b->tiles; t++) {
        if (span[t][0] >= span[t][1]) continue;
        const int from = attn_max(g0, span[t][0] / ATTN_GROUP);
        const int to = attn_min(g1, (span[t][1] + ATTN_GROUP - 1) / ATTN_GROUP);
        if (from >= to) continue;
        const int r0 = b->tile_row[t];
        const struct attn_job j = {
            .part = attn_k_part(b, from),
            .q = b->q + (size_t)r0 * (size_t)b->a->d,
            .p = b->p + (size_t)r0 * ATTN_LDP + (size_t)from * ATTN_GROUP,
            .rows = b->tile_row[t + 1] - r0,
            .n = to - from,
            .d = b->a->d,
            .scale = b->a->scale,
        };
        b->ops->scores(&j);
    }
}

/* Adds the slots from .. to - 1 (of one group) to the outputs of rows r0 .. r0 + rows - 1. */
static void attn_add_values(const struct attn_block *b, int r0, int rows, int from, int to) {
    if (from >= to) return;
    const size_t row_bytes = (size_t)b->a->dv * attn_elem_bytes(b->ops->kind);
    const size_t skip = (size_t)(from % ATTN_GROUP) * row_bytes;
    const char *const *const v = attn_v_part(b, from / ATTN_GROUP);
    const struct attn_job j = {
        .v = v[0] + skip,
        .v_next = v[1] + skip,
        .v_row_bytes = row_bytes,
        .p = b->p + (size_t)r0 * ATTN_LDP + from,
        .o = b->o + (size_t)r0 * (size_t)b->ldo,
        .rows = rows,
        .n = to - from,
        .d = b->ldo / 16,
        .ldo = b->ldo,
    };
    b->ops->values(&j);
}

/* Group g for tile t: the slots that all its rows see together, what lies before and behind row by row. */
static void attn_tile_values(const struct attn_block *b, int t, const int *span, int g) {
    const int s0 = g * ATTN_GROUP, s1 = s0 + ATTN_GROUP, r0 = b->tile_row[t], r1 = b->tile_row[t + 1];
    const int from = attn_max(span[2], s0), to = attn_min(span[3], s1);
    if (from >= to) { /* nothing in common */
        for (int r = r0; r < r1; r++) attn_add_values(b, r, 1, attn_max(b->lo[r], s0), attn_min(b->hi[r], s1));
        return;
    }
    if (from > s0)
        for (int r = r0; r < r1; r++) attn_add_values(b, r, 1, attn_max(b->lo[r], s0), from);
    attn_add_values(b, r0, r1 - r0, from, to);
    if (to < s1)
        for (int r = r0; r < r1; r++) attn_add_values(b, r, 1, to, attn_min(b->hi[r], s1));
}

static void attn_block_run(struct attn_block *b, struct attn_state *st) {
    const struct attn_args *const a = b->a;
    int span[ATTN_TILES][4], lo = ATTN_SLICE, hi = 0;
    attn_block_pack(b);
    for (int t = 0; t < b->tiles; t++) {
        attn_tile_span(b, t, span[t]);
        lo = attn_min(lo, span[t][0]);
        hi = attn_max(hi, span[t][1]);
    }
    if (lo >= hi) return;
    const int g0 = lo / ATTN_GROUP, g1 = (hi + ATTN_GROUP - 1) / ATTN_GROUP;
    for (int g = g0; g < g1; g += 4) attn_block_scores(b, span, g, attn_min(g + 4, g1));
    for (int r = 0; r < b->rows; r++) attn_softmax_row(b, r, &b->m[r], &b->l[r]);
    memset(b->o, 0, (size_t)b->rows * (size_t)b->ldo * sizeof *b->o);
    for (int g = g0; g < g1; g++)
        for (int t = 0; t < b->tiles; t++) attn_tile_values(b, t, span[t], g);
    for (int r = 0; r < b->rows; r++)
        attn_merge_row(st, b->row0 + r, b->m[r], b->l[r], b->o + (size_t)r * (size_t)b->ldo, a->dv);
}

static int attn_ldo(int dv) { return (dv + 15) / 16 * 16; }

/* Floats of packed queries for n rows, so that p behind them stays aligned. */
static size_t attn_q_floats(int n, int d) { return ((size_t)n * (size_t)d + 15) / 16 * 16; }

static size_t attn_scratch_floats(int rows, int d, int dv) {
    const int n = attn_min(rows, ATTN_ROWS);
    return attn_q_floats(n, d) + (size_t)n * (size_t)(ATTN_LDP + attn_ldo(dv));
}

static void attn_slice(const struct attn_ops *ops, struct attn_state *st, const struct attn_args *a) {
    struct attn_block b = {.a = a, .ops = ops, .ldo = attn_ldo(a->dv)};
    const int64_t rows = (int64_t)a->n_q * a->n_heads, blocks = (rows + ATTN_ROWS - 1) / ATTN_ROWS;
    int lo = ATTN_SLICE, hi = 0;
    for (int i = 0; i < a->n_q; i++) {
        int from, to;
        attn_visible(a, i, &from, &to);
        if (from < to) lo = attn_min(lo, from), hi = attn_max(hi, to);
    }
    if (lo >= hi) return;
    b.g0 = lo / ATTN_GROUP; /* groups in front of a window may have no page any more */
    b.g1 = (hi + ATTN_GROUP - 1) / ATTN_GROUP;
    const char **part = b.part;
    for (int g = b.g0; g < b.g1; g++) *part++ = attn_k_group(a, g);
    for (int g = b.g0; g < b.g1; g++) *part++ = attn_v_group(a, g);
    for (int i = 0; i < ATTN_AHEAD; i++) part[i] = part[-1];
    const int n = (int)(rows < ATTN_ROWS ? rows : ATTN_ROWS);
    b.q = a->scratch;
    b.p = b.q + attn_q_floats(n, a->d);
    b.o = b.p + (size_t)n * ATTN_LDP;
    for (int64_t i = 0; i < blocks; i++) { /* blocks of equal size, to the row */
        b.row0 = rows * i / blocks;
        b.rows = (int)(rows * (i + 1) / blocks - b.row0);
        attn_block_run(&b, st);
    }
}

static void attn_merge(struct attn_state *a, const struct attn_state *b, int rows, int dv) {
    for (int64_t r = 0; r < rows; r++) attn_merge_row(a, r, b->m[r], b->l[r], b->o + r * dv, dv);
}

/* row = (o * a) / l. */
static void attn_finish_row(float *row, const float *o, float a, float l, int dv) {
    const v16 av = v16_set1(a), lv = v16_set1(l);
    int c = 0;
    for (; c + 16 <= dv; c += 16) v16_store(row + c, v16_div(v16_mul(v16_load(o + c), av), lv));
    if (c < dv) v16_store_n(row + c, v16_div(v16_mul(v16_load_n(o + c, dv - c), av), lv), dv - c);
}

static void attn_finish(float *y, int64_t ldy, const struct attn_state *st, int n_q, int n_heads, int dv,
                        const float *sink) {
    for (int64_t r = 0; r < (int64_t)n_q * n_heads; r++) {
        const int64_t i = r / n_heads, h = r % n_heads;
        float *const row = y + i * ldy + h * dv;
        float l = st->l[r], a = 1.0f;
        if (st->m[r] == -INFINITY) { /* nothing seen: no value to weigh */
            memset(row, 0, (size_t)dv * sizeof *row);
            continue;
        }
        if (sink) {
            const float top = sink[h] > st->m[r] ? sink[h] : st->m[r];
            a = attn_exp(st->m[r] - top);
            l = v16_first(v16_fma(v16_set1(l), v16_set1(a), v16_set1(attn_exp(sink[h] - top))));
        }
        attn_finish_row(row, st->o + r * dv, a, l, dv);
    }
}

/* One set of entries per cache type. */
#define ATTN_KIND(name, cache)                                                                                         \
    static void attn_scores_##name(const struct attn_job *j) { ATTN_SWITCH(attn_scores_rows, cache, j) }               \
    static void attn_values_##name(const struct attn_job *j) { ATTN_SWITCH(attn_values_rows, cache, j) }               \
    static void attn_slice_##name(struct attn_state *st, const struct attn_args *a) {                                  \
        static const struct attn_ops ops = {cache, attn_scores_##name, attn_values_##name};                            \
        attn_slice(&ops, st, a);                                                                                       \
    }

ATTN_KIND(f32, ATTN_CACHE_F32)
ATTN_KIND(bf16, ATTN_CACHE_BF16)
ATTN_KIND(int8, ATTN_CACHE_INT8)
ATTN_KIND(fp8, ATTN_CACHE_FP8)

/* Layout and store stay the generic ones. */
static void attn_fill_table(struct attn_table *t) {
    t->cache[ATTN_CACHE_F32].slice = attn_slice_f32;
    t->cache[ATTN_CACHE_BF16].slice = attn_slice_bf16;
    t->cache[ATTN_CACHE_INT8].slice = attn_slice_int8;
    t->cache[ATTN_CACHE_FP8].slice = attn_slice_fp8;
    for (int i = 0; i < ATTN_N_CACHES; i++) {
        t->cache[i].isa = V16_ISA;
        t->cache[i].scratch_floats = attn_scratch_floats;
    }
    t->merge = attn_merge;
    t->finish = attn_finish;
}

#endif
#endif
