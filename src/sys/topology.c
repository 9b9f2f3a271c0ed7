/* The machine from hwloc, cut down to what this process may use. */
#include "sys/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <hwloc/distances.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sys/cgroup.h"
#include "sys/file.h"

struct topology_impl {
    int *cpus;        /* every node's list of CPUs, one after the other */
    int64_t mem_left; /* what the control groups leave, INT64_MAX without a limit */
};

/* What is needed only while reading. */
struct reader {
    hwloc_topology_t tree;
    hwloc_bitmap_t usable;      /* CPUs that we may run on */
    struct cgroup_limits limits;
    bool real;                  /* this machine, not a description of another one */
    int n_numa;                 /* NUMA nodes of the tree that have memory */
    hwloc_obj_t numa[TOPOLOGY_NODES_MAX];    /* ascending OS index */
    hwloc_obj_t node_obj[TOPOLOGY_NODES_MAX]; /* of each topology node */
};

static enum err load_tree(struct reader *rd, const struct topology_options *opt, struct err_msg *msg) {
    if (hwloc_topology_init(&rd->tree) != 0) {
        rd->tree = NULL;
        return err_set(msg, ERR_NOMEM, "topology: no memory for the machine's description");
    }
    if (opt->synthetic && hwloc_topology_set_synthetic(rd->tree, opt->synthetic) != 0)
        return err_set(msg, ERR_ARG, "topology: hwloc does not know the synthetic machine \"%s\"", opt->synthetic);
    if (opt->xml && hwloc_topology_set_xml(rd->tree, opt->xml) != 0)
        return err_set(msg, ERR_IO, "topology: cannot read the machine in %s: %s", opt->xml, strerror(errno));
    if (hwloc_topology_load(rd->tree) != 0)
        return err_set(msg, ERR_IO, "topology: hwloc cannot read this machine: %s", strerror(errno));
    rd->real = hwloc_topology_is_thissystem(rd->tree) != 0;
    return ERR_OK;
}

/* The affinity mask of this thread and the cpusets, on top of what hwloc found online and allowed. */
static enum err find_usable(struct reader *rd, const struct topology_options *opt, struct err_msg *msg) {
    rd->usable = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(rd->tree));
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    if (!rd->usable || !mask) {
        hwloc_bitmap_free(mask);
        return err_set(msg, ERR_NOMEM, "topology: no memory for the CPU sets");
    }
    if (rd->real && hwloc_get_cpubind(rd->tree, mask, HWLOC_CPUBIND_THREAD) == 0 && !hwloc_bitmap_iszero(mask))
        hwloc_bitmap_and(rd->usable, rd->usable, mask);
    hwloc_bitmap_free(mask);
    /* The kernel has put the cpusets into the affinity mask already. If the files disagree with it, they describe
     * somebody else (a partial mount in a container), unless a caller has named them. */
    if (!rd->real || opt->cgroup_root || hwloc_bitmap_intersects(rd->usable, rd->limits.cpus))
        hwloc_bitmap_and(rd->usable, rd->usable, rd->limits.cpus);
    if (hwloc_bitmap_iszero(rd->usable))
        return err_set(msg, ERR_ARG, "topology: the affinity mask and the cpuset leave no CPU to run on");
    return ERR_OK;
}

static int by_os_index(const void *a, const void *b) {
    hwloc_obj_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x->os_index > y->os_index) - (x->os_index < y->os_index);
}

static enum err find_numa(struct reader *rd, struct err_msg *msg) {
    const int n = hwloc_get_nbobjs_by_type(rd->tree, HWLOC_OBJ_NUMANODE);
    for (int with_memory = 1; with_memory >= 0 && rd->n_numa == 0; with_memory--) {
        for (int i = 0; i < n; i++) {
            const hwloc_obj_t o = hwloc_get_obj_by_type(rd->tree, HWLOC_OBJ_NUMANODE, (unsigned)i);
            if (with_memory && o->attr->numanode.local_memory == 0) continue;
            if (rd->n_numa == TOPOLOGY_NODES_MAX)
                return err_set(msg, ERR_LIMIT, "topology: more than %d NUMA nodes; restrict the process with numactl",
                               TOPOLOGY_NODES_MAX);
            rd->numa[rd->n_numa++] = o;
        }
    }
    if (rd->n_numa == 0) return err_set(msg, ERR_IO, "topology: hwloc reports no memory node");
    qsort(rd->numa, (size_t)rd->n_numa, sizeof rd->numa[0], by_os_index);
    return ERR_OK;
}

