/* One matrix per format, so large that it comes from memory, and the loop of operator linear over it. */
#include "cmd/bench_kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cmd/args.h"
#include "cmd/bench_machine.h"
#include "ops/op.h"
#include "ops/weight.h"
#include "serve/json_write.h"

enum { ROWS_MAX = 4096, LIST_MAX = 16, CHUNK = 16, SAMPLE_MS = 150, PANEL_ROWS_MAX = 64 };

struct kernel_flags {
    const char *format, *rows;
    int64_t k, weights, buffer;
    int pairs, threads, fake_nodes;
    bool json;
};

struct kernel_bench {
    struct kernel_flags flags;
    struct topology topology;
    struct kern kern;
    struct pool *pool;
    struct bench_machine machine;
    int rows[LIST_MAX], n_rows;
    bool first; /* nothing printed yet */

    /* The matrix of the present format. */
    struct weight w;
    enum dtype type;
    struct region regions[PAGED_TEAMS_MAX];
    int n_regions;

    /* The present number of rows. */
    int m;
    int64_t n_panels[PAGED_TEAMS_MAX]; /* of each team, computed in one pass */
    char *act;
    float *x, *y;
    struct op_counter next[PAGED_TEAMS_MAX];
};

/* ---- Data ---- */

/* Random bytes of which no two can be the top of an infinite or huge number, in any of the formats. */
static void fill_rows(struct rng *r, char *rows, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) rows[i] = (char)(rng_next(r) >> 40 & 0xbf);
}

/* Every lane packs its share of its team's panels, so that pages lie where they are read. */
static void pack_lane(const struct lane *l, void *arg) {
    struct kernel_bench *const b = arg;
    const struct weight *const w = &b->w;
    const int64_t n = w->panel0[l->team + 1] - w->panel0[l->team];
    const int64_t first = n * l->team_lane / l->team_size, end = n * (l->team_lane + 1) / l->team_size;
    struct rng rng = rng_seeded((uint64_t)l->id + 1);
    size_t row_bytes = 0;
    if (!dtype_row_bytes(b->type, w->k, &row_bytes)) return;
    char *const rows = mem_xalloc(row_bytes * (size_t)w->kern->panel);
    fill_rows(&rng, rows, row_bytes * (size_t)w->kern->panel);
    for (int64_t p = first; p < end; p++) weight_pack_panel(w, w->panel0[l->team] + p, rows, row_bytes);
    mem_free(rows);
}

static void drop_matrix(struct kernel_bench *b) {
    for (int i = 0; i < b->n_regions; i++) region_destroy(&b->regions[i]);
    b->n_regions = 0;
}

static enum err make_matrix(struct kernel_bench *b, enum dtype type, struct err_msg *msg) {
    int sizes[PAGED_TEAMS_MAX];
    size_t row_bytes;
    const int n_teams = pool_n_teams(b->pool);
    for (int i = 0; i < n_teams; i++) sizes[i] = pool_team_size(b->pool, i);
    if (!dtype_row_bytes(type, b->flags.k, &row_bytes))
        return err_set(msg, ERR_ARG, "--k %lld is no multiple of the block of %s", (long long)b->flags.k,
                       dtype_info(type)->name);
    const int64_t n = b->flags.weights / (int64_t)row_bytes / PANEL_ROWS_MAX * PANEL_ROWS_MAX + PANEL_ROWS_MAX;
    b->type = type;
    TRY(weight_init(&b->w, dtype_info(type)->name, n, b->flags.k, type, &b->kern, sizes, n_teams, msg));
    for (int i = 0; i < n_teams; i++) {
        const size_t bytes = weight_team_bytes(&b->w, i);
        const int node = b->topology.nodes[pool_team_node(b->pool, i)].os_index;
        TRY(region_create(&b->regions[i], "weights", node, bytes, msg));
        b->n_regions = i + 1;
        b->w.base[i] = b->regions[i].base;
    }
    pool_run(b->pool, pack_lane, b);
    return ERR_OK;
}

