/* Family "attn" with AVX2; kern/attn_simd.h has the bodies. */
#include "kern/attn.h"
#include "kern/avx2/math_avx2.h"

#include "kern/attn_simd.h"

void attn_init_avx2(struct attn_table *t) { attn_fill_table(t); }
