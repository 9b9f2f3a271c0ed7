#include "engine/sequence.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* Ranges of xenon.h; NaN fails every comparison and so every check. */
static enum err check_sampling(const struct xenon_sampling *s, struct err_msg *msg) {
    if (!(s->temperature >= 0 && s->temperature <= 1e6f))
        return err_set(msg, ERR_ARG, "temperature is %g, must be in [0, 1e6]", (double)s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return err_set(msg, ERR_ARG, "top_p is %g, must be in (0, 1]", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return err_set(msg, ERR_ARG, "min_p is %g, must be in [0, 1]", (double)s->min_p);
    if (!(s->presence_penalty >= -2 && s->presence_penalty <= 2))
        return err_set(msg, ERR_ARG, "presence_penalty is %g, must be in [-2, 2]", (double)s->presence_penalty);
    if (!(s->frequency_penalty >= -2 && s->frequency_penalty <= 2))
        return err_set(msg, ERR_ARG, "frequency_penalty is %g, must be in [-2, 2]", (double)s->frequency_penalty);
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= 1e6f))
        return err_set(msg, ERR_ARG, "repetition_penalty is %g, must be in (0, 1e6]", (double)s->repetition_penalty);
    if (s->max_tokens < -1) return err_set(msg, ERR_ARG, "max_tokens is %d, must be at least 0", (int)s->max_tokens);
    if (s->min_tokens < 0) return err_set(msg, ERR_ARG, "min_tokens is %d, must be at least 0", (int)s->min_tokens);
    if (s->max_tokens >= 0 && s->min_tokens > s->max_tokens)
        return err_set(msg, ERR_ARG, "min_tokens is %d but max_tokens is %d", (int)s->min_tokens, (int)s->max_tokens);
    if (s->logprobs < -1 || s->logprobs > XENON_TOP_LOGPROBS_MAX)
        return err_set(msg, ERR_ARG, "logprobs is %d, must be in 0..%d", s->logprobs, XENON_TOP_LOGPROBS_MAX);
    if (s->prompt_logprobs < -1 || s->prompt_logprobs > XENON_TOP_LOGPROBS_MAX)
        return err_set(msg, ERR_ARG, "prompt_logprobs is %d, must be in 0..%d", s->prompt_logprobs,
                       XENON_TOP_LOGPROBS_MAX);
    for (size_t i = 0; i < s->n_bias; i++) {
        if (!isfinite(s->bias[i].bias))
            return err_set(msg, ERR_ARG, "logit_bias of token %d is not a finite number", (int)s->bias[i].id);
    }
    return ERR_OK;
}

static enum err check_spec(const struct sequence_spec *spec, struct err_msg *msg) {
    if (spec->n_prompt == 0) return err_set(msg, ERR_ARG, "the prompt is empty");
    const int64_t room = spec->sampling->max_tokens == 0 ? 0 : 1;
    if (spec->n_prompt > (size_t)INT64_MAX / 16 || (int64_t)spec->n_prompt + room > spec->max_model_len)
        return err_set(msg, ERR_LIMIT,
                       "the prompt has %zu tokens and the model's longest sequence is %lld, answer included",
                       spec->n_prompt, (long long)spec->max_model_len);
    if (spec->salt && strlen(spec->salt) > SEQUENCE_SALT_MAX)
        return err_set(msg, ERR_ARG, "cache_salt is longer than %d bytes", SEQUENCE_SALT_MAX);
    return check_sampling(spec->sampling, msg);
}

/* n elements of size bytes, copied; NULL for none and when memory is short. */
static void *copy_array(const void *from, size_t n, size_t size) {
    if (n == 0) return NULL;
    void *const to = mem_calloc(n, size);
    if (to) memcpy(to, from, n * size);
    return to;
}

