/* sys/topology: described machines, control groups, affinity, logical nodes. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <hwloc.h>
#include <hwloc/distances.h>

#include "base/mem.h"
#include "sys/topology.h"

#define GIB ((int64_t)1 << 30)

static char root[64];

static int make_root(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/sys_topology_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* Writes root/path, making its directories. */
static void put(const char *path, const char *text) {
    char full[256];
    const int n = snprintf(full, sizeof full, "%s/%s", root, path);
    assert_in_range(n, 1, sizeof full - 1);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        (void)mkdir(full, 0700);
        *p = '/';
    }
    FILE *const f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* Reads a machine whose control groups are those of root/name, with membership file root/name.self. */
static void read_in_groups(struct topology *t, const char *machine, const char *name, const char *self) {
    char groups[128], self_path[160];
    struct err_msg msg;
    snprintf(groups, sizeof groups, "%s.self", name);
    put(groups, self);
    snprintf(groups, sizeof groups, "%s/%s", root, name);
    snprintf(self_path, sizeof self_path, "%s.self", groups);
    const struct topology_options opt = {.synthetic = machine, .cgroup_root = groups, .cgroup_self = self_path};
    if (topology_read(t, &opt, &msg) != ERR_OK) fail_msg("%s", msg.text);
}

static void read_machine(struct topology *t, const char *machine, int fake_nodes) {
    const struct topology_options opt = {.synthetic = machine, .fake_nodes = fake_nodes};
    struct err_msg msg;
    if (topology_read(t, &opt, &msg) != ERR_OK) fail_msg("%s", msg.text);
}

static void check_cpus(const struct topology *t, int node, int n, const int *want) {
    assert_int_equal(t->nodes[node].n_cores, n);
    for (int i = 0; i < n; i++) assert_int_equal(t->nodes[node].cpus[i], want[i]);
}

static void test_two_sockets_smt(void **state) {
    (void)state;
    struct topology t;
    read_machine(&t, "pack:2 [numa(memory=8GiB)] l3:2(size=16MiB) l2:2(size=1MiB) l1d:1(size=32KiB) core:1 pu:2", 0);
    assert_int_equal(t.n_nodes, 2);
    assert_int_equal(t.n_packages, 2);
    assert_int_equal(t.n_l3, 4);
    assert_int_equal(t.n_cores, 8);
    assert_int_equal(t.n_cpus, 16);
    assert_int_equal(t.l3_bytes, 16 << 20);
    assert_int_equal(t.l2_bytes, 1 << 20);
    assert_int_equal(t.l1d_bytes, 32 << 10);
    check_cpus(&t, 0, 4, (const int[]){0, 2, 4, 6});
    check_cpus(&t, 1, 4, (const int[]){8, 10, 12, 14});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.nodes[i].os_index, i);
        assert_int_equal(t.nodes[i].mem_total, 8 * GIB);
        assert_int_equal(t.nodes[i].mem_free, 8 * GIB);
        assert_int_equal(topology_available(&t, i), 8 * GIB);
        assert_int_equal(t.distances[i][i], 10);
        assert_int_equal(t.distances[i][1 - i], 0);
    }
    assert_int_equal(topology_available(&t, 2), 0);
    assert_int_equal(topology_available(&t, -1), 0);
    assert_int_equal(t.cpus_limit, 0);
    assert_int_equal(t.mem_limit, 0);
    assert_false(t.fake);
    assert_int_equal(topology_default_lanes(&t), 8);
    topology_deinit(&t);
    assert_int_equal(t.n_nodes, 0);
    topology_deinit(&t);
}

/* Linux often numbers the second hardware threads behind all first ones. */
static void test_interleaved_numbers(void **state) {
    (void)state;
    struct topology t;
    read_machine(&t, "node:4 core:4 pu:2(indexes=2*16:16*1)", 0);
    assert_int_equal(t.n_nodes, 4);
    assert_int_equal(t.n_cores, 16);
    check_cpus(&t, 1, 4, (const int[]){4, 5, 6, 7});
    check_cpus(&t, 3, 4, (const int[]){12, 13, 14, 15});
    assert_int_equal(topology_default_lanes(&t), 15);
    topology_deinit(&t);
}

