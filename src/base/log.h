/* One line per event on stderr: "2026-01-31T12:00:00.123 info engine: text". A line goes out in
 * one write, so lines of threads never mix. A write that fails (full disk, closed pipe) is ignored.
 * Threads: any. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/attr.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_NONE };

/* Events below level are dropped; the default is LOG_INFO. */
void log_set_level(enum log_level level);

/* part: the folder or subsystem, "engine". */
void log_event(enum log_level level, const char *part, const char *fmt, ...) ATTR_PRINTF(3, 4);

#define log_debug(part, ...) log_event(LOG_DEBUG, part, __VA_ARGS__)
#define log_info(part, ...)  log_event(LOG_INFO, part, __VA_ARGS__)
#define log_warn(part, ...)  log_event(LOG_WARN, part, __VA_ARGS__)
#define log_error(part, ...) log_event(LOG_ERROR, part, __VA_ARGS__)

#endif
