#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum err err_set(struct err_msg *msg, enum err e, const char *fmt, ...) {
    if (!msg) return e;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg->text, sizeof msg->text, fmt, ap);
    va_end(ap);
    return e;
}

enum err err_prefix(struct err_msg *msg, enum err e, const char *fmt, ...) {
    if (!msg) return e;
    char old[sizeof msg->text];
    memcpy(old, msg->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(msg->text, sizeof msg->text, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof msg->text) return e;
    char *at = msg->text + n, *const end = msg->text + sizeof msg->text - 1;
    for (const char *s = ": "; *s && at < end; s++) *at++ = *s;
    for (const char *s = old; *s && at < end; s++) *at++ = *s; /* a long text is cut */
    *at = '\0';
    return e;
}

const char *err_name(enum err e) {
    static const char *const names[] = {
        [ERR_OK] = "ok",         [ERR_NOMEM] = "nomem", [ERR_IO] = "io",
        [ERR_FORMAT] = "format", [ERR_UNSUPPORTED] = "unsupported",
        [ERR_ARG] = "arg",       [ERR_LIMIT] = "limit", [ERR_BUSY] = "busy",
        [ERR_CANCELLED] = "cancelled", [ERR_DEAD] = "dead",
    };
    return (unsigned)e < N_ELEMENTS(names) ? names[e] : "unknown";
}
