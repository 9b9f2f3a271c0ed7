/* The report of `xenon topo`. It starts the real pool with the real pinning and asks every lane where it runs, so
 * that it shows what the engine would get and not what was asked for. */
#include "cmd/topo.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/mem.h"
#include "cmd/args.h"
#include "sys/file.h"
#include "sys/region.h"
#include "sys/team.h"
#include "sys/topology.h"

enum { WIDTH = 80, INDENT = 12, MATRIX_NODES_MAX = 14 };

struct flags {
    int threads, fake_nodes;
    bool json;
};

struct seat {
    int cpu;     /* where the lane ran */
    bool pinned; /* it can run nowhere else */
};

struct report {
    struct topology t;
    enum cpu_level level, best;
    int n_lanes, n_teams;
    int team_size[TOPOLOGY_NODES_MAX];
    struct seat *seats;      /* [n_lanes] */
    bool binds;              /* memory lives where it is asked to */
    bool tells;              /* the kernel says where pages live */
    char huge_pages[16];     /* "always", "madvise", "never" */
};

static void note_seat(const struct lane *lane, void *arg) {
    struct seat *const seat = (struct seat *)arg + lane->id;
    union {
        cpu_set_t set;
        char bytes[1024]; /* 8192 CPUs */
    } mask;
    memset(&mask, 0, sizeof mask);
    seat->cpu = sched_getcpu();
    seat->pinned = sched_getaffinity(0, sizeof mask, &mask.set) == 0 && CPU_COUNT_S(sizeof mask, &mask.set) == 1;
}

static enum err seat_lanes(struct report *r, struct err_msg *msg) {
    const struct pool_options opt = {.n_lanes = r->n_lanes, .pin = true};
    struct pool *pool;
    r->seats = mem_calloc((size_t)r->n_lanes, sizeof *r->seats);
    if (!r->seats) return err_set(msg, ERR_NOMEM, "no memory for %d lanes", r->n_lanes);
    TRY(pool_create(&pool, &r->t, &opt, msg));
    pool_run(pool, note_seat, r->seats);
    r->n_teams = pool_n_teams(pool);
    for (int i = 0; i < r->n_teams; i++) r->team_size[i] = pool_team_size(pool, i);
    pool_destroy(pool);
    return ERR_OK;
}

/* Tries binding and asking on one page of the last node, the one that first touch would rarely pick. */
static enum err try_placement(struct report *r, struct err_msg *msg) {
    struct region page;
    int touched;
    TRY(region_create(&page, "one page", r->t.nodes[r->t.n_nodes - 1].os_index, 4096, msg));
    char *const p = region_alloc(&page, 4096, 4096);
    if (p) *(volatile char *)p = 1;
    r->binds = page.bound;
    r->tells = region_verify(&page, 1, &touched) >= 0;
    region_destroy(&page);
    return ERR_OK;
}

/* The chosen word of "always [madvise] never". */
static void read_huge_pages(struct report *r) {
    char *text = NULL;
    snprintf(r->huge_pages, sizeof r->huge_pages, "unknown");
    if (file_read_all("/sys/kernel/mm/transparent_hugepage/enabled", 1 << 20, &text, NULL, NULL) != ERR_OK) return;
    const char *const open = strchr(text, '['), *const shut = open ? strchr(open, ']') : NULL;
    if (shut) snprintf(r->huge_pages, sizeof r->huge_pages, "%.*s", (int)(shut - open - 1), open + 1);
    mem_free(text);
}

static enum err gather(struct report *r, const struct flags *f, struct err_msg *msg) {
    const struct topology_options opt = {.fake_nodes = f->fake_nodes};
    r->best = cpu_detect();
    TRY(cpu_level_wanted(&r->level, msg));
    TRY(topology_read(&r->t, &opt, msg));
    r->n_lanes = f->threads > 0 ? f->threads : topology_default_lanes(&r->t);
    TRY(seat_lanes(r, msg));
    TRY(try_placement(r, msg));
    read_huge_pages(r);
    return ERR_OK;
}

