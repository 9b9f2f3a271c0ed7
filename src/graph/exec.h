/* Execution of a plan: every lane walks the tape. No allocation, no failure.
 * Threads: exec_run by the engine thread (lane 0). */
#ifndef GRAPH_EXEC_H
#define GRAPH_EXEC_H

#include "graph/plan.h"

/* Asked by lane 0 between layers whether the step is still wanted. */
struct exec_watch {
    bool (*unwanted)(void *user);
    void *user;
};

/* Runs one step on all lanes of the pool; the output is in plan->output_data. watch may be NULL. False: the step was
 * given up between two layers because nobody wants it any more, and there is no output. */
bool exec_run(struct plan *p, const struct step *s, struct pool *pool, const struct exec_watch *watch);

#endif
