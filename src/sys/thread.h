/* Threads with a name and all signals blocked, so that signals reach the thread that waits for them.
 * Threads: any. Owns: the thread until thread_join. */
#ifndef SYS_THREAD_H
#define SYS_THREAD_H

#include <pthread.h>

#include "base/err.h"

/* Starts fn(arg). name: up to 15 characters, seen in top and gdb. */
enum err thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg,
                      struct err_msg *msg) ATTR_NODISCARD;

void thread_join(pthread_t t);

#endif
