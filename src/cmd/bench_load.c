/* The model comes first, because the peak of a process's memory never falls; then one matrix per format, packed from
 * memory to memory by all lanes, each sample right behind a copy by the same lanes. Both are counted in bytes read and
 * written. */
#include "cmd/bench_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cmd/args.h"
#include "cmd/bench_machine.h"
#include "cmd/progress.h"
#include "model/bind.h"
#include "ops/weight.h"
#include "quant/quant.h"
#include "serve/json_write.h"
#include "sys/file.h"

enum { PANEL_ROWS_MAX = 64, FORMATS_MAX = 32, PEAK_SLACK_MIB = 64 };

struct load_flags {
    const char *model, *quantize, *load_format, *format;
    int64_t k, weights, buffer;
    int pairs, threads, fake_nodes;
    bool json, quiet;
};

/* Medians; the ratio is the median of the samples' own. */
struct pack_result {
    const char *format, *isa;
    double rate, copy, ratio; /* bytes read and written per second */
};

struct model_result {
    double open_s, pack_s;
    int64_t source_bytes, packed_bytes, peak_bytes, limit_bytes;
};

struct load_bench {
    struct load_flags flags;
    struct topology topology;
    struct kern kern;
    struct pool *pool;
    struct bench_machine machine;
    struct progress bar;
    struct model_result model;
    struct pack_result results[FORMATS_MAX];
    int n_results;

    /* The matrix of the present format: its rows in the file's layout, and its panels. */
    struct weight w;
    size_t row_bytes;
    struct region source[PAGED_TEAMS_MAX], panels[PAGED_TEAMS_MAX];
    int n_regions;
};

/* ---- A model ---- */

/* The most memory that this process ever had, pages of mapped files included. 0: the system does not tell. */
static int64_t peak_bytes(void) {
    char *text = NULL;
    if (file_read_all("/proc/self/status", 1 << 20, &text, NULL, NULL)) return 0;
    const char *const at = strstr(text, "VmHWM:");
    const int64_t kib = at ? strtoll(at + strlen("VmHWM:"), NULL, 10) : 0;
    mem_free(text);
    return kib << 10;
}

static enum err bind_model(struct load_bench *b, struct ckpt *c, struct model *m, struct err_msg *msg) {
    struct bound bound = {0};
    struct bind_options opt = {.kern = &b->kern,
                               .pool = b->pool,
                               .topology = &b->topology,
                               .dummy = strcmp(b->flags.load_format, "dummy") == 0,
                               .convert = b->flags.quantize != NULL,
                               .progress = progress_callback,
                               .user = &b->bar};
    if (opt.convert && (!dtype_by_name(b->flags.quantize, &opt.quantize) || !quant_encodable(opt.quantize)))
        return err_set(msg, ERR_ARG, "--quantize %s: unknown; use q8_0, q5_1, q5_0, q4_1, q4_0, bf16 or f16",
                       b->flags.quantize);
    TRY(model_bind(m, c, &opt, &bound, msg));
    b->model.pack_s = bound.seconds;
    b->model.source_bytes = bound.source_bytes;
    b->model.packed_bytes = bound.packed_bytes;
    b->model.peak_bytes = peak_bytes();
    b->model.limit_bytes = bound.packed_bytes + bound.packed_bytes / 20 + ((int64_t)PEAK_SLACK_MIB << 20);
    bound_deinit(&bound);
    return ERR_OK;
}

static enum err measure_model(struct load_bench *b, struct err_msg *msg) {
    struct ckpt *c = NULL;
    struct model m;
    const bool dummy = strcmp(b->flags.load_format, "dummy") == 0;
    const int64_t start = clock_ns();
    TRY(dummy ? ckpt_open_config(&c, b->flags.model, msg) : ckpt_open(&c, b->flags.model, msg));
    enum err e = model_open(&m, c, msg);
    if (!e) {
        e = bind_model(b, c, &m, msg);
        model_deinit(&m);
    }
    b->model.open_s = (double)(clock_ns() - start) * 1e-9;
    ckpt_close(c);
    return e;
}

/* ---- Packing alone ---- */

static void drop_matrix(struct load_bench *b) {
    for (int i = 0; i < b->n_regions; i++) {
        region_destroy(&b->source[i]);
        region_destroy(&b->panels[i]);
    }
    b->n_regions = 0;
}

