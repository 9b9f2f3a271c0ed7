/* Assertions for bugs. CHECK is always on (control code); ASSERT only in debug builds (kernels and
 * inner loops). Bad input is never a bug: it is an enum err (base/err.h).
 * Threads: any. */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include "base/attr.h"

/* Prints "file:line: check failed: text" to stderr and aborts. */
ATTR_NORETURN ATTR_COLD void check_failed(const char *file, int line, const char *text);

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (UNLIKELY(!(cond))) check_failed(__FILE__, __LINE__, #cond);                            \
    } while (0)

#ifdef XENON_DEBUG
#define ASSERT(cond) CHECK(cond)
#else
#define ASSERT(cond) ((void)sizeof(!(cond)))
#endif

#endif
