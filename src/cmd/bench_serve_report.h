/* What the samples of `xenon bench serve` come to: a table, or one JSON object with the names that vLLM's results have.
 * Threads: main. Owns: nothing. */
#ifndef CMD_BENCH_SERVE_REPORT_H
#define CMD_BENCH_SERVE_REPORT_H

#include "cmd/bench_serve_load.h"

enum bench_serve_time { BENCH_SERVE_TTFT, BENCH_SERVE_TPOT, BENCH_SERVE_ITL, BENCH_SERVE_E2E, BENCH_SERVE_N_TIMES };

struct bench_serve_summary {
    double mean, p50, p90, p99, max; /* ms */
};

struct bench_serve_report {
    double slo_ms[BENCH_SERVE_N_TIMES]; /* in: bounds of a good request; 0: none. ITL has none. */
    bool detailed;                      /* in: the JSON carries the times of every request */
    int n_ok, n_failed, n_good;
    int64_t n_input, n_output;
    struct bench_serve_summary times[BENCH_SERVE_N_TIMES];
};

/* "ttft:200" into slo_ms. */
enum err bench_serve_report_slo(struct bench_serve_report *r, const char *text, struct err_msg *msg) ATTR_NODISCARD;

/* Counts the samples of a finished run. */
enum err bench_serve_report_fill(struct bench_serve_report *r, const struct bench_serve_load *l,
                                 struct err_msg *msg) ATTR_NODISCARD;

void bench_serve_report_table(const struct bench_serve_report *r, const struct bench_serve_load *l);
void bench_serve_report_json(const struct bench_serve_report *r, const struct bench_serve_load *l, struct strbuf *b);

/* The distinct reasons of failures on stderr, with their counts. */
void bench_serve_report_failures(const struct bench_serve_load *l);

#endif
