/* The ledger of an executor: where the time of steps goes. Attached to a plan (plan.ledger), it is filled by
 * exec_run: per lane and entry of the tape the time inside the operator and the time waiting behind it, and the
 * bytes of weights and cache that each operator had to read.
 *
 * A step of a lane is its start, then for each entry its run and its wait, so that
 *     start + sum(run) + sum(wait) = the step without its preparation
 * holds for every lane. The wait at a barrier counts for the entry in front of it; the wait for the end of the step for
 * the last.
 *
 * With room for events every operator of every lane is kept with its times, for a timeline.
 *
 * Threads: each lane writes its own part between barriers; everything else by the engine thread between steps. Owns:
 * its tables. */
#ifndef GRAPH_LEDGER_H
#define GRAPH_LEDGER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/op.h"

struct plan;

enum { LEDGER_LABEL_MAX = 64 };

struct ledger_cell {
    int64_t run_ns, wait_ns;
};

struct ledger_event {
    int64_t start_ns; /* monotonic clock */
    int64_t run_ns;
    int32_t entry;    /* of the tape */
    int32_t step;     /* n_steps when it ran */
};

/* One lane's part, on its own cache lines. */
struct ledger_lane {
    struct ledger_cell *cells; /* [n_tape] */
    struct ledger_event *events;
    size_t n_events;
    int64_t start_ns, end_ns;  /* clock of the present step: first and last moment of the lane */
    int64_t late_ns;           /* sum of starts: from the step's start to the lane's */
    int64_t n_barriers;
    char pad[2 * CACHE_LINE - 2 * sizeof(void *) - sizeof(size_t) - 4 * sizeof(int64_t)];
};

struct ledger {
    const struct plan *plan;
    int n_lanes;
    size_t cap_events;         /* of each lane */
    struct ledger_lane *lanes; /* [n_lanes] */
    int64_t *bytes;            /* [n_tape] read by entries */
    int64_t n_steps;
    int64_t prepare_ns;        /* what the engine thread did before the lanes started */
    int64_t step_ns;           /* the whole: prepare and lanes */
};

/* For a plan that outlives it. cap_events: operators kept per lane, 0: none. Not yet attached. */
enum err ledger_create(struct ledger *k, const struct plan *p, int n_lanes, size_t cap_events,
                       struct err_msg *msg) ATTR_NODISCARD;
void ledger_destroy(struct ledger *k);

/* Forgets everything counted. */
void ledger_reset(struct ledger *k);

/* ---- Written by exec_run ---- */

/* Counts the bytes of a step that is about to begin; not part of its time. */
void ledger_begin_step(struct ledger *k, const struct step *s);

static inline void ledger_begin(struct ledger_lane *l, int64_t now_ns) { l->start_ns = l->end_ns = now_ns; }

/* The lane has met the others; it waited since its last moment. */
static inline void ledger_met(struct ledger_lane *l, size_t before, int64_t now_ns) {
    l->cells[before].wait_ns += now_ns - l->end_ns;
    l->end_ns = now_ns;
    l->n_barriers++;
}

/* The lane has done an entry that began at its last moment. */
static inline void ledger_ran(struct ledger *k, struct ledger_lane *l, size_t entry, int64_t now_ns) {
    l->cells[entry].run_ns += now_ns - l->end_ns;
    if (l->n_events < k->cap_events)
        l->events[l->n_events++] =
            (struct ledger_event){l->end_ns, now_ns - l->end_ns, (int32_t)entry, (int32_t)k->n_steps};
    l->end_ns = now_ns;
}

/* All lanes are done. The step began at start_ns, and its lanes were started at lanes_ns. */
void ledger_end_step(struct ledger *k, int64_t start_ns, int64_t lanes_ns, int64_t now_ns);

/* ---- Read between steps ---- */

/* Bytes that an operator has to read in a step: weights in their file's format (packed weights take the same but for
 * padding), keys and values of all positions that the rows see, once each. */
int64_t ledger_call_bytes(const struct tensor *t, const struct step *s);

/* What a node is called in reports: operator and, for a matrix, its name without the layer, "linear mlp.down_proj". */
void ledger_label(const struct tensor *t, char out[LEDGER_LABEL_MAX]);

/* All entries of equal label together, per step. */
struct ledger_row {
    char label[LEDGER_LABEL_MAX];
    int n_calls;           /* nodes of the graph */
    double run_ns;         /* mean over the lanes */
    double run_max_ns;     /* of the lane that worked longest in it */
    double wait_ns;        /* mean over the lanes */
    double bytes;
};

/* Writes at most cap rows, longest (run + wait) first; returns how many there are. */
size_t ledger_rows(const struct ledger *k, struct ledger_row *rows, size_t cap);

#endif
