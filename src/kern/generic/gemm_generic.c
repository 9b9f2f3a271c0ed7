/* The specification of the gemm family: every format in plain C, on any CPU. A panel is 8 rows of blocks, in the
 * file's layout, block by block ([block][8 rows]); one row of activations is a tile. Integer dots are exact and every
 * output is one fma chain over the blocks in order, so the vector levels equal this file bit for bit. */
#include "kern/gemm.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kern/gemm_act.h"
#include "kern/gemm_codes.h"

enum { PANEL = 8 };

static size_t elem_bytes(enum gemm_format f) {
    const struct gemm_spec *const s = gemm_codes_spec(f);
    return s ? (size_t)s->bytes : f == GEMM_F32 ? 4 : 2;
}

static int64_t elem_k(enum gemm_format f) {
    const struct gemm_spec *const s = gemm_codes_spec(f);
    return s ? s->block : 1;
}

static size_t panel_size(enum gemm_format f, int64_t k) {
    return ((size_t)(k / elem_k(f)) * elem_bytes(f) * PANEL + 63) & ~(size_t)63;
}

static void panel_pack(enum gemm_format f, char *panel, const char *rows, size_t row_bytes, int n_rows, int64_t k) {
    const size_t e = elem_bytes(f);
    memset(panel, 0, panel_size(f, k));
    for (size_t i = 0; i < (size_t)(k / elem_k(f)); i++)
        for (size_t o = 0; o < (size_t)n_rows; o++)
            memcpy(panel + (i * PANEL + o) * e, rows + o * row_bytes + i * e, e);
}

