/* What the tests of the public API share: opening engines, sending requests, keeping whole answers, and comparing two
 * of them bit by bit. Only include/xenon.h is used on the engine's side. Threads: one. Owns: answers own their tokens
 * until api_client_free. */
#ifndef TESTS_GOLDEN_API_CLIENT_H
#define TESTS_GOLDEN_API_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "xenon.h"

enum { API_CLIENT_TOP = XENON_TOP_LOGPROBS_MAX };

/* A token with everything that was said of it. */
struct api_client_token {
    int32_t id, rank;
    float logprob;
    int n_top;
    struct xenon_logprob top[API_CLIENT_TOP];
};

struct api_client_answer {
    struct api_client_token *tokens; /* [n] */
    size_t n, cap;
    struct api_client_token *prompt; /* [n_prompt], NULL unless asked for */
    size_t n_prompt, n_cached;
    char text[4096]; /* what fits */
    enum xenon_finish finish;
    int32_t stop_id;
};

/* Sanitizers and debug builds run a part of the long tests. */
bool api_client_is_slow(void);

/* XENON_TEST_FULL=1: the long forms. */
bool api_client_wants_all(void);

/* The SmolLM2 file of tests/golden/real_test.c; skips the test when it is not there. */
const char *api_client_smollm2(void);

/* Opens or fails the test. */
struct xenon *api_client_open(const struct xenon_options *opt);

/* Submits or fails the test; waits while the queue is full. */
struct xenon_handle *api_client_submit(struct xenon *x, const struct xenon_request *req);

/* Adds one output to the answer. */
void api_client_add(struct api_client_answer *a, const struct xenon_output *o);

/* Waits for the end of the request, keeps all of it, and releases the handle. The answer is overwritten. */
void api_client_collect(struct xenon_handle *h, struct api_client_answer *a);

/* submit and collect. */
void api_client_ask(struct xenon *x, const struct xenon_request *req, struct api_client_answer *a);
void api_client_free(struct api_client_answer *a);

/* Fails unless ids, ranks and the bits of all logprobs (prompt and answer) are the same. */
void api_client_same(const struct api_client_answer *a, const struct api_client_answer *b, const char *what);

/* Waits until nothing runs and no page is in use, then gives the counters; fails after some seconds. */
void api_client_idle(const struct xenon *x, struct xenon_stats *out);

#endif