/* Index into numa of the node whose memory is local to a CPU. Nodes of fast memory beside the ordinary one share its
 * CPUs and have higher numbers, so the first match is the ordinary one. CPUs without memory go to the first node. */
static int numa_of_cpu(const struct reader *rd, unsigned cpu) {
    for (int i = 0; i < rd->n_numa; i++)
        if (hwloc_bitmap_isset(rd->numa[i]->cpuset, cpu)) return i;
    return 0;
}

struct core {
    int cpu;  /* OS number of its first usable hardware thread */
    int numa; /* index into reader.numa */
};

/* Usable physical cores in hwloc's order, so that neighbours share caches. Returns how many; cores may be NULL. */
static int list_cores(const struct reader *rd, struct core *cores) {
    hwloc_const_bitmap_t usable = rd->usable;
    const bool known = hwloc_get_nbobjs_by_type(rd->tree, HWLOC_OBJ_CORE) > 0;
    const hwloc_obj_type_t type = known ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int n = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(rd->tree, type, o)) != NULL;) {
        if (!hwloc_bitmap_intersects(o->cpuset, usable)) continue;
        hwloc_obj_t pu = NULL;
        do {
            pu = hwloc_get_next_obj_inside_cpuset_by_type(rd->tree, o->cpuset, HWLOC_OBJ_PU, pu);
        } while (pu && !hwloc_bitmap_isset(usable, pu->os_index));
        if (!pu) continue;
        if (cores) cores[n] = (struct core){(int)pu->os_index, numa_of_cpu(rd, pu->os_index)};
        n++;
    }
    return n;
}

static int count_usable(const struct reader *rd, hwloc_obj_type_t type) {
    int n = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(rd->tree, type, o)) != NULL;)
        n += hwloc_bitmap_intersects(o->cpuset, rd->usable) != 0;
    return n;
}

static int64_t cache_bytes(const struct reader *rd, hwloc_obj_type_t type) {
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(rd->tree, type, o)) != NULL;)
        if (hwloc_bitmap_intersects(o->cpuset, rd->usable)) return (int64_t)o->attr->cache.size;
    return 0;
}

/* The number behind "name:" in a meminfo text, in bytes; 0 when absent. */
static int64_t meminfo_bytes(const char *text, const char *name) {
    const char *const at = text ? strstr(text, name) : NULL;
    return at ? strtoll(at + strlen(name), NULL, 10) * 1024 : 0;
}

/* Free bytes of a real node: free pages and file pages, which the kernel gives up on demand. */
static int64_t node_free_bytes(unsigned os_index) {
    char path[80], *text = NULL;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/meminfo", os_index);
    if (file_read_all(path, 1 << 20, &text, NULL, NULL) != ERR_OK) return -1;
    const int64_t out = meminfo_bytes(text, "MemFree:") + meminfo_bytes(text, "Active(file):") +
                        meminfo_bytes(text, "Inactive(file):");
    mem_free(text);
    return out;
}

/* Fills mem_free of the nodes. The kernel's own estimate MemAvailable bounds the sum over the machine; where there is
 * one node, /proc/meminfo speaks of that node, and in virtual machines with a balloon it is the better witness. */
static void read_free_memory(struct topology *t, const struct reader *rd) {
    for (int i = 0; i < t->n_nodes; i++) t->nodes[i].mem_free = t->nodes[i].mem_total;
    if (!rd->real) return;
    char *text = NULL;
    int64_t total = 0, available = 0;
    if (file_read_all("/proc/meminfo", 1 << 20, &text, NULL, NULL) == ERR_OK) {
        total = meminfo_bytes(text, "MemTotal:");
        available = meminfo_bytes(text, "MemAvailable:");
    }
    mem_free(text);
    if (rd->n_numa == 1 && total > 0 && available > 0) {
        t->nodes[0].mem_total = total;
        t->nodes[0].mem_free = available < total ? available : total;
        return;
    }
    double sum = 0.0;
    for (int i = 0; i < rd->n_numa; i++) {
        const int64_t b = node_free_bytes(rd->numa[i]->os_index);
        if (b > 0) sum += (double)b;
    }
    const double scale = available > 0 && sum > (double)available ? (double)available / sum : 1.0;
    for (int i = 0; i < t->n_nodes; i++) {
        struct topology_node *const node = &t->nodes[i];
        const int64_t b = node_free_bytes((unsigned)node->os_index);
        if (b >= 0 && (double)b * scale < (double)node->mem_free) node->mem_free = (int64_t)((double)b * scale);
    }
}

