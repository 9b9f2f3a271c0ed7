/* Monotonic and wall time.
 * Threads: any. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since an arbitrary start; never goes back. */
int64_t clock_ns(void);

/* Unix time in seconds. */
int64_t clock_unix_s(void);

#endif