/* "1.5 GiB" */
static const char *human(char out[24], int64_t bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024.0 && u + 1 < N_ELEMENTS(units); u++) v /= 1024.0;
    snprintf(out, 24, v == (double)(int64_t)v ? "%.0f %s" : "%.1f %s", v, units[u]);
    return out;
}

/* Puts "0-3,8-14:2" (taskset's syntax) for an ascending or any other list; breaks lines at WIDTH. */
static void put_cpus(const int *cpus, int n, int column) {
    for (int i = 0; i < n;) {
        int k = i + 1;
        const int step = k < n ? cpus[k] - cpus[i] : 0;
        while (step > 0 && k < n && cpus[k] - cpus[k - 1] == step) k++;
        if (k - i < 3) k = i + 1;
        char word[48];
        int len = snprintf(word, sizeof word, "%s%d", i ? "," : "", cpus[i]);
        if (k - i >= 3) len += snprintf(word + len, sizeof word - (size_t)len, "-%d", cpus[k - 1]);
        if (k - i >= 3 && step > 1) len += snprintf(word + len, sizeof word - (size_t)len, ":%d", step);
        if (column + len >= WIDTH) {
            printf(",\n%*s%s", INDENT, "", word + 1);
            column = INDENT + len - 1;
        } else {
            fputs(word, stdout);
            column += len;
        }
        i = k;
    }
    putchar('\n');
}

static void print_machine(const struct report *r) {
    const struct topology *const t = &r->t;
    char a[24], b[24], c[24];
    int64_t total = 0, available = 0;
    for (int i = 0; i < t->n_nodes; i++) {
        total += t->nodes[i].mem_total;
        available += topology_available(t, i);
    }
    printf("CPU         %.*s\n", WIDTH - INDENT - 1, cpu_model_name());
    printf("Level       %s", cpu_level_name(r->level));
    if (r->level != r->best) printf(" (XENON_ISA; the CPU has %s)", cpu_level_name(r->best));
    printf("\nCores       %d usable, %d hardware thread%s, %d package%s%s\n", t->n_cores, t->n_cpus,
           t->n_cpus == 1 ? "" : "s", t->n_packages, t->n_packages == 1 ? "" : "s",
           t->fake ? "; nodes are logical" : "");
    printf("Caches      L1d %s, L2 %s, L3 ", human(a, t->l1d_bytes), human(b, t->l2_bytes));
    if (t->n_l3 > 0) printf("%s in %d group%s\n", human(c, t->l3_bytes), t->n_l3, t->n_l3 == 1 ? "" : "s");
    else puts("none");
    printf("Memory      %s, of which we may use %s\n", human(a, total), human(b, available));
    fputs("Limits      ", stdout);
    if (t->cpu_quota > 0.0) printf("%.2f CPUs (%d whole), ", t->cpu_quota, t->cpus_limit);
    else fputs("no CPU quota, ", stdout);
    if (t->mem_limit > 0)
        printf("memory %s (%s in use)\n", human(a, t->mem_limit), human(b, t->mem_used_in_limit));
    else puts("no memory limit");
}

static void print_nodes(const struct topology *t) {
    char a[24], b[24], c[24];
    puts("\nNode  OS  Cores      Memory        Free     May use  CPUs (one per core)");
    for (int i = 0; i < t->n_nodes; i++) {
        const struct topology_node *const n = &t->nodes[i];
        const int column = printf("%4d %3d %6d  %10s  %10s  %10s  ", i, n->os_index, n->n_cores, human(a, n->mem_total),
                                  human(b, n->mem_free), human(c, topology_available(t, i)));
        put_cpus(n->cpus, n->n_cores, column);
    }
    if (t->n_nodes < 2) return;
    if (t->n_nodes > MATRIX_NODES_MAX) {
        printf("\nDistances   of more than %d nodes are in --json\n", MATRIX_NODES_MAX);
        return;
    }
    printf("\nDistances   (10: local, 0: unknown)\n    ");
    for (int j = 0; j < t->n_nodes; j++) printf(" %4d", j);
    putchar('\n');
    for (int i = 0; i < t->n_nodes; i++) {
        printf("%4d", i);
        for (int j = 0; j < t->n_nodes; j++) printf(" %4d", t->distances[i][j]);
        putchar('\n');
    }
}