/* The lane's panels, counted within its team. */
static void lane_share(const struct weight *w, const struct lane *l, int64_t *first, int64_t *end) {
    const int64_t n = w->panel0[l->team + 1] - w->panel0[l->team];
    *first = n * l->team_lane / l->team_size;
    *end = n * (l->team_lane + 1) / l->team_size;
}

static void fill_lane(const struct lane *l, void *arg) {
    struct load_bench *const b = arg;
    const size_t panel = b->row_bytes * (size_t)b->w.kern->panel;
    struct rng rng = rng_seeded((uint64_t)l->id + 1);
    int64_t first, end;
    lane_share(&b->w, l, &first, &end);
    for (char *p = b->source[l->team].base + (size_t)first * panel; first < end; first++)
        for (size_t i = 0; i < panel; i += 8, p += 8) {
            const uint64_t x = rng_next(&rng);
            memcpy(p, &x, panel - i < 8 ? panel - i : 8);
        }
}

static void pack_lane(const struct lane *l, void *arg) {
    struct load_bench *const b = arg;
    const size_t panel = b->row_bytes * (size_t)b->w.kern->panel;
    int64_t first, end;
    lane_share(&b->w, l, &first, &end);
    for (; first < end; first++)
        weight_pack_panel(&b->w, b->w.panel0[l->team] + first, b->source[l->team].base + (size_t)first * panel,
                          b->row_bytes);
}

static enum err make_matrix(struct load_bench *b, enum dtype type, struct err_msg *msg) {
    int sizes[PAGED_TEAMS_MAX];
    const int n_teams = pool_n_teams(b->pool);
    for (int i = 0; i < n_teams; i++) sizes[i] = pool_team_size(b->pool, i);
    if (!dtype_row_bytes(type, b->flags.k, &b->row_bytes))
        return err_set(msg, ERR_ARG, "--k %lld is no multiple of the block of %s", (long long)b->flags.k,
                       dtype_info(type)->name);
    const int64_t n = b->flags.weights / (int64_t)b->row_bytes / PANEL_ROWS_MAX * PANEL_ROWS_MAX + PANEL_ROWS_MAX;
    TRY(weight_init(&b->w, dtype_info(type)->name, n, b->flags.k, type, &b->kern, sizes, n_teams, msg));
    for (int i = 0; i < n_teams; i++) {
        const int64_t rows = (b->w.panel0[i + 1] - b->w.panel0[i]) * b->w.kern->panel;
        const int node = b->topology.nodes[pool_team_node(b->pool, i)].os_index;
        b->source[i] = b->panels[i] = (struct region){0};
        b->n_regions = i + 1;
        TRY(region_create(&b->source[i], "source rows", node, (size_t)rows * b->row_bytes, msg));
        TRY(region_create(&b->panels[i], "panels", node, weight_team_bytes(&b->w, i), msg));
        b->w.base[i] = b->panels[i].base;
    }
    pool_run(b->pool, fill_lane, b);
    pool_run(b->pool, pack_lane, b); /* the first touch */
    return ERR_OK;
}

static void measure_packing(struct load_bench *b, enum dtype type) {
    double rate[BENCH_PAIRS_MAX], copy[BENCH_PAIRS_MAX], ratio[BENCH_PAIRS_MAX];
    const double moved = (double)b->w.n * (double)b->row_bytes + (double)b->w.n_panels * (double)b->w.panel_bytes;
    for (int i = 0; i < b->flags.pairs; i++) {
        copy[i] = 2 * bench_machine_copy(&b->machine);
        const int64_t start = clock_ns();
        pool_run(b->pool, pack_lane, b);
        rate[i] = moved / ((double)(clock_ns() - start) * 1e-9);
        ratio[i] = rate[i] / copy[i];
    }
    const int n = b->flags.pairs;
    b->results[b->n_results++] =
        (struct pack_result){dtype_info(type)->name, b->w.kern->isa, bench_machine_median(rate, n),
                             bench_machine_median(copy, n), bench_machine_median(ratio, n)};
}

