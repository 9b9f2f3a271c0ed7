/* What the two files of the public API share.
 * Threads: as include/xenon.h says. */
#ifndef ENGINE_XENON_INT_H
#define ENGINE_XENON_INT_H

#include "engine/engine_core.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "xenon.h"

struct xenon {
    struct ckpt *ckpt;
    struct tokenizer *tok;      /* NULL: random weights without one */
    struct chat_template *chat; /* NULL: the model has none */
    struct engine_core core;
    bool started;
    struct xenon_info info;
    uint64_t seed;
    _Atomic uint64_t next_id;
};

/* The public error text is a struct err_msg. NULL stays NULL. */
struct err_msg *xenon_int_msg(struct xenon_error *err);

/* Opens the model's template, or the file or source text that `wanted` (may be NULL) names. */
enum err xenon_int_open_template(struct xenon *x, const char *wanted, struct err_msg *msg) ATTR_NODISCARD;

#endif
