/* xenon.h: the engine as a C library. The server, the command line, the benchmarks and the tests are ordinary clients
 * of it.
 *
 * Life:   options -> xenon_open (loads the model, starts the engine thread) -> submit, poll, release -> xenon_close.
 * Text:   ids are int32_t; strings are UTF-8 with a length. Everything returned has an owner named beside it.
 * Errors: functions return 0 or a XENON_E… code and write one line of text (what, where, what to do) into *err (may be
 * NULL). Threads: every function may be called from any thread at any time between open and close, except that one
 * request handle is polled and released by one thread at a time. No call waits for the engine unless it says so.
 * Promise: a request's tokens and logprobs do not depend on what else runs, on the prefix cache, on how its prompt is
 * chunked, on preemption, or on the number of threads. It holds within one instruction-set level. */
#ifndef XENON_H
#define XENON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XENON_VERSION "0.1.0"

enum xenon_code {
    XENON_OK = 0,
    XENON_ENOMEM,       /* memory is short */
    XENON_EIO,          /* missing file, no right, read error */
    XENON_EFORMAT,      /* truncated or hostile file */
    XENON_EUNSUPPORTED, /* architecture, format or option that we do not have */
    XENON_EARG,         /* a wrong option or request field: a client's 400 */
    XENON_ELIMIT,       /* too long or too large; the text names the limit: a client's 400 */
    XENON_EBUSY,        /* the queue is full: a client's 429, try again */
    XENON_ECANCELLED,
    XENON_EDEAD,        /* the engine has stopped: 503 */
};

struct xenon_error {
    char text[480];
};

struct xenon;         /* an engine with one model */
struct xenon_handle;  /* a submitted request */

/* ---- Engine ---------------------------------------------------------------------------------- */

enum xenon_policy { XENON_POLICY_MIXED, XENON_POLICY_PREFILL_FIRST };

/* Zero means "choose": the default comes from the model and from what the process may use. */
struct xenon_options {
    const char *model;            /* GGUF file or Hugging Face folder */
    const char *dtype;            /* "auto" (default) or "float32": weights dequantized, f32 all through */
    const char *load_format;      /* "auto" or "dummy": random weights of the config's shapes */
    const char *quantize;         /* convert linear weights while loading: "q8_0", "q4_0", …; NULL: keep */
    const char *kv_cache_dtype;   /* "auto" (bf16), "f32", "bf16", "int8", "fp8" */
    const char *chat_template;    /* file, or text of a template; NULL: the model's own */
    int64_t max_model_len;        /* longest prompt + answer in tokens */
    int max_num_seqs;             /* sequences in one step (default 256) */
    int max_num_batched_tokens;   /* tokens in one step */
    int max_queue;                /* waiting requests before XENON_EBUSY (default 4096) */
    int block_size;               /* tokens of a page (default 16) */
    int64_t num_kv_blocks;        /* pages; overrides kv_cache_memory */
    int64_t kv_cache_memory;      /* bytes */
    bool disable_prefix_caching;
    enum xenon_policy policy;
    int threads;                  /* lanes; default: the physical cores that the process may use */
    int fake_nodes;               /* split the machine into that many logical NUMA nodes (tests) */
    bool no_pin;                  /* leave lanes unpinned */
    int level;                    /* compilation level + 1 (1 = level 0); 0: the highest */
    uint64_t seed;                /* for requests without one; 0: from the clock */

    /* Called while loading, from the engine thread while xenon_open waits: 0 <= done <= total bytes. */
    void (*progress)(void *user, const char *what, int64_t done, int64_t total);
    /* Called from the engine thread when handles have news; must only wake somebody up. */
    void (*notify)(void *user);
    void *user;
};

/* Loads the model and starts the engine thread. On success *out is closed by xenon_close. */
int xenon_open(struct xenon **out, const struct xenon_options *opt, struct xenon_error *err);

/* Ends every request with XENON_FINISH_ABORT, joins the engine thread, frees everything. Handles must
 * be released before. NULL is fine. */
