#include "text/chat_template.h"

#include "base/mem.h"
#include "text/chat_source.h"
#include "text/jinja_dict.h"
#include "text/jinja_eval.h"
#include "text/jinja_json.h"
#include "text/jinja_parse.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

struct chat_template {
    struct jinja_template *main;
    struct jinja_template *tool_use; /* used when there are tools; NULL: main serves both */
    char *source;
    struct chat_specials specials;
};

/* Marks where the final message ends, to cut the prompt there. The blank tells whether the template strips. */
static const char mark_text[] = "END_OF_FINAL_MESSAGE_MARK_7d1f ";
enum { MARK_LEN = sizeof mark_text - 1 };

/* ---- opening ---- */

void chat_template_close(struct chat_template *t) {
    if (!t) return;
    jinja_parse_free(t->main);
    jinja_parse_free(t->tool_use);
    chat_source_specials_deinit(&t->specials);
    mem_free(t->source);
    mem_free(t);
}

const char *chat_template_source(const struct chat_template *t) {
    return t->source;
}

static enum err fill(struct chat_template *t, const struct ckpt *c, const char *source, size_t len,
                     struct err_msg *msg) {
    TRY(jinja_parse(&t->main, source, len, msg));
    t->source = mem_strndup(source, len);
    if (!t->source) return err_set(msg, ERR_NOMEM, "out of memory for the chat template");
    return c ? chat_source_specials(&t->specials, c, msg) : ERR_OK;
}

enum err chat_template_parse(struct chat_template **out, const struct ckpt *c, const char *source, size_t len,
                             struct err_msg *msg) {
    *out = NULL;
    struct chat_template *const t = mem_calloc(1, sizeof *t);
    if (!t) return err_set(msg, ERR_NOMEM, "out of memory for the chat template");
    const enum err e = fill(t, c, source, len, msg);
    if (e == ERR_OK)
        *out = t;
    else
        chat_template_close(t);
    return e;
}

static enum err open_tool_use(struct chat_template *t, const struct ckpt *c, struct err_msg *msg) {
    char *source = NULL;
    size_t len = 0;
    TRY(chat_source_find(c, "tool_use", &source, &len, msg));
    if (!source) return ERR_OK;
    const enum err e = jinja_parse(&t->tool_use, source, len, msg);
    mem_free(source);
    return e;
}

enum err chat_template_open(struct chat_template **out, const struct ckpt *c, struct err_msg *msg) {
    char *source = NULL;
    size_t len = 0;
    *out = NULL;
    TRY(chat_source_find(c, NULL, &source, &len, msg));
    if (!source) return ERR_OK;
    enum err e = chat_template_parse(out, c, source, len, msg);
    mem_free(source);
    if (e == ERR_OK) e = open_tool_use(*out, c, msg);
    if (e == ERR_OK) return ERR_OK;
    chat_template_close(*out);
    *out = NULL;
    return err_prefix(msg, e, "%s", ckpt_path(c));
}

/* ChatML, for models that were trained on it and ship no template. */
static const char chatml[] = "{% for message in messages %}"
                             "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
                             "{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

enum err chat_template_open_named(struct chat_template **out, const struct ckpt *c, const char *name,
                                  struct err_msg *msg) {
    char *source = NULL;
    size_t len = 0;
    *out = NULL;
    if (strcmp(name, "default") == 0) {
        TRY(chat_template_open(out, c, msg));
        if (*out) return ERR_OK;
    }
    TRY(chat_source_find(c, name, &source, &len, msg));
    if (source) {
        const enum err e = chat_template_parse(out, c, source, len, msg);
        mem_free(source);
        return e == ERR_OK ? e : err_prefix(msg, e, "chat template '%s'", name);
    }
    if (strcmp(name, "chatml") == 0) return chat_template_parse(out, c, chatml, sizeof chatml - 1, msg);
    return err_set(msg, ERR_ARG,
                   "no chat template named '%s' in %s; give a file, chatml, or a name from the model's "
                   "tokenizer_config.json",
                   name, ckpt_path(c));
}

/* ---- messages ---- */

static enum err put(struct jinja_run *r, const struct jinja_value *dict, const char *key,
                    const struct jinja_value *value) {
    const struct jinja_value k = jinja_cstr(key);
    return jinja_dict_put(r, dict->dict, &k, value);
}

static const struct jinja_value *get(const struct jinja_value *dict, const char *key) {
    return jinja_dict_get_str(dict->dict, key, strlen(key));
}

