#include "cmd/bench_serve_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "base/mem.h"
#include "serve/json_write.h"

enum { REASONS_MAX = 8 };

static const char *const short_names[BENCH_SERVE_N_TIMES] = {"ttft", "tpot", "itl", "e2el"};

static bool has_slo(const struct bench_serve_report *r) {
    for (int k = 0; k < BENCH_SERVE_N_TIMES; k++)
        if (r->slo_ms[k] > 0) return true;
    return false;
}

enum err bench_serve_report_slo(struct bench_serve_report *r, const char *text, struct err_msg *msg) {
    for (int k = 0; k < BENCH_SERVE_N_TIMES; k++) {
        const size_t n = strlen(short_names[k]);
        char *end;
        if (k == BENCH_SERVE_ITL || strncmp(text, short_names[k], n) != 0 || text[n] != ':') continue;
        r->slo_ms[k] = strtod(text + n + 1, &end);
        if (end != text + n + 1 && !*end && r->slo_ms[k] > 0) return ERR_OK;
    }
    return err_set(msg, ERR_ARG, "--goodput: \"%.40s\" is none of ttft:MS, tpot:MS and e2el:MS", text);
}

/* The time of one request in ms; negative: it has none (one token has no time per further token). */
static double time_of(const struct bench_serve_sample *s, enum bench_serve_time kind) {
    switch (kind) {
    case BENCH_SERVE_TTFT: return s->first > 0 ? (s->first - s->start) * 1e3 : -1;
    case BENCH_SERVE_TPOT: return s->n_output > 1 ? (s->last - s->first) * 1e3 / (double)(s->n_output - 1) : -1;
    case BENCH_SERVE_E2E: return (s->end - s->start) * 1e3;
    default: return -1;
    }
}

