/* Teams of pinned lanes: one team per NUMA node, one pool over them. The thread that calls pool_run is lane 0 of
 * team 0; the others are persistent workers.
 *
 * A job is one function that every lane runs to its end. Inside a job lanes meet at barriers: local (lanes of a
 * team) and global (all lanes: each team gathers at its leader, the leaders meet, then release words homed on each
 * node). Waiters spin for a budget, then sleep on a futex, so that more lanes than CPUs still work.
 *
 * Threads: pool_run by one thread at a time, always the same. Owns: the workers. */
#ifndef SYS_TEAM_H
#define SYS_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/err.h"
#include "sys/topology.h"

struct pool; /* opaque */

struct lane {
    int id, n_lanes;             /* 0 .. n_lanes-1 over the pool */
    int team, n_teams;           /* its team */
    int team_lane, team_size;    /* 0 .. team_size-1 within the team */
    struct pool *pool;
};

typedef void lane_fn(const struct lane *lane, void *arg);

struct pool_options {
    int n_lanes;      /* >= 1; spread over the nodes in proportion to their cores, at least one each while they last */
    bool pin;         /* bind each lane to its CPU; lane 0 (the caller) as well, until pool_destroy */
    int spin_us;      /* budget before sleeping; 0: choose (no spinning when lanes outnumber CPUs) */
};

/* Starts n_lanes - 1 workers. t must outlive the pool. */
enum err pool_create(struct pool **out, const struct topology *t, const struct pool_options *opt,
                     struct err_msg *msg) ATTR_NODISCARD;
void pool_destroy(struct pool *p);

int pool_n_lanes(const struct pool *p);
int pool_n_teams(const struct pool *p);
int pool_team_size(const struct pool *p, int team);
int pool_team_node(const struct pool *p, int team); /* index into topology.nodes */

/* Runs fn on every lane and returns when all have returned. */
void pool_run(struct pool *p, lane_fn *fn, void *arg);

/* Every lane of the lane's team / of the pool must call it. Memory written before is visible after. */
void team_barrier(const struct lane *lane);
void pool_barrier(const struct lane *lane);

/* Between bursts of jobs workers keep spinning for the budget; this lets them sleep at once. */
void pool_idle(struct pool *p);

#endif
