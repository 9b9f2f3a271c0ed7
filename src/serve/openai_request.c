#include "serve/openai_request.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "serve/openai_fields.h"
#include "serve/openai_messages.h"
#include "serve/openai_sampling.h"

enum { TEMPLATE_BYTES_MAX = 1 << 20, MODEL_BYTES_MAX = 1024 };

static bool no_memory(struct openai_error *e) {
    return openai_error_set(e, 503, "server_is_overloaded", NULL, "memory is short; try again");
}

bool openai_request_model(const struct openai_limits *lim, const json_t *root, const char **model,
                          struct openai_error *e) {
    const char *name = NULL;
    *model = lim->models[0];
    if (!openai_fields_string(root, "model", MODEL_BYTES_MAX, &name, e)) return false;
    if (!name) return true;
    for (int i = 0; i < lim->n_models; i++) {
        if (strcmp(lim->models[i], name) != 0) continue;
        *model = lim->models[i];
        return true;
    }
    return openai_error_set(e, 404, "model_not_found", "model",
                            "The model asked for does not exist here; this server has '%.200s'.", lim->models[0]);
}

/* ---- Chat ------------------------------------------------------------------------------------ */

static int dump_piece(const char *text, size_t len, void *out) {
    strbuf_append(out, text, len);
    return ((struct strbuf *)out)->failed ? -1 : 0;
}

/* The JSON text of v; NULL stays NULL. */
static bool dump(const json_t *v, char **out, struct openai_error *e) {
    struct strbuf text = {0};
    if (!v) return true;
    if (json_dump_callback(v, dump_piece, &text, JSON_COMPACT) != 0) text.failed = true;
    *out = strbuf_take(&text);
    return *out || no_memory(e);
}

/* Template variables: chat_template_kwargs, and reasoning_effort under its own name. */
static bool dump_kwargs(struct openai_request *r, struct openai_error *e) {
    json_t *given = NULL;
    const char *effort = NULL;
    if (!openai_fields_object(r->root, "chat_template_kwargs", &given, e) ||
        !openai_fields_string(r->root, "reasoning_effort", 64, &effort, e))
        return false;
    if (!given && !effort) return true;
    json_t *const all = given ? json_copy(given) : json_object();
    bool ok = all && (!effort || json_object_get(all, "reasoning_effort") ||
                      json_object_set_new(all, "reasoning_effort", json_string(effort)) == 0);
    ok = ok ? dump(all, &r->kwargs, e) : no_memory(e);
    json_decref(all);
    return ok;
}

static bool parse_chat_flags(struct openai_request *r, struct openai_error *e) {
    struct xenon_chat *const c = &r->chat_input;
    bool echo = false;
    if (!openai_fields_bool(r->root, "continue_final_message", &c->continue_final_message, e)) return false;
    c->add_generation_prompt = !c->continue_final_message;
    if (!openai_fields_bool(r->root, "add_generation_prompt", &c->add_generation_prompt, e) ||
        !openai_fields_bool(r->root, "add_special_tokens", &r->add_special, e) ||
        !openai_fields_string(r->root, "chat_template", TEMPLATE_BYTES_MAX, &c->chat_template, e) ||
        !openai_fields_bool(r->root, "echo", &echo, e))
        return false;
    if (echo) return openai_error_set(e, 400, "unsupported_parameter", "echo", "'echo' is not supported for chat.");
    if (c->continue_final_message && c->add_generation_prompt)
        return openai_error_field(e, "continue_final_message",
                                  "'continue_final_message' and 'add_generation_prompt' cannot both be true.");
    return true;
}

/* "modalities" may only ask for text. */
static bool check_modalities(const json_t *root, struct openai_error *e) {
    json_t *list = NULL, *v;
    size_t i;
    if (!openai_fields_array(root, "modalities", &list, e)) return false;
    json_array_foreach(list, i,
                       v) if (!json_is_string(v) ||
                              strcmp(json_string_value(v), "text") !=
                                  0) return openai_error_set(e, 400, "unsupported_parameter", "modalities",
                                                             "'modalities' other than text are not supported.");
    return true;
}

static bool parse_chat(struct openai_request *r, const struct openai_limits *lim, struct openai_error *e) {
    json_t *tools = NULL, *documents = NULL;
    if (!openai_request_model(lim, r->root, &r->model, e) || !openai_sampling_parse(r, lim, e) ||
        !parse_chat_flags(r, e) || !check_modalities(r->root, e) || !openai_messages_normalize(r->root, e) ||
        !openai_messages_tools(r->root, &tools, e) || !openai_fields_array(r->root, "documents", &documents, e))
        return false;
    if (!lim->has_chat_template && !r->chat_input.chat_template)
        return openai_error_field(e, "messages",
                                  "This model has no chat template; use /v1/completions or give 'chat_template'.");
    if (!dump(json_object_get(r->root, "messages"), &r->messages, e) || !dump(tools, &r->tools, e) ||
        !dump(documents, &r->documents, e) || !dump_kwargs(r, e))
        return false;
    r->chat_input.messages = r->messages;
    r->chat_input.tools = r->tools;
    r->chat_input.documents = r->documents;
    r->chat_input.kwargs = r->kwargs;
    r->prompts = mem_calloc(1, sizeof *r->prompts);
    r->n_prompts = 1;
    return r->prompts || no_memory(e);
}

