/* Family "elem" with AVX512; kern/elem_simd.h has the bodies. */
#include "kern/elem.h"
#include "kern/avx512/math_avx512.h"

#include "kern/elem_simd.h"

void elem_init_avx512(struct elem_kern *k) { *k = elem_table(); }
