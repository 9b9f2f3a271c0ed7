/* What the machine gives: read and copy bandwidth of a large buffer, and the arithmetic rates of the present
 * instruction set, on the lanes and with the placement that the engine uses.
 * Threads: the thread that owns the pool. Owns: the buffer. */
#ifndef CMD_BENCH_MACHINE_H
#define CMD_BENCH_MACHINE_H

#include "ops/op.h"
#include "sys/region.h"
#include "sys/team.h"
#include "tensor/paged.h"

enum { BENCH_PAIRS_MAX = 101 };

/* How a lane walks its share. Which is fastest differs between CPUs; the fastest is what the machine gives. */
enum bench_walk { BENCH_WALK_PLAIN, BENCH_WALK_PREFETCH, BENCH_WALK_TWO, BENCH_N_WALKS };

struct bench_machine {
    struct pool *pool;
    struct region regions[PAGED_TEAMS_MAX]; /* one per team, in proportion to its lanes */
    struct op_counter next[PAGED_TEAMS_MAX]; /* chunks taken by the team in this pass */
    int n_regions;
    size_t lane_bytes;
    size_t bytes; /* of the whole buffer */
    enum bench_walk walk;
};

/* Reserves and touches about `bytes` of memory, each lane its share on its own node, and finds the fastest walk. */
enum err bench_machine_open(struct bench_machine *b, struct pool *pool, const struct topology *t, size_t bytes,
                            struct err_msg *msg) ATTR_NODISCARD;
void bench_machine_close(struct bench_machine *b);

const char *bench_machine_walk_name(enum bench_walk w);

/* One pass over the buffer: bytes per second. Lanes take chunks of their team's part, so that a disturbed lane does not
 * hold up the pass. */
double bench_machine_read(struct bench_machine *b);

/* One half of every lane's share copied to the other: bytes copied per second (each is read and written). */
double bench_machine_copy(struct bench_machine *b);

/* The rate that bounds a matrix kernel. */
enum peak_kind bench_machine_kind(const struct gemm_kern *g, const struct peak_kern *k);

/* Operations per second of all lanes; 0 when the level has no such instruction. */
double bench_machine_peak(struct pool *pool, const struct peak_kern *k, enum peak_kind kind);

/* Median of n values, which it sorts. */
double bench_machine_median(double *v, int n);

#endif
