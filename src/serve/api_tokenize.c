/* /tokenize, /detokenize and /tokenizer_info, as vLLM has them and lm-eval uses them. */
#include <string.h>

#include "base/mem.h"
#include "serve/json_write.h"
#include "serve/openai_fields.h"
#include "serve/route.h"

struct text_job {
    struct job job; /* first: a job is cast back */
    struct server *server;
    struct http_request *r; /* NULL: the client left */
    struct strbuf body, reply;
    struct openai_error error;
    bool (*work)(struct text_job *t);
    bool ok;
};

static void text_job_free(struct text_job *t) {
    strbuf_deinit(&t->body);
    strbuf_deinit(&t->reply);
    mem_free(t);
}

static void on_gone(void *arg) {
    struct text_job *const t = arg;
    t->r = NULL;
    if (jobs_cancel(t->server->jobs, &t->job)) text_job_free(t);
}

static void run(struct job *j) {
    struct text_job *const t = (struct text_job *)(void *)j;
    t->ok = t->work(t);
}

static void done(struct job *j) {
    struct text_job *const t = (struct text_job *)(void *)j;
    if (t->r) {
        t->r->on_gone = NULL;
        if (!t->error.status && !t->ok)
            openai_error_set(&t->error, 503, "server_is_overloaded", NULL, "the server is shutting down");
        if (t->ok)
            server_reply_json(t->r, 200, &t->reply);
        else
            server_reply_error(t->r, &t->error);
    }
    text_job_free(t);
}

static void start(struct server *s, struct http_request *r, bool (*work)(struct text_job *t)) {
    struct openai_error e;
    struct text_job *const t = mem_calloc(1, sizeof *t);
    if (t) {
        t->job.run = run;
        t->job.done = done;
        t->server = s;
        t->r = r;
        t->work = work;
        t->body = r->body;
        r->body = (struct strbuf){0};
        r->on_gone = on_gone;
        r->hook_arg = t;
        if (jobs_submit(s->jobs, &t->job)) return;
        r->on_gone = NULL;
        text_job_free(t);
        s->metrics.rejected[METRICS_QUEUE_FULL]++;
        openai_error_set(&e, 429, "rate_limit_exceeded", NULL, "too many requests are waiting; try again");
    } else {
        openai_error_set(&e, 503, "server_is_overloaded", NULL, "memory is short; try again");
    }
    server_reply_error(r, &e);
}

static void write_tokens(struct text_job *t, const int32_t *ids, size_t n, bool with_text) {
    struct strbuf *const b = &t->reply;
    strbuf_printf(b, "{\"count\":%zu,\"max_model_len\":%lld,\"tokens\":[", n,
                  (long long)t->server->limits.max_model_len);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(b, "%s%d", i ? "," : "", ids[i]);
    strbuf_puts(b, "],\"token_strs\":");
    if (with_text) {
        for (size_t i = 0; i < n; i++) {
            size_t len = 0;
            const char *const bytes = xenon_token_bytes(t->server->engine, ids[i], &len);
            strbuf_putc(b, i ? ',' : '[');
            json_write_string(b, bytes ? bytes : "", bytes ? len : 0);
        }
        strbuf_puts(b, n ? "]" : "[]");
    } else {
        strbuf_puts(b, "null");
    }
    strbuf_putc(b, '}');
}

/* {messages, …}: the ids of the rendered chat. */
static bool encode_chat(struct text_job *t, bool with_text) {
    struct openai_limits lim = t->server->limits;
    struct openai_request q;
    lim.max_model_len = INT64_MAX; /* counting must work for prompts that are too long */
    if (!openai_request_parse_chat(&q, &lim, strbuf_cstr(&t->body), t->body.len, &t->error)) return false;
    q.max_tokens = 0;
    const bool ok = openai_request_encode(&q, t->server->engine, &lim, &t->error);
    if (ok) write_tokens(t, q.prompts[0].ids, q.prompts[0].n_ids, with_text);
    openai_request_deinit(&q);
    return ok;
}

