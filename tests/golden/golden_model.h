/* Runs a golden checkpoint through the model runner without a scheduler: rows go through the real graph, plan, lanes
 * and cache, and every named value can be read back at level 0. Threads: one. Owns: what golden_model_open made. */
#ifndef TESTS_GOLDEN_GOLDEN_MODEL_H
#define TESTS_GOLDEN_GOLDEN_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/model_runner.h"
#include "../unit/load_golden.h"

struct golden_model {
    struct ckpt *ckpt;
    struct model_runner runner;
    struct sequence *seq;
    struct golden_file expected; /* expected.safetensors */
};

/* Opens folder/file of golden/models ("": the folder itself) with f32 everywhere; skips the test when the data is
 * absent. */
void golden_model_open(struct golden_model *g, const char *folder, const char *file, const struct xenon_options *opt);
void golden_model_close(struct golden_model *g);

/* Computes tokens ids[first .. first+n) as one chunk with logits for every row; returns [n, vocab]. */
const float *golden_model_chunk(struct golden_model *g, const int64_t *ids, int64_t first, int n);

#endif
