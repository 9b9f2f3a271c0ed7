/* Compiler attributes under short names; the only place that spells __attribute__. */
#ifndef BASE_ATTR_H
#define BASE_ATTR_H

#define ATTR_NODISCARD     __attribute__((warn_unused_result))
#define ATTR_PRINTF(f, a)  __attribute__((format(printf, f, a)))
#define ATTR_NORETURN      __attribute__((noreturn))
#define ATTR_COLD          __attribute__((cold))
#define ATTR_UNUSED        __attribute__((unused))
#define ATTR_NOINLINE      __attribute__((noinline))
#define ATTR_ALWAYS_INLINE __attribute__((always_inline))
#define ATTR_ALIGNED(n)    __attribute__((aligned(n)))
#define ATTR_VECTOR(bytes) __attribute__((vector_size(bytes)))

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* A shared cache line; false sharing is avoided by aligning to two of them (adjacent-line prefetch). */
#define CACHE_LINE 64

#define N_ELEMENTS(a) (sizeof(a) / sizeof((a)[0]))

#endif
