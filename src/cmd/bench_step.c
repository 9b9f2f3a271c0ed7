#include "cmd/bench_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cmd/args.h"
#include "cmd/bench_session.h"
#include "cmd/bench_trace.h"
#include "cmd/engine_flags.h"
#include "cmd/progress.h"

enum { SLACK = 64, TRACE_STEPS = 4, CHUNK_MIN = 512 };

struct bencher {
    struct bench_session session;
    struct bench_machine machine;
    struct bench_step_flags flags;
    struct bench_step_report report;
    struct bench_trace trace;
};

/* ---- What a step costs at least ---- */

static double step_bytes(const struct model_runner *r) {
    int64_t n = 0;
    for (size_t i = 0; i < r->plan.n_calls; i++) n += ledger_call_bytes(r->plan.calls[i].t, &r->step);
    return (double)n;
}

/* Seconds of the present step's matrices at the measured rates. */
static double step_arithmetic(const struct model_runner *r, const double peak[PEAK_N_KINDS]) {
    double s = 0;
    for (size_t i = 0; i < r->plan.n_calls; i++) {
        const struct tensor *const t = r->plan.calls[i].t;
        if (t->op != &op_linear) continue;
        const struct weight *const w = ((const struct linear_params *)t->params)->w;
        s += 2.0 * (double)w->n * (double)w->k * op_n_rows(t, &r->step) /
             peak[bench_machine_kind(w->kern, &r->kern.peak)];
    }
    return s;
}

static void measure_peaks(struct bencher *b, double peak[PEAK_N_KINDS]) {
    const struct model_runner *const r = &b->session.runner;
    for (int k = 0; k < PEAK_N_KINDS; k++)
        peak[k] = bench_machine_peak(r->pool, &r->kern.peak, (enum peak_kind)k);
}

/* ---- Steps ---- */

/* Runs n steps; *seconds, and in *arithmetic what they take at the rates in peak. */
static enum err run_steps(struct bencher *b, int64_t n, const double peak[PEAK_N_KINDS], double *seconds,
                          double *arithmetic, struct err_msg *msg) {
    int64_t n_tokens;
    *seconds = *arithmetic = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t start = clock_ns();
        TRY(bench_session_step(&b->session, &n_tokens, msg));
        *seconds += (double)(clock_ns() - start) * 1e-9;
        if (peak) *arithmetic += step_arithmetic(&b->session.runner, peak);
    }
    return ERR_OK;
}

/* Runs a prompt to its end: the number of steps that took. */
static enum err run_prompt(struct bencher *b, int64_t length, const double peak[PEAK_N_KINDS], double *seconds,
                           double *arithmetic, int64_t *n_steps, struct err_msg *msg) {
    double s, a;
    *seconds = *arithmetic = 0;
    *n_steps = 0;
    TRY(bench_session_add(&b->session, length, 1, msg));
    while (b->session.n_live > 0) {
        TRY(run_steps(b, 1, peak, &s, &a, msg));
        *seconds += s;
        *arithmetic += a;
        ++*n_steps;
    }
    return ERR_OK;
}

/* Sequences with a cache of c->length tokens, all decoding from now on. */
static enum err start_decode(struct bencher *b, const struct bench_step_case *c, int64_t n_answer,
                             struct err_msg *msg) {
    const struct step *const step = &b->session.runner.step;
    int64_t n_tokens;
    for (int i = 0; i < c->batch; i++) TRY(bench_session_add(&b->session, c->length, n_answer, msg));
    do TRY(bench_session_step(&b->session, &n_tokens, msg));
    while (step->n_seqs < c->batch || step->n_tokens > c->batch);
    return bench_session_step(&b->session, &n_tokens, msg);
}

/* ---- The ledger's view, of steps that are not timed otherwise ---- */

