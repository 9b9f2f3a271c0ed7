#include "cmd/bench_machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"

enum { STEP = 128, CHUNK = 2 << 20, AHEAD = 1024, CALIBRATE = 5, PEAK_MS = 200, PEAK_BATCH = 4096 };

/* Sixteen bytes are in every instruction set, and wide enough: memory is the limit, not the loads. */
typedef uint64_t vec ATTR_VECTOR(16);

struct pass {
    struct bench_machine *b;
    enum bench_walk walk;
};

/* The next chunk of the lane's team; NULL: the pass is over. */
static char *take(struct bench_machine *b, const struct lane *l) {
    const int64_t n = (int64_t)(b->lane_bytes / CHUNK) * l->team_size;
    const int64_t i = atomic_fetch_add_explicit(&b->next[l->team].next, 1, memory_order_relaxed);
    return i < n ? b->regions[l->team].base + (size_t)i * CHUNK : NULL;
}

/* Seconds of one job over all chunks. */
static double timed(struct bench_machine *b, lane_fn *fn, void *arg) {
    for (int i = 0; i < b->n_regions; i++) atomic_store_explicit(&b->next[i].next, 0, memory_order_relaxed);
    const int64_t start = clock_ns();
    pool_run(b->pool, fn, arg);
    return (double)(clock_ns() - start) * 1e-9;
}

static inline void add_step(vec acc[8], const char *p) {
    const vec *const v = (const vec *)(const void *)p;
    for (int j = 0; j < 8; j++) acc[j] += v[j];
}

static void walk_plain(vec acc[8], const char *p, size_t n) {
    for (size_t i = 0; i < n; i += STEP) add_step(acc, p + i);
}

/* Reads behind the end are prefetches only. */
static void walk_prefetch(vec acc[8], const char *p, size_t n) {
    for (size_t i = 0; i < n; i += STEP) {
        __builtin_prefetch(p + i + AHEAD);
        __builtin_prefetch(p + i + AHEAD + CACHE_LINE);
        add_step(acc, p + i);
    }
}

static void walk_two(vec acc[8], const char *p, size_t n) {
    for (size_t i = 0; i < n / 2; i += STEP) {
        add_step(acc, p + i);
        add_step(acc, p + n / 2 + i);
    }
}

static void read_lane(const struct lane *l, void *arg) {
    const struct pass *const job = arg;
    static void (*const walks[])(vec *, const char *, size_t) = {walk_plain, walk_prefetch, walk_two};
    vec acc[8] = {{0}};
    for (const char *p; (p = take(job->b, l));) walks[job->walk](acc, p, CHUNK);
    for (int j = 0; j < 8; j++) __asm__ volatile("" : : "m"(acc[j])); /* the sums are used */
}

static double read_with(struct bench_machine *b, enum bench_walk walk) {
    struct pass job = {b, walk};
    return (double)b->bytes / timed(b, read_lane, &job);
}

double bench_machine_read(struct bench_machine *b) { return read_with(b, b->walk); }

static void copy_lane(const struct lane *l, void *arg) {
    const struct bench_machine *const b = arg;
    char *const p = b->regions[l->team].base + (size_t)l->team_lane * b->lane_bytes;
    memcpy(p + b->lane_bytes / 2, p, b->lane_bytes / 2); /* long enough for stores that go past the caches */
}

double bench_machine_copy(struct bench_machine *b) {
    return (double)b->bytes / 2 / timed(b, copy_lane, b);
}

static void touch_lane(const struct lane *l, void *arg) {
    const struct bench_machine *const b = arg;
    memset(b->regions[l->team].base + (size_t)l->team_lane * b->lane_bytes, 1, b->lane_bytes);
}

