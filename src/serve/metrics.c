#include "serve/metrics.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

/* vLLM's buckets, so that its dashboards read the same. */
static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                     1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
static const double token_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                      0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double request_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
static const double length_bounds[] = {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
                                       2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
static const double n_bounds[] = {1, 2, 5, 10, 20};

static_assert(N_ELEMENTS(ttft_bounds) <= METRICS_BUCKETS_MAX, "buckets");
static_assert(N_ELEMENTS(request_bounds) <= METRICS_BUCKETS_MAX, "buckets");

#define HISTOGRAM(b) ((struct metrics_histogram){.bounds = (b), .n_bounds = N_ELEMENTS(b)})

void metrics_init(struct metrics *m) {
    *m = (struct metrics){.start_unix_s = clock_unix_s()};
    m->ttft = HISTOGRAM(ttft_bounds);
    m->inter_token = m->tpot = HISTOGRAM(token_bounds);
    m->e2e = m->decode = HISTOGRAM(request_bounds);
    m->prompt_tokens = m->generation_tokens = m->params_max_tokens = HISTOGRAM(length_bounds);
    m->params_n = HISTOGRAM(n_bounds);
}

void metrics_observe_n(struct metrics_histogram *h, double value, int64_t n) {
    int i = 0;
    if (!isfinite(value) || value < 0) value = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    h->counts[i] += n;
    h->sum += value * (double)n;
}

void metrics_observe(struct metrics_histogram *h, double value) {
    metrics_observe_n(h, value, 1);
}

void metrics_http(struct metrics *m, const char *label, int status) {
    if (!label) label = "none";
    for (int i = 0; i < m->n_http; i++) {
        if (m->http[i].status != status || strcmp(m->http[i].label, label) != 0) continue;
        m->http[i].n++;
        return;
    }
    if (m->n_http < (int)N_ELEMENTS(m->http)) m->http[m->n_http++] = (struct metrics_http){label, status, 1};
}

/* ---- Text ------------------------------------------------------------------------------------ */

struct writer {
    struct strbuf *out;
    struct strbuf labels; /* model_name="…", escaped */
};

static void write_labels(struct strbuf *b, const char *model_name) {
    strbuf_puts(b, "model_name=\"");
    for (const char *p = model_name; *p; p++) {
        if (*p == '\n')
            strbuf_puts(b, "\\n");
        else if (*p == '"' || *p == '\\')
            strbuf_printf(b, "\\%c", *p);
        else
            strbuf_putc(b, *p);
    }
    strbuf_putc(b, '"');
}

static void write_help(struct writer *w, const char *name, const char *type, const char *help) {
    strbuf_printf(w->out, "# HELP xenon:%s %s\n# TYPE xenon:%s %s\n", name, help, name, type);
}

static void write_value(struct writer *w, const char *name, const char *type, double value, const char *help) {
    write_help(w, name, type, help);
    strbuf_printf(w->out, "xenon:%s{%s} %.15g\n", name, strbuf_cstr(&w->labels), value);
}

static void gauge(struct writer *w, const char *name, double v, const char *help) {
    write_value(w, name, "gauge", v, help);
}

static void counter(struct writer *w, const char *name, int64_t v, const char *help) {
    write_value(w, name, "counter", (double)v, help);
}

static void histogram(struct writer *w, const char *name, const struct metrics_histogram *h, const char *help) {
    int64_t n = 0;
    write_help(w, name, "histogram", help);
    for (int i = 0; i <= h->n_bounds; i++) {
        n += h->counts[i];
        strbuf_printf(w->out, "xenon:%s_bucket{%s,le=\"", name, strbuf_cstr(&w->labels));
        if (i < h->n_bounds)
            strbuf_printf(w->out, "%g", h->bounds[i]);
        else
            strbuf_puts(w->out, "+Inf");
        strbuf_printf(w->out, "\"} %lld\n", (long long)n);
    }
    strbuf_printf(w->out, "xenon:%s_sum{%s} %.9g\n", name, strbuf_cstr(&w->labels), h->sum);
    strbuf_printf(w->out, "xenon:%s_count{%s} %lld\n", name, strbuf_cstr(&w->labels), (long long)n);
}

static void labelled(struct writer *w, const char *name, const char *label, const char *const *words,
                     const int64_t *values, int n, const char *help) {
    write_help(w, name, "counter", help);
    for (int i = 0; i < n; i++)
        strbuf_printf(w->out, "xenon:%s{%s,%s=\"%s\"} %lld\n", name, strbuf_cstr(&w->labels), label, words[i],
                      (long long)values[i]);
}

static void write_engine(struct writer *w, const struct metrics_now *now) {
    const struct xenon_stats *const s = now->stats;
    const double used = s->kv_blocks_total > 0 ? (double)s->kv_blocks_used / (double)s->kv_blocks_total : 0;
    gauge(w, "num_requests_running", s->n_running, "Requests in model execution.");
    gauge(w, "num_requests_waiting", s->n_waiting + now->n_text_jobs, "Requests waiting to be processed.");
    gauge(w, "kv_cache_usage_perc", used, "KV-cache usage, 1 means all of it.");
    counter(w, "prefix_cache_queries_total", s->prefix_queries, "Prompt tokens looked up in the prefix cache.");
    counter(w, "prefix_cache_hits_total", s->prefix_hits, "Prompt tokens found in the prefix cache.");
    counter(w, "num_preemptions_total", s->preemptions, "Requests preempted for want of pages.");
    counter(w, "kv_cache_evictions_total", s->evictions, "Cached pages given to other prompts.");
    counter(w, "prompt_tokens_total", s->prompt_tokens, "Prompt tokens computed.");
    counter(w, "generation_tokens_total", s->generation_tokens, "Tokens generated.");
    counter(w, "engine_steps_total", s->steps, "Steps of the engine.");
    write_value(w, "engine_step_seconds_total", "counter", s->step_seconds, "Time inside steps.");
    if (!now->info) return;
    write_help(w, "cache_config_info", "gauge", "How the KV cache is laid out.");
    strbuf_printf(
        w->out,
        "xenon:cache_config_info{%s,block_size=\"%d\",num_gpu_blocks=\"%lld\",enable_prefix_caching=\"%s\"} 1\n",
        strbuf_cstr(&w->labels), now->info->block_size, (long long)now->info->num_kv_blocks,
        now->enable_prefix_caching ? "True" : "False");
}

static void write_requests(struct writer *w, const struct metrics *m) {
    static const char *const reasons[METRICS_N_FINISH] = {"stop", "length", "abort", "error"};
    static const char *const rejects[METRICS_N_REJECT] = {"queue_full", "loading", "draining", "dead", "invalid"};
    labelled(w, "request_success_total", "finished_reason", reasons, m->finished, METRICS_N_FINISH,
             "Finished requests.");
    labelled(w, "admission_rejections_total", "reason", rejects, m->rejected, METRICS_N_REJECT,
             "Requests not admitted.");
    histogram(w, "time_to_first_token_seconds", &m->ttft, "From arrival to the first token.");
    histogram(w, "inter_token_latency_seconds", &m->inter_token, "Time between tokens of a request.");
    histogram(w, "time_per_output_token_seconds", &m->inter_token, "inter_token_latency_seconds under its older name.");
    histogram(w, "request_time_per_output_token_seconds", &m->tpot, "Mean time per output token of a request.");
    histogram(w, "e2e_request_latency_seconds", &m->e2e, "From arrival to the last token.");
    histogram(w, "request_decode_time_seconds", &m->decode, "From the first to the last token.");
    histogram(w, "request_prompt_tokens", &m->prompt_tokens, "Prompt tokens of a request.");
    histogram(w, "request_generation_tokens", &m->generation_tokens, "Generated tokens of a request.");
    histogram(w, "request_params_n", &m->params_n, "The n asked for.");
    histogram(w, "request_params_max_tokens", &m->params_max_tokens, "The max_tokens asked for.");
}

static void write_http(struct writer *w, const struct metrics *m) {
    write_help(w, "http_requests_total", "counter", "HTTP requests by route and status; 499: the client left.");
    for (int i = 0; i < m->n_http; i++)
        strbuf_printf(w->out, "xenon:http_requests_total{%s,handler=\"%s\",status=\"%d\"} %lld\n",
                      strbuf_cstr(&w->labels), m->http[i].label, m->http[i].status, (long long)m->http[i].n);
}

static void write_process(struct writer *w, const struct metrics *m) {
    long long pages = 0;
    FILE *const f = fopen("/proc/self/statm", "r");
    if (f) {
        if (fscanf(f, "%*s %lld", &pages) != 1) pages = 0;
        fclose(f);
    }
    strbuf_printf(w->out,
                  "# HELP process_resident_memory_bytes Memory in use.\n# TYPE process_resident_memory_bytes gauge\n"
                  "process_resident_memory_bytes %lld\n"
                  "# HELP process_start_time_seconds Start, Unix time.\n# TYPE process_start_time_seconds gauge\n"
                  "process_start_time_seconds %lld\n",
                  pages * (long long)sysconf(_SC_PAGESIZE), (long long)m->start_unix_s);
}

void metrics_write(const struct metrics *m, const struct metrics_now *now, struct strbuf *out) {
    struct writer w = {.out = out};
    write_labels(&w.labels, now->model_name);
    write_engine(&w, now);
    write_requests(&w, m);
    write_http(&w, m);
    gauge(&w, "http_connections", now->n_connections, "Open connections.");
    write_process(&w, m);
    if (w.labels.failed) out->failed = true;
    strbuf_deinit(&w.labels);
}
