/* Stores past the caches, for the packers of the x86 levels. */
#ifndef KERN_AVX2_GEMM_PACK_AVX2_INT_H
#define KERN_AVX2_GEMM_PACK_AVX2_INT_H

#include <immintrin.h>

#define PACK_PUT(p, v) _mm256_stream_si256((__m256i *)(void *)(p), (__m256i)(v))

#endif
