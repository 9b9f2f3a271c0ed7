/* Pinned lanes and their barriers.
 *
 * Everything waits on words with one writer each. A word is value << 2 | IDLE | SLEEP: the writer replaces it by an
 * exchange, waiters may only set SLEEP before they sleep on it, so the exchange tells the writer whether anybody has
 * to be woken; lane 0 may set IDLE to end the spinning. Values only grow (modulo 2^30) and are compared as distances.
 *
 *   arrive[lane]  written by the lane, watched by its parent in the team's tree (fan-in 8, lane 0 of a team at the
 *                 root). Value: gathers of this team so far.
 *   release[team] written by the team's leader, watched by the team: end of a local barrier. Value: the same count.
 *   meet[team]    written by the team's leader, watched by lane 0. Value: global gathers so far.
 *   go[team]      written by lane 0, watched by the team: end of a global barrier, or start of a job. Value: the same.
 *
 * Teams may differ in their number of local barriers, which is why local and global counts are apart. A job is a
 * global barrier cut in two: lanes gather at its end, and the go word of the next job releases them.
 *
 *      lane 0:  go(1) fn  gather(2) return to caller ...  go(2) fn gather(3)
 *      others:  wait 1 fn arrive(2) wait 2 .............  fn arrive(3)
 */
#include "sys/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/region.h"
#include "sys/thread.h"

enum {
    FAN_IN = 8,
    LANES_MAX = 4096,
    SPIN_US_DEFAULT = 50,
    POLLS_PER_CLOCK = 64,  /* polls between two looks at the clock: well under 5 us on any CPU */
    YIELDS_CROWDED = 2,    /* how often a waiter lets others run before it sleeps, when lanes outnumber CPUs */
    WORD_SLEEP = 1,
    WORD_IDLE = 2,
    WORD_SHIFT = 2,
};

/* Two cache lines, because CPUs fetch the neighbour of a missing line along. */
struct word {
    ATTR_ALIGNED(2 * CACHE_LINE) _Atomic uint32_t w;
};

struct lane_state {
    struct word arrive;
    ATTR_ALIGNED(2 * CACHE_LINE) struct lane lane; /* from here on private to the lane */
    uint32_t n_gathers;                            /* of its team */
    uint32_t n_globals;
    int cpu;                                       /* pinned to, -1: roams */
    pthread_t thread;
};

struct team_state {
    struct word release, meet, go;
    struct region memory; /* holds this struct and its lanes' */
    struct lane_state *lanes;
    int size, node;
};

struct mask {
    cpu_set_t sets[8]; /* 8192 CPUs */
};

struct pool {
    /* Written by lane 0 before go, read by the others after it. */
    lane_fn *fn;
    void *arg;
    bool quit;

    /* Constant once the workers run. */
    int n_lanes, n_teams;
    int64_t spin_ns;
    struct team_state **teams;
    struct lane_state **lanes; /* by lane id */
    int n_started;             /* workers that exist */
    bool restore;              /* the caller's mask was changed */
    struct mask old_mask;
};

