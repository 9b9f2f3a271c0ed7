#include "serve/openai_sampling.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "serve/openai_fields.h"

enum { STOP_BYTES_MAX = 1024, SALT_BYTES_MAX = 1024 };

static const char no_memory[] = "memory is short; try again";

/* The defaults: the model's generation_config where it says something, else OpenAI's. */
static void set_defaults(struct openai_request *r, const struct openai_limits *lim) {
    struct xenon_sampling *const s = &r->sampling;
    xenon_sampling_default(s);
    s->temperature = isnan(lim->default_temperature) ? 1.0f : (float)lim->default_temperature;
    s->top_p = isnan(lim->default_top_p) ? 1.0f : (float)lim->default_top_p;
    s->repetition_penalty = isnan(lim->default_repetition_penalty) ? 1.0f : (float)lim->default_repetition_penalty;
    s->top_k = lim->default_top_k > 0 && lim->default_top_k < INT32_MAX ? (int32_t)lim->default_top_k : 0;
    s->max_tokens = -1;
    s->logprobs = s->prompt_logprobs = -1;
    s->skip_special_tokens = true;
}

static bool parse_numbers(struct openai_request *r, struct openai_error *e) {
    struct xenon_sampling *const s = &r->sampling;
    const json_t *const o = r->root;
    int64_t top_k = s->top_k, min_tokens = 0, seed = 0, priority = 0;
    bool ok = openai_fields_float(o, "temperature", 0, 2, &s->temperature, e) &&
              openai_fields_float(o, "top_p", 0, 1, &s->top_p, e) &&
              openai_fields_float(o, "min_p", 0, 1, &s->min_p, e) &&
              openai_fields_float(o, "presence_penalty", -2, 2, &s->presence_penalty, e) &&
              openai_fields_float(o, "frequency_penalty", -2, 2, &s->frequency_penalty, e) &&
              openai_fields_float(o, "repetition_penalty", 1e-3, 100, &s->repetition_penalty, e) &&
              openai_fields_float(o, "timeout", 0, 1e6, &r->timeout_s, e) &&
              openai_fields_int(o, "top_k", -1, INT32_MAX, &top_k, NULL, e) &&
              openai_fields_int(o, "min_tokens", 0, INT32_MAX, &min_tokens, NULL, e) &&
              openai_fields_int(o, "seed", INT64_MIN, INT64_MAX, &seed, &s->has_seed, e) &&
              openai_fields_int(o, "priority", INT32_MIN, INT32_MAX, &priority, NULL, e) &&
              openai_fields_bool(o, "ignore_eos", &s->ignore_eos, e) &&
              openai_fields_bool(o, "include_stop_str_in_output", &s->include_stop_str_in_output, e) &&
              openai_fields_bool(o, "skip_special_tokens", &s->skip_special_tokens, e) &&
              openai_fields_string(o, "cache_salt", SALT_BYTES_MAX, &r->cache_salt, e);
    if (!ok) return false;
    if (s->top_p <= 0) s->top_p = 1e-9f; /* OpenAI allows 0: only the best token is left */
    s->top_k = (int32_t)top_k;
    s->min_tokens = (int32_t)min_tokens;
    s->seed = (uint64_t)seed;
    r->priority = (int)priority;
    return true;
}

/* max_completion_tokens is chat's newer name for max_tokens and wins. */
static bool parse_max_tokens(struct openai_request *r, struct openai_error *e) {
    const int64_t min = r->chat ? 1 : 0;
    int64_t n = r->chat ? -1 : 16;
    if (!openai_fields_int(r->root, "max_tokens", min, INT32_MAX, &n, NULL, e)) return false;
    if (r->chat && !openai_fields_int(r->root, "max_completion_tokens", min, INT32_MAX, &n, NULL, e)) return false;
    r->max_tokens = n;
    r->sampling.max_tokens = (int32_t)n;
    if (n >= 0 && r->sampling.min_tokens > n)
        return openai_error_field(e, "min_tokens", "Invalid 'min_tokens': it is larger than 'max_tokens'.");
    return true;
}

