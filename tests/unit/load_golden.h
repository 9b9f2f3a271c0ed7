/* Where the golden data lies, and one safetensors file of it as a set of tensors. Include after cmocka. */
#ifndef TESTS_UNIT_LOAD_GOLDEN_H
#define TESTS_UNIT_LOAD_GOLDEN_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "load/safetensors.h"
#include "load/tensor_set.h"
#include "sys/file.h"

struct golden_path {
    char text[1024];
};

/* The path of a golden file or folder. */
static inline const char *golden_path(struct golden_path *p, const char *name) {
    snprintf(p->text, sizeof p->text, "%s/%s", env_get("XENON_GOLDEN", "../shared/golden"), name);
    return p->text;
}

/* Skips the running test when name is not there. */
static inline void golden_need(const char *name) {
    struct golden_path p;
    if (access(golden_path(&p, name), R_OK) == 0) return;
    print_message("no golden data at %s: set XENON_GOLDEN\n", p.text);
    skip();
}

struct golden_file {
    struct file_map map;
    struct tensor_set set;
};

static inline void golden_open(struct golden_file *f, const char *name) {
    struct golden_path p;
    struct err_msg msg = {{0}};
    memset(f, 0, sizeof *f);
    enum err e = file_map_open(&f->map, golden_path(&p, name), &msg);
    if (e == ERR_OK) e = safetensors_parse(&f->set, f->map.data, f->map.size, p.text, &msg);
    if (e != ERR_OK) fail_msg("%s", msg.text);
}

static inline const struct ckpt_tensor *golden_tensor(const struct golden_file *f, const char *name) {
    const struct ckpt_tensor *const t = tensor_set_find(&f->set, name, strlen(name));
    if (!t) fail_msg("no tensor %s", name);
    return t;
}

static inline void golden_close(struct golden_file *f) {
    tensor_set_deinit(&f->set);
    file_map_close(&f->map);
}

#endif