void xenon_close(struct xenon *x);

struct xenon_info {
    const char *model_path;
    const char *architecture;   /* "llama" */
    const char *isa;            /* instruction-set level, "avx512" */
    int64_t max_model_len;      /* in force */
    int64_t vocab_size;
    int64_t n_parameters;
    int64_t weight_bytes;       /* packed */
    int64_t kv_bytes;
    int64_t num_kv_blocks;
    int block_size;
    int max_num_seqs, max_num_batched_tokens;
    int threads, nodes, level;
    bool has_chat_template;
    int32_t bos_id;             /* -1: none */
    int n_eos;                  /* ids that end an answer */
    const int32_t *eos_ids;
    /* From generation_config.json; NaN or -1 where it says nothing. */
    double default_temperature, default_top_p, default_repetition_penalty;
    int64_t default_top_k;
};

/* Borrowed until close. */
const struct xenon_info *xenon_info(const struct xenon *x);

/* True while the engine thread lives. */
bool xenon_alive(const struct xenon *x);

/* A consistent snapshot of counters, all since the start. */
struct xenon_stats {
    int n_running, n_waiting;
    int64_t prompt_tokens, generation_tokens;  /* computed prompt tokens (cached ones excluded); sampled tokens */
    int64_t requests_finished, requests_aborted, requests_refused;
    int64_t prefix_queries, prefix_hits;       /* tokens asked for, tokens found */
    int64_t evictions, preemptions;
    int64_t kv_blocks_total, kv_blocks_used;   /* used: referenced by a running sequence */
    int64_t steps, prefill_chunks;
    double step_seconds;                       /* time inside steps */
};
void xenon_stats(const struct xenon *x, struct xenon_stats *out);

/* ---- Text ------------------------------------------------------------------------------------- */

/* Token ids of a text. add_special: BOS and what the model's rules add; parse_special: special tokens
 * written in the text become their ids (else they are ordinary text). *ids: xenon_free. */
int xenon_tokenize(const struct xenon *x, const char *text, size_t len, bool add_special, bool parse_special,
                   int32_t **ids, size_t *n, struct xenon_error *err);

/* Text of ids; skip_special leaves control tokens out. *text is NUL-terminated: xenon_free. */
int xenon_detokenize(const struct xenon *x, const int32_t *ids, size_t n, bool skip_special, char **text, size_t *len,
                     struct xenon_error *err);

/* The raw bytes of one token (may be part of a code point); NULL for an id outside the vocabulary.
 * Borrowed until close. */
const char *xenon_token_bytes(const struct xenon *x, int32_t id, size_t *len);

/* Whether an id is a control token (never text unless asked for). */
bool xenon_token_is_special(const struct xenon *x, int32_t id);

struct xenon_chat {
    const char *messages;          /* JSON array of {role, content, …} as OpenAI clients send it */
    const char *tools;             /* JSON array or NULL */
    const char *documents;         /* JSON array or NULL */
    const char *kwargs;            /* JSON object of further template variables, or NULL */
    const char *chat_template;     /* source of a template for this request, or NULL */
    bool add_generation_prompt;
    bool continue_final_message;
};

/* Renders the chat template. The result is tokenized with add_special = false, parse_special = true.
 * *text: xenon_free. A template's own raise_exception is XENON_EARG with its message. */
int xenon_render_chat(const struct xenon *x, const struct xenon_chat *chat, char **text, size_t *len,
                      struct xenon_error *err);

/* Frees what the functions above returned. */
void xenon_free(void *p);

/* ---- Requests --------------------------------------------------------------------------------- */

enum { XENON_TOP_LOGPROBS_MAX = 20, XENON_STOP_MAX = 16 };

struct xenon_bias {
    int32_t id;
    float bias;
};

