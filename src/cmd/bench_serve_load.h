/* The load of `xenon bench serve`: requests that arrive by a seed, their prompts, and what each of them saw.
 * Threads: main. Owns: the samples. */
#ifndef CMD_BENCH_SERVE_LOAD_H
#define CMD_BENCH_SERVE_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/strbuf.h"

struct bench_serve_options {
    const char *url, *api_key;
    const char *model;    /* NULL: the first one the server names */
    int num_prompts;
    double request_rate;  /* a second; 0: all at once */
    double burstiness;    /* shape of the gamma distribution of the gaps; 1: Poisson arrivals, above: more even */
    int max_concurrency;  /* 0: no limit */
    int input_len, output_len, shared_prefix_len;
    double range_ratio;   /* lengths are uniform within +- this share */
    uint64_t dataset_seed;
    bool ignore_eos;
    double temperature;
    int silence_s;        /* a reply without news for so long has failed */
    bool quiet;
    const char *prompts_out; /* file for the prompts, as `xenon generate --prompts` reads them; NULL */
};

enum { BENCH_SERVE_WHY_MAX = 160 };

/* One request. Times are seconds of the monotonic clock. */
struct bench_serve_sample {
    bool ok;
    char why[BENCH_SERVE_WHY_MAX]; /* what went wrong; empty: nothing */
    double start, first, last, end; /* sent, first and last text, end of the reply */
    int64_t n_input, n_output;      /* tokens, as the server counted them */
    float *gaps;                    /* seconds between pieces of text */
    size_t n_gaps, cap_gaps;
};

struct bench_serve_load {
    struct bench_serve_options opt;
    char model[256];
    int32_t *pool; /* ids that prompts are made of; NULL: the server has no /tokenize, prompts are words */
    size_t n_pool;
    struct bench_serve_sample *samples; /* [opt.num_prompts] */
    double seconds;                     /* from the first request to the last end */
};

/* Sends everything and waits for it. Requests that fail are no error here. Errors: the server does not answer, no
 * memory. */
enum err bench_serve_load_run(struct bench_serve_load *l, struct err_msg *msg) ATTR_NODISCARD;
void bench_serve_load_deinit(struct bench_serve_load *l);

/* A gap between arrivals in seconds, gamma distributed with the given shape and mean (Marsaglia and Tsang 2000). */
double bench_serve_load_gap(struct rng *r, double shape, double mean);

/* Appends the prompt of request i as JSON, ids or words, and sets the longest answer that it may have. */
void bench_serve_prompt_write(const struct bench_serve_load *l, int i, struct strbuf *b, int *max_tokens);

/* Text of n words drawn by the seed. */
void bench_serve_prompt_words(struct strbuf *b, uint64_t seed, int n);

#endif
