/* `xenon bench step`: whole steps of a model against what the machine gives.
 *
 * A decode sample is one read of the large buffer and, right after it, --decode steps; a prompt sample one measurement
 * of the arithmetic rates and one prompt. Ratios are made per sample and the median is reported, because the machine
 * may be shared.
 *     bandwidth ratio  = bytes that a step has to read (weights in their file's format, keys, values) x steps/s
 *                        / read bandwidth
 *     arithmetic ratio = time that the step's matrices take at the measured rates / time of the step
 * Threads: main. Owns: nothing. */
#ifndef CMD_BENCH_STEP_H
#define CMD_BENCH_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/bench_machine.h"
#include "graph/ledger.h"

enum { BENCH_STEP_CASES_MAX = 16, BENCH_STEP_ROWS_MAX = 96 };

enum bench_step_kind { BENCH_STEP_DECODE, BENCH_STEP_PREFILL };

struct bench_step_sample {
    double tokens_s;
    double read;            /* bytes/s, decode; 0 for prompts */
    double bandwidth_ratio; /* 0 for prompts */
    double arithmetic_ratio;
};

/* One kind of step, measured. */
struct bench_step_case {
    enum bench_step_kind kind;
    int batch;              /* sequences */
    int64_t length;         /* decode: tokens in the cache at the start; prompt: its tokens */
    int64_t n_steps;        /* of a sample */
    int n_samples;
    struct bench_step_sample samples[BENCH_PAIRS_MAX];
    double bytes_step;      /* bytes that a step had to read, mean */
    double peak[PEAK_N_KINDS]; /* ops/s, the last measured */

    /* From the ledger, per step of separate steps. */
    size_t n_rows;
    struct ledger_row rows[BENCH_STEP_ROWS_MAX];
    double step_ns, prepare_ns, late_ns, sampler_ns;
    double n_barriers;
};

struct bench_step_flags {
    const char *batch, *trace;
    int64_t prompt, context, decode, buffer;
    int pairs;
    bool json, quiet;
};

struct bench_step_report {
    const char *model_path, *architecture, *cpu, *isa, *walk;
    int64_t n_parameters, weight_bytes;
    int threads, nodes, level;
    int n_cases;
    struct bench_step_case cases[BENCH_STEP_CASES_MAX];
    const char *peak_name[PEAK_N_KINDS];
};

/* argv[0] is "step". Returns the exit status: 0, 1 when something failed, 2 for a wrong flag. */
int bench_step_main(int argc, char **argv);

/* bench_report.c: to stdout. */
void bench_report_text(const struct bench_step_report *r);
void bench_report_json(const struct bench_step_report *r);

#endif
