/* Family "attn", the readable specification, row by row. The vector levels agree with it bit for bit, and use its
 * layout and its store. */
#include "kern/attn.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kern/attn_int.h"
#include "kern/generic/math_generic.h"

/* Element i of a part as f32; e4m3 times 2^-8, as its scale expects. */
static float element(enum attn_cache kind, const char *part, size_t i) {
    float f32;
    uint16_t b16;
    switch (kind) {
    case ATTN_CACHE_F32: memcpy(&f32, part + 4 * i, 4); return f32;
    case ATTN_CACHE_BF16: memcpy(&b16, part + 2 * i, 2); return half_from_bf16(b16);
    case ATTN_CACHE_INT8: return (float)(int8_t)part[i];
    default: return half_from_e4m3((uint8_t)part[i]) * 0x1p-8f;
    }
}

static float token_scale(const char *part, size_t scale_off, int slot) {
    float s;
    memcpy(&s, part + scale_off + 4 * (size_t)slot, 4);
    return s;
}

/* s_j = (one fma chain over the components) * scale, or * (scale of the token * scale). */
static float score(enum attn_cache kind, const struct attn_args *a, const float *q, int j) {
    const char *const k = attn_k_group(a, j / ATTN_GROUP);
    const int slot = j % ATTN_GROUP;
    float s = 0.0f;
    for (int c = 0; c < a->d; c++) s = fmaf(q[c], element(kind, k, (size_t)c * ATTN_GROUP + (size_t)slot), s);
    if (!attn_is_scaled(kind)) return s * a->scale;
    return s * (token_scale(k, attn_scale_off(kind, a->d), slot) * a->scale);
}

/* p_j = exp(s_j - max) in place; *m the maximum and *l the sum, taken by slot of the group (16 chains, then
 * the tree). Scores of -inf count as not seen: *m = -inf when there are no others. A NaN stays: *l is NaN, and
 * *m too when no score is a number. */
static void softmax(float *p, int lo, int hi, float *m, float *l) {
    float lane[ATTN_GROUP] = {0};
    *m = -INFINITY;
    for (int j = lo; j < hi; j++) *m = p[j] > *m ? p[j] : *m;
    const float base = *m == -INFINITY ? 0.0f : *m;
    for (int j = lo; j < hi; j++) {
        p[j] = math_exp(p[j] - base);
        lane[j % ATTN_GROUP] += p[j];
    }
    *l = math_sum16(lane);
    if (*m == -INFINITY && *l != 0.0f) *m = *l;
}

/* o += p_j * v_j in ascending j, one fma chain per component; scaled caches take (p_j * scale of the token). */
static void accumulate(enum attn_cache kind, const struct attn_args *a, float *o, float p, int j) {
    const char *const v = attn_v_group(a, j / ATTN_GROUP);
    const size_t slot = (size_t)(j % ATTN_GROUP), dv = (size_t)a->dv;
    if (attn_is_scaled(kind)) p *= token_scale(v, attn_scale_off(kind, a->dv), (int)slot);
    for (size_t c = 0; c < dv; c++) o[c] = fmaf(p, element(kind, v, slot * dv + c), o[c]);
}

/* Joins a later state (ms, ls, os) to (m, l, o). A side that has seen nothing changes no bit of the other. */
static void merge_row(float *m, float *l, float *o, float ms, float ls, const float *os, int dv) {
    if (ms == -INFINITY) return;
    if (*m == -INFINITY) {
        *m = ms;
        *l = ls;
        memcpy(o, os, (size_t)dv * sizeof *o);
        return;
    }
    const float top = ms > *m ? ms : *m;
    const float a = math_exp(*m - top), b = math_exp(ms - top);
    *m = top;
    *l = fmaf(*l, a, ls * b);
    for (int c = 0; c < dv; c++) o[c] = fmaf(o[c], a, os[c] * b);
}

static void slice(enum attn_cache kind, struct attn_state *st, const struct attn_args *a) {
    float *const p = a->scratch, *const o = a->scratch + ATTN_SLICE;
    for (int i = 0; i < a->n_q; i++) {
        int lo, hi;
        attn_visible(a, i, &lo, &hi);
        for (int h = 0; h < a->n_heads; h++) {
            const float *const q = a->q + i * a->ldq + (int64_t)h * a->d;
            const int64_t r = (int64_t)i * a->n_heads + h;
            float m, l;
            for (int j = lo; j < hi; j++) p[j] = score(kind, a, q, j);
            softmax(p, lo, hi, &m, &l);
            memset(o, 0, (size_t)a->dv * sizeof *o);
            for (int j = lo; j < hi; j++) accumulate(kind, a, o, p[j], j);
            merge_row(&st->m[r], &st->l[r], st->o + r * a->dv, m, l, o, a->dv);
        }
    }
}

static size_t scratch_floats(int rows, int d, int dv) {
    (void)rows;
    (void)d;
    return ATTN_SLICE + (size_t)dv;
}