/* The message without its nulls, with its reasoning under every name that templates read. */
static enum err clean_message(struct jinja_run *r, const struct jinja_value *in, struct jinja_value *out) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct jinja_value *reasoning = NULL;
    for (size_t i = 0; i < N_ELEMENTS(names) && (!reasoning || reasoning->type == JINJA_NONE); i++)
        reasoning = get(in, names[i]);
    if (reasoning && reasoning->type == JINJA_NONE) reasoning = NULL;
    TRY(jinja_dict_new(r, JINJA_DICT, out));
    if (reasoning) TRY(put(r, out, "thinking", reasoning));
    for (size_t i = 0; i < in->dict->n; i++) {
        const struct jinja_pair *const p = &in->dict->pairs[i];
        if (p->value.type != JINJA_NONE) TRY(jinja_dict_put(r, out->dict, &p->key, &p->value));
    }
    return reasoning ? put(r, out, "reasoning_content", reasoning) : ERR_OK;
}

static bool is_list(const struct jinja_value *v) {
    return v && v->type == JINJA_LIST;
}

/* Arguments that are the text of a JSON object become the object; other text stays. */
static enum err parse_arguments(struct jinja_run *r, const struct jinja_value *message) {
    const struct jinja_value *const calls = get(message, "tool_calls");
    for (size_t i = 0; is_list(calls) && i < calls->list->n; i++) {
        const struct jinja_value *const call = &calls->list->v[i];
        const struct jinja_value *const function = call->type == JINJA_DICT ? get(call, "function") : NULL;
        const struct jinja_value *const text =
            function && function->type == JINJA_DICT ? get(function, "arguments") : NULL;
        struct jinja_value v;
        struct err_msg ignored, *const outer = r->msg;
        if (!text || text->type != JINJA_STR) continue;
        r->msg = &ignored;
        const enum err e = jinja_json_parse(r, "arguments", text->s, text->len, &v);
        r->msg = outer;
        if (e == ERR_OK && v.type == JINJA_DICT)
            TRY(put(r, function, "arguments", &v));
        else if (e == ERR_NOMEM)
            return jinja_run_nomem(r);
    }
    return ERR_OK;
}

static enum err read_messages(struct jinja_run *r, const struct chat_template_input *in, struct jinja_value *out) {
    struct jinja_value v;
    if (!in->messages) return err_set(r->msg, ERR_ARG, "messages: missing");
    TRY(jinja_json_parse(r, "messages", in->messages, strlen(in->messages), &v));
    if (v.type != JINJA_LIST) return err_set(r->msg, ERR_ARG, "messages: must be an array");
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, v.list->n, out));
    for (size_t i = 0; i < v.list->n; i++) {
        if (v.list->v[i].type != JINJA_DICT)
            return err_set(r->msg, ERR_ARG, "messages[%zu]: must be an object, not %s", i,
                           jinja_value_type_name(&v.list->v[i]));
        TRY(clean_message(r, &v.list->v[i], &out->list->v[i]));
        if (in->parse_arguments) TRY(parse_arguments(r, &out->list->v[i]));
    }
    out->list->n = v.list->n;
    return ERR_OK;
}

/* ---- continue_final_message ---- */

/* Puts the mark behind the text that the final message ends with; *text is that text before. */
static enum err add_mark(struct jinja_run *r, const struct jinja_value *messages, struct jinja_value *text) {
    const struct jinja_list *const l = messages->list;
    if (l->n == 0) return err_set(r->msg, ERR_ARG, "continue_final_message is set but the conversation is empty");
    const struct jinja_value *const last = &l->v[l->n - 1], *content = get(last, "content"), *holder = last;
    const char *key = "content";
    if (is_list(content)) {
        const struct jinja_list *const parts = content->list;
        content = NULL;
        key = "text";
        for (size_t i = parts->n; i-- > 0 && !content;) {
            holder = &parts->v[i];
            if (holder->type == JINJA_DICT) content = get(holder, key);
        }
    }
    if (!content || content->type != JINJA_STR)
        return err_set(r->msg, ERR_ARG, "continue_final_message is set but the final message has no text to continue");
    struct jinja_value marked;
    *text = *content;
    TRY(jinja_value_concat(r, content, mark_text, MARK_LEN, &marked));
    marked.tail = NULL;
    return put(r, holder, key, &marked);
}