static enum err with_ledger(struct bencher *b, struct bench_step_case *c, const char *name, struct err_msg *msg) {
    struct model_runner *const r = &b->session.runner;
    struct ledger k;
    double seconds, arithmetic;
    int64_t n_steps = c->n_steps;
    const size_t events = b->flags.trace ? TRACE_STEPS * r->plan.n_tape : 0;
    TRY(ledger_create(&k, &r->plan, pool_n_lanes(r->pool), events, msg));
    r->plan.ledger = &k;
    const enum err e = c->kind == BENCH_STEP_DECODE
                           ? run_steps(b, n_steps, NULL, &seconds, &arithmetic, msg)
                           : run_prompt(b, c->length, NULL, &seconds, &arithmetic, &n_steps, msg);
    r->plan.ledger = NULL;
    if (!e) {
        const double n = (double)k.n_steps;
        c->n_rows = ledger_rows(&k, c->rows, BENCH_STEP_ROWS_MAX);
        c->step_ns = (double)k.step_ns / n;
        c->prepare_ns = (double)k.prepare_ns / n;
        c->sampler_ns = seconds * 1e9 / n - c->step_ns;
        c->n_barriers = (double)k.lanes[0].n_barriers / n;
        for (int i = 0; i < k.n_lanes; i++) c->late_ns += (double)k.lanes[i].late_ns / n / k.n_lanes;
        bench_trace_add(&b->trace, &k, name);
    }
    ledger_destroy(&k);
    return e;
}

/* ---- Cases ---- */

static void say(const struct bencher *b, const char *what) {
    if (!b->flags.quiet) fprintf(stderr, "%s\n", what);
}

static enum err decode_sample(struct bencher *b, struct bench_step_case *c, struct err_msg *msg) {
    const struct model_runner *const r = &b->session.runner;
    struct bench_step_sample *const s = &c->samples[c->n_samples];
    const double bytes0 = step_bytes(r);
    double seconds, arithmetic;
    s->read = bench_machine_read(&b->machine);
    TRY(run_steps(b, c->n_steps, c->peak, &seconds, &arithmetic, msg));
    const double bytes = 0.5 * (bytes0 + step_bytes(r)), steps_s = (double)c->n_steps / seconds;
    c->bytes_step += bytes / b->flags.pairs;
    s->tokens_s = steps_s * c->batch;
    s->bandwidth_ratio = bytes * steps_s / s->read;
    s->arithmetic_ratio = arithmetic / seconds;
    c->n_samples++;
    return ERR_OK;
}

static enum err run_decode(struct bencher *b, struct bench_step_case *c, struct err_msg *msg) {
    char name[64];
    snprintf(name, sizeof name, "decode x%d at %lld", c->batch, (long long)c->length);
    say(b, name);
    measure_peaks(b, c->peak);
    TRY(start_decode(b, c, c->n_steps * (b->flags.pairs + 1) + SLACK, msg));
    for (int i = 0; i < b->flags.pairs; i++) TRY(decode_sample(b, c, msg));
    TRY(with_ledger(b, c, name, msg));
    bench_session_abort(&b->session);
    return ERR_OK;
}

static enum err run_prefill(struct bencher *b, struct bench_step_case *c, struct err_msg *msg) {
    char name[64];
    double seconds, arithmetic;
    snprintf(name, sizeof name, "prompt of %lld", (long long)c->length);
    say(b, name);
    measure_peaks(b, c->peak);
    TRY(run_prompt(b, c->length, c->peak, &seconds, &arithmetic, &c->n_steps, msg)); /* touches memory */
    for (int i = 0; i < b->flags.pairs; i++) {
        struct bench_step_sample *const s = &c->samples[c->n_samples];
        measure_peaks(b, c->peak);
        TRY(run_prompt(b, c->length, c->peak, &seconds, &arithmetic, &c->n_steps, msg));
        s->tokens_s = (double)c->length / seconds;
        s->arithmetic_ratio = arithmetic / seconds;
        c->n_samples++;
    }
    c->bytes_step = step_bytes(&b->session.runner);
    return with_ledger(b, c, name, msg);
}

/* ---- Flags ---- */