/* ---- Completions ----------------------------------------------------------------------------- */

static bool set_text(struct openai_prompt *p, const json_t *v, struct openai_error *e) {
    p->text = mem_strndup(json_string_value(v), json_string_length(v));
    p->text_len = json_string_length(v);
    return p->text || no_memory(e);
}

static bool set_ids(struct openai_prompt *p, const json_t *list, const struct openai_limits *lim,
                    struct openai_error *e) {
    const size_t n = json_array_size(list);
    if (n == 0) return openai_error_field(e, "prompt", "Invalid 'prompt': an empty list of token ids.");
    p->ids = mem_calloc(n, sizeof *p->ids);
    if (!p->ids) return no_memory(e);
    p->n_ids = n;
    for (size_t i = 0; i < n; i++)
        if (!openai_fields_token(json_array_get(list, i), lim->vocab_size, "prompt", &p->ids[i], e)) return false;
    return true;
}

/* A string, strings, ids or lists of ids. */
static bool parse_prompt(struct openai_request *r, const struct openai_limits *lim, struct openai_error *e) {
    const json_t *const v = openai_fields_get(r->root, "prompt");
    if (!v)
        return openai_error_set(e, 400, "missing_required_parameter", "prompt",
                                "Missing required parameter: 'prompt'.");
    const json_t *const first = json_array_get(v, 0);
    const bool many = json_is_string(first) || json_is_array(first);
    if (!json_is_string(v) && !many && !json_is_integer(first))
        return openai_error_set(e, 400, "invalid_type", "prompt",
                                "Invalid 'prompt': expected a string, strings, token ids or lists of token ids.");
    const size_t n = many ? json_array_size(v) : 1;
    if (n * (size_t)r->n > OPENAI_PROMPTS_MAX)
        return openai_error_field(e, "prompt", "Invalid 'prompt': more than %d prompts times 'n'.", OPENAI_PROMPTS_MAX);
    r->prompts = mem_calloc(n, sizeof *r->prompts);
    if (!r->prompts) return no_memory(e);
    r->n_prompts = n;
    if (!many) return json_is_string(v) ? set_text(&r->prompts[0], v, e) : set_ids(&r->prompts[0], v, lim, e);
    for (size_t i = 0; i < n; i++) {
        const json_t *const p = json_array_get(v, i);
        if (json_typeof(p) != json_typeof(first))
            return openai_error_set(e, 400, "invalid_type", "prompt",
                                    "Invalid 'prompt': strings and token ids are mixed.");
        if (!(json_is_string(p) ? set_text(&r->prompts[i], p, e) : set_ids(&r->prompts[i], p, lim, e))) return false;
    }
    return true;
}

static bool parse_completion(struct openai_request *r, const struct openai_limits *lim, struct openai_error *e) {
    r->add_special = true;
    return openai_request_model(lim, r->root, &r->model, e) && openai_sampling_parse(r, lim, e) &&
           openai_fields_bool(r->root, "add_special_tokens", &r->add_special, e) && parse_prompt(r, lim, e);
}

/* ---- Both ------------------------------------------------------------------------------------ */

static bool parse(struct openai_request *r, bool chat, const struct openai_limits *lim, const char *body, size_t len,
                  struct openai_error *e) {
    *r = (struct openai_request){.chat = chat};
    *e = (struct openai_error){0};
    r->root = openai_fields_parse(body, len, e);
    if (r->root && (chat ? parse_chat(r, lim, e) : parse_completion(r, lim, e))) return true;
    openai_request_deinit(r);
    return false;
}

bool openai_request_parse_chat(struct openai_request *r, const struct openai_limits *lim, const char *body, size_t len,
                               struct openai_error *e) {
    return parse(r, true, lim, body, len, e);
}

bool openai_request_parse_completion(struct openai_request *r, const struct openai_limits *lim, const char *body,
                                     size_t len, struct openai_error *e) {
    return parse(r, false, lim, body, len, e);
}

