/* Family "attn" with AVX512; kern/attn_simd.h has the bodies. */
#include "kern/attn.h"
#include "kern/avx512/math_avx512.h"

#include "kern/attn_simd.h"

void attn_init_avx512(struct attn_table *t) { attn_fill_table(t); }
