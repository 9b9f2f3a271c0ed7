#include "graph/exec.h"

#include "base/clock.h"
#include "graph/ledger.h"

struct exec_job {
    const struct plan *plan;
    const struct step *step;
    const struct exec_watch *watch; /* or NULL */
    bool given_up;                  /* written by lane 0 before a barrier, read by all behind it */
};

static bool meets(const struct plan_entry *e, bool single) {
    return e->before == PLAN_BARRIER_ALWAYS || (e->before == PLAN_BARRIER_ROWS && !single);
}

/* Whether this is where a layer's attention begins: all lanes meet there, once per layer. */
static bool is_layer(const struct plan_entry *e) {
    return e->before == PLAN_BARRIER_ALWAYS && e->phase == 0 && e->call->t->op == &op_attn;
}

/* Meets the others before entry e. False: the step is given up; all lanes see the same answer, since lane 0 writes it
 * only before the barrier of a layer and nobody passes the next barrier without it. */
static bool meet(struct exec_job *job, const struct plan_entry *e, const struct lane *l) {
    const bool asked = job->watch && is_layer(e);
    if (asked && l->id == 0) job->given_up = job->watch->unwanted(job->watch->user);
    pool_barrier(l);
    return !asked || !job->given_up;
}

static void exec_lane(const struct lane *l, void *arg) {
    struct exec_job *const job = arg;
    const struct plan *const p = job->plan;
    const bool single = job->step->n_tokens == 1;
    for (size_t i = 0; i < p->n_tape; i++) {
        const struct plan_entry *const e = &p->tape[i];
        if (meets(e, single) && !meet(job, e, l)) return;
        e->call->t->op->run(e->call, job->step, l, e->phase);
    }
}

/* The same walk with a clock. */
static void exec_lane_timed(const struct lane *l, void *arg) {
    struct exec_job *const job = arg;
    const struct plan *const p = job->plan;
    const bool single = job->step->n_tokens == 1;
    struct ledger_lane *const mine = &p->ledger->lanes[l->id];
    ledger_begin(mine, clock_ns());
    for (size_t i = 0; i < p->n_tape; i++) {
        const struct plan_entry *const e = &p->tape[i];
        if (meets(e, single)) {
            const bool wanted = meet(job, e, l);
            ledger_met(mine, i ? i - 1 : 0, clock_ns());
            if (!wanted) return;
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

bool exec_run(struct plan *p, const struct step *s, struct pool *pool, const struct exec_watch *watch) {
    struct exec_job job = {.plan = p, .step = s, .watch = watch};
    if (!p->ledger) {
        prepare(p, s, pool_n_lanes(pool));
        pool_run(pool, exec_lane, &job);
        return !job.given_up;
    }
    ledger_begin_step(p->ledger, s);
    const int64_t start = clock_ns();
    prepare(p, s, pool_n_lanes(pool));
    const int64_t lanes = clock_ns();
    pool_run(pool, exec_lane_timed, &job);
    ledger_end_step(p->ledger, start, lanes, clock_ns());
    return !job.given_up;
}
