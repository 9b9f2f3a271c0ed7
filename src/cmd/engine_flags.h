/* The flags that choose and size the engine, shared by every subcommand that opens one.
 * Threads: one. Owns: nothing; strings are borrowed from argv. */
#ifndef CMD_ENGINE_FLAGS_H
#define CMD_ENGINE_FLAGS_H

#include "cmd/args.h"
#include "xenon.h"

/* The table, filling *opt (zeroed by the caller: zero means "choose"). */
struct arg_group engine_flags_group(struct xenon_options *opt);

/* After args_parse: takes the model from the first positional word when --model is absent, and checks what a
 * single flag cannot show. ERR_ARG with one line. */
enum err engine_flags_finish(struct xenon_options *opt, const struct args *a, struct err_msg *msg) ATTR_NODISCARD;

#endif
