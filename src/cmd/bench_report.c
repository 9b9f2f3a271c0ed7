/* The report of `xenon bench step`, for people and for programs. */
#include <stdio.h>

#include "base/strbuf.h"
#include "cmd/bench_step.h"
#include "serve/json_write.h"

struct spread {
    double min, median, max;
};

enum field { FIELD_TOKENS, FIELD_READ, FIELD_BANDWIDTH, FIELD_ARITHMETIC };

static struct spread spread_of(const struct bench_step_case *c, enum field f) {
    double v[BENCH_PAIRS_MAX];
    for (int i = 0; i < c->n_samples; i++) {
        const struct bench_step_sample *const s = &c->samples[i];
        const double values[] = {[FIELD_TOKENS] = s->tokens_s,
                                 [FIELD_READ] = s->read,
                                 [FIELD_BANDWIDTH] = s->bandwidth_ratio,
                                 [FIELD_ARITHMETIC] = s->arithmetic_ratio};
        v[i] = values[f];
    }
    const double median = bench_machine_median(v, c->n_samples);
    return (struct spread){v[0], median, v[c->n_samples - 1]};
}

static void case_name(const struct bench_step_case *c, char *out, size_t cap) {
    if (c->kind == BENCH_STEP_DECODE) snprintf(out, cap, "decode x%d", c->batch);
    else snprintf(out, cap, "prompt %lld", (long long)c->length);
}

/* ---- Text ---- */

static void text_case(const struct bench_step_case *c) {
    char name[32];
    const struct spread tok = spread_of(c, FIELD_TOKENS), ar = spread_of(c, FIELD_ARITHMETIC);
    case_name(c, name, sizeof name);
    const double tokens = c->kind == BENCH_STEP_DECODE ? c->batch : (double)c->length;
    printf("%-14s %9.2f %8.2f", name, tok.median, 1e3 * tokens / tok.median);
    if (c->kind == BENCH_STEP_DECODE) {
        const struct spread bw = spread_of(c, FIELD_BANDWIDTH), read = spread_of(c, FIELD_READ);
        printf(" %8.1f %7.2f  %5.1f %% (%.1f to %.1f)", c->bytes_step * 1e-6, read.median * 1e-9, 100 * bw.median,
               100 * bw.min, 100 * bw.max);
    } else {
        printf(" %8.1f %7s  %-23s", c->bytes_step * 1e-6, "", "");
    }
    printf("  %5.1f %% (%.1f to %.1f)\n", 100 * ar.median, 100 * ar.min, 100 * ar.max);
}

static void text_row(const char *label, int n, double run, double max, double wait, double bytes, double step) {
    printf("  %-32s %5d %10.1f %10.1f %10.1f %6.1f %%", label, n, run * 1e-3, max * 1e-3, wait * 1e-3,
           100 * (run + wait) / step);
    if (bytes > 0 && run + wait > 0) printf(" %8.2f", bytes / (run + wait));
    putchar('\n');
}

static void text_operators(const struct bench_step_case *c) {
    char name[32];
    const double step = c->step_ns + c->sampler_ns;
    case_name(c, name, sizeof name);
    printf("\n%s: %.3f ms a step, %.0f barriers; mean over the lanes, us\n", name, step * 1e-6, c->n_barriers);
    printf("  %-32s %5s %10s %10s %10s %8s %8s\n", "operator", "nodes", "run", "longest", "wait", "share", "GB/s");
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct ledger_row *const r = &c->rows[i];
        text_row(r->label, r->n_calls, r->run_ns, r->run_max_ns, r->wait_ns, r->bytes, step);
    }
    text_row("(lanes start)", 1, 0, 0, c->late_ns, 0, step);
    text_row("(prepare)", 1, c->prepare_ns, c->prepare_ns, 0, 0, step);
    text_row("(schedule, sample)", 1, c->sampler_ns, c->sampler_ns, 0, 0, step);
}

void bench_report_text(const struct bench_step_report *r) {
    printf("%s: %s, %.3f B parameters, %.1f MB packed\n", r->model_path, r->architecture,
           (double)r->n_parameters * 1e-9, (double)r->weight_bytes * 1e-6);
    printf("%s, %s, %d lanes on %d nodes, level %d; read: %s\n\n", r->cpu, r->isa, r->threads, r->nodes, r->level,
           r->walk);
    printf("%-14s %9s %8s %8s %7s  %-23s  %s\n", "", "tok/s", "ms", "MB/step", "GB/s", "of the read bandwidth",
           "of the arithmetic rate");
    for (int i = 0; i < r->n_cases; i++) text_case(&r->cases[i]);
    for (int k = 0; k < PEAK_N_KINDS; k++)
        if (r->peak_name[k])
            printf("%s%s %.1f GOPS", k ? ", " : "\nrates: ", r->peak_name[k], r->cases[0].peak[k] * 1e-9);
    putchar('\n');
    for (int i = 0; i < r->n_cases; i++) text_operators(&r->cases[i]);
}

