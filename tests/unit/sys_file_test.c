/* sys/file: maps, bounded reads, refusals. */
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

#include "base/mem.h"
#include "sys/file.h"

static char dir[64];

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, const char *bytes, size_t len, int repeat) {
    FILE *const f = fopen(in_dir(name), "wb");
    assert_non_null(f);
    for (int i = 0; i < repeat; i++) assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/sys_file_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    static const char *const names[] = {"big", "empty", "pipe", "text", "link"};
    (void)state;
    for (size_t i = 0; i < N_ELEMENTS(names); i++) unlink(in_dir(names[i]));
    return rmdir(dir);
}

static void test_map(void **state) {
    (void)state;
    struct err_msg msg;
    struct file_map m;
    write_file("big", "0123456789", 10, 5000);
    assert_int_equal(file_map_open(&m, in_dir("big"), &msg), ERR_OK);
    assert_int_equal(m.size, 50000);
    for (size_t i = 0; i < m.size; i++) assert_int_equal(m.data[i], '0' + (int)(i % 10));
    file_map_prefetch(&m, 100, 20000);
    file_map_prefetch(&m, 49999, SIZE_MAX);
    file_map_prefetch(&m, 60000, 1);
    file_map_release(&m, 0, m.size);
    file_map_release(&m, 4097, SIZE_MAX);
    file_map_release(&m, 60000, 1);
    file_map_drop(&m, 0, m.size);
    file_map_drop(&m, 4097, 10);
    file_map_drop(&m, 40000, SIZE_MAX);
    file_map_drop(&m, 50000, 1);
    for (size_t i = 0; i < m.size; i++) assert_int_equal(m.data[i], '0' + (int)(i % 10));
    file_map_close(&m);
    assert_null(m.data);
    file_map_close(&m);
    file_map_drop(&m, 0, 1);
    file_map_prefetch(&m, 0, 1);
}

static void test_map_through_link(void **state) {
    (void)state;
    struct file_map m;
    char target[128];
    write_file("text", "abc", 3, 1);
    snprintf(target, sizeof target, "%s", in_dir("text"));
    assert_int_equal(symlink(target, in_dir("link")), 0);
    assert_int_equal(file_map_open(&m, in_dir("link"), NULL), ERR_OK);
    assert_int_equal(m.size, 3);
    file_map_close(&m);
}

static void refused(const char *path, enum err want, const char *text) {
    struct err_msg msg = {{0}};
    struct file_map m;
    assert_int_equal(file_map_open(&m, path, &msg), want);
    assert_null(m.data);
    if (!strstr(msg.text, text) || !strstr(msg.text, path)) fail_msg("unclear: %s", msg.text);
    file_map_close(&m);
}

static void test_map_refusals(void **state) {
    (void)state;
    write_file("empty", "", 0, 0);
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    refused(in_dir("empty"), ERR_FORMAT, "empty");
    refused(in_dir("pipe"), ERR_IO, "a pipe");
    refused(in_dir("absent"), ERR_IO, "No such file");
    refused(dir, ERR_IO, "a directory");
    refused("/dev/zero", ERR_IO, "a device");
}

static void test_read_all(void **state) {
    (void)state;
    struct err_msg msg = {{0}};
    char *out;
    size_t len;
    write_file("text", "line\n", 5, 1);
    assert_int_equal(file_read_all(in_dir("text"), 5, &out, &len, &msg), ERR_OK);
    assert_int_equal(len, 5);
    assert_string_equal(out, "line\n");
    mem_free(out);
    assert_int_equal(file_read_all(in_dir("text"), 4, &out, &len, &msg), ERR_LIMIT);
    assert_null(out);
    assert_non_null(strstr(msg.text, "allowed"));
    write_file("empty", "", 0, 0);
    assert_int_equal(file_read_all(in_dir("empty"), 0, &out, &len, &msg), ERR_OK);
    assert_int_equal(len, 0);
    assert_string_equal(out, "");
    mem_free(out);
    write_file("big", "0123456789", 10, 100000);
    assert_int_equal(file_read_all(in_dir("big"), SIZE_MAX, &out, NULL, &msg), ERR_OK);
    assert_int_equal(strlen(out), 1000000);
    mem_free(out);
    assert_int_equal(file_read_all(dir, 100, &out, &len, &msg), ERR_IO);
}

/* Files of /proc say that they are empty. */
static void test_read_proc(void **state) {
    (void)state;
    char *out;
    size_t len;
    assert_int_equal(file_read_all("/proc/meminfo", 1 << 20, &out, &len, NULL), ERR_OK);
    assert_true(len > 100);
    assert_non_null(strstr(out, "MemTotal:"));
    mem_free(out);
    assert_int_equal(file_read_all("/proc/meminfo", 50, &out, &len, NULL), ERR_LIMIT);
    assert_null(out);
}

static void test_read_without_memory(void **state) {
    (void)state;
    char *out;
    const int64_t live = mem_live_blocks();
    write_file("text", "line\n", 5, 1);
    mem_fault_after(1);
    assert_int_equal(file_read_all(in_dir("text"), 100, &out, NULL, NULL), ERR_NOMEM);
    mem_fault_after(0);
    assert_null(out);
    assert_int_equal(mem_live_blocks(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),      cmocka_unit_test(test_map_through_link),
        cmocka_unit_test(test_map_refusals), cmocka_unit_test(test_read_all),
        cmocka_unit_test(test_read_proc), cmocka_unit_test(test_read_without_memory),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
