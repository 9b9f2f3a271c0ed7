#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static _Atomic int min_level = LOG_INFO;

void log_set_level(enum log_level level) {
    atomic_store_explicit(&min_level, level, memory_order_relaxed);
}

void log_event(enum log_level level, const char *part, const char *fmt, ...) {
    static const char *const names[] = {"debug", "info", "warn", "error"};
    if ((int)level < atomic_load_explicit(&min_level, memory_order_relaxed)) return;
    if (level >= LOG_NONE) return;
    char line[1024];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
    n += (size_t)snprintf(line + n, sizeof line - n, ".%03d %s %s: ", (int)(now.tv_nsec / 1000000),
                          names[level], part);
    va_list ap;
    va_start(ap, fmt);
    const int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    va_end(ap);
    n += m < 0 ? 0 : (size_t)m;
    if (n > sizeof line - 2) n = sizeof line - 2;
    line[n++] = '\n';
    (void)!write(STDERR_FILENO, line, n);
}