static bool add_stop(struct openai_request *r, const json_t *v, struct openai_error *e) {
    if (!json_is_string(v))
        return openai_error_set(
            e, 400, "invalid_type", "stop",
            "Invalid type for 'stop': expected a string or an array of strings, but got %s instead.",
            openai_fields_type(v));
    const size_t len = json_string_length(v);
    if (len == 0) return openai_error_field(e, "stop", "Invalid 'stop': an empty string would stop at once.");
    if (len > STOP_BYTES_MAX)
        return openai_error_field(e, "stop", "Invalid 'stop': a string is longer than %d bytes.", STOP_BYTES_MAX);
    if (strlen(json_string_value(v)) != len)
        return openai_error_field(e, "stop", "Invalid 'stop': it holds a NUL character.");
    r->stop[r->sampling.n_stop++] = json_string_value(v);
    return true;
}

static bool parse_stop(struct openai_request *r, struct openai_error *e) {
    const json_t *const v = openai_fields_get(r->root, "stop");
    if (!v) return true;
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > XENON_STOP_MAX)
        return openai_error_field(e, "stop", "Invalid 'stop': more than %d strings.", XENON_STOP_MAX);
    r->stop = mem_calloc(n, sizeof *r->stop);
    if (!r->stop) return openai_error_set(e, 503, NULL, NULL, "%s", no_memory);
    if (!json_is_array(v)) return add_stop(r, v, e);
    for (size_t i = 0; i < n; i++)
        if (!add_stop(r, json_array_get(v, i), e)) return false;
    return true;
}

static bool parse_stop_ids(struct openai_request *r, const struct openai_limits *lim, struct openai_error *e) {
    json_t *v = NULL;
    if (!openai_fields_array(r->root, "stop_token_ids", &v, e)) return false;
    const size_t n = json_array_size(v);
    if (n > OPENAI_STOP_IDS_MAX)
        return openai_error_field(e, "stop_token_ids", "Invalid 'stop_token_ids': more than %d ids.",
                                  OPENAI_STOP_IDS_MAX);
    if (n == 0) return true;
    r->stop_ids = mem_calloc(n, sizeof *r->stop_ids);
    if (!r->stop_ids) return openai_error_set(e, 503, NULL, NULL, "%s", no_memory);
    for (size_t i = 0; i < n; i++)
        if (!openai_fields_token(json_array_get(v, i), lim->vocab_size, "stop_token_ids", &r->stop_ids[i], e))
            return false;
    r->sampling.n_stop_ids = n;
    return true;
}

static bool parse_bias_id(const char *key, int64_t vocab_size, int32_t *out) {
    int64_t id = 0;
    if (!*key || strlen(key) > 10) return false;
    for (const char *p = key; *p; p++) {
        if (*p < '0' || *p > '9') return false;
        id = id * 10 + (*p - '0');
    }
    *out = (int32_t)id;
    return id < vocab_size;
}

static bool parse_logit_bias(struct openai_request *r, const struct openai_limits *lim, struct openai_error *e) {
    json_t *o = NULL, *v;
    const char *key;
    size_t n = 0;
    if (!openai_fields_object(r->root, "logit_bias", &o, e) || json_object_size(o) == 0) return e->status == 0;
    if (json_object_size(o) > OPENAI_BIAS_MAX)
        return openai_error_field(e, "logit_bias", "Invalid 'logit_bias': more than %d entries.", OPENAI_BIAS_MAX);
    r->bias = mem_calloc(json_object_size(o), sizeof *r->bias);
    if (!r->bias) return openai_error_set(e, 503, NULL, NULL, "%s", no_memory);
    json_object_foreach(o, key, v) {
        const double bias = json_is_number(v) ? json_number_value(v) : 1000;
        if (!parse_bias_id(key, lim->vocab_size, &r->bias[n].id))
            return openai_error_field(e, "logit_bias", "Invalid 'logit_bias': a key is no token id of this model.");
        if (!(bias >= -100 && bias <= 100))
            return openai_error_field(e, "logit_bias",
                                      "Invalid 'logit_bias': values must be numbers between -100 and 100.");
        r->bias[n++].bias = (float)bias;
    }
    r->sampling.n_bias = n;
    return true;
}

