/* Family "attn" with NEON; kern/attn_simd.h has the bodies. */
#include "kern/attn.h"
#include "kern/neon/math_neon.h"

#include "kern/attn_simd.h"

void attn_init_neon(struct attn_table *t) { attn_fill_table(t); }
