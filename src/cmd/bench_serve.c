#include "cmd/bench_serve.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/env.h"
#include "base/mem.h"
#include "cmd/args.h"
#include "cmd/bench_serve_report.h"

struct serve_bench_flags {
    struct bench_serve_options load;
    struct arg_list goodput;
    const char *json;
    bool detailed;
};

#define FIELD(f) offsetof(struct serve_bench_flags, f)

// clang-format off
static const struct arg_def defs[] = {
    {"url", "-u", ARG_STRING, FIELD(load.url), NULL, 0, 0, 0, "URL", "of the server (http://127.0.0.1:8000)", false},
    {"model", "-m", ARG_STRING, FIELD(load.model), NULL, 0, 0, 0, "NAME", "to ask for (the server's first)", false},
    {"api-key", NULL, ARG_STRING, FIELD(load.api_key), NULL, 0, 0, 0, "KEY", "sent to the server (or XENON_API_KEY)", false},
    {"num-prompts", "-n", ARG_INT, FIELD(load.num_prompts), NULL, 1, 1e7, 0, "N", "requests (100)", false},
    {"request-rate", NULL, ARG_DOUBLE, FIELD(load.request_rate), NULL, 0, 1e6, 0, "R", "arrivals a second (0: all at once)", false},
    {"burstiness", NULL, ARG_DOUBLE, FIELD(load.burstiness), NULL, 0.001, 1e6, 0, "B", "1: Poisson arrivals; less: in bursts; more: evener (1)", false},
    {"max-concurrency", "-c", ARG_INT, FIELD(load.max_concurrency), NULL, 1, 1e6, 0, "C", "requests under way at most (no limit)", false},
    {"input-len", NULL, ARG_INT, FIELD(load.input_len), NULL, 1, 1e7, 0, "N", "tokens of a prompt, besides the shared ones (128)", false},
    {"output-len", NULL, ARG_INT, FIELD(load.output_len), NULL, 1, 1e7, 0, "N", "tokens of an answer (128)", false},
    {"range-ratio", NULL, ARG_DOUBLE, FIELD(load.range_ratio), NULL, 0, 1, 0, "X", "lengths are uniform within +- this share (0)", false},
    {"shared-prefix-len", NULL, ARG_INT, FIELD(load.shared_prefix_len), NULL, 0, 1e7, 0, "N", "tokens that all prompts begin with (0)", false},
    {"dataset-seed", NULL, ARG_UINT64, FIELD(load.dataset_seed), NULL, 0, 0, 0, "N", "of prompts and arrivals (0)", false},
    {"ignore-eos", NULL, ARG_FLAG, FIELD(load.ignore_eos), NULL, 0, 0, 0, NULL, "answers have their full length", false},
    {"temperature", NULL, ARG_DOUBLE, FIELD(load.temperature), NULL, 0, 100, 0, "X", "(0)", true},
    {"silence-timeout", NULL, ARG_INT, FIELD(load.silence_s), NULL, 0, 1e6, 0, "SECONDS", "a reply without news for so long has failed (600; 0: never)", true},
    {"goodput", NULL, ARG_LIST, FIELD(goodput), NULL, 0, 0, 0, "BOUND...", "count requests within ttft:MS tpot:MS e2el:MS", false},
    {"json", NULL, ARG_STRING, FIELD(json), NULL, 0, 0, 0, "FILE", "write the result as one JSON object; - prints it instead of the table", false},
    {"save-detailed", NULL, ARG_FLAG, FIELD(detailed), NULL, 0, 0, 0, NULL, "the JSON has the times of every request", true},
    {"prompts-out", NULL, ARG_STRING, FIELD(load.prompts_out), NULL, 0, 0, 0, "FILE", "keep the prompts, for xenon generate --prompts", true},
    {"quiet", "-q", ARG_FLAG, FIELD(load.quiet), NULL, 0, 0, 0, NULL, "no progress", false},
};
// clang-format on

static int complain(const struct err_msg *msg, int status) {
    fprintf(stderr, "xenon bench serve: %s\n", msg->text);
    return status;
}

/* Every stream is a descriptor. */
static void raise_file_limit(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return;
    l.rlim_cur = l.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &l);
}

static enum err write_json(const struct bench_serve_report *r, const struct bench_serve_load *l, const char *path,
                           struct err_msg *msg) {
    struct strbuf b = {0};
    FILE *const f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (!f) return err_set(msg, ERR_IO, "--json %s: %s", path, strerror(errno));
    bench_serve_report_json(r, l, &b);
    bool ok = !b.failed && fwrite(b.data, 1, b.len, f) == b.len;
    strbuf_deinit(&b);
    if ((f == stdout ? fflush(f) : fclose(f)) != 0) ok = false;
    return ok ? ERR_OK : err_set(msg, ERR_IO, "--json %s: can not be written", path);
}

static int run(const struct serve_bench_flags *f, struct bench_serve_report *r) {
    struct bench_serve_load l = {.opt = f->load};
    struct err_msg msg = {{0}};
    enum err e = bench_serve_load_run(&l, &msg);
    if (!e) e = bench_serve_report_fill(r, &l, &msg);
    if (!e && (!f->json || strcmp(f->json, "-") != 0)) bench_serve_report_table(r, &l);
    if (!e) bench_serve_report_failures(&l);
    if (!e && f->json) e = write_json(r, &l, f->json, &msg);
    bench_serve_load_deinit(&l);
    if (e) return complain(&msg, 1);
    return r->n_failed > 0 || fflush(stdout) != 0 ? 1 : 0;
}

/* Users write the base URL of the API with its /v1, as other clients want it. */
static char *base_url(const char *url) {
    size_t n = strlen(url);
    while (n > 0 && url[n - 1] == '/') n--;
    if (n > 3 && strncmp(url + n - 3, "/v1", 3) == 0) n -= 3;
    return mem_strndup(url, n);
}

int bench_serve_main(int argc, char **argv) {
    struct serve_bench_flags f = {.load = {.url = "http://127.0.0.1:8000",
                                           .api_key = env_get("XENON_API_KEY", NULL),
                                           .num_prompts = 100,
                                           .burstiness = 1,
                                           .input_len = 128,
                                           .output_len = 128,
                                           .silence_s = 600}};
    struct bench_serve_report r = {0};
    const struct arg_group group = {"load", defs, N_ELEMENTS(defs), &f};
    struct args a = {.groups = &group, .n_groups = 1};
    struct err_msg msg = {{0}};
    enum err e = args_parse(&a, argc, argv, &msg);
    if (!e && a.help) {
        args_print_help(&a, stdout, "xenon bench serve [--url URL] [flags]", a.help_all);
        return 0;
    }
    for (int i = 0; !e && i < f.goodput.n; i++) e = bench_serve_report_slo(&r, f.goodput.items[i], &msg);
    if (!e && f.detailed && !f.json) e = err_set(&msg, ERR_ARG, "--save-detailed needs --json FILE");
    if (e) return complain(&msg, 2);
    r.detailed = f.detailed;
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    char *const url = base_url(f.load.url);
    if (!url) return 1;
    f.load.url = url;
    const int status = run(&f, &r);
    mem_free(url);
    return status;
}