static int count_pinned(const struct report *r) {
    int n = 0;
    for (int i = 0; i < r->n_lanes; i++) n += r->seats[i].pinned;
    return n;
}

static void print_lanes(const struct report *r, int *cpus) {
    printf("\nLanes       %d in %d team%s, %d pinned\n", r->n_lanes, r->n_teams, r->n_teams == 1 ? "" : "s",
           count_pinned(r));
    for (int team = 0, id = 0; team < r->n_teams; id += r->team_size[team++]) {
        int n = 0;
        for (int i = id; i < id + r->team_size[team]; i++)
            if (r->seats[i].pinned) cpus[n++] = r->seats[i].cpu;
        const int column = printf("  team %2d   %d lane%s on node %d", team, r->team_size[team],
                                  r->team_size[team] == 1 ? "" : "s", team);
        if (n == 0) {
            puts(", roaming");
            continue;
        }
        const int more = n < r->team_size[team] ? printf(" (%d roaming), CPUs ", r->team_size[team] - n) :
                                                  printf(", CPUs ");
        put_cpus(cpus, n, column + more);
    }
    bool one = true;
    for (int i = 1; i < r->t.n_nodes; i++) one = one && r->t.nodes[i].os_index == r->t.nodes[0].os_index;
    printf("\nPlacement   %s; page queries %s\n",
           one && r->binds ? "memory of one node, nothing to bind"
           : r->binds      ? "memory can be bound to nodes"
                           : "binding refused, first touch decides",
           r->tells ? "work" : "refused");
    if (!r->binds) puts("            (in a container: --cap-add SYS_NICE allows it)");
    printf("Huge pages  %s\n", r->huge_pages);
}

/* A JSON string; the bytes come from the system, so only what JSON forbids is dropped. */
static void put_string(const char *s) {
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') putchar('\\');
        if ((unsigned char)*s >= 0x20 && (unsigned char)*s < 0x7f) putchar(*s);
    }
    putchar('"');
}

static void put_ints(const int *v, int n) {
    putchar('[');
    for (int i = 0; i < n; i++) printf("%s%d", i ? ", " : "", v[i]);
    putchar(']');
}

static void print_json_nodes(const struct topology *t) {
    fputs("  \"nodes\": [\n", stdout);
    for (int i = 0; i < t->n_nodes; i++) {
        const struct topology_node *const n = &t->nodes[i];
        printf("    {\"os_index\": %d, \"n_cores\": %d,\n", n->os_index, n->n_cores);
        printf("     \"mem_total\": %lld, \"mem_free\": %lld, \"available\": %lld,\n     \"cpus\": ",
               (long long)n->mem_total, (long long)n->mem_free, (long long)topology_available(t, i));
        put_ints(n->cpus, n->n_cores);
        fputs(", \"distances\": ", stdout);
        put_ints(t->distances[i], t->n_nodes);
        puts(i + 1 < t->n_nodes ? "}," : "}");
    }
    puts("  ],");
}