static enum err measure_formats(struct load_bench *b, struct err_msg *msg) {
    enum dtype types[FORMATS_MAX];
    int n = 0;
    for (int t = 0; t < DTYPE_N; t++) {
        enum gemm_format f;
        if (n < FORMATS_MAX && weight_format((enum dtype)t, &f) &&
            args_listed(b->flags.format, dtype_info((enum dtype)t)->name))
            types[n++] = (enum dtype)t;
    }
    if (n == 0) return err_set(msg, ERR_ARG, "--format %s: no such format has kernels", b->flags.format);
    TRY(bench_machine_open(&b->machine, b->pool, &b->topology, (size_t)b->flags.buffer, msg));
    progress_end(&b->bar);
    b->bar.items = true;
    for (int i = 0; i < n; i++) {
        progress_show(&b->bar, "packing", i, n);
        const enum err e = make_matrix(b, types[i], msg);
        if (!e) measure_packing(b, types[i]);
        drop_matrix(b);
        if (e) return e;
    }
    progress_show(&b->bar, "packing", n, n);
    return ERR_OK;
}

/* ---- The report ---- */

static void print_text(const struct load_bench *b) {
    const struct model_result *const m = &b->model;
    printf("%s, %s, %d lanes on %d nodes\n", cpu_model_name(), cpu_level_name(b->kern.level), pool_n_lanes(b->pool),
           pool_n_teams(b->pool));
    if (b->flags.model) {
        printf("\n%s\n  loaded in %.3f s, %.3f s of it packing: %.0f MB/s of %.1f MB\n", b->flags.model, m->open_s,
               m->pack_s, (double)m->source_bytes / m->pack_s * 1e-6, (double)m->source_bytes * 1e-6);
        printf("  peak memory %.1f MiB for %.1f MiB of packed weights; the limit, 1.05 x packed + %d MiB, is %.1f MiB: %s\n",
               (double)m->peak_bytes / (1 << 20), (double)m->packed_bytes / (1 << 20), PEAK_SLACK_MIB,
               (double)m->limit_bytes / (1 << 20), m->peak_bytes <= m->limit_bytes ? "held" : "EXCEEDED");
    }
    if (b->n_results == 0) return;
    printf("\npacking from memory, bytes read and written\n%-8s %-10s %10s %10s %10s\n", "format", "kernel", "GB/s",
           "copy GB/s", "of copy");
    for (int i = 0; i < b->n_results; i++) {
        const struct pack_result *const r = &b->results[i];
        printf("%-8s %-10s %10.2f %10.2f %8.1f %%\n", r->format, r->isa, r->rate * 1e-9, r->copy * 1e-9,
               100 * r->ratio);
    }
}

static void print_json(const struct load_bench *b) {
    const struct model_result *const m = &b->model;
    struct strbuf s = {0};
    strbuf_puts(&s, "{\"cpu\":");
    json_write_cstr(&s, cpu_model_name());
    strbuf_printf(&s, ",\"isa\":\"%s\",\"threads\":%d,\"nodes\":%d,", cpu_level_name(b->kern.level),
                  pool_n_lanes(b->pool), pool_n_teams(b->pool));
    if (b->flags.model) {
        strbuf_puts(&s, "\"model\":{\"path\":");
        json_write_cstr(&s, b->flags.model);
        strbuf_printf(&s, ",\"load_s\":%.6g,\"pack_s\":%.6g,\"source_bytes\":%lld,\"packed_bytes\":%lld,"
                      "\"peak_bytes\":%lld,\"limit_bytes\":%lld},",
                      m->open_s, m->pack_s, (long long)m->source_bytes, (long long)m->packed_bytes,
                      (long long)m->peak_bytes, (long long)m->limit_bytes);
    }
    strbuf_puts(&s, "\"packing\":[");
    for (int i = 0; i < b->n_results; i++) {
        const struct pack_result *const r = &b->results[i];
        strbuf_printf(&s, "%s{\"format\":\"%s\",\"isa\":\"%s\",\"bytes_per_s\":%.6g,\"copy_bytes_per_s\":%.6g,"
                      "\"copy_ratio\":%.6g}",
                      i ? "," : "", r->format, r->isa, r->rate, r->copy, r->ratio);
    }
    strbuf_puts(&s, "]}");
    puts(strbuf_cstr(&s));
    strbuf_deinit(&s);
}