/* amax / top, NaN when a component is not finite, 0 when all are (or the quotient is) zero. */
static float scale_of(const float *x, int n, float top) {
    float amax = 0.0f;
    for (int c = 0; c < n; c++) {
        if (!isfinite(x[c])) return NAN;
        amax = fabsf(x[c]) > amax ? fabsf(x[c]) : amax;
    }
    return amax / top;
}

static int8_t int8_code(float x) {
    const float q = (x + MATH_ROUND) - MATH_ROUND; /* half to even; a denormal scale can leave |x| a little over 127 */
    return (int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
}

/* Writes n components `stride` elements apart, the first at element `first` of the part. */
static void store_part(enum attn_cache kind, char *part, const float *x, int n, size_t first, size_t stride, int slot) {
    const float s = attn_is_scaled(kind) ? scale_of(x, n, kind == ATTN_CACHE_INT8 ? 127.0f : 448.0f) : 1.0f;
    const int coded = s > 0.0f;
    for (int c = 0; c < n; c++) {
        const size_t at = first + (size_t)c * stride;
        const bf16 b = half_to_bf16(x[c]);
        switch (kind) {
        case ATTN_CACHE_F32: memcpy(part + 4 * at, &x[c], 4); break;
        case ATTN_CACHE_BF16: memcpy(part + 2 * at, &b, 2); break;
        case ATTN_CACHE_INT8: part[at] = coded ? int8_code(x[c] / s) : 0; break;
        default: part[at] = coded ? (char)half_to_e4m3(x[c] / s) : 0;
        }
    }
    if (!attn_is_scaled(kind)) return;
    const float stored = kind == ATTN_CACHE_FP8 ? s * 256.0f : s;
    memcpy(part + attn_scale_off(kind, n) + 4 * (size_t)slot, &stored, 4);
}

static void store(enum attn_cache kind, char *kg, char *vg, int slot, const float *k, const float *v, int d, int dv) {
    store_part(kind, kg, k, d, (size_t)slot, ATTN_GROUP, slot);
    store_part(kind, vg, v, dv, (size_t)slot * (size_t)dv, 1, slot);
}

static void merge(struct attn_state *a, const struct attn_state *b, int rows, int dv) {
    for (int64_t r = 0; r < rows; r++)
        merge_row(&a->m[r], &a->l[r], a->o + r * dv, b->m[r], b->l[r], b->o + r * dv, dv);
}

/* A sink is one more score without a value: it joins the maximum and the denominator. */
static void finish(float *y, int64_t ldy, const struct attn_state *st, int n_q, int n_heads, int dv,
                   const float *sink) {
    for (int64_t r = 0; r < (int64_t)n_q * n_heads; r++) {
        const int64_t i = r / n_heads, h = r % n_heads;
        float *const row = y + i * ldy + h * dv;
        float m = st->m[r], l = st->l[r], a = 1.0f;
        if (m == -INFINITY) { /* nothing seen: no value to weigh */
            memset(row, 0, (size_t)dv * sizeof *row);
            continue;
        }
        if (sink) {
            const float top = sink[h] > m ? sink[h] : m;
            a = math_exp(m - top);
            l = fmaf(l, a, math_exp(sink[h] - top));
        }
        for (int c = 0; c < dv; c++) row[c] = (st->o[r * dv + c] * a) / l;
    }
}

/* One set of entries per cache type. */
#define ATTN_KIND(name, kind)                                                                                          \
    static size_t k_group_bytes_##name(int d) { return attn_k_bytes(kind, d); }                                        \
    static size_t v_group_bytes_##name(int dv) { return attn_v_bytes(kind, dv); }                                      \
    static void store_##name(void *kg, void *vg, int slot, const float *k, const float *v, int d, int dv) {            \
        store(kind, kg, vg, slot, k, v, d, dv);                                                                        \
    }                                                                                                                  \
    static void slice_##name(struct attn_state *st, const struct attn_args *a) { slice(kind, st, a); }

#define ATTN_ENTRY(name, kind)                                                                                         \
    (struct attn_kern) {                                                                                               \
        "generic", attn_elem_bytes(kind), k_group_bytes_##name, v_group_bytes_##name, store_##name, slice_##name,      \
            scratch_floats                                                                                             \
    }

ATTN_KIND(f32, ATTN_CACHE_F32)
ATTN_KIND(bf16, ATTN_CACHE_BF16)
ATTN_KIND(int8, ATTN_CACHE_INT8)
ATTN_KIND(fp8, ATTN_CACHE_FP8)

void attn_init_generic(struct attn_table *t) {
    t->cache[ATTN_CACHE_F32] = ATTN_ENTRY(f32, ATTN_CACHE_F32);
    t->cache[ATTN_CACHE_BF16] = ATTN_ENTRY(bf16, ATTN_CACHE_BF16);
    t->cache[ATTN_CACHE_INT8] = ATTN_ENTRY(int8, ATTN_CACHE_INT8);
    t->cache[ATTN_CACHE_FP8] = ATTN_ENTRY(fp8, ATTN_CACHE_FP8);
    t->merge = merge;
    t->finish = finish;
}
