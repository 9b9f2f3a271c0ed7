/* The plan: every buffer has its place, every operator its kernels, and lanes know where to meet. Made once per graph.
 *
 * Level 0   a buffer per node, a barrier after every node: the debugging reference. Every value can be read afterwards.
 * Level 1   buffers share memory by lifetime; a barrier only where lanes would read what another lane has not written.
 * Both compute the same bits.
 *
 * Threads: made by the engine thread, then read by all lanes. Owns: the activation region and the tape. */
#ifndef GRAPH_PLAN_H
#define GRAPH_PLAN_H

#include "graph/build.h"
#include "sys/region.h"

struct ledger;

enum { PLAN_LEVEL_MAX = 1 };

enum plan_barrier {
    PLAN_BARRIER_NONE,
    PLAN_BARRIER_ROWS, /* needed when the step has more than one row */
    PLAN_BARRIER_ALWAYS,
};

/* One phase of one operator. */
struct plan_entry {
    const struct op_call *call;
    int phase;
    enum plan_barrier before;
};

struct plan {
    int level;
    struct plan_entry *tape;
    size_t n_tape;
    struct op_call *calls; /* [n_calls] in order of execution */
    size_t n_calls;
    struct op_counter *counters; /* [n_calls][OP_PHASES_MAX][n_teams] */
    size_t n_counters;
    struct region region; /* activations and scratch */
    size_t bytes_planned; /* what the buffers take */
    size_t bytes_apart;   /* what they would take without sharing */
    size_t bytes_scratch;
    const struct tensor *output;
    float *output_data;
    struct ledger *ledger; /* counts the time of steps (graph/ledger.h); NULL: not counted. Borrowed */
};

/* The graph must have been lowered for the same level and must outlive the plan. os_node: where activations live (-1:
 * anywhere). */
enum err plan_make(struct plan *p, const struct graph *g, const struct op_limits *lim, int level, int os_node,
                   struct err_msg *msg) ATTR_NODISCARD;
void plan_deinit(struct plan *p);

/* The rows of a named value after a step; only for level 0. NULL: no such name. *t (may be NULL): its header. */
const float *plan_value(const struct plan *p, const char *name, const struct tensor **t);

#endif