static void print_json(const struct report *r) {
    const struct topology *const t = &r->t;
    fputs("{\n  \"cpu\": ", stdout);
    put_string(cpu_model_name());
    printf(",\n  \"level\": \"%s\", \"best_level\": \"%s\",\n", cpu_level_name(r->level), cpu_level_name(r->best));
    printf("  \"n_packages\": %d, \"n_cores\": %d, \"n_cpus\": %d, \"n_l3\": %d, \"fake_nodes\": %s,\n", t->n_packages,
           t->n_cores, t->n_cpus, t->n_l3, t->fake ? "true" : "false");
    printf("  \"l1d_bytes\": %lld, \"l2_bytes\": %lld, \"l3_bytes\": %lld,\n", (long long)t->l1d_bytes,
           (long long)t->l2_bytes, (long long)t->l3_bytes);
    printf("  \"cpu_quota\": %.6g, \"cpus_limit\": %d, \"mem_limit\": %lld, \"mem_used_in_limit\": %lld,\n",
           t->cpu_quota, t->cpus_limit, (long long)t->mem_limit, (long long)t->mem_used_in_limit);
    print_json_nodes(t);
    printf("  \"can_bind\": %s, \"can_query_pages\": %s, \"huge_pages\": ", r->binds ? "true" : "false",
           r->tells ? "true" : "false");
    put_string(r->huge_pages);
    fputs(",\n  \"lanes\": [\n", stdout);
    for (int team = 0, id = 0; team < r->n_teams; team++) {
        for (int i = 0; i < r->team_size[team]; i++, id++)
            printf("    {\"team\": %d, \"cpu\": %d, \"pinned\": %s}%s\n", team, r->seats[id].cpu,
                   r->seats[id].pinned ? "true" : "false", id + 1 < r->n_lanes ? "," : "");
    }
    puts("  ]\n}");
}

static enum err print_text(const struct report *r, struct err_msg *msg) {
    int *const cpus = mem_calloc((size_t)r->n_lanes, sizeof *cpus);
    if (!cpus) return err_set(msg, ERR_NOMEM, "no memory to list %d lanes", r->n_lanes);
    print_machine(r);
    print_nodes(&r->t);
    print_lanes(r, cpus);
    mem_free(cpus);
    return ERR_OK;
}

static enum err make_report(const struct flags *f, struct err_msg *msg) {
    struct report *const r = mem_calloc(1, sizeof *r);
    if (!r) return err_set(msg, ERR_NOMEM, "no memory for the report");
    enum err e;
    TRY_OUT(e, gather(r, f, msg));
    if (f->json) print_json(r);
    else TRY_OUT(e, print_text(r, msg));
    if (fflush(stdout) != 0 || ferror(stdout)) e = err_set(msg, ERR_IO, "cannot write the report to stdout");
out:
    topology_deinit(&r->t);
    mem_free(r->seats);
    mem_free(r);
    return e;
}

int topo_main(int argc, char **argv) {
    static const struct arg_def defs[] = {
        {.name = "json", .kind = ARG_FLAG, .offset = offsetof(struct flags, json), .help = "print JSON"},
        {.name = "threads", .alias = "-t", .kind = ARG_INT, .offset = offsetof(struct flags, threads), .min = 1,
         .max = 4096, .value = "N", .help = "lanes (usable physical cores)"},
        {.name = "fake-nodes", .kind = ARG_INT, .offset = offsetof(struct flags, fake_nodes), .min = 1, .max = 64,
         .value = "N", .help = "split the machine into N logical nodes"},
    };
    struct flags f = {0};
    struct err_msg msg = {{0}};
    const struct arg_group group = {.title = "Machine", .defs = defs, .n_defs = N_ELEMENTS(defs), .target = &f};
    struct args a = {.groups = &group, .n_groups = 1};
    if (args_parse(&a, argc, argv, &msg) != ERR_OK) {
        fprintf(stderr, "xenon topo: %s\n", msg.text);
        return 2;
    }
    if (a.help || a.help_all) {
        args_print_help(&a, stdout, "xenon topo [flags]", true);
        return 0;
    }
    if (make_report(&f, &msg) == ERR_OK) return 0;
    fprintf(stderr, "xenon topo: %s\n", msg.text);
    return 1;
}
