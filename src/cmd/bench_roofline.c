#include "cmd/bench_roofline.h"

#include <stdio.h>
#include <string.h>

#include "cmd/args.h"
#include "cmd/bench_machine.h"
#include "serve/json_write.h"

enum { SAMPLES = 7 };

struct roofline_flags {
    int64_t buffer;
    int threads, fake_nodes;
    bool json;
};

struct roofline {
    struct kern kern;
    struct topology topology;
    struct pool *pool;
    struct bench_machine machine;
    int n_lanes, n_teams;
    double read, read_best, copy, peak[PEAK_N_KINDS];
};

static enum err measure(struct roofline *r, const struct roofline_flags *f, struct err_msg *msg) {
    const struct topology_options topo = {.fake_nodes = f->fake_nodes};
    double read[SAMPLES], copy[SAMPLES];
    enum cpu_level level;
    TRY(cpu_level_wanted(&level, msg));
    kern_init(&r->kern, level);
    TRY(topology_read(&r->topology, &topo, msg));
    const struct pool_options pool = {.n_lanes = f->threads > 0 ? f->threads : topology_default_lanes(&r->topology),
                                      .pin = true};
    TRY(pool_create(&r->pool, &r->topology, &pool, msg));
    TRY(bench_machine_open(&r->machine, r->pool, &r->topology, (size_t)f->buffer, msg));
    r->n_lanes = pool_n_lanes(r->pool);
    r->n_teams = pool_n_teams(r->pool);
    for (int i = 0; i < SAMPLES; i++) {
        read[i] = bench_machine_read(&r->machine);
        copy[i] = bench_machine_copy(&r->machine);
    }
    r->read = bench_machine_median(read, SAMPLES);
    r->read_best = read[SAMPLES - 1];
    r->copy = bench_machine_median(copy, SAMPLES);
    for (int k = 0; k < PEAK_N_KINDS; k++)
        r->peak[k] = bench_machine_peak(r->pool, &r->kern.peak, (enum peak_kind)k);
    return ERR_OK;
}

static void print_text(const struct roofline *r) {
    static const char *const what[] = {"f32 multiply-add", "8-bit dot product", "bf16 dot product"};
    printf("%s, %s, %d lanes on %d nodes, buffer of %zu MiB\n", cpu_model_name(), cpu_level_name(r->kern.level),
           r->n_lanes, r->n_teams, r->machine.bytes >> 20);
    printf("  %-20s %9.2f GB/s   best %.2f, %s\n", "read", r->read * 1e-9, r->read_best * 1e-9,
           bench_machine_walk_name(r->machine.walk));
    printf("  %-20s %9.2f GB/s   copied; each byte is read and written\n", "copy", r->copy * 1e-9);
    for (int k = 0; k < PEAK_N_KINDS; k++)
        if (r->peak[k] > 0) printf("  %-20s %9.1f GOPS   %s\n", what[k], r->peak[k] * 1e-9, r->kern.peak.name[k]);
}

static void print_json(const struct roofline *r) {
    struct strbuf b = {0};
    strbuf_puts(&b, "{\"cpu\":");
    json_write_cstr(&b, cpu_model_name());
    strbuf_printf(&b, ",\"isa\":\"%s\",\"threads\":%d,\"nodes\":%d,\"buffer_bytes\":%zu,"
                  "\"read_bytes_per_s\":%.6g,\"read_best_bytes_per_s\":%.6g,\"copy_bytes_per_s\":%.6g,\"rates\":{",
                  cpu_level_name(r->kern.level), r->n_lanes, r->n_teams, r->machine.bytes, r->read, r->read_best,
                  r->copy);
    bool any = false;
    for (int k = 0; k < PEAK_N_KINDS; k++) {
        if (r->peak[k] <= 0) continue;
        strbuf_printf(&b, "%s\"%s\":%.6g", any ? "," : "", r->kern.peak.name[k], r->peak[k]);
        any = true;
    }
    strbuf_puts(&b, "}}");
    puts(strbuf_cstr(&b));
    strbuf_deinit(&b);
}

// clang-format off
#define FIELD(f) offsetof(struct roofline_flags, f)
static const struct arg_def defs[] = {
    {"buffer", NULL, ARG_SIZE, FIELD(buffer), NULL, 1 << 20, 1e15, 0, "SIZE", "memory that is read and copied (2GiB)", false},
    {"threads", "-t", ARG_INT, FIELD(threads), NULL, 1, 4096, 0, "N", "lanes (usable physical cores)", false},
    {"fake-nodes", NULL, ARG_INT, FIELD(fake_nodes), NULL, 1, TOPOLOGY_NODES_MAX, 0, "N", "split the machine into N logical nodes", false},
    {"json", NULL, ARG_FLAG, FIELD(json), NULL, 0, 0, 0, NULL, "one JSON object", false},
};
// clang-format on

int bench_roofline_main(int argc, char **argv) {
    struct roofline_flags f = {.buffer = (int64_t)2 << 30};
    struct err_msg msg = {{0}};
    const struct arg_group group = {"measurement", defs, N_ELEMENTS(defs), &f};
    struct args a = {.groups = &group, .n_groups = 1};
    struct roofline r;
    memset(&r, 0, sizeof r);
    if (args_parse(&a, argc, argv, &msg)) {
        fprintf(stderr, "xenon bench roofline: %s\n", msg.text);
        return 2;
    }
    if (a.help) {
        args_print_help(&a, stdout, "xenon bench roofline [flags]", true);
        return 0;
    }
    const enum err e = measure(&r, &f, &msg);
    if (e) fprintf(stderr, "xenon bench roofline: %s\n", msg.text);
    else if (f.json) print_json(&r);
    else print_text(&r);
    bench_machine_close(&r.machine);
    if (r.pool) pool_destroy(r.pool);
    topology_deinit(&r.topology);
    return e ? 1 : 0;
}