/* Fast memory beside the ordinary one makes nodes that share its cores; they are not nodes to run on. */
static void test_nodes_without_cores(void **state) {
    (void)state;
    struct topology t;
    read_machine(&t, "pack:2 [numa(indexes=0,2,1,3 memory=4GiB)] [numa(memory=1GiB)] core:2 pu:1", 0);
    assert_int_equal(t.n_nodes, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.nodes[i].os_index, i);
        assert_int_equal(t.nodes[i].mem_total, 4 * GIB);
        check_cpus(&t, i, 2, (const int[]){2 * i, 2 * i + 1});
    }
    topology_deinit(&t);
}

/* Writes root/machine.xml: four nodes, neighbours at 12, the rest at 32. */
static void export_machine(char *path, size_t size) {
    hwloc_topology_t tree;
    hwloc_obj_t nodes[4];
    hwloc_uint64_t values[16];
    snprintf(path, size, "%s/machine.xml", root);
    assert_int_equal(hwloc_topology_init(&tree), 0);
    assert_int_equal(hwloc_topology_set_synthetic(tree, "node:4(memory=2GiB) core:3 pu:1"), 0);
    assert_int_equal(hwloc_topology_load(tree), 0);
    for (unsigned i = 0; i < 4; i++) {
        nodes[i] = hwloc_get_obj_by_type(tree, HWLOC_OBJ_NUMANODE, i);
        for (unsigned j = 0; j < 4; j++) values[i * 4 + j] = i == j ? 10 : i / 2 == j / 2 ? 12 : 32;
    }
    const unsigned long kind = HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_MEANS_LATENCY;
    const hwloc_distances_add_handle_t h = hwloc_distances_add_create(tree, "NUMALatency", kind, 0);
    assert_non_null(h);
    assert_int_equal(hwloc_distances_add_values(tree, h, 4, nodes, values, 0), 0);
    assert_int_equal(hwloc_distances_add_commit(tree, h, 0), 0);
    assert_int_equal(hwloc_topology_export_xml(tree, path, 0), 0);
    hwloc_topology_destroy(tree);
}

static void test_xml_distances(void **state) {
    (void)state;
    struct topology t;
    struct err_msg msg;
    char path[128];
    export_machine(path, sizeof path);
    const struct topology_options opt = {.xml = path};
    if (topology_read(&t, &opt, &msg) != ERR_OK) fail_msg("%s", msg.text);
    assert_int_equal(t.n_nodes, 4);
    assert_int_equal(t.n_cores, 12);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) assert_int_equal(t.distances[i][j], i == j ? 10 : i / 2 == j / 2 ? 12 : 32);
    topology_deinit(&t);
    const struct topology_options split = {.xml = path, .fake_nodes = 6};
    assert_int_equal(topology_read(&t, &split, NULL), ERR_OK);
    assert_int_equal(t.n_nodes, 6);
    check_cpus(&t, 5, 2, (const int[]){10, 11});
    assert_int_equal(t.nodes[5].os_index, 3);
    assert_int_equal(t.distances[0][5], 32);
    topology_deinit(&t);
    put("machine.xml", "<topology><object type=\"Machine\"");
    assert_int_not_equal(topology_read(&t, &opt, NULL), ERR_OK);
}

