/* Execution of a plan: every lane walks the tape. No allocation, no failure.
 * Threads: exec_run by the engine thread (lane 0). */
#ifndef GRAPH_EXEC_H
#define GRAPH_EXEC_H

#include "graph/plan.h"

/* Runs one step on all lanes of the pool and returns when it is done; the output is in plan->output_data. */
void exec_run(struct plan *p, const struct step *s, struct pool *pool);

#endif
