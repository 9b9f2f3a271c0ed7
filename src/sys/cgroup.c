/* Reading the limit files of control groups v1 and v2. */
#include "sys/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "sys/file.h"

/* v1 writes "no limit" as the largest page-aligned number; anything near it means the same. */
#define V1_UNLIMITED ((int64_t)1 << 60)

enum { LIMIT_FILE_MAX = 1 << 20 };

/* One group's directory. Longer paths are not followed: they mean "no limit known". */
struct dir {
    char path[PATH_MAX];
};

/* The text of dir/name, or NULL; free with mem_free. */
static char *read_file(const struct dir *d, const char *name) {
    struct dir full;
    const int n = snprintf(full.path, sizeof full.path, "%s/%s", d->path, name);
    if (n < 0 || (size_t)n >= sizeof full.path) return NULL;
    char *text = NULL;
    return file_read_all(full.path, LIMIT_FILE_MAX, &text, NULL, NULL) == ERR_OK ? text : NULL;
}

/* The first number of dir/name; -1 when there is none ("max", missing, nonsense). */
static int64_t read_number(const struct dir *d, const char *name) {
    char *const text = read_file(d, name);
    if (!text) return -1;
    char *end;
    const long long v = strtoll(text, &end, 10);
    const int64_t out = end == text || v < 0 ? -1 : (int64_t)v;
    mem_free(text);
    return out;
}

/* The value of a line "key number" in dir/memory.stat; 0 when absent. */
static int64_t read_stat(const struct dir *d, const char *key) {
    char *const text = read_file(d, "memory.stat");
    const size_t len = strlen(key);
    int64_t out = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, len) != 0 || line[len] != ' ') continue;
        out = strtoll(line + len, NULL, 10);
        break;
    }
    mem_free(text);
    return out > 0 ? out : 0;
}

static void take_quota(struct cgroup_limits *l, int64_t quota_us, int64_t period_us) {
    if (quota_us <= 0 || period_us <= 0) return;
    const double cpus = (double)quota_us / (double)period_us;
    if (l->cpu_quota <= 0.0 || cpus < l->cpu_quota) l->cpu_quota = cpus;
}

static void take_memory(struct cgroup_limits *l, int64_t limit, int64_t used, int64_t reclaimable) {
    if (limit < 0 || limit >= V1_UNLIMITED) return;
    used = used < 0 ? 0 : used;
    used = reclaimable < used ? used - reclaimable : 0;
    const int64_t left = limit > used ? limit - used : 0;
    if (left < l->mem_left) l->mem_left = left;
    if (l->mem_limit && limit >= l->mem_limit) return;
    l->mem_limit = limit > 0 ? limit : 1; /* 0 means "none" to our readers */
    l->mem_used = used;
}

static void take_cpuset(struct cgroup_limits *l, const struct dir *d, const char *effective, const char *wanted) {
    char *text = read_file(d, effective);
    if (!text || !*text || *text == '\n') {
        mem_free(text);
        text = read_file(d, wanted);
    }
    if (!text) return;
    text[strcspn(text, "\n")] = '\0';
    hwloc_bitmap_t set = *text ? hwloc_bitmap_alloc() : NULL; /* an empty file inherits from its parent */
    if (set && hwloc_bitmap_list_sscanf(set, text) == 0 && !hwloc_bitmap_iszero(set))
        hwloc_bitmap_and(l->cpus, l->cpus, set);
    hwloc_bitmap_free(set);
    mem_free(text);
}

static void read_v2(struct cgroup_limits *l, const struct dir *d) {
    char *const max = read_file(d, "cpu.max");
    if (max && max[0] != 'm') {
        char *rest;
        const int64_t quota = strtoll(max, &rest, 10);
        const int64_t period = strtoll(rest, NULL, 10);
        take_quota(l, quota, period > 0 ? period : 100000);
    }
    mem_free(max);
    const int64_t limit = read_number(d, "memory.max"), high = read_number(d, "memory.high");
    if (limit >= 0 || high >= 0) {
        /* Above memory.high the kernel throttles us to a crawl, so it is a limit as well. */
        const int64_t tight = limit < 0 || (high >= 0 && high < limit) ? high : limit;
        take_memory(l, tight, read_number(d, "memory.current"), read_stat(d, "inactive_file"));
    }
    take_cpuset(l, d, "cpuset.cpus.effective", "cpuset.cpus");
}