static void test_fake_nodes(void **state) {
    (void)state;
    struct topology t;
    read_machine(&t, "[numa(memory=12GiB)] core:4 pu:1", 3);
    assert_true(t.fake);
    assert_int_equal(t.n_nodes, 3);
    assert_int_equal(t.n_cores, 4);
    check_cpus(&t, 0, 1, (const int[]){0});
    check_cpus(&t, 1, 1, (const int[]){1});
    check_cpus(&t, 2, 2, (const int[]){2, 3});
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t.nodes[i].os_index, 0);
        assert_int_equal(t.nodes[i].mem_total, 4 * GIB);
        for (int j = 0; j < 3; j++) assert_int_equal(t.distances[i][j], 10);
    }
    topology_deinit(&t);
    read_machine(&t, "[numa(memory=12GiB)] core:2 pu:1", 5);
    assert_int_equal(t.n_nodes, 5);
    assert_int_equal(t.n_cores, 2);
    for (int i = 0; i < 5; i++) check_cpus(&t, i, 1, (const int[]){i % 2});
    assert_int_equal(topology_default_lanes(&t), 5);
    topology_deinit(&t);
    read_machine(&t, "node:2(memory=12GiB) core:2 pu:1", 4);
    assert_int_equal(t.n_nodes, 4);
    for (int i = 0; i < 4; i++) {
        check_cpus(&t, i, 1, (const int[]){i});
        assert_int_equal(t.nodes[i].os_index, i / 2);
        assert_int_equal(t.nodes[i].mem_total, 6 * GIB);
    }
    topology_deinit(&t);
    read_machine(&t, "node:2 core:2 pu:1", 1);
    assert_false(t.fake);
    assert_int_equal(t.n_nodes, 2);
    topology_deinit(&t);
}

static void test_v2_quota(void **state) {
    (void)state;
    struct topology t;
    put("a/job/cpu.max", "150000 100000\n");
    read_in_groups(&t, "core:16 pu:2", "a", "0::/job\n");
    assert_float_equal(t.cpu_quota, 1.5, 1e-9);
    assert_int_equal(t.cpus_limit, 1);
    assert_int_equal(topology_default_lanes(&t), 1);
    topology_deinit(&t);
    put("a/job/cpu.max", "20000 100000\n"); /* a fifth of a CPU still is one lane */
    read_in_groups(&t, "core:16 pu:2", "a", "0::/job\n");
    assert_int_equal(t.cpus_limit, 1);
    topology_deinit(&t);
    put("a/job/cpu.max", "max 100000\n");
    read_in_groups(&t, "core:16 pu:2", "a", "0::/job\n");
    assert_int_equal(t.cpus_limit, 0);
    assert_float_equal(t.cpu_quota, 0.0, 0.0);
    assert_int_equal(topology_default_lanes(&t), 15);
    topology_deinit(&t);
}

/* The tightest ancestor counts, for each resource on its own. */
static void test_v2_nested(void **state) {
    (void)state;
    struct topology t;
    put("b/slice/cpu.max", "400000 100000\n");
    put("b/slice/memory.max", "8589934592\n");
    put("b/slice/memory.current", "7516192768\n");
    put("b/slice/memory.stat", "anon 1\nfile 9\ninactive_file 1073741824\n");
    put("b/slice/pod/cpu.max", "1000000 100000\n");
    put("b/slice/pod/memory.max", "4294967296\n");
    put("b/slice/pod/memory.current", "1073741824\n");
    put("b/slice/pod/box/cpu.max", "max 100000\n");
    put("b/slice/pod/box/memory.max", "max\n");
    read_in_groups(&t, "node:2(memory=64GiB) core:16 pu:1", "b", "0::/slice/pod/box\n");
    assert_int_equal(t.cpus_limit, 4);
    assert_int_equal(t.mem_limit, 4 * GIB);
    assert_int_equal(t.mem_used_in_limit, GIB);
    /* The slice leaves 8 - (7 - 1) = 2 GiB, less than the pod's 3. */
    assert_int_equal(topology_available(&t, 0), GIB);
    assert_int_equal(topology_available(&t, 1), GIB);
    assert_int_equal(topology_default_lanes(&t), 4);
    topology_deinit(&t);
    put("b/slice/pod/box/memory.high", "2147483648\n");
    read_in_groups(&t, "node:2(memory=64GiB) core:16 pu:1", "b", "0::/slice/pod/box\n");
    assert_int_equal(t.mem_limit, 2 * GIB);
    topology_deinit(&t);
}