/* ---- The command ---- */

static enum err measure_all(struct load_bench *b, struct err_msg *msg) {
    const struct topology_options topo = {.fake_nodes = b->flags.fake_nodes};
    enum cpu_level level;
    progress_init(&b->bar, b->flags.quiet);
    TRY(cpu_level_wanted(&level, msg));
    kern_init(&b->kern, level);
    TRY(topology_read(&b->topology, &topo, msg));
    const struct pool_options pool = {
        .n_lanes = b->flags.threads > 0 ? b->flags.threads : topology_default_lanes(&b->topology), .pin = true};
    TRY(pool_create(&b->pool, &b->topology, &pool, msg));
    if (b->flags.model) TRY(measure_model(b, msg));
    if (strcmp(b->flags.format, "none") != 0) TRY(measure_formats(b, msg));
    progress_end(&b->bar);
    if (b->flags.json) print_json(b);
    else print_text(b);
    return ERR_OK;
}

// clang-format off
#define FIELD(f) offsetof(struct load_flags, f)
static const struct arg_def defs[] = {
    {"model", "-m", ARG_STRING, FIELD(model), NULL, 0, 0, 0, "PATH", "also load this GGUF file or folder, and report time and peak memory", false},
    {"quantize", NULL, ARG_STRING, FIELD(quantize), NULL, 0, 0, 0, "FORMAT", "convert the model while loading: q8_0, q4_0, ...", false},
    {"load-format", NULL, ARG_CHOICE, FIELD(load_format), "auto|dummy", 0, 0, 0, NULL, "dummy: random weights of the config's shapes", false},
    {"format", "-f", ARG_STRING, FIELD(format), NULL, 0, 0, 0, "LIST", "formats to pack: q8_0,q4_0, or none (all)", false},
    {"k", "-k", ARG_COUNT, FIELD(k), NULL, 256, 1 << 20, 0, "N", "inputs of the matrix (2048)", false},
    {"weights", NULL, ARG_SIZE, FIELD(weights), NULL, 1 << 20, 1e15, 0, "SIZE", "bytes of the matrix (512MiB)", false},
    {"pairs", NULL, ARG_INT, FIELD(pairs), NULL, 1, BENCH_PAIRS_MAX, 0, "N", "samples, each behind a copy (5)", false},
    {"buffer", NULL, ARG_SIZE, FIELD(buffer), NULL, 1 << 20, 1e15, 0, "SIZE", "memory whose copy is timed (1GiB)", false},
    {"threads", "-t", ARG_INT, FIELD(threads), NULL, 1, 4096, 0, "N", "lanes (usable physical cores)", false},
    {"fake-nodes", NULL, ARG_INT, FIELD(fake_nodes), NULL, 1, PAGED_TEAMS_MAX, 0, "N", "split the machine into N logical nodes", true},
    {"json", NULL, ARG_FLAG, FIELD(json), NULL, 0, 0, 0, NULL, "one JSON object", false},
    {"quiet", "-q", ARG_FLAG, FIELD(quiet), NULL, 0, 0, 0, NULL, "no progress on stderr", false},
};
// clang-format on

int bench_load_main(int argc, char **argv) {
    struct err_msg msg = {{0}};
    struct load_bench *const b = mem_xcalloc(1, sizeof *b);
    b->flags = (struct load_flags){.load_format = "auto", .format = "all", .k = 2048, .weights = 512 << 20,
                                   .buffer = 1 << 30, .pairs = 5};
    const struct arg_group group = {"measurement", defs, N_ELEMENTS(defs), &b->flags};
    struct args a = {.groups = &group, .n_groups = 1};
    enum err e = args_parse(&a, argc, argv, &msg);
    if (a.help && !e) args_print_help(&a, stdout, "xenon bench load [flags]", true);
    else if (!e) e = measure_all(b, &msg);
    progress_end(&b->bar);
    if (e) fprintf(stderr, "xenon bench load: %s\n", msg.text);
    drop_matrix(b);
    bench_machine_close(&b->machine);
    if (b->pool) pool_destroy(b->pool);
    topology_deinit(&b->topology);
    mem_free(b);
    return e == ERR_ARG ? 2 : e ? 1 : 0;
}