static struct bench_step_case *new_case(struct bench_step_report *r, enum bench_step_kind kind, int batch,
                                        int64_t length, int64_t n_steps) {
    struct bench_step_case *const c = &r->cases[r->n_cases++];
    *c = (struct bench_step_case){.kind = kind, .batch = batch, .length = length, .n_steps = n_steps};
    return c;
}

/* "1,8,32" into decode cases; "0" is none. */
static enum err parse_cases(struct bencher *b, struct err_msg *msg) {
    const struct bench_step_flags *const f = &b->flags;
    for (const char *p = f->batch; *p;) {
        char *end;
        const long n = strtol(p, &end, 10);
        if (end == p || n < 0 || n > 65536 || (*end && *end != ','))
            return err_set(msg, ERR_ARG, "--batch wants numbers of sequences like 1,8,32, not '%s'", f->batch);
        if (b->report.n_cases == BENCH_STEP_CASES_MAX - 1)
            return err_set(msg, ERR_ARG, "--batch: at most %d numbers", BENCH_STEP_CASES_MAX - 1);
        if (n > 0) (void)new_case(&b->report, BENCH_STEP_DECODE, (int)n, f->context, f->decode);
        p = *end ? end + 1 : end;
    }
    if (f->prompt > 0) (void)new_case(&b->report, BENCH_STEP_PREFILL, 1, f->prompt, 1);
    return b->report.n_cases ? ERR_OK : err_set(msg, ERR_ARG, "nothing to do: --batch 0 and --prompt 0");
}

/* What the cases need, where the user left the choice open. */
static void fit_options(const struct bencher *b, struct xenon_options *opt) {
    const int64_t answer = b->flags.decode * (b->flags.pairs + 1) + SLACK;
    int64_t length = 0, pages = 0;
    int batch = 1;
    for (int i = 0; i < b->report.n_cases; i++) {
        const struct bench_step_case *const c = &b->report.cases[i];
        const int64_t need = c->length + (c->kind == BENCH_STEP_DECODE ? answer : 1);
        const int64_t page = opt->block_size > 0 ? opt->block_size : 16;
        const int64_t n = c->batch * (need / page + 2);
        if (need > length) length = need;
        if (n > pages) pages = n;
        if (c->batch > batch) batch = c->batch;
    }
    if (!opt->max_model_len) opt->max_model_len = length;
    if (!opt->max_num_seqs) opt->max_num_seqs = batch;
    if (!opt->num_kv_blocks && !opt->kv_cache_memory) opt->num_kv_blocks = pages;
    if (opt->max_num_batched_tokens) return;
    const int64_t chunk = b->flags.prompt > batch ? b->flags.prompt : batch;
    opt->max_num_batched_tokens = (int)(chunk > CHUNK_MIN ? chunk : CHUNK_MIN);
}

// clang-format off
#define FIELD(f) offsetof(struct bench_step_flags, f)
static const struct arg_def step_defs[] = {
    {"batch", "-b", ARG_STRING, FIELD(batch), NULL, 0, 0, 0, "LIST", "sequences decoded together (1); 0: no decode", false},
    {"context", NULL, ARG_COUNT, FIELD(context), NULL, 1, 1e9, 0, "N", "tokens in the cache before the decode (16)", false},
    {"decode", "-n", ARG_COUNT, FIELD(decode), NULL, 1, 1e6, 0, "N", "steps of a decode sample (32)", false},
    {"prompt", "-p", ARG_COUNT, FIELD(prompt), NULL, 0, 1e6, 0, "N", "tokens of a prompt sample (512); 0: no prompt", false},
    {"pairs", NULL, ARG_INT, FIELD(pairs), NULL, 1, BENCH_PAIRS_MAX, 0, "N", "samples, each with its own measurement of the machine (5)", false},
    {"buffer", NULL, ARG_SIZE, FIELD(buffer), NULL, 1 << 20, 1e15, 0, "SIZE", "memory whose read is timed (2GiB)", false},
    {"trace", NULL, ARG_STRING, FIELD(trace), NULL, 0, 0, 0, "FILE", "writes a timeline of operators (chrome://tracing)", false},
    {"json", NULL, ARG_FLAG, FIELD(json), NULL, 0, 0, 0, NULL, "one JSON object on stdout", false},
    {"quiet", "-q", ARG_FLAG, FIELD(quiet), NULL, 0, 0, 0, NULL, "no progress on stderr", false},
};
// clang-format on

