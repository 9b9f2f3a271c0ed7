/* Counters and histograms in Prometheus' text format, under vLLM's names with the prefix "xenon:".
 * Threads: the event loop's only. Owns: nothing. */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "xenon.h"

enum { METRICS_BUCKETS_MAX = 24 };

struct metrics_histogram {
    const double *bounds; /* ascending; +Inf is implied */
    int n_bounds;
    int64_t counts[METRICS_BUCKETS_MAX + 1]; /* per bucket, not cumulative */
    double sum;
};

enum metrics_finish { METRICS_STOP, METRICS_LENGTH, METRICS_ABORT, METRICS_ERROR, METRICS_N_FINISH };
enum metrics_reject {
    METRICS_QUEUE_FULL,
    METRICS_LOADING,
    METRICS_DRAINING,
    METRICS_DEAD,
    METRICS_INVALID,
    METRICS_N_REJECT
};

enum { METRICS_STATUS_MAX = 24, METRICS_LABELS_MAX = 24 };

struct metrics_http {
    const char *label;
    int status;
    int64_t n;
};

struct metrics {
    struct metrics_histogram ttft, inter_token, e2e, decode, tpot; /* seconds */
    struct metrics_histogram prompt_tokens, generation_tokens, params_n, params_max_tokens;
    int64_t finished[METRICS_N_FINISH];
    int64_t rejected[METRICS_N_REJECT];
    struct metrics_http http[METRICS_STATUS_MAX * METRICS_LABELS_MAX];
    int n_http;
    int64_t start_unix_s;
};

void metrics_init(struct metrics *m);

void metrics_observe(struct metrics_histogram *h, double value);

/* The same value n times. */
void metrics_observe_n(struct metrics_histogram *h, double value, int64_t n);

/* A finished HTTP request; label is a constant text or NULL. */
void metrics_http(struct metrics *m, const char *label, int status);

/* What the text says besides the counters above. */
struct metrics_now {
    const char *model_name;
    const struct xenon_stats *stats; /* never NULL; zeroed while loading */
    const struct xenon_info *info;   /* NULL while loading */
    bool enable_prefix_caching;
    int n_text_jobs;                 /* requests in templates and tokenization; they count as waiting */
    int n_connections;
};

void metrics_write(const struct metrics *m, const struct metrics_now *now, struct strbuf *out);

#endif
