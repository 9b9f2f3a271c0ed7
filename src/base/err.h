/* Errors of input and environment: a code that callers branch on and one line of text that says
 * what is wrong, where, and what to do. The text is written once, at the place that knows the file
 * and the offset; everybody above only passes the code on with TRY.
 * Threads: any; a struct err_msg belongs to its caller. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/attr.h"

enum err {
    ERR_OK = 0,
    ERR_NOMEM,       /* an allocation or a reservation failed */
    ERR_IO,          /* the operating system refused: missing file, no right, port in use */
    ERR_FORMAT,      /* the bytes are not what their format says: truncated or hostile input */
    ERR_UNSUPPORTED, /* well formed, but an architecture, format or option that we do not have */
    ERR_ARG,         /* a wrong flag or request field */
    ERR_LIMIT,       /* larger than a limit that the message names */
    ERR_BUSY,        /* try again later: queue full, still loading */
    ERR_CANCELLED,   /* the owner asked to stop */
    ERR_DEAD,        /* the engine has stopped and will not come back */
};

struct err_msg {
    char text[480];
};

/* Writes the text (cut if too long) and returns e, so that it can be used as `return err_set(...)`.
 * msg may be NULL. */
enum err err_set(struct err_msg *msg, enum err e, const char *fmt, ...) ATTR_PRINTF(3, 4) ATTR_COLD;

/* Puts "prefix: " before the present text. Returns e. */
enum err err_prefix(struct err_msg *msg, enum err e, const char *fmt, ...) ATTR_PRINTF(3, 4)
    ATTR_COLD;

/* Short name of a code, for logs: "format". */
const char *err_name(enum err e);

/* Returns from the calling function when expr is an error. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        const enum err try_err_ = (expr);                                                          \
        if (UNLIKELY(try_err_ != ERR_OK)) return try_err_;                                         \
    } while (0)

/* Sets `e` and jumps to `out` when expr is an error: for functions that unwind. */
#define TRY_OUT(e, expr)                                                                           \
    do {                                                                                           \
        (e) = (expr);                                                                              \
        if (UNLIKELY((e) != ERR_OK)) goto out;                                                     \
    } while (0)

#endif
