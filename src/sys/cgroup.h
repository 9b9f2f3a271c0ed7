/* Limits that control groups put on this process: v2 (one tree) and v1 (a tree per controller), read on the
 * process's own group and on every ancestor that is visible, because the tightest of them holds.
 * A group that a container cannot see (its path lies outside the mount) is replaced by the mount's top, which is
 * where a container's own limits appear. Files that are missing or unreadable mean "no limit".
 * Threads: any. */
#ifndef SYS_CGROUP_H
#define SYS_CGROUP_H

#include <hwloc.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

struct cgroup_limits {
    double cpu_quota;     /* smallest quota / period, in CPUs; 0: none */
    int64_t mem_limit;    /* smallest memory.max or memory.high, bytes; 0: none */
    int64_t mem_used;     /* of that group: memory.current less inactive file pages, which the kernel gives back */
    int64_t mem_left;     /* smallest limit less use over all groups, >= 0; INT64_MAX without a limit */
    hwloc_bitmap_t cpus;  /* CPUs that every cpuset allows; full without one. Owned, see cgroup_deinit */
};

/* root: NULL for /sys/fs/cgroup; self: NULL for /proc/self/cgroup. False: no memory. */
bool cgroup_read(struct cgroup_limits *l, const char *root, const char *self) ATTR_NODISCARD;
void cgroup_deinit(struct cgroup_limits *l);

#endif
