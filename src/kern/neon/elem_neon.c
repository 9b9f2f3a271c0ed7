/* Family "elem" with NEON; kern/elem_simd.h has the bodies. */
#include "kern/elem.h"
#include "kern/neon/math_neon.h"

#include "kern/elem_simd.h"

void elem_init_neon(struct elem_kern *k) { *k = elem_table(); }