double bench_machine_median(double *v, int n) {
    CHECK(n > 0);
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && v[j] < v[j - 1]; j--) {
            const double t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

static enum bench_walk fastest_walk(struct bench_machine *b) {
    double rate[BENCH_N_WALKS][CALIBRATE];
    int best = 0;
    for (int i = 0; i < CALIBRATE; i++)
        for (int w = 0; w < BENCH_N_WALKS; w++) rate[w][i] = read_with(b, (enum bench_walk)w);
    double top = 0;
    for (int w = 0; w < BENCH_N_WALKS; w++) {
        const double m = bench_machine_median(rate[w], CALIBRATE);
        if (m > top) top = m, best = w;
    }
    return (enum bench_walk)best;
}

enum err bench_machine_open(struct bench_machine *b, struct pool *pool, const struct topology *t, size_t bytes,
                            struct err_msg *msg) {
    *b = (struct bench_machine){.pool = pool};
    b->lane_bytes = bytes / (size_t)pool_n_lanes(pool) / CHUNK * CHUNK;
    if (b->lane_bytes < CHUNK) b->lane_bytes = CHUNK;
    b->bytes = b->lane_bytes * (size_t)pool_n_lanes(pool);
    for (int i = 0; i < pool_n_teams(pool); i++) {
        const int node = pool_team_node(pool, i);
        const size_t size = b->lane_bytes * (size_t)pool_team_size(pool, i);
        if ((int64_t)size > topology_available(t, node)) {
            bench_machine_close(b);
            return err_set(msg, ERR_NOMEM,
                           "node %d has no %zu MiB free for the bandwidth buffer; use a smaller --buffer",
                           t->nodes[node].os_index, size >> 20);
        }
        const enum err e = region_create(&b->regions[i], "bandwidth buffer", t->nodes[node].os_index, size, msg);
        if (e) {
            bench_machine_close(b);
            return e;
        }
        b->n_regions = i + 1;
    }
    pool_run(pool, touch_lane, b);
    b->walk = fastest_walk(b);
    return ERR_OK;
}

void bench_machine_close(struct bench_machine *b) {
    for (int i = 0; i < b->n_regions; i++) region_destroy(&b->regions[i]);
    *b = (struct bench_machine){0};
}

const char *bench_machine_walk_name(enum bench_walk w) {
    static const char *const names[] = {"one stream", "one stream, prefetched", "two streams"};
    return names[w];
}

/* ---- Arithmetic ---- */

enum peak_kind bench_machine_kind(const struct gemm_kern *g, const struct peak_kern *k) {
    if (g->act == GEMM_ACT_BF16) return k->run[PEAK_DOT16] ? PEAK_DOT16 : PEAK_FMA;
    return g->act != GEMM_ACT_F32 && k->run[PEAK_DOT8] ? PEAK_DOT8 : PEAK_FMA;
}

struct peak_lane {
    double ops;
    int64_t ns;
    char pad[2 * CACHE_LINE - sizeof(double) - sizeof(int64_t)];
};

struct peak_job {
    double (*run)(int64_t rounds);
    struct peak_lane *lanes;
};

/* The clock rises only after a while: the first half does not count. */
static void run_peak(const struct lane *l, void *arg) {
    struct peak_job *const job = arg;
    struct peak_lane *const mine = &job->lanes[l->id];
    pool_barrier(l);
    for (int half = 0; half < 2; half++) {
        double ops = 0;
        const int64_t start = clock_ns();
        int64_t now = start;
        for (; now - start < PEAK_MS * (int64_t)500000; now = clock_ns()) ops += job->run(PEAK_BATCH);
        mine->ops = ops;
        mine->ns = now - start;
    }
}

double bench_machine_peak(struct pool *pool, const struct peak_kern *k, enum peak_kind kind) {
    const int n = pool_n_lanes(pool);
    struct peak_job job = {.run = k->run[kind]};
    double rate = 0;
    if (!job.run) return 0;
    job.lanes = mem_xcalloc((size_t)n, sizeof *job.lanes);
    pool_run(pool, run_peak, &job);
    for (int i = 0; i < n; i++) rate += job.lanes[i].ops / ((double)job.lanes[i].ns * 1e-9);
    mem_free(job.lanes);
    return rate;
}