static float float_value(enum gemm_format f, const char *p) {
    if (f == GEMM_F32) {
        float x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return f == GEMM_F16 ? half_from_f16(h) : half_from_bf16(h);
}

static void row_unpack(enum gemm_format f, float *out, const char *panel, int row, int64_t k) {
    const size_t e = elem_bytes(f);
    const int64_t step = elem_k(f);
    struct gemm_codes c;
    for (int64_t i = 0; i < k; i += step) {
        const char *const p = panel + ((size_t)(i / step) * PANEL + (size_t)row) * e;
        if (step == 1) {
            out[i] = float_value(f, p);
            continue;
        }
        gemm_codes_load(&c, f, p);
        gemm_codes_decode(out + i, &c, f);
    }
}

/* ---- activations ---- */

static float quantize(int8_t *q, int16_t *sum16, const float *x, int n) {
    uint32_t max = 0; /* of the bits without the sign: infinities and NaNs are the largest */
    for (int i = 0; i < n; i++) {
        const uint32_t a = half_bits(x[i]) & 0x7fffffffu;
        if (a > max) max = a;
    }
    const float d = half_float(max) / 127.0f;
    memset(sum16, 0, (size_t)(n / 16) * sizeof *sum16);
    for (int i = 0; i < n; i++) {
        float v = d > 0.0f ? x[i] / d : 0.0f;
        v = v < 127.0f ? v : 127.0f; /* a NaN becomes 127 */
        v = v > -127.0f ? v : -127.0f;
        if (!(d > 0.0f)) v = 0.0f;
        q[i] = (int8_t)nearbyintf(v);
        sum16[i / 16] = (int16_t)(sum16[i / 16] + q[i]);
    }
    return d;
}

static int one_row(int m) {
    (void)m;
    return 1;
}

/* ---- dots ---- */

/* acc = fma(x_k, w_k, acc) for k in order. */
static float dot_float(enum gemm_format f, const char *panel, int row, const float *x, int64_t k) {
    const size_t e = elem_bytes(f);
    float acc = 0.0f;
    for (int64_t i = 0; i < k; i++)
        acc = fmaf(x[i], float_value(f, panel + ((size_t)i * PANEL + (size_t)row) * e), acc);
    return acc;
}

static float flushed(float x) {
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

/* acc + w x rounded once, to nearest even, where denormal operands are zeros and a result is zero when it is below the
 * smallest normal number after rounding to 24 bits: when the exact sum is below 2^-126 - 2^-151. The products of two
 * bf16 have 16 bits, so the sum in double is exact where that is close. */
static float fma_flushed(float w, float x, float acc) {
    w = flushed(w);
    x = flushed(x);
    const float y = fmaf(w, x, acc);
    return fabs((double)w * (double)x + (double)acc) < 0x1p-126 - 0x1p-151 ? copysignf(0.0f, y) : y;
}

/* x rounded to bf16, pairs of k in order: acc = fma(w_odd, x_odd, acc), then fma(w_even, x_even, acc); an element that
 * the last pair lacks is 0 times 0. */
static float dot_bf16(const char *panel, int row, const bf16 *x, int64_t k) {
    float acc = 0.0f;
    for (int64_t i = 0; i < k; i += 2)
        for (int64_t j = i + 1; j >= i; j--) {
            const float w = j < k ? float_value(GEMM_BF16, panel + 2 * (j * PANEL + row)) : 0.0f;
            acc = fma_flushed(w, half_from_bf16(x[j]), acc);
        }
    return acc;
}

/* acc = fma(sum w a, d_w d_a, acc), then fma(m_w, d_a sum a, acc). */
static float dot_32(float acc, const struct gemm_codes *c, enum gemm_format f, const char *act) {
    int8_t v[32], a[32];
    int32_t dot = 0;
    float d, ds;
    gemm_codes_values(v, c, f);
    memcpy(a, act, 32);
    memcpy(&d, act + 36, 4);
    memcpy(&ds, act + 40, 4);
    for (int i = 0; i < 32; i++) dot += v[i] * a[i];
    acc = fmaf((float)dot, gemm_codes_scale(c, f) * d, acc);
    return gemm_codes_spec(f)->has_min ? fmaf(half_from_f16(c->m), ds, acc) : acc;
}

/* acc = fma(sum_j sc_j dot_j, d_w d_a, acc), then fma(-sum_j mn_j sum_j, dmin d_a, acc), j over 16s. */
static float dot_256(float acc, const struct gemm_codes *c, enum gemm_format f, const char *act) {
    int8_t v[256], a[256];
    int32_t isum = 0, nmsum = 0;
    float d;
    gemm_codes_values(v, c, f);
    memcpy(a, act, 256);
    memcpy(&d, act + 256 + 48, 4);
    for (int i = 0; i < 256; i++) {
        isum += c->sc[i / 16] * (v[i] * a[i]);
        if (gemm_codes_spec(f)->has_min) nmsum -= c->mn[i / 16] * a[i];
    }
    acc = fmaf((float)isum, gemm_codes_scale(c, f) * d, acc);
    return gemm_codes_spec(f)->has_min ? fmaf((float)nmsum, half_from_f16(c->m) * d, acc) : acc;
}

/* One output for all rows: a block of weights is decoded once and meets every row. */
static void run_output(enum gemm_format f, const struct gemm_args *a, const char *panel, int row, float *y) {
    const struct gemm_spec *const s = gemm_codes_spec(f);
    const int layout = !s ? GEMM_LAYOUT_FLOAT : s->block == 32 ? GEMM_LAYOUT_Q8_32 : GEMM_LAYOUT_Q8_256;
    const size_t row_bytes = gemm_act_row_bytes(layout, a->k);
    const char *const act = a->act;
    if (!s) {
        for (int r = 0; r < a->m; r++) {
            const char *const x = act + (size_t)r * row_bytes;
            y[r * a->ldy] = dot_float(f, panel, row, (const float *)(const void *)x, a->k);
        }
        return;
    }
    const size_t step = row_bytes / (size_t)(a->k / s->block);
    struct gemm_codes c;
    for (int r = 0; r < a->m; r++) y[r * a->ldy] = 0.0f;
    for (size_t b = 0; b < (size_t)(a->k / s->block); b++) {
        gemm_codes_load(&c, f, panel + (b * PANEL + (size_t)row) * (size_t)s->bytes);
        for (int r = 0; r < a->m; r++) {
            const char *const x = act + (size_t)r * row_bytes + b * step;
            float *const out = &y[r * a->ldy];
            *out = s->block == 32 ? dot_32(*out, &c, f, x) : dot_256(*out, &c, f, x);
        }
    }
}

static void run_all(enum gemm_format f, const struct gemm_args *a) {
    const size_t bytes = panel_size(f, a->k);
    for (int64_t i = 0; i < a->n_rows; i++)
        run_output(f, a, (const char *)a->panels + (size_t)(i / PANEL) * bytes, (int)(i % PANEL), a->y + i);
}

/* ---- the table ---- */

static void act_pack_any(int layout, const struct gemm_act_job *j) {
    gemm_act_run(j, layout, quantize);
}

#define ACT(NAME, LAYOUT)                                                                                              \
    static size_t act_bytes_##NAME(int m, int64_t k) {                                                                 \
        return gemm_act_total(LAYOUT, m, k);                                                                           \
    }                                                                                                                  \
    static void act_pack_##NAME(void *act, const float *x, int64_t ldx, int m, int row0, int row1, int64_t k) {        \
        const struct gemm_act_job j = {act, x, ldx, k, m, 1, row0, row1};                                              \
        act_pack_any(LAYOUT, &j);                                                                                      \
    }
ACT(float, GEMM_LAYOUT_FLOAT)
ACT(q8_32, GEMM_LAYOUT_Q8_32)
ACT(q8_256, GEMM_LAYOUT_Q8_256)