static bool copy_sampling(struct sampling_params *p, const struct xenon_sampling *s, uint64_t seed) {
    *p = (struct sampling_params){
        .temperature = s->temperature,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .repetition_penalty = s->repetition_penalty,
        .seed = s->has_seed ? s->seed : seed,
        .max_tokens = s->max_tokens,
        .min_tokens = s->min_tokens,
        .ignore_eos = s->ignore_eos,
        .logprobs = s->logprobs,
        .prompt_logprobs = s->prompt_logprobs,
        .bias = copy_array(s->bias, s->n_bias, sizeof *s->bias),
        .n_bias = s->n_bias,
        .stop_ids = copy_array(s->stop_ids, s->n_stop_ids, sizeof *s->stop_ids),
        .n_stop_ids = s->n_stop_ids,
    };
    return (p->bias || p->n_bias == 0) && (p->stop_ids || p->n_stop_ids == 0);
}

static bool reserve(struct sequence *seq, const struct sequence_spec *spec) {
    const int64_t n_prompt = (int64_t)spec->n_prompt, max_tokens = spec->sampling->max_tokens;
    seq->max_len = spec->max_model_len;
    if (max_tokens >= 0 && max_tokens < seq->max_len - n_prompt) seq->max_len = n_prompt + max_tokens;
    seq->cap_tokens = seq->max_len;
    seq->cap_pages = (seq->max_len + spec->block_size - 1) / spec->block_size;
    seq->n_groups = spec->n_groups;
    seq->tokens = mem_alloc((size_t)seq->cap_tokens * sizeof *seq->tokens);
    if (!seq->tokens) return false;
    for (int g = 0; g < spec->n_groups; g++) {
        seq->pages[g] = mem_alloc((size_t)seq->cap_pages * sizeof *seq->pages[g]);
        if (!seq->pages[g]) return false;
    }
    return true;
}

enum err sequence_create(struct sequence **out, const struct sequence_spec *spec, struct err_msg *msg) {
    CHECK(spec->n_groups >= 1 && spec->n_groups <= SEQUENCE_GROUP_MAX && spec->block_size >= 1);
    *out = NULL;
    TRY(check_spec(spec, msg));
    struct sequence *const seq = mem_calloc(1, sizeof *seq);
    if (!seq) return err_set(msg, ERR_NOMEM, "no memory for a request");
    seq->salt = mem_strdup(spec->salt ? spec->salt : "");
    if (!copy_sampling(&seq->sampling, spec->sampling, spec->seed) || !seq->salt || !reserve(seq, spec)) {
        sequence_destroy(seq);
        return err_set(msg, ERR_NOMEM, "no memory for a request of up to %lld tokens",
                       (long long)spec->max_model_len);
    }
    memcpy(seq->tokens, spec->prompt, spec->n_prompt * sizeof *spec->prompt);
    seq->id = spec->id;
    seq->user = spec->user;
    seq->n_tokens = seq->n_prompt = (int64_t)spec->n_prompt;
    seq->stop_id = -1;
    seq->priority = spec->priority;
    seq->arrival_ns = spec->arrival_ns;
    seq->deadline_ns = spec->deadline_ns;
    seq->chain_node = -1;
    *out = seq;
    return ERR_OK;
}

void sequence_destroy(struct sequence *seq) {
    if (!seq) return;
    CHECK(!seq->salt_ref);
    for (int g = 0; g < SEQUENCE_GROUP_MAX; g++)
        mem_free(seq->pages[g]);
    mem_free(seq->tokens);
    mem_free(seq->salt);
    mem_free(seq->sampling.bias);
    mem_free(seq->sampling.stop_ids);
    mem_free(seq);
}

void sequence_append(struct sequence *seq, int32_t id) {
    CHECK(seq->n_tokens < seq->cap_tokens);
    seq->tokens[seq->n_tokens++] = id;
}

bool sequence_has_edits(const struct sequence *seq) {
    const struct sampling_params *const p = &seq->sampling;
    return p->n_bias > 0 || p->repetition_penalty != 1.0f || p->frequency_penalty != 0.0f ||
           p->presence_penalty != 0.0f || sequence_n_generated(seq) < p->min_tokens;
}