static void fill_report(struct bencher *b) {
    const struct model_runner *const r = &b->session.runner;
    struct bench_step_report *const out = &b->report;
    out->model_path = ckpt_path(b->session.ckpt);
    out->architecture = r->model.def->name;
    out->cpu = cpu_model_name();
    out->isa = cpu_level_name(r->kern.level);
    out->walk = bench_machine_walk_name(b->machine.walk);
    out->n_parameters = r->model.n_parameters;
    out->weight_bytes = r->weights.packed_bytes;
    out->threads = pool_n_lanes(r->pool);
    out->nodes = pool_n_teams(r->pool);
    out->level = r->level;
    for (int k = 0; k < PEAK_N_KINDS; k++) out->peak_name[k] = r->kern.peak.name[k];
}

static enum err measure(struct bencher *b, struct xenon_options *opt, struct err_msg *msg) {
    struct progress bar;
    progress_init(&bar, b->flags.quiet);
    opt->progress = progress_callback;
    opt->user = &bar;
    fit_options(b, opt);
    if (b->flags.trace) TRY(bench_trace_open(&b->trace, b->flags.trace, msg));
    const enum err e = bench_session_open(&b->session, opt, msg);
    progress_end(&bar);
    if (e) return e;
    const struct model_runner *const r = &b->session.runner;
    TRY(bench_machine_open(&b->machine, r->pool, &r->topology, (size_t)b->flags.buffer, msg));
    for (int i = 0; i < b->report.n_cases; i++) {
        struct bench_step_case *const c = &b->report.cases[i];
        TRY(c->kind == BENCH_STEP_DECODE ? run_decode(b, c, msg) : run_prefill(b, c, msg));
    }
    fill_report(b);
    return ERR_OK;
}

static int run_all(struct bencher *b, struct xenon_options *opt) {
    struct err_msg msg = {{0}};
    enum err e = measure(b, opt, &msg);
    if (!e) {
        if (b->flags.json) bench_report_json(&b->report);
        else bench_report_text(&b->report);
    }
    const enum err closed = bench_trace_close(&b->trace, e ? NULL : &msg);
    if (!e) e = closed;
    if (!e && (fflush(stdout) != 0 || ferror(stdout))) e = err_set(&msg, ERR_IO, "cannot write to stdout");
    bench_machine_close(&b->machine);
    bench_session_close(&b->session);
    if (e) fprintf(stderr, "xenon bench step: %s\n", msg.text);
    return e == ERR_ARG ? 2 : e ? 1 : 0;
}

int bench_step_main(int argc, char **argv) {
    struct xenon_options opt = {0};
    struct err_msg msg = {{0}};
    struct bencher *const b = mem_xcalloc(1, sizeof *b);
    b->flags = (struct bench_step_flags){
        .batch = "1", .prompt = 512, .context = 16, .decode = 32, .pairs = 5, .buffer = (int64_t)2 << 30};
    const struct arg_group groups[] = {engine_flags_group(&opt),
                                       {"measurement", step_defs, N_ELEMENTS(step_defs), &b->flags}};
    struct args a = {.groups = groups, .n_groups = N_ELEMENTS(groups), .n_positional_max = 1};
    int rc = 2;
    enum err e = args_parse(&a, argc, argv, &msg);
    if (!e && a.help) {
        args_print_help(&a, stdout, "xenon bench step --model M [flags]", a.help_all);
        mem_free(b);
        return 0;
    }
    if (!e) e = engine_flags_finish(&opt, &a, &msg);
    if (!e) e = parse_cases(b, &msg);
    if (e) fprintf(stderr, "xenon bench step: %s\n", msg.text);
    else rc = run_all(b, &opt);
    mem_free(b);
    return rc;
}