static bool is_good(const struct bench_serve_report *r, const struct bench_serve_sample *s) {
    for (int k = 0; k < BENCH_SERVE_N_TIMES; k++)
        if (r->slo_ms[k] > 0 && time_of(s, (enum bench_serve_time)k) > r->slo_ms[k]) return false;
    return s->ok;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value below which a share p of the n sorted values lies, between neighbours as numpy does it. */
static double percentile(const double *v, size_t n, double p) {
    const double at = p * (double)(n - 1);
    const size_t i = (size_t)at;
    return i + 1 < n ? v[i] + (v[i + 1] - v[i]) * (at - (double)i) : v[n - 1];
}

static struct bench_serve_summary summarize(double *v, size_t n) {
    struct bench_serve_summary s = {0};
    if (n == 0) return s;
    qsort(v, n, sizeof *v, by_value);
    for (size_t i = 0; i < n; i++) s.mean += v[i] / (double)n;
    s.p50 = percentile(v, n, 0.5);
    s.p90 = percentile(v, n, 0.9);
    s.p99 = percentile(v, n, 0.99);
    s.max = v[n - 1];
    return s;
}

/* The values of one kind over all requests that went well; `v` has room for them. */
static size_t gather(const struct bench_serve_load *l, enum bench_serve_time kind, double *v) {
    size_t n = 0;
    for (int i = 0; i < l->opt.num_prompts; i++) {
        const struct bench_serve_sample *const s = &l->samples[i];
        const double t = s->ok ? time_of(s, kind) : -1;
        if (t >= 0) v[n++] = t;
        for (size_t k = 0; s->ok && kind == BENCH_SERVE_ITL && k < s->n_gaps; k++) v[n++] = (double)s->gaps[k] * 1e3;
    }
    return n;
}

enum err bench_serve_report_fill(struct bench_serve_report *r, const struct bench_serve_load *l, struct err_msg *msg) {
    size_t n = (size_t)l->opt.num_prompts;
    for (int i = 0; i < l->opt.num_prompts; i++) {
        const struct bench_serve_sample *const s = &l->samples[i];
        n += s->n_gaps;
        r->n_good += is_good(r, s);
        r->n_ok += s->ok;
        r->n_failed += !s->ok;
        if (!s->ok) continue;
        r->n_input += s->n_input;
        r->n_output += s->n_output;
    }
    double *const v = mem_calloc(n, sizeof *v);
    if (!v) return err_set(msg, ERR_NOMEM, "memory ran out");
    for (int k = 0; k < BENCH_SERVE_N_TIMES; k++)
        r->times[k] = summarize(v, gather(l, (enum bench_serve_time)k, v));
    mem_free(v);
    return ERR_OK;
}

void bench_serve_report_table(const struct bench_serve_report *r, const struct bench_serve_load *l) {
    static const char *const names[] = {"first token", "per further token", "between pieces", "whole request"};
    static const char *const codes[] = {"TTFT", "TPOT", "ITL", "E2E"};
    const double s = l->seconds > 0 ? l->seconds : 1;
    printf("%s: %d requests ok, %d failed, in %.2f s\n", l->model, r->n_ok, r->n_failed, l->seconds);
    printf("  %-28s %10.2f requests/s\n", "request throughput", r->n_ok / s);
    printf("  %-28s %10.2f tokens/s    %lld tokens\n", "input", (double)r->n_input / s, (long long)r->n_input);
    printf("  %-28s %10.2f tokens/s    %lld tokens\n", "output", (double)r->n_output / s, (long long)r->n_output);
    printf("  %-28s %10.2f tokens/s\n", "total", (double)(r->n_input + r->n_output) / s);
    if (has_slo(r))
        printf("  %-28s %10.2f requests/s  %.1f %% of all\n", "goodput", r->n_good / s,
               100.0 * r->n_good / l->opt.num_prompts);
    printf("  %-28s %10s %10s %10s %10s %10s\n", "milliseconds", "mean", "p50", "p90", "p99", "max");
    for (int k = 0; k < BENCH_SERVE_N_TIMES; k++) {
        const struct bench_serve_summary *const t = &r->times[k];
        printf("  %-5s %-22s %10.2f %10.2f %10.2f %10.2f %10.2f\n", codes[k], names[k], t->mean, t->p50, t->p90, t->p99,
               t->max);
    }
}

static void write_details(const struct bench_serve_load *l, struct strbuf *b) {
    strbuf_puts(b, ",\"requests\":[");
    for (int i = 0; i < l->opt.num_prompts; i++) {
        const struct bench_serve_sample *const s = &l->samples[i];
        strbuf_printf(b, "%s{\"ok\":%s,\"start\":%.6f,\"first\":%.6f,\"end\":%.6f,\"input_len\":%lld,\"output_len\":%lld,\"error\":",
                      i ? "," : "", s->ok ? "true" : "false", s->start, s->first, s->end, (long long)s->n_input,
                      (long long)s->n_output);
        json_write_string(b, s->why, strlen(s->why));
        strbuf_puts(b, ",\"itls\":[");
        for (size_t k = 0; k < s->n_gaps; k++) strbuf_printf(b, "%s%.6f", k ? "," : "", (double)s->gaps[k]);
        strbuf_puts(b, "]}");
    }
    strbuf_puts(b, "]");
}

void bench_serve_report_json(const struct bench_serve_report *r, const struct bench_serve_load *l, struct strbuf *b) {
    const struct bench_serve_options *const o = &l->opt;
    const double s = l->seconds > 0 ? l->seconds : 1;
    strbuf_puts(b, "{\"model_id\":");
    json_write_cstr(b, l->model);
    strbuf_printf(b, ",\"num_prompts\":%d,\"request_rate\":", o->num_prompts);
    if (o->request_rate > 0) strbuf_printf(b, "%g", o->request_rate);
    else strbuf_puts(b, "\"inf\"");
    strbuf_printf(b, ",\"burstiness\":%g,\"max_concurrency\":", o->burstiness);
    if (o->max_concurrency > 0) strbuf_printf(b, "%d", o->max_concurrency);
    else strbuf_puts(b, "null");
    strbuf_printf(b, ",\"duration\":%.6f,\"completed\":%d,\"failed\":%d,\"total_input_tokens\":%lld,\"total_output_tokens\":%lld",
                  l->seconds, r->n_ok, r->n_failed, (long long)r->n_input, (long long)r->n_output);
    strbuf_printf(b, ",\"request_throughput\":%.6f,\"request_goodput\":", r->n_ok / s);
    if (has_slo(r)) strbuf_printf(b, "%.6f", r->n_good / s);
    else strbuf_puts(b, "null");
    strbuf_printf(b, ",\"output_throughput\":%.6f,\"total_token_throughput\":%.6f", (double)r->n_output / s,
                  (double)(r->n_input + r->n_output) / s);
    for (int k = 0; k < BENCH_SERVE_N_TIMES; k++) {
        const struct bench_serve_summary *const t = &r->times[k];
        const char *const n = short_names[k];
        strbuf_printf(b, ",\"mean_%s_ms\":%.6f,\"median_%s_ms\":%.6f,\"p90_%s_ms\":%.6f,\"p99_%s_ms\":%.6f,\"max_%s_ms\":%.6f", n,
                      t->mean, n, t->p50, n, t->p90, n, t->p99, n, t->max);
    }
    if (r->detailed) write_details(l, b);
    strbuf_puts(b, "}\n");
}

void bench_serve_report_failures(const struct bench_serve_load *l) {
    struct {
        const char *why;
        int n;
    } reasons[REASONS_MAX] = {{0}};
    int n = 0, others = 0;
    for (int i = 0; i < l->opt.num_prompts; i++) {
        const struct bench_serve_sample *const s = &l->samples[i];
        int k = 0;
        if (s->ok) continue;
        while (k < n && strcmp(reasons[k].why, s->why) != 0) k++;
        if (k == REASONS_MAX) {
            others++;
            continue;
        }
        if (k == n) n++;
        reasons[k].why = s->why;
        reasons[k].n++;
    }
    for (int k = 0; k < n; k++) fprintf(stderr, "xenon bench serve: %d failed: %s\n", reasons[k].n, reasons[k].why);
    if (others > 0) fprintf(stderr, "xenon bench serve: %d failed for other reasons\n", others);
}
