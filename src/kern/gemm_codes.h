/* Blocks of the quantized weight formats in one common form, the "codes": what the packers of every level and the
 * generic kernels work on. One block of 32 or 256 weights of one row becomes plain arrays
 * without bit fields. The value of weight i is
 *     blocks of 32:   d * value(q[i]) [+ m]
 *     blocks of 256:  d * sc[i / 16] * value(q[i]) [- m * mn[i / 16]]
 * where value(q) = codebook[q], or q - bias. Source: quant/blocks.h.
 *
 * Threads: pure functions, any lane. */
#ifndef KERN_GEMM_CODES_H
#define KERN_GEMM_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kern/gemm.h"

/* The constants of one quantized format. */
struct gemm_spec {
    int block;              /* weights per block, 32 or 256; 0: not a block format (F32, F16, BF16) */
    int bytes;              /* of one block in the file */
    int bits_lo, bits_hi;   /* a code is bits_lo low bits and bits_hi high bits */
    int bias;               /* value(q) = q - bias when codebook is NULL */
    const int8_t *codebook; /* value(q) = codebook[q] */
    int n_scales;           /* sub-scales per 256: 16 or 8 (then sc[2j] = sc[2j + 1]); 0: blocks of 32 */
    bool has_min;           /* m (and mn) are used */
};

struct gemm_codes {
    uint16_t d, m;  /* binary16 bits; MXFP4: d is the E8M0 exponent */
    uint8_t q[256]; /* codes, not biased */
    int16_t sc[16]; /* sub-scales of 16 weights, biases removed */
    int16_t mn[16]; /* sub-minima of 16 weights */
};

/* NULL for formats without blocks. */
const struct gemm_spec *gemm_codes_spec(enum gemm_format f);

/* Reads the block at `block`, in the file's layout, at any alignment. */
void gemm_codes_load(struct gemm_codes *c, enum gemm_format f, const void *block);

/* The values of the block's weights as integers, [block]. */
void gemm_codes_values(int8_t *v, const struct gemm_codes *c, enum gemm_format f);

/* The block's scale d in f32. */
float gemm_codes_scale(const struct gemm_codes *c, enum gemm_format f);

/* Decodes the block into out[block], bit-equal to the reference decoder. */
void gemm_codes_decode(float *out, const struct gemm_codes *c, enum gemm_format f);

#endif