#define FORMAT(F, NAME, KIND, LAYOUT)                                                                                  \
    static size_t panel_bytes_##F(int64_t k) {                                                                         \
        return panel_size(GEMM_##F, k);                                                                                \
    }                                                                                                                  \
    static void pack_##F(void *p, const void *rows, size_t row_bytes, int n, int64_t k) {                              \
        panel_pack(GEMM_##F, p, rows, row_bytes, n, k);                                                                \
    }                                                                                                                  \
    static void unpack_##F(float *out, const void *p, int row, int64_t k) {                                            \
        row_unpack(GEMM_##F, out, p, row, k);                                                                          \
    }                                                                                                                  \
    static void run_##F(const struct gemm_args *a) {                                                                   \
        run_all(GEMM_##F, a);                                                                                          \
    }                                                                                                                  \
    static const struct gemm_kern kern_##F = {                                                                         \
        "generic",  PANEL,   GEMM_ACT_##KIND,  GEMM_LAYOUT_##LAYOUT, panel_bytes_##F, pack_##F,                        \
        unpack_##F, one_row, act_bytes_##NAME, act_pack_##NAME,      run_##F};
FORMAT(F32, float, F32, FLOAT)
FORMAT(F16, float, F32, FLOAT)
FORMAT(BF16, float, F32, FLOAT)
FORMAT(Q8_0, q8_32, Q8_32, Q8_32)
FORMAT(Q4_0, q8_32, Q8_32, Q8_32)
FORMAT(Q4_1, q8_32, Q8_32, Q8_32)
FORMAT(Q5_0, q8_32, Q8_32, Q8_32)
FORMAT(Q5_1, q8_32, Q8_32, Q8_32)
FORMAT(IQ4_NL, q8_32, Q8_32, Q8_32)
FORMAT(MXFP4, q8_32, Q8_32, Q8_32)
FORMAT(Q2_K, q8_256, Q8_256, Q8_256)
FORMAT(Q3_K, q8_256, Q8_256, Q8_256)
FORMAT(Q4_K, q8_256, Q8_256, Q8_256)
FORMAT(Q5_K, q8_256, Q8_256, Q8_256)
FORMAT(Q6_K, q8_256, Q8_256, Q8_256)
FORMAT(IQ4_XS, q8_256, Q8_256, Q8_256)

void gemm_init_generic(struct gemm_kern table[GEMM_N_FORMATS]) {
    const struct gemm_kern *const all[GEMM_N_FORMATS] = {
        [GEMM_F32] = &kern_F32,     [GEMM_F16] = &kern_F16,       [GEMM_BF16] = &kern_BF16,
        [GEMM_Q8_0] = &kern_Q8_0,   [GEMM_Q4_0] = &kern_Q4_0,     [GEMM_Q4_1] = &kern_Q4_1,
        [GEMM_Q5_0] = &kern_Q5_0,   [GEMM_Q5_1] = &kern_Q5_1,     [GEMM_Q2_K] = &kern_Q2_K,
        [GEMM_Q3_K] = &kern_Q3_K,   [GEMM_Q4_K] = &kern_Q4_K,     [GEMM_Q5_K] = &kern_Q5_K,
        [GEMM_Q6_K] = &kern_Q6_K,   [GEMM_IQ4_NL] = &kern_IQ4_NL, [GEMM_IQ4_XS] = &kern_IQ4_XS,
        [GEMM_MXFP4] = &kern_MXFP4,
    };
    for (int f = 0; f < GEMM_N_FORMATS; f++) table[f] = *all[f];
}

/* ---- BF16 with bf16 activations ---- */

static size_t act_bytes_bf16(int m, int64_t k) {
    return gemm_act_total(GEMM_LAYOUT_BF16, m, k);
}

static void act_pack_bf16(void *act, const float *x, int64_t ldx, int m, int row0, int row1, int64_t k) {
    (void)m;
    for (int r = row0; r < row1; r++) {
        bf16 *const out = (bf16 *)(void *)((char *)act + (size_t)r * gemm_act_row_bytes(GEMM_LAYOUT_BF16, k));
        for (int64_t i = 0; i < k; i++) out[i] = half_to_bf16(x[r * ldx + i]);
        if (k % 2) out[k] = 0;
    }
}

static void run_bf16(const struct gemm_args *a) {
    const size_t bytes = panel_size(GEMM_BF16, a->k), row_bytes = gemm_act_row_bytes(GEMM_LAYOUT_BF16, a->k);
    for (int r = 0; r < a->m; r++) {
        const bf16 *const x = (const bf16 *)(const void *)((const char *)a->act + (size_t)r * row_bytes);
        for (int64_t i = 0; i < a->n_rows; i++) {
            const char *const panel = (const char *)a->panels + (size_t)(i / PANEL) * bytes;
            a->y[r * a->ldy + i] = dot_bf16(panel, (int)(i % PANEL), x, a->k);
        }
    }
}

void gemm_init_generic_bf16(struct gemm_kern table[GEMM_N_FORMATS]) {
    struct gemm_kern *const g = &table[GEMM_BF16];
    *g = kern_BF16;
    g->act = GEMM_ACT_BF16;
    g->act_layout = GEMM_LAYOUT_BF16;
    g->act_bytes = act_bytes_bf16;
    g->act_pack = act_pack_bf16;
    g->run = run_bf16;
}
