#include "graph/exec.h"

struct exec_job {
    const struct plan *plan;
    const struct step *step;
};

static void exec_lane(const struct lane *l, void *arg) {
    const struct exec_job *const job = arg;
    const struct plan *const p = job->plan;
    const bool single = job->step->n_tokens == 1;
    for (size_t i = 0; i < p->n_tape; i++) {
        const struct plan_entry *const e = &p->tape[i];
        if (e->before == PLAN_BARRIER_ALWAYS || (e->before == PLAN_BARRIER_ROWS && !single)) pool_barrier(l);
        e->call->t->op->run(e->call, job->step, l, e->phase);
    }
}

void exec_run(struct plan *p, const struct step *s, struct pool *pool) {
    for (size_t i = 0; i < p->n_counters; i++)
        atomic_store_explicit(&p->counters[i].next, 0, memory_order_relaxed);
    for (size_t i = 0; i < p->n_calls; i++) {
        const struct op *const op = p->calls[i].t->op;
        if (op->prepare) op->prepare(&p->calls[i], s, pool_n_lanes(pool));
    }
    struct exec_job job = {.plan = p, .step = s};
    pool_run(pool, exec_lane, &job);
}