/* ---- Measuring ---- */

static void run_lane(const struct lane *l, void *arg) {
    struct kernel_bench *const b = arg;
    const struct weight *const w = &b->w;
    const int64_t n = b->n_panels[l->team], panel = w->kern->panel, ldy = PANEL_ROWS_MAX * CHUNK;
    float *const y = b->y + (int64_t)l->id * ldy * ROWS_MAX;
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&b->next[l->team].next, CHUNK, memory_order_relaxed);
        if (i >= n) return;
        const int64_t end = i + CHUNK < n ? i + CHUNK : n;
        const struct gemm_args a = {.y = y,
                                    .ldy = ldy,
                                    .panels = w->base[l->team] + (size_t)i * w->panel_bytes,
                                    .n_rows = (end - i) * panel,
                                    .act = b->act,
                                    .m = b->m,
                                    .k = w->k};
        w->kern->run(&a);
    }
}

/* Seconds of one pass over the chosen panels. */
static double one_pass(struct kernel_bench *b) {
    for (int i = 0; i < pool_n_teams(b->pool); i++)
        atomic_store_explicit(&b->next[i].next, 0, memory_order_relaxed);
    const int64_t start = clock_ns();
    pool_run(b->pool, run_lane, b);
    return (double)(clock_ns() - start) * 1e-9;
}

/* Panels of one pass: all of them for few rows, for many as few as keep every lane busy. */
static double choose_panels(struct kernel_bench *b) {
    double weights = 0;
    for (int t = 0; t < pool_n_teams(b->pool); t++) {
        const int64_t all = b->w.panel0[t + 1] - b->w.panel0[t];
        const int64_t few = (int64_t)pool_team_size(b->pool, t) * CHUNK * 8 * (64 / b->w.kern->panel);
        b->n_panels[t] = b->m >= 64 && few < all ? few : all;
        weights += (double)(b->n_panels[t] * b->w.kern->panel * b->w.k);
    }
    return weights;
}

static void print_result(struct kernel_bench *b, double gbs, double ratio, double gops, double of_peak) {
    const char *const name = dtype_info(b->type)->name;
    if (b->flags.json)
        printf("%s{\"format\":\"%s\",\"isa\":\"%s\",\"rows\":%d,\"bytes_per_s\":%.6g,\"bandwidth_ratio\":%.6g,"
               "\"ops_per_s\":%.6g,\"arithmetic_ratio\":%.6g}",
               b->first ? "" : ",\n", name, b->w.kern->isa, b->m, gbs * 1e9, ratio, gops * 1e9, of_peak);
    else
        printf("%-8s %-10s %5d %10.2f %8.1f %% %10.1f %8.1f %%\n", name, b->w.kern->isa, b->m, gbs, 100 * ratio, gops,
               100 * of_peak);
    b->first = false;
    fflush(stdout);
}

static void measure_rows(struct kernel_bench *b, int m) {
    double ratio[BENCH_PAIRS_MAX], rate[BENCH_PAIRS_MAX], share[BENCH_PAIRS_MAX];
    const enum peak_kind kind = bench_machine_kind(b->w.kern, &b->kern.peak);
    b->m = m;
    const double weights = choose_panels(b);
    const double bytes = weights * (double)b->w.panel_bytes / (double)(b->w.kern->panel * b->w.k);
    b->w.kern->act_pack(b->act, b->x, b->w.k, m, 0, m, b->w.k);
    (void)one_pass(b);
    for (int i = 0; i < b->flags.pairs; i++) {
        double seconds = 0;
        int n = 0;
        const double read = bench_machine_read(&b->machine), peak = bench_machine_peak(b->pool, &b->kern.peak, kind);
        for (; seconds < SAMPLE_MS * 1e-3; n++) seconds += one_pass(b);
        rate[i] = n / seconds;
        ratio[i] = bytes * rate[i] / read;
        share[i] = 2 * weights * m * rate[i] / peak;
    }
    const double passes = bench_machine_median(rate, b->flags.pairs);
    print_result(b, bytes * passes * 1e-9, bench_machine_median(ratio, b->flags.pairs), 2 * weights * m * passes * 1e-9,
                 bench_machine_median(share, b->flags.pairs));
}

