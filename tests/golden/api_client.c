#include "api_client.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/mem.h"

bool api_client_is_slow(void) {
#ifdef XENON_DEBUG
    return true;
#else
    return false;
#endif
}

bool api_client_wants_all(void) {
    return strcmp(env_get("XENON_TEST_FULL", "0"), "0") != 0;
}

const char *api_client_smollm2(void) {
    static char path[1024];
    const char *const home = env_get("HOME", "/root"), *const cache = env_get("XDG_CACHE_HOME", "");
    const char *const given = env_get("XENON_MODEL_SMOLLM2", "");
    if (*given)
        snprintf(path, sizeof path, "%s", given);
    else
        snprintf(path, sizeof path, "%s%s/xenon/SmolLM2-135M-Instruct.Q4_1.gguf", *cache ? cache : home,
                 *cache ? "" : "/.cache");
    if (access(path, R_OK) == 0) return path;
    print_message("no SmolLM2 at %s: run ./quickstart once, or set XENON_MODEL_SMOLLM2\n", path);
    skip();
    return NULL;
}

struct xenon *api_client_open(const struct xenon_options *opt) {
    struct xenon *x = NULL;
    struct xenon_error err = {{0}};
    if (xenon_open(&x, opt, &err) != XENON_OK) fail_msg("%s: %s", opt->model, err.text);
    return x;
}

struct xenon_handle *api_client_submit(struct xenon *x, const struct xenon_request *req) {
    struct xenon_handle *h = NULL;
    struct xenon_error err = {{0}};
    int rc;
    while ((rc = xenon_submit(x, req, &h, &err)) == XENON_EBUSY)
        usleep(1000);
    if (rc != XENON_OK) fail_msg("submit: %s", err.text);
    return h;
}

static void keep(struct api_client_token *t, const struct xenon_token *from) {
    memset(t, 0, sizeof *t);
    t->id = from->id;
    t->rank = from->rank;
    t->logprob = from->logprob;
    t->n_top = from->n_top;
    assert_true(from->n_top <= API_CLIENT_TOP);
    for (int i = 0; i < from->n_top; i++)
        t->top[i] = from->top[i];
}

void api_client_add(struct api_client_answer *a, const struct xenon_output *o) {
    const size_t used = strlen(a->text);
    if (o->text_len && used + o->text_len < sizeof a->text) memcpy(a->text + used, o->text, o->text_len + 1);
    for (size_t i = 0; i < o->n_tokens; i++) {
        assert_true(mem_grow(&a->tokens, &a->cap, a->n + 1, sizeof *a->tokens));
        keep(&a->tokens[a->n++], &o->tokens[i]);
    }
    a->n_prompt = o->n_prompt;
    a->n_cached = o->n_cached;
    a->finish = o->finish;
    a->stop_id = o->stop_id;
    if (!o->prompt_tokens) return;
    assert_null(a->prompt);
    a->prompt = mem_calloc(o->n_prompt, sizeof *a->prompt);
    assert_non_null(a->prompt);
    for (size_t i = 0; i < o->n_prompt; i++)
        keep(&a->prompt[i], &o->prompt_tokens[i]);
}

void api_client_collect(struct xenon_handle *h, struct api_client_answer *a) {
    struct xenon_output o;
    memset(a, 0, sizeof *a);
    do {
        xenon_wait(h, -1);
        if (!xenon_poll(h, &o)) continue;
        api_client_add(a, &o);
        if (o.finish == XENON_FINISH_ERROR) fail_msg("the engine says: %s", o.error);
    } while (a->finish == XENON_FINISH_NONE);
    xenon_release(h);
}

void api_client_ask(struct xenon *x, const struct xenon_request *req, struct api_client_answer *a) {
    api_client_collect(api_client_submit(x, req), a);
}

void api_client_free(struct api_client_answer *a) {
    mem_free(a->tokens);
    mem_free(a->prompt);
    memset(a, 0, sizeof *a);
}

static void same_token(const struct api_client_token *a, const struct api_client_token *b, const char *what,
                       const char *part, size_t i) {
    if (memcmp(a, b, sizeof *a) == 0) return;
    fail_msg("%s: %s token %zu differs: id %d or %d, rank %d or %d, logprob %.9g or %.9g, %d or %d alternatives", what,
             part, i, a->id, b->id, a->rank, b->rank, (double)a->logprob, (double)b->logprob, a->n_top, b->n_top);
}

void api_client_same(const struct api_client_answer *a, const struct api_client_answer *b, const char *what) {
    if (a->n != b->n || a->n_prompt != b->n_prompt || a->finish != b->finish || !a->prompt != !b->prompt)
        fail_msg("%s: %zu or %zu tokens, ended by %d or %d", what, a->n, b->n, (int)a->finish, (int)b->finish);
    for (size_t i = 0; a->prompt && i < a->n_prompt; i++)
        same_token(&a->prompt[i], &b->prompt[i], what, "prompt", i);
    for (size_t i = 0; i < a->n; i++)
        same_token(&a->tokens[i], &b->tokens[i], what, "answer", i);
}

void api_client_idle(const struct xenon *x, struct xenon_stats *out) {
    for (int i = 0; i < 10000; i++) {
        xenon_stats(x, out);
        if (out->n_running == 0 && out->n_waiting == 0 && out->kv_blocks_used == 0) return;
        usleep(1000);
    }
    fail_msg("the engine is idle and still has %d running, %d waiting requests and %lld pages in use", out->n_running,
             out->n_waiting, (long long)out->kv_blocks_used);
}