/* One topology node per NUMA node that has cores; impl->cpus is filled in node order. */
static void make_nodes(struct topology *t, struct reader *rd, const struct core *cores) {
    int *cpus = ((struct topology_impl *)t->impl)->cpus;
    for (int m = 0; m < rd->n_numa; m++) {
        struct topology_node *const node = &t->nodes[t->n_nodes];
        int n = 0;
        for (int c = 0; c < t->n_cores; c++)
            if (cores[c].numa == m) cpus[n++] = cores[c].cpu;
        if (n == 0) continue;
        node->os_index = (int)rd->numa[m]->os_index;
        node->mem_total = (int64_t)rd->numa[m]->attr->numanode.local_memory;
        node->n_cores = n;
        node->cpus = cpus;
        rd->node_obj[t->n_nodes++] = rd->numa[m];
        cpus += n;
    }
}

static void read_distances(struct topology *t, const struct reader *rd) {
    struct hwloc_distances_s *d = NULL;
    unsigned nr = 1;
    const int rc = hwloc_distances_get_by_type(rd->tree, HWLOC_OBJ_NUMANODE, &nr, &d,
                                               HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
    if (rc != 0 || nr == 0) d = NULL;
    for (int i = 0; i < t->n_nodes; i++) {
        for (int j = 0; j < t->n_nodes; j++) {
            hwloc_uint64_t there = 0, back;
            if (d) (void)hwloc_distances_obj_pair_values(d, rd->node_obj[i], rd->node_obj[j], &there, &back);
            t->distances[i][j] = there > 0 && there <= INT_MAX ? (int)there : i == j ? 10 : 0;
        }
    }
    if (d) hwloc_distances_release(rd->tree, d);
}

/* Replaces the nodes by n logical ones: node i takes the i-th run of the cores in order (repeating cores when there
 * are fewer than nodes), and nodes that fall on the same real node share its memory evenly. */
static void make_fake(struct topology *t, const struct topology *real, int n) {
    const int *const all = ((struct topology_impl *)t->impl)->cpus;
    int of[TOPOLOGY_NODES_MAX], sharers[TOPOLOGY_NODES_MAX] = {0};
    t->n_nodes = n;
    t->fake = true;
    for (int i = 0; i < n; i++) {
        const int begin = t->n_cores >= n ? (int)((int64_t)t->n_cores * i / n) : i % t->n_cores;
        const int end = t->n_cores >= n ? (int)((int64_t)t->n_cores * (i + 1) / n) : begin + 1;
        int home = 0, behind = real->nodes[0].n_cores;
        while (begin >= behind) behind += real->nodes[++home].n_cores;
        of[i] = home;
        sharers[home]++;
        t->nodes[i] = real->nodes[home];
        t->nodes[i].n_cores = end - begin;
        t->nodes[i].cpus = all + begin;
    }
    for (int i = 0; i < n; i++) {
        t->nodes[i].mem_total /= sharers[of[i]];
        t->nodes[i].mem_free /= sharers[of[i]];
        for (int j = 0; j < n; j++) t->distances[i][j] = real->distances[of[i]][of[j]];
    }
}

static void copy_limits(struct topology *t, const struct cgroup_limits *l) {
    t->cpu_quota = l->cpu_quota;
    if (l->cpu_quota > 0.0) t->cpus_limit = l->cpu_quota >= 1e6 ? 1000000 : (int)l->cpu_quota;
    if (l->cpu_quota > 0.0 && t->cpus_limit < 1) t->cpus_limit = 1;
    t->mem_limit = l->mem_limit;
    t->mem_used_in_limit = l->mem_used;
    ((struct topology_impl *)t->impl)->mem_left = l->mem_left;
}

static enum err fill(struct topology *t, struct reader *rd, const struct topology_options *opt, struct err_msg *msg) {
    t->n_cores = list_cores(rd, NULL);
    t->n_cpus = hwloc_bitmap_weight(rd->usable);
    struct topology_impl *const impl = mem_calloc(1, sizeof *impl);
    t->impl = impl;
    struct core *const cores = mem_calloc((size_t)t->n_cores, sizeof *cores);
    if (impl) impl->cpus = mem_calloc((size_t)t->n_cores, sizeof *impl->cpus);
    if (!impl || !cores || !impl->cpus) {
        mem_free(cores);
        return err_set(msg, ERR_NOMEM, "topology: no memory for %d cores", t->n_cores);
    }
    (void)list_cores(rd, cores);
    make_nodes(t, rd, cores);
    mem_free(cores);
    read_free_memory(t, rd);
    read_distances(t, rd);
    copy_limits(t, &rd->limits);
    const int n_packages = count_usable(rd, HWLOC_OBJ_PACKAGE), n_l3 = count_usable(rd, HWLOC_OBJ_L3CACHE);
    t->n_packages = n_packages ? n_packages : 1;
    t->n_l3 = n_l3;
    t->l1d_bytes = cache_bytes(rd, HWLOC_OBJ_L1CACHE);
    t->l2_bytes = cache_bytes(rd, HWLOC_OBJ_L2CACHE);
    t->l3_bytes = cache_bytes(rd, HWLOC_OBJ_L3CACHE);
    if (opt->fake_nodes <= 1) return ERR_OK;
    struct topology *const real = mem_alloc(sizeof *real);
    if (!real) return err_set(msg, ERR_NOMEM, "topology: no memory for %d logical nodes", opt->fake_nodes);
    memcpy(real, t, sizeof *real);
    make_fake(t, real, opt->fake_nodes);
    mem_free(real);
    return ERR_OK;
}

enum err topology_read(struct topology *t, const struct topology_options *opt, struct err_msg *msg) {
    static const struct topology_options defaults;
    struct reader rd;
    enum err e;
    memset(t, 0, sizeof *t);
    memset(&rd, 0, sizeof rd);
    if (!opt) opt = &defaults;
    if (opt->fake_nodes < 0 || opt->fake_nodes > TOPOLOGY_NODES_MAX)
        return err_set(msg, ERR_ARG, "--fake-nodes %d: must be 0 to %d", opt->fake_nodes, TOPOLOGY_NODES_MAX);
    TRY_OUT(e, load_tree(&rd, opt, msg));
    /* A described machine is not in our control group; a named directory is a test's and always counts. */
    const bool ours = rd.real || opt->cgroup_root;
    if (!cgroup_read(&rd.limits, opt->cgroup_root, ours ? opt->cgroup_self : "/dev/null")) {
        e = err_set(msg, ERR_NOMEM, "topology: no memory for the control group limits");
        goto out;
    }
    TRY_OUT(e, find_usable(&rd, opt, msg));
    TRY_OUT(e, find_numa(&rd, msg));
    TRY_OUT(e, fill(t, &rd, opt, msg));
out:
    hwloc_bitmap_free(rd.usable);
    cgroup_deinit(&rd.limits);
    if (rd.tree) hwloc_topology_destroy(rd.tree);
    if (e != ERR_OK) topology_deinit(t);
    return e;
}

void topology_deinit(struct topology *t) {
    struct topology_impl *const impl = t->impl;
    if (impl) mem_free(impl->cpus);
    mem_free(impl);
    memset(t, 0, sizeof *t);
}

int topology_default_lanes(const struct topology *t) {
    int n = t->n_cores;
    if (t->cpus_limit > 0 && t->cpus_limit < n) n = t->cpus_limit;
    if (n > 8) n--;
    /* Logical nodes exist to exercise the paths of many nodes, so each gets a lane. */
    return t->fake && n < t->n_nodes ? t->n_nodes : n;
}

int64_t topology_available(const struct topology *t, int node) {
    const struct topology_impl *const impl = t->impl;
    if (!impl || node < 0 || node >= t->n_nodes) return 0;
    int64_t out = t->nodes[node].mem_free;
    if (impl->mem_left == INT64_MAX) return out;
    double total = 0.0;
    for (int i = 0; i < t->n_nodes; i++) total += (double)t->nodes[i].mem_total;
    const double share = total > 0.0 ? (double)t->nodes[node].mem_total / total : 1.0 / t->n_nodes;
    const int64_t ours = (int64_t)((double)impl->mem_left * share);
    return ours < out ? ours : out;
}
