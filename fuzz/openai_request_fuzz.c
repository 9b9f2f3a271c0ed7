/* Bodies to requests. The first byte chooses the route; the rest is the body. Whatever comes, the answer is a request
 * within the engine's limits or an error that can be written as JSON. */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "serve/openai_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_request(const struct openai_request *r, const struct openai_limits *lim) {
    const struct xenon_sampling *const s = &r->sampling;
    CHECK(r->n >= 1 && r->n <= OPENAI_N_MAX && r->n_prompts >= 1);
    CHECK(r->n_prompts * (size_t)r->n <= OPENAI_PROMPTS_MAX);
    CHECK(s->temperature >= 0 && s->temperature <= 2 && s->top_p > 0 && s->top_p <= 1 && s->min_p >= 0 &&
          s->min_p <= 1);
    CHECK(s->max_tokens >= -1 && s->min_tokens >= 0 && s->logprobs >= -1 && s->logprobs <= XENON_TOP_LOGPROBS_MAX);
    CHECK(s->n_stop <= XENON_STOP_MAX && s->repetition_penalty > 0);
    for (size_t i = 0; i < s->n_stop; i++)
        CHECK(s->stop[i][0]);
    for (size_t i = 0; i < s->n_bias; i++)
        CHECK(s->bias[i].id >= 0 && s->bias[i].id < lim->vocab_size && fabsf(s->bias[i].bias) <= 100);
    for (size_t i = 0; i < s->n_stop_ids; i++)
        CHECK(s->stop_ids[i] >= 0 && s->stop_ids[i] < lim->vocab_size);
    for (size_t i = 0; i < r->n_prompts; i++)
        for (size_t k = 0; k < r->prompts[i].n_ids; k++)
            CHECK(r->prompts[i].ids[k] >= 0 && r->prompts[i].ids[k] < lim->vocab_size);
    CHECK(r->chat == (r->messages != NULL));
}

static void check_error(const struct openai_error *e) {
    struct strbuf b = {0};
    CHECK((e->status == 400 || e->status == 404) && e->message[0]);
    openai_error_write(&b, e);
    json_t *const v = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
    CHECK(v);
    json_decref(v);
    strbuf_deinit(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const models[] = {"m"};
    const struct openai_limits lim = {.vocab_size = 100,
                                      .max_model_len = 64,
                                      .models = models,
                                      .n_models = 1,
                                      .has_chat_template = true,
                                      .default_temperature = (double)NAN,
                                      .default_top_p = (double)NAN,
                                      .default_repetition_penalty = (double)NAN,
                                      .default_top_k = -1};
    struct openai_request r;
    struct openai_error e;
    if (size == 0) return 0;
    const char *const body = (const char *)data + 1;
    const bool ok = data[0] & 1 ? openai_request_parse_chat(&r, &lim, body, size - 1, &e)
                                : openai_request_parse_completion(&r, &lim, body, size - 1, &e);
    if (!ok) {
        check_error(&e);
        return 0;
    }
    check_request(&r, &lim);
    openai_request_trim(&r);
    openai_request_deinit(&r);
    return 0;
}