static enum err measure_format(struct kernel_bench *b, enum dtype type, struct err_msg *msg) {
    int most = 1;
    for (int i = 0; i < b->n_rows; i++)
        if (b->rows[i] > most) most = b->rows[i];
    enum err e = make_matrix(b, type, msg);
    size_t bytes = 0;
    for (int m = 1; !e && m <= most; m++)
        if (b->w.kern->act_bytes(m, b->w.k) > bytes) bytes = b->w.kern->act_bytes(m, b->w.k);
    b->act = e ? NULL : mem_alloc_aligned(CACHE_LINE, bytes);
    if (!e && !b->act) e = err_set(msg, ERR_NOMEM, "bench: memory ran out");
    for (int i = 0; !e && i < b->n_rows; i++) measure_rows(b, b->rows[i]);
    mem_free(b->act);
    b->act = NULL;
    drop_matrix(b);
    return e;
}

/* ---- The command ---- */

static enum err parse_rows(struct kernel_bench *b, struct err_msg *msg) {
    for (const char *p = b->flags.rows; *p;) {
        char *end;
        const long n = strtol(p, &end, 10);
        if (end == p || n < 1 || n > ROWS_MAX || (*end && *end != ',') || b->n_rows == LIST_MAX)
            return err_set(msg, ERR_ARG, "--rows wants up to %d numbers of 1 to %d like 1,8,32, not '%s'", LIST_MAX,
                           ROWS_MAX, b->flags.rows);
        b->rows[b->n_rows++] = (int)n;
        p = *end ? end + 1 : end;
    }
    return b->n_rows ? ERR_OK : err_set(msg, ERR_ARG, "--rows is empty");
}

static enum err open_machine(struct kernel_bench *b, struct err_msg *msg) {
    const struct topology_options topo = {.fake_nodes = b->flags.fake_nodes};
    enum cpu_level level;
    TRY(cpu_level_wanted(&level, msg));
    kern_init(&b->kern, level);
    TRY(topology_read(&b->topology, &topo, msg));
    const struct pool_options pool = {
        .n_lanes = b->flags.threads > 0 ? b->flags.threads : topology_default_lanes(&b->topology), .pin = true};
    TRY(pool_create(&b->pool, &b->topology, &pool, msg));
    TRY(bench_machine_open(&b->machine, b->pool, &b->topology, (size_t)b->flags.buffer, msg));
    const size_t lanes = (size_t)pool_n_lanes(b->pool);
    b->x = mem_alloc_aligned(CACHE_LINE, (size_t)ROWS_MAX * (size_t)b->flags.k * sizeof *b->x);
    b->y = mem_alloc_aligned(CACHE_LINE, lanes * PANEL_ROWS_MAX * CHUNK * (size_t)ROWS_MAX * sizeof *b->y);
    if (!b->x || !b->y) return err_set(msg, ERR_NOMEM, "bench: memory ran out");
    struct rng rng = rng_seeded(7);
    for (int64_t i = 0; i < ROWS_MAX * b->flags.k; i++) b->x[i] = rng_f32(&rng);
    return ERR_OK;
}