/* In a container the path may lie outside what is mounted: the top of the mount holds its limits. */
static void test_v2_unseen_path(void **state) {
    (void)state;
    static const char *const selves[] = {"0::/docker/0123abcd\n", "0::/../../elsewhere\n", "0::/\n"};
    put("c/cpu.max", "300000 100000\n");
    put("c/memory.max", "1073741824\n");
    for (size_t i = 0; i < N_ELEMENTS(selves); i++) {
        struct topology t;
        read_in_groups(&t, "core:16 pu:2", "c", selves[i]);
        assert_int_equal(t.cpus_limit, 3);
        assert_int_equal(t.mem_limit, GIB);
        topology_deinit(&t);
    }
}

static void test_v2_cpuset(void **state) {
    (void)state;
    struct topology t;
    put("d/cpuset.cpus.effective", "0-15\n");
    put("d/job/cpuset.cpus.effective", "1-3,9\n");
    put("d/job/in/cpuset.cpus", "\n");
    read_in_groups(&t, "node:2 core:4 pu:2", "d", "0::/job/in\n");
    assert_int_equal(t.n_cpus, 4);
    assert_int_equal(t.n_cores, 3);
    assert_int_equal(t.n_nodes, 2);
    check_cpus(&t, 0, 2, (const int[]){1, 2});
    check_cpus(&t, 1, 1, (const int[]){9});
    topology_deinit(&t);
    put("d/job/cpuset.cpus.effective", "8-9\n");
    read_in_groups(&t, "node:2 core:4 pu:2", "d", "0::/job/in\n");
    assert_int_equal(t.n_nodes, 1);
    assert_int_equal(t.nodes[0].os_index, 1);
    topology_deinit(&t);
}

static const char v1_self[] = "9:name=systemd:/\n4:memory:/box/a\n3:cpuset:/box\n2:cpu,cpuacct:/box/a\n0::/\n";