static inline void cpu_pause(void) {
#if defined(__x86_64__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

static void futex(_Atomic uint32_t *w, int op, uint32_t value) {
    (void)syscall(SYS_futex, w, op, value, NULL, NULL, 0); /* the words say what happened */
}

static void word_set(struct word *word, uint32_t value) {
    /* Release: pairs with the loads in word_wait. Acquire: only keeps the sleeper's mark ordered with the wake-up. */
    const uint32_t old = atomic_exchange_explicit(&word->w, value << WORD_SHIFT, memory_order_acq_rel);
    if (UNLIKELY(old & WORD_SLEEP)) futex(&word->w, FUTEX_WAKE_PRIVATE, INT_MAX);
}

/* Has the word reached value? Distances are modulo 2^30; the flags sit below and cannot change the sign. */
static inline bool reached(uint32_t w, uint32_t value) { return (int32_t)(w - (value << WORD_SHIFT)) >= 0; }

/* Sleeps until the word has reached value. */
static ATTR_NOINLINE void word_sleep(struct word *word, uint32_t value) {
    uint32_t w = atomic_load_explicit(&word->w, memory_order_acquire); /* pairs with word_set */
    while (!reached(w, value)) {
        /* If the mark cannot be set, the word has just changed: look again. Pairs with word_set. */
        if (!(w & WORD_SLEEP) && !atomic_compare_exchange_strong_explicit(&word->w, &w, w | WORD_SLEEP,
                                                                          memory_order_acquire, memory_order_acquire))
            continue;
        futex(&word->w, FUTEX_WAIT_PRIVATE, w | WORD_SLEEP);
        w = atomic_load_explicit(&word->w, memory_order_acquire); /* pairs with word_set */
    }
}

/* Waits until the word has reached value: spins for the budget, then sleeps. */
static void word_wait(struct word *word, uint32_t value, int64_t spin_ns) {
    int64_t start = 0;
    for (int round = 0;; round++) {
        for (int i = 0; i < POLLS_PER_CLOCK; i++) {
            const uint32_t w = atomic_load_explicit(&word->w, memory_order_acquire); /* pairs with word_set */
            if (LIKELY(reached(w, value))) return;
            if (w & WORD_IDLE) goto sleep;
            /* When lanes outnumber CPUs, the lane we wait for needs ours. */
            if (spin_ns == 0) break;
            cpu_pause();
        }
        if (spin_ns == 0) {
            if (round == YIELDS_CROWDED) break;
            sched_yield();
            continue;
        }
        const int64_t now = clock_ns();
        if (round == 0) start = now;
        if (now - start >= spin_ns) break;
    }
sleep:
    word_sleep(word, value);
}

/* Waits for the lane's children in the team's tree. */
static void gather_children(struct pool *p, struct team_state *team, const struct lane_state *s) {
    const int first = s->lane.team_lane * FAN_IN + 1;
    const int end = first + FAN_IN < team->size ? first + FAN_IN : team->size;
    for (int i = first; i < end; i++) word_wait(&team->lanes[i].arrive, s->n_gathers, p->spin_ns);
}

/* The first half of a barrier within the team; returns behind it only at the leader. */
static void gather_team(struct pool *p, struct team_state *team, struct lane_state *s) {
    s->n_gathers++;
    gather_children(p, team, s);
    if (s->lane.team_lane > 0) word_set(&s->arrive, s->n_gathers);
}

/* The first half of a global barrier; lane 0 returns when everybody has arrived. */
static void gather_all(struct pool *p, struct lane_state *s) {
    struct team_state *const team = p->teams[s->lane.team];
    s->n_globals++;
    if (team->size > 1) gather_team(p, team, s);
    if (s->lane.team_lane > 0) return;
    if (s->lane.id > 0) {
        word_set(&team->meet, s->n_globals);
        return;
    }
    for (int i = 1; i < p->n_teams; i++) word_wait(&p->teams[i]->meet, s->n_globals, p->spin_ns);
}

/* The second half: lane 0 lets every team go, far ones first since their lines take longer to arrive. */
static void release_all(struct pool *p, const struct lane_state *s) {
    for (int i = p->n_teams - 1; i >= 0; i--)
        if (i > 0 || p->teams[0]->size > 1) word_set(&p->teams[i]->go, s->n_globals);
}

void team_barrier(const struct lane *lane) {
    if (lane->team_size == 1) return;
    struct pool *const p = lane->pool;
    struct lane_state *const s = p->lanes[lane->id];
    struct team_state *const team = p->teams[lane->team];
    gather_team(p, team, s);
    if (lane->team_lane == 0) word_set(&team->release, s->n_gathers);
    else word_wait(&team->release, s->n_gathers, p->spin_ns);
}

void pool_barrier(const struct lane *lane) {
    if (lane->n_lanes == 1) return;
    struct pool *const p = lane->pool;
    struct lane_state *const s = p->lanes[lane->id];
    gather_all(p, s);
    if (lane->id == 0) release_all(p, s);
    else word_wait(&p->teams[lane->team]->go, s->n_globals, p->spin_ns);
}

void pool_run(struct pool *p, lane_fn *fn, void *arg) {
    struct lane_state *const s = p->lanes[0];
    p->fn = fn;
    p->arg = arg;
    release_all(p, s); /* ends the gather of the last job */
    fn(&s->lane, arg);
    gather_all(p, s);
}

void pool_idle(struct pool *p) {
    for (int i = 0; i < p->n_teams; i++) /* relaxed: a hint, carries no data */
        atomic_fetch_or_explicit(&p->teams[i]->go.w, WORD_IDLE, memory_order_relaxed);
}

static bool mask_get(struct mask *m) {
    CPU_ZERO_S(sizeof *m, m->sets);
    return sched_getaffinity(0, sizeof *m, m->sets) == 0;
}

static void pin_self(const struct lane_state *s) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    struct mask m;
    if (s->cpu < 0 || (size_t)s->cpu >= 8 * sizeof m) return;
    CPU_ZERO_S(sizeof m, m.sets);
    CPU_SET_S((size_t)s->cpu, sizeof m, m.sets);
    if (sched_setaffinity(0, sizeof m, m.sets) == 0) return;
    if (atomic_flag_test_and_set_explicit(&warned, memory_order_relaxed)) return; /* once per process is enough */
    log_warn("sys", "cannot pin lane %d to CPU %d (%s): lanes roam, speed may vary", s->lane.id, s->cpu,
             strerror(errno));
}

