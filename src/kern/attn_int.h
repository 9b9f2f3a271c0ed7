/* What the levels of family "attn" share: the layout of a group and the part of a slice that a query sees.
 *
 *     K part  [d][16] elements | int8, fp8: 16 f32 scales, one per token            | up to a multiple of 64 bytes
 *     V part  [16][dv] elements | int8, fp8: 16 f32 scales; else room for 15 elements
 *                                 when dv % 16 != 0 (vector loads run over the last row) | likewise
 *
 * A token's scale is amax / 127 (int8, codes rounded half to even) or amax / 448 (e4m3). The e4m3 scale is stored
 * times 256: kernels read a code as the f16 number with the same bits shifted, which is the value times 2^-8.
 * A token with a non-finite component has scale NaN, so that it can not go unnoticed.
 * Threads: pure functions. */
#ifndef KERN_ATTN_INT_H
#define KERN_ATTN_INT_H

#include "kern/attn.h"

enum { ATTN_SLICE_GROUPS = ATTN_SLICE / ATTN_GROUP };

static inline int attn_is_scaled(enum attn_cache kind) { return kind == ATTN_CACHE_INT8 || kind == ATTN_CACHE_FP8; }

static inline size_t attn_elem_bytes(enum attn_cache kind) {
    return kind == ATTN_CACHE_F32 ? 4 : kind == ATTN_CACHE_BF16 ? 2 : 1;
}

/* Where the scales of a part start; n: components per token. */
static inline size_t attn_scale_off(enum attn_cache kind, int n) {
    return (size_t)ATTN_GROUP * (size_t)n * attn_elem_bytes(kind);
}

static inline size_t attn_k_bytes(enum attn_cache kind, int d) {
    const size_t bytes = attn_scale_off(kind, d) + (attn_is_scaled(kind) ? ATTN_GROUP * sizeof(float) : 0);
    return (bytes + 63) / 64 * 64;
}

static inline size_t attn_v_bytes(enum attn_cache kind, int dv) {
    const size_t over_read = dv % 16 ? 15 * attn_elem_bytes(kind) : 0;
    const size_t scales = attn_is_scaled(kind) ? ATTN_GROUP * sizeof(float) : over_read;
    return (attn_scale_off(kind, dv) + scales + 63) / 64 * 64;
}

/* Slots [*lo, *hi) of the slice, counted from ctx0, that query token i sees; 0, 0 when none. */
static inline void attn_visible(const struct attn_args *a, int i, int *lo, int *hi) {
    const int64_t pos = a->pos + i;
    const int64_t end = pos + 1 < a->ctx1 ? pos + 1 : a->ctx1;
    const int64_t start = a->window && pos + 1 - a->window > a->ctx0 ? pos + 1 - a->window : a->ctx0;
    *lo = start < end ? (int)(start - a->ctx0) : 0;
    *hi = start < end ? (int)(end - a->ctx0) : 0;
}

/* Start of the page of group g of the slice, and g's index in the page. */
static inline const char *attn_page(const struct attn_args *a, int g, size_t *in_page) {
    const int64_t group = a->ctx0 / ATTN_GROUP + g;
    *in_page = (size_t)(group % a->groups_per_page);
    return a->base + (size_t)a->pages[group / a->groups_per_page] * a->page_stride;
}

static inline const char *attn_k_group(const struct attn_args *a, int g) {
    size_t i;
    const char *const page = attn_page(a, g, &i);
    return page + a->k_off + i * a->k_group_bytes;
}

static inline const char *attn_v_group(const struct attn_args *a, int g) {
    size_t i;
    const char *const page = attn_page(a, g, &i);
    return page + a->v_off + i * a->v_group_bytes;
}

#endif