/* {prompt, add_special_tokens}: the ids of a text. */
static bool encode_prompt(struct text_job *t, const json_t *root, bool with_text) {
    const json_t *const prompt = openai_fields_get(root, "prompt");
    const char *model;
    struct xenon_error xe = {{0}};
    bool add_special = true;
    int32_t *ids = NULL;
    size_t n = 0;
    if (!openai_request_model(&t->server->limits, root, &model, &t->error) ||
        !openai_fields_bool(root, "add_special_tokens", &add_special, &t->error))
        return false;
    if (!json_is_string(prompt))
        return openai_error_set(&t->error, 400, "invalid_type", "prompt",
                                "Invalid type for 'prompt': expected a string.");
    const int code = xenon_tokenize(t->server->engine, json_string_value(prompt), json_string_length(prompt),
                                    add_special, true, &ids, &n, &xe);
    if (code) return openai_error_from_engine(&t->error, code, xe.text);
    write_tokens(t, ids, n, with_text);
    xenon_free(ids);
    return true;
}

static bool reply_written(struct text_job *t, bool ok) {
    if (!ok || !t->reply.failed) return ok;
    return openai_error_set(&t->error, 503, "server_is_overloaded", NULL, "memory is short; try again");
}

static bool encode(struct text_job *t) {
    bool with_text = false;
    json_t *const root = openai_fields_parse(strbuf_cstr(&t->body), t->body.len, &t->error);
    if (!root) return false;
    bool ok = openai_fields_bool(root, "return_token_strs", &with_text, &t->error);
    if (ok) ok = openai_fields_get(root, "messages") ? encode_chat(t, with_text) : encode_prompt(t, root, with_text);
    json_decref(root);
    return reply_written(t, ok);
}

static bool decode_ids(struct text_job *t, const json_t *list, int32_t *ids) {
    struct xenon_error xe = {{0}};
    char *text = NULL;
    size_t len = 0;
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++)
        if (!openai_fields_token(json_array_get(list, i), t->server->limits.vocab_size, "tokens", &ids[i], &t->error))
            return false;
    const int code = xenon_detokenize(t->server->engine, ids, n, false, &text, &len, &xe);
    if (code) return openai_error_from_engine(&t->error, code, xe.text);
    strbuf_puts(&t->reply, "{\"prompt\":");
    json_write_string(&t->reply, text, len);
    strbuf_putc(&t->reply, '}');
    xenon_free(text);
    return true;
}

static bool decode(struct text_job *t) {
    json_t *list = NULL;
    const char *model;
    int32_t *ids = NULL;
    json_t *const root = openai_fields_parse(strbuf_cstr(&t->body), t->body.len, &t->error);
    if (!root) return false;
    bool ok = openai_request_model(&t->server->limits, root, &model, &t->error) &&
              openai_fields_array(root, "tokens", &list, &t->error);
    if (ok && !list)
        ok = openai_error_set(&t->error, 400, "missing_required_parameter", "tokens",
                              "Missing required parameter: 'tokens'.");
    if (ok) {
        ids = mem_calloc(json_array_size(list), sizeof *ids);
        ok =
            ids ? decode_ids(t, list, ids) : openai_error_set(&t->error, 503, NULL, NULL, "memory is short; try again");
    }
    mem_free(ids);
    json_decref(root);
    return reply_written(t, ok);
}

void api_tokenize_encode(struct server *s, struct http_request *r) {
    start(s, r, encode);
}

void api_tokenize_decode(struct server *s, struct http_request *r) {
    start(s, r, decode);
}

static void write_token(struct strbuf *b, const struct server *s, const char *key, int32_t id) {
    size_t len = 0;
    const char *const bytes = id >= 0 ? xenon_token_bytes(s->engine, id, &len) : NULL;
    strbuf_printf(b, "\"%s\":", key);
    if (bytes)
        json_write_string(b, bytes, len);
    else
        strbuf_puts(b, "null");
}

void api_tokenize_info(struct server *s, struct http_request *r) {
    const struct xenon_info *const info = xenon_info(s->engine);
    struct strbuf b = {0};
    strbuf_putc(&b, '{');
    write_token(&b, s, "bos_token", info->bos_id);
    strbuf_putc(&b, ',');
    write_token(&b, s, "eos_token", info->n_eos > 0 ? info->eos_ids[0] : -1);
    strbuf_putc(&b, ',');
    write_token(&b, s, "pad_token", info->n_eos > 0 ? info->eos_ids[0] : -1);
    strbuf_printf(&b, ",\"chat_template\":null,\"vocab_size\":%lld,\"model_max_length\":%lld}",
                  (long long)info->vocab_size, (long long)info->max_model_len);
    server_reply_json(r, 200, &b);
    strbuf_deinit(&b);
}