static bool render(struct openai_request *r, const struct xenon *x, struct openai_error *e) {
    struct xenon_error xe = {{0}};
    char *text = NULL;
    size_t len = 0;
    const int code = xenon_render_chat(x, &r->chat_input, &text, &len, &xe);
    if (code) {
        openai_error_from_engine(e, code, xe.text);
        if (e->status == 400 && !e->param[0]) snprintf(e->param, sizeof e->param, "messages");
        return false;
    }
    r->prompts[0].text = mem_strndup(text, len);
    r->prompts[0].text_len = len;
    xenon_free(text);
    return r->prompts[0].text || no_memory(e);
}

/* The words are those that clients search for; see reference tables of OpenAI errors. */
static bool check_length(const struct openai_request *r, const struct openai_prompt *p, int64_t max_len,
                         struct openai_error *e) {
    const int64_t n = (int64_t)p->n_ids, answer = r->max_tokens < 0 ? 1 : r->max_tokens;
    const char *const where = r->chat ? "messages" : "prompt";
    if (n == 0) return openai_error_field(e, where, "Invalid '%s': the prompt has no tokens.", where);
    if (n + answer <= max_len) return true;
    return openai_error_set(
        e, 400, "context_length_exceeded", where,
        "This model's maximum context length is %lld tokens. However, you requested %lld tokens (%lld in the "
        "%s, %lld in the completion). Please reduce the length of the %s or completion.",
        (long long)max_len, (long long)(n + answer), (long long)n, where, (long long)answer, where);
}

/* A text that cannot fit whatever its tokens are need not be tokenized. */
static bool too_long(const struct openai_request *r, const struct openai_limits *lim, struct openai_error *e) {
    return openai_error_set(
        e, 400, "context_length_exceeded", r->chat ? "messages" : "prompt",
        "This model's maximum context length is %lld tokens. The prompt is far longer. Please reduce its length.",
        (long long)lim->max_model_len);
}

/* echo of a prompt that came as ids. */
static bool fill_text(struct openai_prompt *p, const struct xenon *x, bool skip_special, struct openai_error *e) {
    struct xenon_error xe = {{0}};
    char *text = NULL;
    size_t len = 0;
    const int code = xenon_detokenize(x, p->ids, p->n_ids, skip_special, &text, &len, &xe);
    if (code) return openai_error_from_engine(e, code, xe.text);
    p->text = mem_strndup(text, len);
    p->text_len = len;
    xenon_free(text);
    return p->text || no_memory(e);
}

bool openai_request_encode(struct openai_request *r, const struct xenon *x, const struct openai_limits *lim,
                           struct openai_error *e) {
    struct xenon_error xe = {{0}};
    *e = (struct openai_error){0};
    if (r->chat && !render(r, x, e)) return false;
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct openai_prompt *const p = &r->prompts[i];
        if (!p->ids && p->text) {
            if (lim->max_token_bytes && p->text_len / lim->max_token_bytes > (size_t)lim->max_model_len)
                return too_long(r, lim, e);
            const int code = xenon_tokenize(x, p->text, p->text_len, r->add_special, true, &p->ids, &p->n_ids, &xe);
            if (code) return openai_error_from_engine(e, code, xe.text);
            p->from_engine = true;
        }
        if (!check_length(r, p, lim->max_model_len, e)) return false;
        if (r->echo && !p->text && !fill_text(p, x, r->sampling.skip_special_tokens, e)) return false;
    }
    return true;
}

/* Everything but prompt texts. */
static void free_inputs(struct openai_request *r) {
    for (size_t i = 0; i < r->n_prompts && r->prompts; i++) {
        if (r->prompts[i].from_engine)
            xenon_free(r->prompts[i].ids);
        else
            mem_free(r->prompts[i].ids);
        r->prompts[i].ids = NULL;
    }
    mem_free(r->messages);
    mem_free(r->tools);
    mem_free(r->documents);
    mem_free(r->kwargs);
    mem_free(r->bias);
    mem_free(r->stop_ids);
    mem_free(r->stop);
    json_decref(r->root);
    r->messages = r->tools = r->documents = r->kwargs = NULL;
    r->bias = NULL;
    r->stop_ids = NULL;
    r->stop = NULL;
    r->root = NULL;
    r->cache_salt = NULL;
    r->chat_input = (struct xenon_chat){0};
    r->sampling.bias = NULL;
    r->sampling.stop_ids = NULL;
    r->sampling.stop = NULL;
}

void openai_request_trim(struct openai_request *r) {
    free_inputs(r);
    for (size_t i = 0; i < r->n_prompts && !r->echo; i++) {
        mem_free(r->prompts[i].text);
        r->prompts[i].text = NULL;
    }
}

void openai_request_deinit(struct openai_request *r) {
    free_inputs(r);
    for (size_t i = 0; i < r->n_prompts && r->prompts; i++)
        mem_free(r->prompts[i].text);
    mem_free(r->prompts);
    *r = (struct openai_request){0};
}
