#include "graph/exec.h"

#include "base/clock.h"
#include "graph/ledger.h"

struct exec_job {
    const struct plan *plan;
    const struct step *step;
};

static bool meets(const struct plan_entry *e, bool single) {
    return e->before == PLAN_BARRIER_ALWAYS || (e->before == PLAN_BARRIER_ROWS && !single);
}

static void exec_lane(const struct lane *l, void *arg) {
    const struct exec_job *const job = arg;
    const struct plan *const p = job->plan;
    const bool single = job->step->n_tokens == 1;
    for (size_t i = 0; i < p->n_tape; i++) {
        const struct plan_entry *const e = &p->tape[i];
        if (meets(e, single)) pool_barrier(l);
        e->call->t->op->run(e->call, job->step, l, e->phase);
    }
}

/* The same walk with a clock. */
static void exec_lane_timed(const struct lane *l, void *arg) {
    const struct exec_job *const job = arg;
    const struct plan *const p = job->plan;
    const bool single = job->step->n_tokens == 1;
    struct ledger_lane *const mine = &p->ledger->lanes[l->id];
    ledger_begin(mine, clock_ns());
    for (size_t i = 0; i < p->n_tape; i++) {
        const struct plan_entry *const e = &p->tape[i];
        if (meets(e, single)) {
            pool_barrier(l);
            ledger_met(mine, i ? i - 1 : 0, clock_ns());
        }
        e->call->t->op->run(e->call, job->step, l, e->phase);
        ledger_ran(p->ledger, mine, i, clock_ns());
    }
}

static void prepare(struct plan *p, const struct step *s, int n_lanes) {
    for (size_t i = 0; i < p->n_counters; i++)
        atomic_store_explicit(&p->counters[i].next, 0, memory_order_relaxed);
    for (size_t i = 0; i < p->n_calls; i++) {
        const struct op *const op = p->calls[i].t->op;
        if (op->prepare) op->prepare(&p->calls[i], s, n_lanes);
    }
}

void exec_run(struct plan *p, const struct step *s, struct pool *pool) {
    struct exec_job job = {.plan = p, .step = s};
    if (!p->ledger) {
        prepare(p, s, pool_n_lanes(pool));
        pool_run(pool, exec_lane, &job);
        return;
    }
    const int64_t start = clock_ns();
    prepare(p, s, pool_n_lanes(pool));
    ledger_prepared(p->ledger, s, start, clock_ns());
    const int64_t lanes = clock_ns();
    pool_run(pool, exec_lane_timed, &job);
    ledger_finished(p->ledger, start, lanes, clock_ns());
}