static void strip(struct jinja_value *v, int sides) {
    jinja_str_strip(&v->s, &v->len, NULL, 0, sides);
}

/* Cuts the rendering at the mark. */
static enum err cut_at_mark(struct jinja_run *r, struct jinja_value text) {
    struct strbuf *const b = &r->out;
    strip(&text, JINJA_STR_LEFT | JINJA_STR_RIGHT);
    const int64_t at = b->data ? jinja_str_rfind(b->data, b->len, mark_text, MARK_LEN - 1) : -1;
    if (at < 0 || jinja_str_find(b->data, b->len, text.s, text.len, 0) < 0)
        return err_set(r->msg, ERR_ARG,
                       "continue_final_message is set but the final message does not appear in the chat after applying "
                       "the chat template! This can happen if the chat template deletes portions of the final message. "
                       "Please verify the chat template and final message in your chat to ensure they are compatible.");
    const bool kept_blank = (size_t)at + MARK_LEN <= b->len && b->data[(size_t)at + MARK_LEN - 1] == ' ';
    struct jinja_value head = jinja_str(b->data, (size_t)at);
    if (!kept_blank) strip(&head, JINJA_STR_RIGHT);
    strbuf_truncate(b, head.len);
    return ERR_OK;
}

/* ---- rendering ---- */

static enum err read_optional(struct jinja_run *r, const char *name, const char *json, const struct jinja_value *ctx) {
    struct jinja_value v = jinja_none();
    if (!json && get(ctx, name)) return ERR_OK; /* from kwargs */
    if (json) TRY(jinja_json_parse(r, name, json, strlen(json), &v));
    if (v.type != JINJA_LIST && v.type != JINJA_NONE) return err_set(r->msg, ERR_ARG, "%s: must be an array", name);
    return put(r, ctx, name, &v);
}

/* Special tokens, then the caller's own variables, then those that every template gets. */
static enum err make_context(struct jinja_run *r, const struct chat_template *t, const struct chat_template_input *in,
                             const struct jinja_value *messages, struct jinja_value *ctx) {
    struct jinja_value kwargs;
    TRY(jinja_dict_new(r, JINJA_DICT, ctx));
    for (int i = 0; i < t->specials.n; i++) {
        const struct jinja_value v = jinja_str(t->specials.v[i].text, t->specials.v[i].len);
        TRY(put(r, ctx, t->specials.v[i].name, &v));
    }
    if (in->kwargs) {
        TRY(jinja_json_parse(r, "chat_template_kwargs", in->kwargs, strlen(in->kwargs), &kwargs));
        if (kwargs.type == JINJA_DICT)
            TRY(jinja_dict_update(r, ctx->dict, &kwargs));
        else if (kwargs.type != JINJA_NONE)
            return err_set(r->msg, ERR_ARG, "chat_template_kwargs: must be an object");
    }
    const struct jinja_value prompt = jinja_bool(in->add_generation_prompt);
    TRY(put(r, ctx, "messages", messages));
    TRY(put(r, ctx, "add_generation_prompt", &prompt));
    TRY(read_optional(r, "tools", in->tools, ctx));
    return read_optional(r, "documents", in->documents, ctx);
}

static enum err render(struct jinja_run *r, const struct chat_template *t, const struct chat_template_input *in) {
    struct jinja_value messages, ctx, text = jinja_cstr("");
    TRY(read_messages(r, in, &messages));
    if (in->continue_final_message) TRY(add_mark(r, &messages, &text));
    TRY(make_context(r, t, in, &messages, &ctx));
    const struct jinja_value *const tools = get(&ctx, "tools");
    const bool with_tools = t->tool_use && tools && tools->type != JINJA_NONE;
    TRY(jinja_eval_render(r, with_tools ? t->tool_use : t->main, &ctx));
    return in->continue_final_message ? cut_at_mark(r, text) : ERR_OK;
}

enum err chat_template_render(const struct chat_template *t, const struct chat_template_input *in, struct strbuf *out,
                              struct err_msg *msg) {
    struct jinja_run r;
    jinja_run_init(&r, NULL, msg);
    r.now_unix_s = in->now_unix_s;
    enum err e = render(&r, t, in);
    if (e == ERR_OK) {
        strbuf_append(out, strbuf_cstr(&r.out), r.out.len);
        if (out->failed) e = err_set(msg, ERR_NOMEM, "out of memory for the prompt");
    }
    jinja_run_deinit(&r);
    return e;
}
