/* The block decoders and encoders behind quant_decode_row and quant_encode_row: one call, one block.
 * Blocks are aligned for their fields (quant.c copies them), floats as floats are.
 * Threads: pure functions. Owns: nothing. */
#ifndef QUANT_QUANT_INT_H
#define QUANT_QUANT_INT_H

#include "quant/blocks.h"

/* out: 32 floats, or 256 for the K formats and iq4_xs. block: the stored block. */
void gguf_legacy_decode_q4_0(float *out, const void *block);
void gguf_legacy_decode_q4_1(float *out, const void *block);
void gguf_legacy_decode_q5_0(float *out, const void *block);
void gguf_legacy_decode_q5_1(float *out, const void *block);
void gguf_legacy_decode_q8_0(float *out, const void *block);
void gguf_k_decode_q2(float *out, const void *block);
void gguf_k_decode_q3(float *out, const void *block);
void gguf_k_decode_q4(float *out, const void *block);
void gguf_k_decode_q5(float *out, const void *block);
void gguf_k_decode_q6(float *out, const void *block);
void gguf_i_decode_iq4_nl(float *out, const void *block);
void gguf_i_decode_iq4_xs(float *out, const void *block);
void gguf_i_decode_mxfp4(float *out, const void *block);

/* in: 32 floats. block: room for one block. */
void gguf_legacy_encode_q4_0(void *block, const float *in);
void gguf_legacy_encode_q4_1(void *block, const float *in);
void gguf_legacy_encode_q5_0(void *block, const float *in);
void gguf_legacy_encode_q5_1(void *block, const float *in);
void gguf_legacy_encode_q8_0(void *block, const float *in);

#endif