static void *worker(void *arg) {
    struct lane_state *const s = arg;
    struct pool *const p = s->lane.pool;
    struct team_state *const team = p->teams[s->lane.team];
    pin_self(s);
    for (;;) {
        word_wait(&team->go, s->n_globals, p->spin_ns);
        if (p->quit) return NULL;
        p->fn(&s->lane, p->arg);
        gather_all(p, s);
    }
}

/* How many lanes each of the n teams gets: one each, then always to the team with the fewest lanes per core. */
static void share_lanes(const struct topology *t, int n_lanes, int n_teams, int *sizes) {
    for (int i = 0; i < n_teams; i++) sizes[i] = 1;
    for (int left = n_lanes - n_teams; left > 0; left--) {
        int best = 0;
        for (int i = 1; i < n_teams; i++)
            if ((int64_t)(sizes[i] + 1) * t->nodes[best].n_cores < (int64_t)(sizes[best] + 1) * t->nodes[i].n_cores)
                best = i;
        sizes[best]++;
    }
}

/* The team's words and lanes live in memory of its node; lane 0 writes them, so the binding decides where. */
static enum err team_create(struct pool *p, const struct topology *t, int index, int first_id, int size,
                            struct err_msg *msg) {
    struct region r;
    const int os_node = t->nodes[index].os_index;
    const size_t bytes = sizeof(struct team_state) + (size_t)size * sizeof(struct lane_state) + CACHE_LINE * 2;
    TRY(region_create(&r, "the state of a team", os_node, bytes, msg));
    struct team_state *const team = region_alloc(&r, sizeof *team, 2 * CACHE_LINE);
    struct lane_state *const lanes = region_alloc(&r, (size_t)size * sizeof *lanes, 2 * CACHE_LINE);
    CHECK(team && lanes);
    team->memory = r;
    team->lanes = lanes;
    team->size = size;
    team->node = index;
    p->teams[index] = team;
    for (int i = 0; i < size; i++) {
        lanes[i].lane = (struct lane){.id = first_id + i, .n_lanes = p->n_lanes, .team = index, .n_teams = p->n_teams,
                                      .team_lane = i, .team_size = size, .pool = p};
        /* Lane 0 has not waited for go(1) as the workers do; both stand before their first job. */
        lanes[i].n_globals = 1;
        lanes[i].cpu = -1;
        p->lanes[first_id + i] = &lanes[i];
    }
    return ERR_OK;
}

/* Gives each lane a CPU of its node. A lane that would share a CPU with an earlier one roams instead, so that the
 * system can place it on a sibling thread or wherever there is room. */
static void assign_cpus(struct pool *p, const struct topology *t) {
    struct mask taken;
    CPU_ZERO_S(sizeof taken, taken.sets);
    for (int i = 0; i < p->n_lanes; i++) {
        struct lane_state *const s = p->lanes[i];
        const struct topology_node *const node = &t->nodes[s->lane.team];
        if (s->lane.team_lane >= node->n_cores) continue;
        const int cpu = node->cpus[s->lane.team_lane];
        if (cpu < 0 || (size_t)cpu >= 8 * sizeof taken || CPU_ISSET_S((size_t)cpu, sizeof taken, taken.sets)) continue;
        CPU_SET_S((size_t)cpu, sizeof taken, taken.sets);
        s->cpu = cpu;
    }
}