/* Start from xenon_sampling_default. */
struct xenon_sampling {
    float temperature;        /* 0: greedy */
    float top_p;              /* (0, 1]; 1: off */
    float min_p;              /* [0, 1]; 0: off */
    int32_t top_k;            /* <= 0: off */
    float presence_penalty, frequency_penalty; /* [-2, 2] */
    float repetition_penalty; /* > 0; 1: off */
    uint64_t seed;
    bool has_seed;            /* false: the engine draws one */
    int32_t max_tokens;       /* >= 0; -1: as many as fit */
    int32_t min_tokens;
    bool ignore_eos;
    int logprobs;             /* -1: none; 0: of the chosen token; n: also of the n best */
    int prompt_logprobs;      /* the same for every prompt token but the first */
    const struct xenon_bias *bias;
    size_t n_bias;
    const int32_t *stop_ids;
    size_t n_stop_ids;
    const char *const *stop;  /* stop strings, UTF-8 */
    size_t n_stop;
    bool include_stop_str_in_output;
    bool skip_special_tokens; /* default true */
};
void xenon_sampling_default(struct xenon_sampling *s);

struct xenon_request {
    const int32_t *prompt;    /* ids; copied */
    size_t n_prompt;
    struct xenon_sampling sampling; /* arrays copied */
    int priority;             /* lower is served first; 0 default */
    double timeout_s;         /* 0: none */
    const char *cache_salt;   /* only requests of equal salt share cached pages; NULL: "" */
};

/* XENON_EARG / XENON_ELIMIT: can never be served; XENON_EBUSY: the queue is full. */
int xenon_submit(struct xenon *x, const struct xenon_request *req, struct xenon_handle **out, struct xenon_error *err);

enum xenon_finish {
    XENON_FINISH_NONE,   /* still running */
    XENON_FINISH_STOP,   /* end-of-text token, stop id or stop string */
    XENON_FINISH_LENGTH, /* max_tokens or max_model_len */
    XENON_FINISH_ABORT,  /* cancelled, timed out, or the engine stopped */
    XENON_FINISH_ERROR,  /* non-finite logits or an engine fault; see error */
};
const char *xenon_finish_name(enum xenon_finish f); /* "stop" "length" "abort" "error"; NULL for none */

struct xenon_logprob {
    int32_t id;
    float logprob;
};

struct xenon_token {
    int32_t id;
    int32_t text_end;        /* bytes of `text` that belong to the tokens up to this one */
    float logprob;           /* when asked for */
    int32_t rank;            /* 1: the most likely; 0: not known to be among the best */
    int n_top;
    const struct xenon_logprob *top; /* most likely first */
};

/* What is new since the last poll. */
struct xenon_output {
    const struct xenon_token *tokens;   /* their text may be held back (stop strings, split code points) */
    size_t n_tokens;
    const char *text;                   /* new text, whole code points, stop strings applied; NUL-terminated */
    size_t text_len;
    enum xenon_finish finish;           /* not NONE: this is the last output */
    const char *stop_reason;            /* the stop string that matched, or NULL */
    int32_t stop_id;                    /* the stop id (not EOS) that matched, or -1 */
    const char *error;                  /* text for XENON_FINISH_ERROR, or NULL */
    size_t n_prompt, n_cached;          /* prompt tokens; how many came from the prefix cache */
    size_t n_generated;                 /* tokens so far that count as the answer */
    const struct xenon_token *prompt_tokens; /* with prompt_logprobs, once: n_prompt entries, [0] without logprob */
    int64_t queued_ns, first_token_ns, last_token_ns, now_ns; /* monotonic times: submitted, first and latest token */
};

/* Takes the news into *out, valid until the next poll or release of this handle. True when there was
 * something (tokens, text or an end). Never waits. */
bool xenon_poll(struct xenon_handle *h, struct xenon_output *out);

/* Waits until xenon_poll would return true; false after timeout_ms (negative: for ever). */
bool xenon_wait(struct xenon_handle *h, int timeout_ms);

/* Asks the engine to stop this request; its last output comes as XENON_FINISH_ABORT. */
void xenon_cancel(struct xenon_handle *h);

/* Gives the handle back; a running request is cancelled. NULL is fine. */
void xenon_release(struct xenon_handle *h);

#ifdef __cplusplus
}
#endif

#endif
