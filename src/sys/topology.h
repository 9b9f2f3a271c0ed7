/* The machine as this process may use it: hwloc's tree cut down by the affinity mask, cgroup cpuset, cpu.max
 * and memory.max on every ancestor (v2, and v1 where that is mounted).
 * Threads: immutable once read. */
#ifndef SYS_TOPOLOGY_H
#define SYS_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TOPOLOGY_NODES_MAX = 64 };

struct topology_node {
    int os_index;          /* the kernel's node number; the real node's for a fake one */
    int64_t mem_total, mem_free; /* bytes; a fake node has its share */
    int n_cores;           /* physical cores that we may use */
    const int *cpus;       /* [n_cores] one OS CPU per physical core, first hardware thread */
};

struct topology {
    int n_nodes;           /* nodes with at least one usable core */
    struct topology_node nodes[TOPOLOGY_NODES_MAX];
    int n_packages, n_cores, n_cpus; /* usable physical cores and hardware threads, all nodes */
    int n_l3;              /* L3 groups among the usable cores */
    int64_t l1d_bytes, l2_bytes, l3_bytes;
    int cpus_limit;        /* whole CPUs that cpu.max allows (rounded down, at least 1); 0: no limit */
    double cpu_quota;      /* as written, 0: none */
    int64_t mem_limit;     /* smallest memory.max, 0: none */
    int64_t mem_used_in_limit; /* memory.current of that group, for what is really free */
    int distances[TOPOLOGY_NODES_MAX][TOPOLOGY_NODES_MAX]; /* 10 = local; 0 when unknown */
    bool fake;             /* made by fake_nodes */
    void *impl;            /* hwloc's tree and the arrays above */
};

struct topology_options {
    int fake_nodes;            /* 0 or 1: as it is; n: split the usable cores into n logical nodes (cores repeat
                                  when there are fewer cores than nodes) */
    const char *synthetic;     /* hwloc synthetic description instead of this machine, for tests */
    const char *xml;           /* hwloc XML file instead of this machine, for tests */
    const char *cgroup_root;   /* a directory that stands for /sys/fs/cgroup, for tests; NULL: the real one */
    const char *cgroup_self;   /* file that stands for /proc/self/cgroup; NULL: the real one */
};

enum err topology_read(struct topology *t, const struct topology_options *opt, struct err_msg *msg) ATTR_NODISCARD;
void topology_deinit(struct topology *t);

/* Lanes by default: usable physical cores, lowered by cpus_limit; above 8 one core is left to the server. */
int topology_default_lanes(const struct topology *t);

/* Bytes that may still be allocated on node i: its free memory, capped by its share of what the cgroup leaves. */
int64_t topology_available(const struct topology *t, int node);

#endif