static bool parse_chat_logprobs(struct openai_request *r, struct openai_error *e) {
    bool wanted = false, has_top = false;
    int64_t top = 0;
    if (!openai_fields_bool(r->root, "logprobs", &wanted, e) ||
        !openai_fields_int(r->root, "top_logprobs", 0, XENON_TOP_LOGPROBS_MAX, &top, &has_top, e))
        return false;
    if (has_top && top > 0 && !wanted)
        return openai_error_field(e, "top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true.");
    r->sampling.logprobs = wanted ? (int)top : -1;
    return true;
}

static bool parse_completion_logprobs(struct openai_request *r, struct openai_error *e) {
    int64_t n = -1;
    if (!openai_fields_int(r->root, "logprobs", 0, XENON_TOP_LOGPROBS_MAX, &n, NULL, e) ||
        !openai_fields_bool(r->root, "echo", &r->echo, e))
        return false;
    r->sampling.logprobs = (int)n;
    r->sampling.prompt_logprobs = r->echo ? (int)n : -1;
    return true;
}

static bool parse_streaming(struct openai_request *r, struct openai_error *e) {
    json_t *o = NULL;
    int64_t n = 1, best_of = 1;
    bool has_best_of = false;
    if (!openai_fields_bool(r->root, "stream", &r->stream, e) ||
        !openai_fields_object(r->root, "stream_options", &o, e) ||
        !openai_fields_int(r->root, "n", 1, OPENAI_N_MAX, &n, NULL, e) ||
        !openai_fields_int(r->root, "best_of", 1, OPENAI_N_MAX, &best_of, &has_best_of, e))
        return false;
    r->n = (int)n;
    if (has_best_of && best_of != n)
        return openai_error_field(e, "best_of", "'best_of' different from 'n' is not supported.");
    if (o && !r->stream)
        return openai_error_field(e, "stream_options", "'stream_options' is only allowed when 'stream' is true.");
    return !o || (openai_fields_bool(o, "include_usage", &r->include_usage, e) &&
                  openai_fields_bool(o, "continuous_usage_stats", &r->continuous_usage, e));
}

bool openai_sampling_refuse(const json_t *root, struct openai_error *e) {
    static const char *const names[] = {
        "functions",
        "function_call",
        "audio",
        "prediction",
        "web_search_options",
        "suffix",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "structured_outputs",
        "grammar",
        "json_schema",
        "bad_words",
        "allowed_token_ids",
        "prompt_logprobs",
        "truncate_prompt_tokens",
        "prompt_embeds",
        "mm_processor_kwargs",
        "typical_p",
        "dry_multiplier",
        "mirostat",
        "lora",
        "use_beam_search",
    };
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        const json_t *const v = openai_fields_get(root, names[i]);
        const bool harmless = !v || json_is_false(v) || (json_is_array(v) && json_array_size(v) == 0) ||
                              (json_is_string(v) && json_string_length(v) == 0) ||
                              (json_is_number(v) && json_number_value(v) == 0);
        if (!harmless)
            return openai_error_set(e, 400, "unsupported_parameter", names[i], "'%s' is not supported by this server.",
                                    names[i]);
    }
    const json_t *const format = openai_fields_get(root, "response_format");
    if (!format) return true;
    const char *const type = json_string_value(json_object_get(format, "type"));
    if (!type)
        return openai_error_field(e, "response_format",
                                  "Invalid 'response_format': expected an object with a string 'type'.");
    if (strcmp(type, "text") == 0) return true;
    return openai_error_set(e, 400, "unsupported_parameter", "response_format",
                            "'response_format' other than {\"type\": \"text\"} is not supported by this server.");
}

bool openai_sampling_parse(struct openai_request *r, const struct openai_limits *lim, struct openai_error *e) {
    set_defaults(r, lim);
    const bool ok = openai_sampling_refuse(r->root, e) && parse_streaming(r, e) && parse_numbers(r, e) &&
                    parse_max_tokens(r, e) && parse_stop(r, e) && parse_stop_ids(r, lim, e) &&
                    parse_logit_bias(r, lim, e) &&
                    (r->chat ? parse_chat_logprobs(r, e) : parse_completion_logprobs(r, e));
    r->sampling.bias = r->bias;
    r->sampling.stop_ids = r->stop_ids;
    r->sampling.stop = r->stop;
    return ok;
}