static void test_v1(void **state) {
    (void)state;
    struct topology t;
    put("e/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("e/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    put("e/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
    put("e/cpu,cpuacct/box/cpu.cfs_period_us", "50000\n");
    put("e/cpu,cpuacct/box/a/cpu.cfs_quota_us", "-1\n");
    put("e/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("e/memory/box/memory.limit_in_bytes", "3221225472\n");
    put("e/memory/box/memory.usage_in_bytes", "2147483648\n");
    put("e/memory/box/memory.stat", "cache 5\ntotal_inactive_file 1073741824\n");
    put("e/memory/box/a/memory.limit_in_bytes", "9223372036854771712\n");
    put("e/cpuset/cpuset.cpus", "0-31\n");
    put("e/cpuset/box/cpuset.cpus", "0-7\n");
    put("e/unified/cgroup.procs", "1\n");
    read_in_groups(&t, "core:16 pu:2", "e", v1_self);
    assert_float_equal(t.cpu_quota, 5.0, 1e-9);
    assert_int_equal(t.cpus_limit, 5);
    assert_int_equal(t.n_cores, 4);
    assert_int_equal(t.n_cpus, 8);
    assert_int_equal(t.mem_limit, 3 * GIB);
    assert_int_equal(t.mem_used_in_limit, GIB);
    assert_int_equal(topology_default_lanes(&t), 4);
    topology_deinit(&t);
}

/* Nonsense in the files means no limit, never a crash. */
static void test_hostile_files(void **state) {
    (void)state;
    static const char *const texts[] = {"", "\n", "-5 0\n", "0 0\n", "99999999999999999999999 1\n", "1 -1\n", "x y z\n",
                                        "1-0,,9-\n", "\xff\xfe\n", "9223372036854775807 1\n"};
    static const char *const files[] = {"cpu.max", "memory.max", "memory.current", "memory.stat"};
    for (size_t i = 0; i < N_ELEMENTS(texts); i++) {
        struct topology t;
        for (size_t k = 0; k < N_ELEMENTS(files); k++) {
            char path[64];
            snprintf(path, sizeof path, "f/job/%s", files[k]);
            put(path, texts[i]);
        }
        read_in_groups(&t, "core:4 pu:2", "f", "0::/job\n:::\nx\n::\n1::/../..\n");
        assert_true(topology_default_lanes(&t) >= 1);
        assert_true(topology_available(&t, 0) >= 0);
        topology_deinit(&t);
    }
}

static void test_refusals(void **state) {
    (void)state;
    static const struct topology_options wrong[] = {
        {.fake_nodes = -1}, {.fake_nodes = TOPOLOGY_NODES_MAX + 1}, {.synthetic = "what:ever"},
        {.xml = "/nonexistent/machine.xml"}, {.synthetic = "node:65 core:1 pu:1"},
    };
    for (size_t i = 0; i < N_ELEMENTS(wrong); i++) {
        struct err_msg msg = {{0}};
        struct topology t;
        assert_int_not_equal(topology_read(&t, &wrong[i], &msg), ERR_OK);
        assert_true(strlen(msg.text) > 20);
        assert_null(t.impl);
        topology_deinit(&t);
    }
    struct topology t;
    char path[160], self[160];
    put("g/cpuset.cpus", "100-200\n");
    put("g.self", "0::/\n");
    snprintf(path, sizeof path, "%s/g", root);
    snprintf(self, sizeof self, "%s/g.self", root);
    const struct topology_options none = {.synthetic = "core:4 pu:1", .cgroup_root = path, .cgroup_self = self};
    assert_int_equal(topology_read(&t, &none, NULL), ERR_ARG);
}

static void test_without_memory(void **state) {
    (void)state;
    const struct topology_options opt = {.synthetic = "node:2 core:4 pu:2", .fake_nodes = 3};
    const int64_t live = mem_live_blocks();
    int n = 1;
    for (;; n++) {
        struct topology t;
        mem_fault_after(n);
        const enum err e = topology_read(&t, &opt, NULL);
        mem_fault_after(0);
        topology_deinit(&t);
        assert_int_equal(mem_live_blocks(), live);
        if (e == ERR_OK) break;
        assert_int_equal(e, ERR_NOMEM);
    }
    assert_in_range(n, 4, 20);
}

static void test_this_machine(void **state) {
    (void)state;
    struct topology t;
    struct err_msg msg;
    cpu_set_t mask;
    if (topology_read(&t, NULL, &msg) != ERR_OK) fail_msg("%s", msg.text);
    assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
    assert_in_range(t.n_nodes, 1, TOPOLOGY_NODES_MAX);
    assert_int_equal(t.n_cpus, CPU_COUNT(&mask));
    int sum = 0;
    for (int i = 0; i < t.n_nodes; i++) {
        assert_in_range(t.nodes[i].mem_free, 1, t.nodes[i].mem_total);
        assert_in_range(topology_available(&t, i), 0, t.nodes[i].mem_free);
        assert_int_equal(t.distances[i][i], 10);
        for (int k = 0; k < t.nodes[i].n_cores; k++) assert_true(CPU_ISSET(t.nodes[i].cpus[k], &mask));
        sum += t.nodes[i].n_cores;
    }
    assert_int_equal(sum, t.n_cores);
    assert_in_range(topology_default_lanes(&t), 1, t.n_cores);
    topology_deinit(&t);
}

static void test_affinity(void **state) {
    (void)state;
    struct topology t;
    cpu_set_t old, one;
    assert_int_equal(sched_getaffinity(0, sizeof old, &old), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &old)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
        assert_int_equal(topology_read(&t, NULL, NULL), ERR_OK);
        assert_int_equal(t.n_cores, 1);
        assert_int_equal(t.n_cpus, 1);
        check_cpus(&t, 0, 1, &cpu);
        topology_deinit(&t);
    }
    assert_int_equal(sched_setaffinity(0, sizeof old, &old), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sockets_smt), cmocka_unit_test(test_interleaved_numbers),
        cmocka_unit_test(test_nodes_without_cores), cmocka_unit_test(test_xml_distances),
        cmocka_unit_test(test_fake_nodes),
        cmocka_unit_test(test_v2_quota),        cmocka_unit_test(test_v2_nested),
        cmocka_unit_test(test_v2_unseen_path),  cmocka_unit_test(test_v2_cpuset),
        cmocka_unit_test(test_v1),              cmocka_unit_test(test_hostile_files),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_this_machine),    cmocka_unit_test(test_affinity),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
