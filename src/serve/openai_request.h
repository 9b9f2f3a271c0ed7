/* Request bodies of /v1/chat/completions and /v1/completions as what the engine is asked to do.
 *
 * Parsing needs no engine, only its limits, so it can be tested and fuzzed alone. null means absent everywhere; unknown
 * fields are ignored; known ones that would change the answer but are not supported are refused by name.
 * Threads: any; one owner per request. Owns: the parsed JSON and every array. */
#ifndef SERVE_OPENAI_REQUEST_H
#define SERVE_OPENAI_REQUEST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/openai_error.h"
#include "xenon.h"

enum {
    OPENAI_N_MAX = 128,        /* n */
    OPENAI_PROMPTS_MAX = 2048, /* prompts of one completions request, times n */
    OPENAI_STOP_IDS_MAX = 256,
    OPENAI_BIAS_MAX = 4096,
};

/* What parsing must know about the engine and the server. */
struct openai_limits {
    int64_t vocab_size;
    size_t max_token_bytes;    /* of any token; 0: unknown */
    int64_t max_model_len;
    const char *const *models; /* names this server answers to; the first is the default */
    int n_models;
    bool has_chat_template;
    double default_temperature, default_top_p, default_repetition_penalty; /* NaN: none */
    int64_t default_top_k;                                                 /* -1: none */
};

struct openai_prompt {
    char *text;       /* what was given or rendered; NULL for ids. mem_free */
    size_t text_len;
    int32_t *ids;     /* xenon_free when from_engine, else mem_free */
    size_t n_ids;
    bool from_engine;
};

struct openai_request {
    bool chat;
    json_t *root;          /* strings below point into it */
    const char *model;     /* the name to answer with */
    bool stream, include_usage, continuous_usage;
    bool echo;
    bool add_special;      /* when tokenizing a text prompt */
    int n;
    int64_t max_tokens;    /* as asked for, -1: as many as fit */
    struct xenon_sampling sampling; /* arrays: the three below */
    struct xenon_bias *bias;
    int32_t *stop_ids;
    const char **stop;
    int priority;
    float timeout_s;       /* from the arrival of the request; 0: none */
    const char *cache_salt;
    struct xenon_chat chat_input; /* strings: JSON texts below and chat_template within root */
    char *messages, *tools, *documents, *kwargs;
    struct openai_prompt *prompts;
    size_t n_prompts;
};

/* Fills *r (which need not be zeroed) from a body. False: *e is filled and *r is empty. On success free with
 * openai_request_deinit. A chat request has one prompt without text or ids. */
bool openai_request_parse_chat(struct openai_request *r, const struct openai_limits *lim, const char *body, size_t len,
                               struct openai_error *e) ATTR_NODISCARD;
bool openai_request_parse_completion(struct openai_request *r, const struct openai_limits *lim, const char *body,
                                     size_t len, struct openai_error *e) ATTR_NODISCARD;

/* Renders the chat template, tokenizes text prompts and checks lengths. */
bool openai_request_encode(struct openai_request *r, const struct xenon *x, const struct openai_limits *lim,
                           struct openai_error *e) ATTR_NODISCARD;

/* The name to answer with for a "model" field, or a 404 with code model_not_found. */
bool openai_request_model(const struct openai_limits *lim, const json_t *root, const char **model,
                          struct openai_error *e) ATTR_NODISCARD;

/* Frees what the engine has copied at submission; lengths, flags and (for echo) prompt texts stay. */
void openai_request_trim(struct openai_request *r);

void openai_request_deinit(struct openai_request *r);

#endif
