/* Packing and unpacking of panels. Everything that belongs to one output is whole bytes of its own, so rows are
 * written one after another without read-modify-write; k-groups move as 32-bit words. */
#include "kern/gemm_layout.h"

#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "kern/gemm_codes.h"
#include "kern/gemm_pack.h"

static size_t round64(size_t n) {
    return (n + 63) & ~(size_t)63;
}

static uint32_t word_load(const void *p) {
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

static void u16_store(uint8_t *p, uint16_t x) {
    memcpy(p, &x, sizeof x);
}

static uint16_t u16_load(const uint8_t *p) {
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Bytes of scales at the start of a unit, per output. */
static size_t head_bytes(enum gemm_format f) {
    switch (f) {
    case GEMM_Q4_1:
    case GEMM_Q5_1: return 8;
    case GEMM_Q4_K:
    case GEMM_Q5_K:
    case GEMM_Q6_K: return 16;
    case GEMM_Q2_K: return 20;
    case GEMM_Q3_K: return 12;
    case GEMM_IQ4_XS: return 8;
    default: return 4; /* two binary16, or four E8M0 */
    }
}

void gemm_layout_of(struct gemm_layout *l, enum gemm_format f, int panel, int64_t k) {
    const struct gemm_spec *s = gemm_codes_spec(f);
    CHECK(s && k % s->block == 0);
    const size_t p = (size_t)panel;
    const bool far_d = f == GEMM_Q6_K || f == GEMM_Q3_K;
    l->panel = panel;
    l->unit_k = s->block == 256 ? 256 : f == GEMM_MXFP4 ? 128 : 64;
    l->header = far_d ? round64(2 * p * (size_t)(k / 256)) : 0;
    l->head = p * head_bytes(f);
    l->block = 4 * p * (size_t)(s->bits_lo + s->bits_hi);
    l->unit = l->head + l->block * (size_t)(l->unit_k / 32);
    l->bytes = round64(l->header + l->unit * (size_t)((k + l->unit_k - 1) / l->unit_k));
}

/* ---- codes of one 32-block of one output; v points at the output's word of the block's first vector ---- */

static void codes_put(uint8_t *v, size_t vec, const uint8_t *q, const struct gemm_spec *s) {
    uint32_t c[8], w[8] = {0};
    memcpy(c, q, sizeof c);
    if (s->bits_hi) {
        for (int g = 0; g < 8; g++) {
            const uint32_t hi = (c[g] >> s->bits_lo) & (s->bits_hi == 1 ? 0x01010101u : 0x03030303u);
            if (s->bits_hi == 1)
                w[0] |= hi << g;
            else
                w[g / 4] |= hi << (2 * (g % 4));
        }
        for (int i = 0; i < s->bits_hi; i++, v += vec) memcpy(v, &w[i], 4);
        memset(w, 0, sizeof w);
    }
    if (s->bits_lo == 8)
        memcpy(w, c, sizeof w);
    else if (s->bits_lo == 4)
        for (int g = 0; g < 4; g++) w[g] = (c[g] & 0x0f0f0f0fu) | (c[g + 4] & 0x0f0f0f0fu) << 4;
    else
        for (int g = 0; g < 8; g++) w[g / 4] |= (c[g] & 0x03030303u) << (2 * (g % 4));
    for (int i = 0; i < s->bits_lo; i++, v += vec) memcpy(v, &w[i], 4);
}

static void codes_get(uint8_t *q, const uint8_t *v, size_t vec, const struct gemm_spec *s) {
    uint32_t c[8] = {0};
    for (int g = 0; g < 8; g++) {
        const uint8_t *const lo = v + vec * (size_t)s->bits_hi;
        if (s->bits_hi == 1)
            c[g] = (word_load(v) >> g) & 0x01010101u;
        else if (s->bits_hi == 2)
            c[g] = (word_load(v + vec * (size_t)(g / 4)) >> (2 * (g % 4))) & 0x03030303u;
        c[g] <<= s->bits_lo % 8;
        if (s->bits_lo == 8)
            c[g] = word_load(lo + vec * (size_t)g);
        else if (s->bits_lo == 4)
            c[g] |= (word_load(lo + vec * (size_t)(g % 4)) >> (4 * (g / 4))) & 0x0f0f0f0fu;
        else
            c[g] |= (word_load(lo + vec * (size_t)(g / 4)) >> (2 * (g % 4))) & 0x03030303u;
    }
    memcpy(q, c, sizeof c);
}

/* ---- heads: h is the unit's first byte, P the panel, o the output ---- */

/* q4_k, q5_k: d, dmin, A and B (low nibbles of scales and minima), C (their top bits). A byte of C
 * holds top bits of A[i] and B[i], which belong to different outputs, so each keeps the other's half. */
static void head_k4_put(uint8_t *h, size_t P, size_t o, const struct gemm_codes *c) {
    u16_store(h + 2 * o, c->d);
    u16_store(h + 2 * P + 2 * o, c->m);
    uint8_t *const A = h + 4 * P, *const B = h + 8 * P, *const C = h + 12 * P;
    for (size_t j = 0; j < 4; j++) {
        const int s0 = c->sc[2 * j], s1 = c->sc[2 * j + 8], m0 = c->mn[2 * j], m1 = c->mn[2 * j + 8];
        const size_t a = j * P + o, b = (j / 2) * 2 * P + 2 * o + j % 2;
        A[a] = (uint8_t)((s0 & 15) | (s1 & 15) << 4);
        C[a] = (uint8_t)((C[a] & 0xf0) | s0 >> 4 | (s1 >> 4) << 2);
        B[b] = (uint8_t)((m0 & 15) | (m1 & 15) << 4);
        C[b] = (uint8_t)((C[b] & 0x0f) | (m0 >> 4) << 4 | (m1 >> 4) << 6);
    }
}

static void head_k4_get(struct gemm_codes *c, const uint8_t *h, size_t P, size_t o) {
    c->d = u16_load(h + 2 * o);
    c->m = u16_load(h + 2 * P + 2 * o);
    const uint8_t *const A = h + 4 * P, *const B = h + 8 * P, *const C = h + 12 * P;
    for (size_t j = 0; j < 8; j++) {
        const size_t a = (j % 4) * P + o, b = ((j % 4) / 2) * 2 * P + 2 * o + j % 2;
        const int lo = j < 4 ? 0 : 4, top = j < 4 ? 0 : 2;
        c->sc[2 * j] = c->sc[2 * j + 1] = (int16_t)(((A[a] >> lo) & 15) | ((C[a] >> top) & 3) << 4);
        c->mn[2 * j] = c->mn[2 * j + 1] = (int16_t)(((B[b] >> lo) & 15) | ((C[b] >> (4 + top)) & 3) << 4);
    }
}

/* q3_k: nibbles of scale j and j + 8 at [j][P], then two bits of scales j + 4t at [j][P]. */
static void head_q3_put(uint8_t *h, size_t P, size_t o, const struct gemm_codes *c) {
    for (size_t j = 0; j < 8; j++) h[j * P + o] = (uint8_t)(((c->sc[j] + 32) & 15) | ((c->sc[j + 8] + 32) & 15) << 4);
    for (size_t j = 0; j < 4; j++) {
        int top = 0;
        for (size_t t = 0; t < 4; t++) top |= ((c->sc[j + 4 * t] + 32) >> 4) << (2 * t);
        h[(8 + j) * P + o] = (uint8_t)top;
    }
}

static void head_q3_get(struct gemm_codes *c, const uint8_t *h, size_t P, size_t o) {
    for (size_t j = 0; j < 16; j++) {
        const int lo = (h[(j % 8) * P + o] >> (4 * (j / 8))) & 15;
        const int top = (h[(8 + j % 4) * P + o] >> (2 * (j / 4))) & 3;
        c->sc[j] = (int16_t)((lo | top << 4) - 32);
    }
}

/* iq4_xs: d, two bits of scales j + 2t at [j][P], nibbles of scales j and j + 4 at [j][P]. */
static void head_iq4_put(uint8_t *h, size_t P, size_t o, const struct gemm_codes *c) {
    u16_store(h + 2 * o, c->d);
    for (size_t j = 0; j < 2; j++) {
        int top = 0;
        for (size_t t = 0; t < 4; t++) top |= ((c->sc[2 * (j + 2 * t)] + 32) >> 4) << (2 * t);
        h[(2 + j) * P + o] = (uint8_t)top;
    }
    for (size_t j = 0; j < 4; j++)
        h[(4 + j) * P + o] = (uint8_t)(((c->sc[2 * j] + 32) & 15) | ((c->sc[2 * j + 8] + 32) & 15) << 4);
}

static void head_iq4_get(struct gemm_codes *c, const uint8_t *h, size_t P, size_t o) {
    c->d = u16_load(h + 2 * o);
    for (size_t j = 0; j < 8; j++) {
        const int lo = (h[(4 + j % 4) * P + o] >> (4 * (j / 4))) & 15;
        const int top = (h[(2 + j % 2) * P + o] >> (2 * (j / 2))) & 3;
        c->sc[2 * j] = c->sc[2 * j + 1] = (int16_t)((lo | top << 4) - 32);
    }
}

/* Scales of block `i` of the unit (0 for the 256 formats) of output o; far is the block's row in the header. */
static void head_put(uint8_t *h, uint8_t *far, const struct gemm_layout *l, enum gemm_format f, size_t o, size_t i,
                     const struct gemm_codes *c) {
    const size_t P = (size_t)l->panel;
    switch (f) {
    case GEMM_Q4_K:
    case GEMM_Q5_K: head_k4_put(h, P, o, c); break;
    case GEMM_Q3_K: head_q3_put(h, P, o, c); break;
    case GEMM_IQ4_XS: head_iq4_put(h, P, o, c); break;
    case GEMM_MXFP4: h[i * P + o] = (uint8_t)c->d; break;
    case GEMM_Q6_K:
        for (size_t j = 0; j < 16; j++) h[j * P + o] = (uint8_t)c->sc[j];
        break;
    case GEMM_Q2_K:
        u16_store(h + 2 * o, c->d);
        u16_store(h + 2 * P + 2 * o, c->m);
        for (size_t j = 0; j < 16; j++) h[(4 + j) * P + o] = (uint8_t)(c->sc[j] | c->mn[j] << 4);
        break;
    default:
        u16_store(h + 2 * (i * P + o), c->d);
        if (l->head == 8 * P) u16_store(h + 4 * P + 2 * (i * P + o), c->m);
    }
    if (l->header) u16_store(far + 2 * o, c->d);
}

static void head_get(struct gemm_codes *c, const uint8_t *h, const uint8_t *far, const struct gemm_layout *l,
                     enum gemm_format f, size_t o, size_t i) {
    const size_t P = (size_t)l->panel;
    c->m = 0;
    switch (f) {
    case GEMM_Q4_K:
    case GEMM_Q5_K: head_k4_get(c, h, P, o); break;
    case GEMM_Q3_K: head_q3_get(c, h, P, o); break;
    case GEMM_IQ4_XS: head_iq4_get(c, h, P, o); break;
    case GEMM_MXFP4: c->d = h[i * P + o]; break;
    case GEMM_Q6_K:
        for (size_t j = 0; j < 16; j++) c->sc[j] = (int8_t)h[j * P + o];
        break;
    case GEMM_Q2_K:
        c->d = u16_load(h + 2 * o);
        c->m = u16_load(h + 2 * P + 2 * o);
        for (size_t j = 0; j < 16; j++) {
            c->sc[j] = h[(4 + j) * P + o] & 15;
            c->mn[j] = h[(4 + j) * P + o] >> 4;
        }
        break;
    default:
        c->d = u16_load(h + 2 * (i * P + o));
        if (l->head == 8 * P) c->m = u16_load(h + 4 * P + 2 * (i * P + o));
    }
    if (l->header) c->d = u16_load(far + 2 * o);
}

/* ---- float formats: [K][P] elements; BF16 [ceil(K / 2)][P] words of a pair of K ---- */

static size_t float_elem(enum gemm_format f) {
    return f == GEMM_F32 ? 4 : 2;
}

static void float_pack(struct gemm_shape s, uint8_t *panel, const uint8_t *rows, size_t row_bytes, int n_rows) {
    const size_t P = (size_t)s.panel, K = (size_t)s.k;
    for (size_t o = 0; o < (size_t)n_rows; o++) {
        const uint8_t *const row = rows + o * row_bytes;
        if (s.format == GEMM_F32)
            for (size_t k = 0; k < K; k++) memcpy(panel + 4 * (k * P + o), row + 4 * k, 4);
        else if (s.format == GEMM_F16)
            for (size_t k = 0; k < K; k++) memcpy(panel + 2 * (k * P + o), row + 2 * k, 2);
        else {
            for (size_t k = 0; k + 2 <= K; k += 2) memcpy(panel + 2 * (k * P + 2 * o), row + 2 * k, 4);
            if (K % 2) memcpy(panel + 2 * ((K - 1) * P + 2 * o), row + 2 * (K - 1), 2);
        }
    }
}

static void float_unpack(struct gemm_shape s, float *out, const uint8_t *panel, int row) {
    const size_t P = (size_t)s.panel, K = (size_t)s.k, o = (size_t)row;
    for (size_t k = 0; k < K; k++) {
        if (s.format == GEMM_F32)
            memcpy(out + k, panel + 4 * (k * P + o), 4);
        else if (s.format == GEMM_F16)
            out[k] = half_from_f16(u16_load(panel + 2 * (k * P + o)));
        else
            out[k] = half_from_bf16(u16_load(panel + 2 * (k / 2 * 2 * P + 2 * o + k % 2)));
    }
}

size_t gemm_layout_bytes(struct gemm_shape s) {
    if (!gemm_codes_spec(s.format)) {
        const size_t k = (size_t)s.k + (s.format == GEMM_BF16 ? (size_t)s.k % 2 : 0);
        return round64(k * (size_t)s.panel * float_elem(s.format));
    }
    struct gemm_layout l;
    gemm_layout_of(&l, s.format, s.panel, s.k);
    return l.bytes;
}

/* Packs all blocks of the unit that starts at weight k0 of one row. */
static void unit_pack(uint8_t *panel, const struct gemm_layout *l, struct gemm_shape s, const uint8_t *row, size_t o,
                      int64_t k0) {
    const struct gemm_spec *spec = gemm_codes_spec(s.format);
    const size_t vec = 4 * (size_t)l->panel;
    uint8_t *const unit = panel + l->header + l->unit * (size_t)(k0 / l->unit_k);
    uint8_t *const far = panel + vec / 2 * (size_t)(k0 / 256);
    struct gemm_codes c;
    for (int64_t k = k0; k < k0 + l->unit_k && k < s.k; k += spec->block) {
        const size_t i = (size_t)(k - k0) / 32;
        gemm_codes_load(&c, s.format, row + (size_t)(k / spec->block) * (size_t)spec->bytes);
        head_put(unit, far, l, s.format, o, i, &c);
        for (size_t b = 0; b < (size_t)spec->block / 32; b++)
            codes_put(unit + l->head + l->block * (i + b) + 4 * o, vec, c.q + 32 * b, spec);
    }
}

void gemm_layout_pack_rows(struct gemm_shape s, void *panel, const void *rows, size_t row_bytes, int n_rows) {
    const size_t bytes = gemm_layout_bytes(s);
    const uint8_t *const first = rows;
    CHECK(n_rows >= 1 && n_rows <= s.panel);
    if (!gemm_codes_spec(s.format)) {
        if (n_rows < s.panel || s.k % 64) memset(panel, 0, bytes);
        float_pack(s, panel, rows, row_bytes, n_rows);
        return;
    }
    struct gemm_layout l;
    gemm_layout_of(&l, s.format, s.panel, s.k);
    uint8_t *const p = panel;
    const size_t whole = l.header + l.unit * (size_t)(s.k / l.unit_k);
    if (n_rows < s.panel)
        memset(p, 0, bytes);
    else {
        memset(p + whole, 0, bytes - whole);
        memset(p, 0, l.header);
    }
    for (int64_t k = 0; k < s.k; k += l.unit_k)
        for (int o = 0; o < n_rows; o++) unit_pack(p, &l, s, first + (size_t)o * row_bytes, (size_t)o, k);
}

void gemm_layout_pack(struct gemm_shape s, void *panel, const void *rows, size_t row_bytes, int n_rows) {
    if (n_rows == s.panel && (s.panel == 8 || s.panel == 16)) gemm_pack_panel(s, panel, rows, row_bytes);
    else gemm_layout_pack_rows(s, panel, rows, row_bytes, n_rows);
}

void gemm_layout_unpack(struct gemm_shape s, float *out, const void *panel, int row) {
    if (!gemm_codes_spec(s.format)) {
        float_unpack(s, out, panel, row);
        return;
    }
    struct gemm_layout l;
    gemm_layout_of(&l, s.format, s.panel, s.k);
    const struct gemm_spec *spec = gemm_codes_spec(s.format);
    const size_t vec = 4 * (size_t)l.panel, o = (size_t)row;
    struct gemm_codes c;
    for (int64_t k = 0; k < s.k; k += spec->block) {
        const size_t i = (size_t)(k % l.unit_k) / 32;
        const uint8_t *const unit = (const uint8_t *)panel + l.header + l.unit * (size_t)(k / l.unit_k);
        head_get(&c, unit, (const uint8_t *)panel + vec / 2 * (size_t)(k / 256), &l, s.format, o, i);
        for (size_t b = 0; b < (size_t)spec->block / 32; b++)
            codes_get(c.q + 32 * b, unit + l.head + l.block * (i + b) + 4 * o, vec, spec);
        gemm_codes_decode(out + k, &c, s.format);
    }
}