static void read_v1_cpu(struct cgroup_limits *l, const struct dir *d) {
    take_quota(l, read_number(d, "cpu.cfs_quota_us"), read_number(d, "cpu.cfs_period_us"));
}

static void read_v1_memory(struct cgroup_limits *l, const struct dir *d) {
    const int64_t limit = read_number(d, "memory.limit_in_bytes");
    if (limit >= 0 && limit < V1_UNLIMITED)
        take_memory(l, limit, read_number(d, "memory.usage_in_bytes"), read_stat(d, "total_inactive_file"));
}

static void read_v1_cpuset(struct cgroup_limits *l, const struct dir *d) {
    take_cpuset(l, d, "cpuset.effective_cpus", "cpuset.cpus");
}

typedef void read_fn(struct cgroup_limits *l, const struct dir *d);

static bool is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Calls read for base/path and every directory above it down to base itself. */
static void walk(struct cgroup_limits *l, read_fn *read, const char *base, const char *path) {
    struct dir d;
    const size_t base_len = strlen(base);
    const int n = snprintf(d.path, sizeof d.path, "%s%s", base, path);
    /* "/.." appears when the group lies outside our cgroup namespace. */
    if (n < 0 || (size_t)n >= sizeof d.path || strstr(path, "/..") || !is_dir(d.path))
        snprintf(d.path, sizeof d.path, "%s", base);
    for (;;) {
        size_t len = strlen(d.path);
        while (len > base_len && d.path[len - 1] == '/') d.path[--len] = '\0';
        read(l, &d);
        if (len <= base_len) return;
        while (len > base_len && d.path[len - 1] != '/') d.path[--len] = '\0';
    }
}

static bool has_word(const char *list, size_t len, const char *word) {
    const size_t w = strlen(word);
    for (size_t i = 0; i + w <= len; i++) {
        if (strncmp(list + i, word, w) == 0 && (i == 0 || list[i - 1] == ',') && (i + w == len || list[i + w] == ','))
            return true;
    }
    return false;
}

/* One line of /proc/self/cgroup, "hierarchy:controllers:path". */
static void read_line(struct cgroup_limits *l, const char *root, const char *line) {
    static const struct {
        const char *controller;
        read_fn *read;
    } v1[] = {{"cpu", read_v1_cpu}, {"memory", read_v1_memory}, {"cpuset", read_v1_cpuset}};
    const char *const list = strchr(line, ':');
    const char *const colon = list ? strchr(list + 1, ':') : NULL;
    if (!colon) return;
    char base[PATH_MAX];
    const size_t list_len = (size_t)(colon - list - 1);
    if (list_len == 0) {
        /* Mixed systems mount v2 below the v1 trees. */
        const int n = snprintf(base, sizeof base, "%s/unified", root);
        const bool mixed = n > 0 && (size_t)n < sizeof base && is_dir(base);
        walk(l, read_v2, mixed ? base : root, colon + 1);
        return;
    }
    for (size_t i = 0; i < N_ELEMENTS(v1); i++) {
        if (!has_word(list + 1, list_len, v1[i].controller)) continue;
        int n = snprintf(base, sizeof base, "%s/%s", root, v1[i].controller);
        if (n > 0 && (size_t)n < sizeof base && !is_dir(base))
            n = snprintf(base, sizeof base, "%s/%.*s", root, (int)list_len, list + 1);
        if (n > 0 && (size_t)n < sizeof base && is_dir(base)) walk(l, v1[i].read, base, colon + 1);
    }
}

bool cgroup_read(struct cgroup_limits *l, const char *root, const char *self) {
    memset(l, 0, sizeof *l);
    l->mem_left = INT64_MAX;
    l->cpus = hwloc_bitmap_alloc_full();
    if (!l->cpus) return false;
    char *text = NULL;
    const enum err e = file_read_all(self ? self : "/proc/self/cgroup", LIMIT_FILE_MAX, &text, NULL, NULL);
    if (e == ERR_NOMEM) return false;
    if (e != ERR_OK) return true; /* no control groups here */
    for (char *line = text; line && *line;) {
        char *const end = strchr(line, '\n');
        if (end) *end = '\0';
        read_line(l, root ? root : "/sys/fs/cgroup", line);
        line = end ? end + 1 : NULL;
    }
    mem_free(text);
    return true;
}

void cgroup_deinit(struct cgroup_limits *l) {
    hwloc_bitmap_free(l->cpus);
    l->cpus = NULL;
}
