/* A timeline of steps in the Trace Event Format, which chrome://tracing and ui.perfetto.dev show: one process per
 * measured case, one row per lane.
 * Threads: main. Owns: the file. */
#ifndef CMD_BENCH_TRACE_H
#define CMD_BENCH_TRACE_H

#include <stdio.h>

#include "graph/ledger.h"

struct bench_trace {
    FILE *out;
    const char *path;
    bool any; /* an event stands before */
    int n_cases;
};

enum err bench_trace_open(struct bench_trace *t, const char *path, struct err_msg *msg) ATTR_NODISCARD;

/* All events of the ledger, as a new process called `name`. Does nothing on a trace that is not open. */
void bench_trace_add(struct bench_trace *t, const struct ledger *k, const char *name);

/* ERR_IO when the file could not be written. Fine for a trace that is not open. */
enum err bench_trace_close(struct bench_trace *t, struct err_msg *msg) ATTR_NODISCARD;

#endif