static enum err measure_all(struct kernel_bench *b, struct err_msg *msg) {
    int n = 0;
    TRY(parse_rows(b, msg));
    TRY(open_machine(b, msg));
    const double read = bench_machine_read(&b->machine) * 1e-9;
    if (b->flags.json) {
        struct strbuf cpu = {0};
        json_write_cstr(&cpu, cpu_model_name());
        printf("{\"cpu\":%s,\"read_bytes_per_s\":%.6g,\"results\":[\n", strbuf_cstr(&cpu), read * 1e9);
        strbuf_deinit(&cpu);
    } else {
        printf("%s, %s, %d lanes; read %.2f GB/s (%s)\n\n%-8s %-10s %5s %10s %10s %10s %10s\n", cpu_model_name(),
               cpu_level_name(b->kern.level), pool_n_lanes(b->pool), read, bench_machine_walk_name(b->machine.walk),
               "format", "kernel", "rows", "GB/s", "of read", "GOPS", "of rate");
    }
    for (int t = 0; t < DTYPE_N; t++) {
        enum gemm_format f;
        if (!weight_format((enum dtype)t, &f)) continue;
        if (!args_listed(b->flags.format, dtype_info((enum dtype)t)->name)) continue;
        TRY(measure_format(b, (enum dtype)t, msg));
        n++;
    }
    if (n == 0) return err_set(msg, ERR_ARG, "--format %s: no such format has kernels", b->flags.format);
    if (b->flags.json) puts("\n]}");
    return ERR_OK;
}

static void close_all(struct kernel_bench *b) {
    drop_matrix(b);
    bench_machine_close(&b->machine);
    if (b->pool) pool_destroy(b->pool);
    topology_deinit(&b->topology);
    mem_free(b->x);
    mem_free(b->y);
    mem_free(b);
}

// clang-format off
#define FIELD(f) offsetof(struct kernel_flags, f)
static const struct arg_def defs[] = {
    {"format", "-f", ARG_STRING, FIELD(format), NULL, 0, 0, 0, "LIST", "weight formats: q8_0,q4_0 (all)", false},
    {"rows", "-m", ARG_STRING, FIELD(rows), NULL, 0, 0, 0, "LIST", "rows of activations (1,8,32,512)", false},
    {"k", "-k", ARG_COUNT, FIELD(k), NULL, 256, 1 << 20, 0, "N", "inputs of the matrix (2048)", false},
    {"weights", NULL, ARG_SIZE, FIELD(weights), NULL, 1 << 20, 1e15, 0, "SIZE", "bytes of the matrix (256MiB)", false},
    {"pairs", NULL, ARG_INT, FIELD(pairs), NULL, 1, BENCH_PAIRS_MAX, 0, "N", "samples, each behind a read (5)", false},
    {"buffer", NULL, ARG_SIZE, FIELD(buffer), NULL, 1 << 20, 1e15, 0, "SIZE", "memory whose read is timed (2GiB)", false},
    {"threads", "-t", ARG_INT, FIELD(threads), NULL, 1, 4096, 0, "N", "lanes (usable physical cores)", false},
    {"fake-nodes", NULL, ARG_INT, FIELD(fake_nodes), NULL, 1, PAGED_TEAMS_MAX, 0, "N", "split the machine into N logical nodes", true},
    {"json", NULL, ARG_FLAG, FIELD(json), NULL, 0, 0, 0, NULL, "JSON on stdout", false},
};
// clang-format on

int bench_kernel_main(int argc, char **argv) {
    struct err_msg msg = {{0}};
    struct kernel_bench *const b = mem_xcalloc(1, sizeof *b);
    b->first = true;
    b->flags = (struct kernel_flags){.format = "all", .rows = "1,8,32,512", .k = 2048, .weights = 256 << 20,
                                     .buffer = (int64_t)2 << 30, .pairs = 5};
    const struct arg_group group = {"measurement", defs, N_ELEMENTS(defs), &b->flags};
    struct args a = {.groups = &group, .n_groups = 1};
    enum err e = args_parse(&a, argc, argv, &msg);
    if (a.help && !e) args_print_help(&a, stdout, "xenon bench kernel [flags]", true);
    else if (!e) e = measure_all(b, &msg);
    if (e) fprintf(stderr, "xenon bench kernel: %s\n", msg.text);
    close_all(b);
    return e == ERR_ARG ? 2 : e ? 1 : 0;
}
