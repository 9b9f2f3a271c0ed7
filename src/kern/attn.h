/* Kernel family "attn": paged attention of one sequence, one KV head, one slice of context.
 *
 * Cache layout. Tokens lie in groups of 16 (a page holds block_size / 16 groups). For one layer and
 * KV head a group is
 *     K  [d][16]   transposed: 16 tokens of one component side by side
 *     V  [16][dv]  token by token
 * of the cache element type. Positions behind the end of a sequence hold zeros.
 *
 * One numeric definition per (cache type, level): the context is cut into slices at absolute multiples of ATTN_SLICE.
 * In a slice, with s_j = scale * (one fma chain over d of q_i * k_ij): m = max s_j, l = sum exp(s_j - m), o = sum
 * exp(s_j - m) * v_j, in a fixed order of j. Slices merge in ascending order: m' = max(m, ms), l' = l*exp(m-m') +
 * ls*exp(ms-m'), o' likewise, and a slice or group that a row does not see is an exact identity. So the result of a
 * query row depends on that row, its position, and the cached rows that it sees, not on which rows or slices are
 * computed together.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_ATTN_H
#define KERN_ATTN_H

#include <stddef.h>
#include <stdint.h>

enum { ATTN_GROUP = 16, ATTN_SLICE = 512 };

enum attn_cache { ATTN_CACHE_F32, ATTN_CACHE_BF16, ATTN_CACHE_INT8, ATTN_CACHE_FP8, ATTN_N_CACHES };

/* Running state of `rows` query rows: the caller keeps it while it walks slices. */
struct attn_state {
    float *m; /* [rows] running maximum, -inf before the first slice */
    float *l; /* [rows] running denominator */
    float *o; /* [rows, dv] running numerator */
};

struct attn_args {
    /* Queries: row r = i * n_heads + h is query token i (0 .. n_q-1), head h of this KV head. */
    const float *q;   /* query token i, head h, component c: q[i * ldq + h * d + c]; rope applied */
    int64_t ldq;      /* elements between query tokens */
    int n_q;          /* consecutive query tokens */
    int n_heads;      /* query heads that share this KV head */
    int64_t pos;      /* absolute position of query token 0 */
    int d, dv;        /* key and value head dimensions */
    float scale;
    int64_t window;   /* 0: none; else token j is seen when pos_i - j < window */

    /* The cache: group g of the sequence (positions 16 g ..) starts at
     *   base + pages[g / groups_per_page] * page_stride + k_off + (g % groups_per_page) * k_group_bytes
     * and its V at v_off with v_group_bytes. Offsets include layer and KV head. */
    const char *base;
    const int32_t *pages;
    size_t page_stride;
    size_t k_off, v_off;
    size_t k_group_bytes, v_group_bytes;
    int groups_per_page;

    int64_t ctx0, ctx1; /* the slice: ctx0 a multiple of ATTN_SLICE, ctx1 <= ctx0 + ATTN_SLICE, at
                           most pos + n_q */
    float *scratch;     /* attn_scratch_floats(rows, dv) floats, 64-byte aligned */
};

struct attn_kern {
    const char *isa; /* NULL: cache type not supported */
    size_t elem_bytes;
    /* Bytes of one group: K part (scales included) and V part; both multiples of 64 padded up. */
    size_t (*k_group_bytes)(int d);
    size_t (*v_group_bytes)(int dv);

    /* Writes one token's key [d] and value [dv] (f32) into slot (0..15) of a group. */
    void (*store)(void *k_group, void *v_group, int slot, const float *k, const float *v, int d, int dv);

    /* One slice of context for n_q * n_heads rows, merged into st. */
    void (*slice)(struct attn_state *st, const struct attn_args *a);

    /* Floats of scratch that slice needs for `rows` rows. */
    size_t (*scratch_floats)(int rows, int d, int dv);
};

/* Merges a later slice state b into a, `rows` rows of dv (same formula as slice's own merge). */
typedef void attn_merge_fn(struct attn_state *a, const struct attn_state *b, int rows, int dv);

/* y[i * ldy + h * dv + c] = o / l. sink: [n_heads] logits that join the denominator, or NULL. */
typedef void attn_finish_fn(float *y, int64_t ldy, const struct attn_state *st, int n_q, int n_heads,
                            int dv, const float *sink);

struct attn_table {
    struct attn_kern cache[ATTN_N_CACHES];
    attn_merge_fn *merge;
    attn_finish_fn *finish;
};

void attn_init_generic(struct attn_table *t);
void attn_init_avx2(struct attn_table *t);
void attn_init_avx512(struct attn_table *t);
void attn_init_neon(struct attn_table *t);

#endif