static enum err start_workers(struct pool *p, struct err_msg *msg) {
    for (int i = 1; i < p->n_lanes; i++) {
        char name[16]; /* the kernel's limit, of which "lane 4095" stays short */
        snprintf(name, sizeof name, "lane %u", (unsigned)i % LANES_MAX);
        const enum err e = thread_start(&p->lanes[i]->thread, name, worker, p->lanes[i], msg);
        if (e) return err_prefix(msg, e, "%d of %d lanes run; use fewer threads", i, p->n_lanes);
        p->n_started++;
    }
    return ERR_OK;
}

static int64_t spin_budget_ns(const struct topology *t, const struct pool_options *opt) {
    int usable = t->n_cpus;
    if (t->cpus_limit > 0 && t->cpus_limit < usable) usable = t->cpus_limit;
    if (opt->n_lanes > usable || opt->n_lanes == 1) return 0;
    return (opt->spin_us > 0 ? opt->spin_us : SPIN_US_DEFAULT) * (int64_t)1000;
}

static enum err build(struct pool *p, const struct topology *t, const struct pool_options *opt, struct err_msg *msg) {
    int sizes[TOPOLOGY_NODES_MAX];
    p->n_lanes = opt->n_lanes;
    p->n_teams = t->n_nodes < opt->n_lanes ? t->n_nodes : opt->n_lanes;
    p->spin_ns = spin_budget_ns(t, opt);
    p->teams = mem_calloc((size_t)p->n_teams, sizeof(struct team_state *));
    p->lanes = mem_calloc((size_t)p->n_lanes, sizeof(struct lane_state *));
    if (!p->teams || !p->lanes) return err_set(msg, ERR_NOMEM, "no memory for a pool of %d threads", opt->n_lanes);
    share_lanes(t, p->n_lanes, p->n_teams, sizes);
    for (int i = 0, id = 0; i < p->n_teams; id += sizes[i++]) TRY(team_create(p, t, i, id, sizes[i], msg));
    if (opt->pin) assign_cpus(p, t);
    TRY(start_workers(p, msg));
    if (p->lanes[0]->cpu < 0 || !mask_get(&p->old_mask)) return ERR_OK;
    /* Last, so that workers without a CPU of their own inherit the wide mask. */
    p->restore = true;
    pin_self(p->lanes[0]);
    return ERR_OK;
}

enum err pool_create(struct pool **out, const struct topology *t, const struct pool_options *opt,
                     struct err_msg *msg) {
    *out = NULL;
    if (opt->n_lanes < 1 || opt->n_lanes > LANES_MAX)
        return err_set(msg, ERR_ARG, "%d threads: must be 1 to %d", opt->n_lanes, LANES_MAX);
    CHECK(t->n_nodes >= 1);
    struct pool *const p = mem_calloc(1, sizeof *p);
    if (!p) return err_set(msg, ERR_NOMEM, "no memory for a pool of %d threads", opt->n_lanes);
    const enum err e = build(p, t, opt, msg);
    if (e != ERR_OK) {
        pool_destroy(p);
        return e;
    }
    *out = p;
    return ERR_OK;
}

void pool_destroy(struct pool *p) {
    if (!p) return;
    p->quit = true;
    if (p->n_started > 0) release_all(p, p->lanes[0]);
    for (int i = 1; i <= p->n_started; i++) pthread_join(p->lanes[i]->thread, NULL);
    if (p->restore) (void)sched_setaffinity(0, sizeof p->old_mask, p->old_mask.sets);
    for (int i = 0; p->teams && i < p->n_teams; i++) {
        if (!p->teams[i]) continue;
        struct region r = p->teams[i]->memory; /* the team lies inside the region that it describes */
        region_destroy(&r);
    }
    mem_free(p->lanes);
    mem_free(p->teams);
    mem_free(p);
}

int pool_n_lanes(const struct pool *p) { return p->n_lanes; }

int pool_n_teams(const struct pool *p) { return p->n_teams; }

int pool_team_size(const struct pool *p, int team) {
    CHECK(team >= 0 && team < p->n_teams);
    return p->teams[team]->size;
}

int pool_team_node(const struct pool *p, int team) {
    CHECK(team >= 0 && team < p->n_teams);
    return p->teams[team]->node;
}