/* ---- JSON ---- */

static void json_text(struct strbuf *b, const char *key, const char *value) {
    strbuf_printf(b, "\"%s\":", key);
    json_write_cstr(b, value);
    strbuf_putc(b, ',');
}

static void json_spread(struct strbuf *b, const char *key, struct spread s) {
    strbuf_printf(b, "\"%s\":{\"min\":%.6g,\"median\":%.6g,\"max\":%.6g},", key, s.min, s.median, s.max);
}

static void json_samples(struct strbuf *b, const struct bench_step_case *c) {
    strbuf_puts(b, "\"samples\":[");
    for (int i = 0; i < c->n_samples; i++) {
        const struct bench_step_sample *const s = &c->samples[i];
        strbuf_printf(b, "%s{\"tokens_per_s\":%.6g,\"read_bytes_per_s\":%.6g,\"bandwidth_ratio\":%.6g,"
                      "\"arithmetic_ratio\":%.6g}",
                      i ? "," : "", s->tokens_s, s->read, s->bandwidth_ratio, s->arithmetic_ratio);
    }
    strbuf_puts(b, "],");
}

static void json_operators(struct strbuf *b, const struct bench_step_case *c) {
    strbuf_puts(b, "\"operators\":[");
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct ledger_row *const r = &c->rows[i];
        strbuf_puts(b, i ? ",{" : "{");
        json_text(b, "name", r->label);
        strbuf_printf(b, "\"nodes\":%d,\"run_us\":%.3f,\"longest_us\":%.3f,\"wait_us\":%.3f,\"bytes\":%.0f}",
                      r->n_calls, r->run_ns * 1e-3, r->run_max_ns * 1e-3, r->wait_ns * 1e-3, r->bytes);
    }
    strbuf_printf(b, "],\"barriers\":%.0f,\"lanes_start_us\":%.3f,\"prepare_us\":%.3f,\"sample_us\":%.3f,"
                  "\"step_us\":%.3f",
                  c->n_barriers, c->late_ns * 1e-3, c->prepare_ns * 1e-3, c->sampler_ns * 1e-3,
                  (c->step_ns + c->sampler_ns) * 1e-3);
}

static void json_case(struct strbuf *b, const struct bench_step_report *r, const struct bench_step_case *c) {
    const bool decode = c->kind == BENCH_STEP_DECODE;
    strbuf_printf(b, "{\"kind\":\"%s\",\"batch\":%d,\"length\":%lld,\"steps\":%lld,", decode ? "decode" : "prompt",
                  c->batch, (long long)c->length, (long long)c->n_steps);
    json_spread(b, "tokens_per_s", spread_of(c, FIELD_TOKENS));
    if (decode) {
        json_spread(b, "read_bytes_per_s", spread_of(c, FIELD_READ));
        json_spread(b, "bandwidth_ratio", spread_of(c, FIELD_BANDWIDTH));
    }
    json_spread(b, "arithmetic_ratio", spread_of(c, FIELD_ARITHMETIC));
    strbuf_printf(b, "\"bytes_per_step\":%.0f,\"bytes_per_token\":%.0f,\"rates\":{", c->bytes_step,
                  c->bytes_step / (decode ? c->batch : (double)c->length));
    bool any = false;
    for (int k = 0; k < PEAK_N_KINDS; k++) {
        if (!r->peak_name[k]) continue;
        strbuf_printf(b, "%s\"%s\":%.6g", any ? "," : "", r->peak_name[k], c->peak[k]);
        any = true;
    }
    strbuf_puts(b, "},");
    json_samples(b, c);
    json_operators(b, c);
    strbuf_putc(b, '}');
}

void bench_report_json(const struct bench_step_report *r) {
    struct strbuf b = {0};
    strbuf_putc(&b, '{');
    json_text(&b, "model", r->model_path);
    json_text(&b, "architecture", r->architecture);
    json_text(&b, "cpu", r->cpu);
    json_text(&b, "isa", r->isa);
    json_text(&b, "read", r->walk);
    strbuf_printf(&b, "\"parameters\":%lld,\"weight_bytes\":%lld,\"threads\":%d,\"nodes\":%d,\"level\":%d,"
                  "\"cases\":[",
                  (long long)r->n_parameters, (long long)r->weight_bytes, r->threads, r->nodes, r->level);
    for (int i = 0; i < r->n_cases; i++) {
        if (i) strbuf_putc(&b, ',');
        json_case(&b, r, &r->cases[i]);
    }
    strbuf_puts(&b, "]}");
    puts(strbuf_cstr(&b));
    strbuf_deinit(&b);
}
