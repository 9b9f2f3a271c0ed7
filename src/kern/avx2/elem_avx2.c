/* Family "elem" with AVX2; kern/elem_simd.h has the bodies. */
#include "kern/elem.h"
#include "kern/avx2/math_avx2.h"

#include "kern/elem_simd.h"

void elem_init_avx2(struct elem_kern *k) { *k = elem_table(); }
