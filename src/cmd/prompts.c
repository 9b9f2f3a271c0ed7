#include "cmd/prompts.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "load/conf.h"
#include "serve/json_write.h"

static struct err_msg *msg_of(struct xenon_error *e, struct err_msg *msg) {
    if (msg) memcpy(msg->text, e->text, sizeof msg->text);
    return msg;
}

/* A new entry with nothing set. */
static struct prompt *add(struct prompt_list *l, struct err_msg *msg) {
    if (!mem_grow(&l->items, &l->cap, l->n + 1, sizeof *l->items)) {
        err_set(msg, ERR_NOMEM, "prompts: memory ran out");
        return NULL;
    }
    l->items[l->n] = (struct prompt){.max_tokens = INT32_MIN, .temperature = (double)NAN};
    return &l->items[l->n++];
}

static enum err tokenize(struct prompt *p, const struct xenon *x, const char *text, size_t len, bool rendered,
                         struct err_msg *msg) {
    struct xenon_error e;
    const int rc = xenon_tokenize(x, text, len, !rendered, true, &p->ids, &p->n, &e);
    if (rc) msg_of(&e, msg);
    return (enum err)rc;
}

static enum err render(struct prompt *p, const struct xenon *x, const char *messages, struct err_msg *msg) {
    const struct xenon_chat chat = {.messages = messages, .add_generation_prompt = true};
    struct xenon_error e;
    char *text = NULL;
    size_t len = 0;
    int rc = xenon_render_chat(x, &chat, &text, &len, &e);
    if (rc) {
        msg_of(&e, msg);
        return (enum err)rc;
    }
    rc = (int)tokenize(p, x, text, len, true, msg);
    xenon_free(text);
    return (enum err)rc;
}

static enum err fill_text(struct prompt *p, const struct xenon *x, const char *text, size_t len, bool chat,
                          struct err_msg *msg) {
    struct strbuf messages = {0};
    if (!chat) return tokenize(p, x, text, len, false, msg);
    strbuf_puts(&messages, "[{\"role\":\"user\",\"content\":");
    json_write_string(&messages, text, len);
    strbuf_puts(&messages, "}]");
    const enum err e = messages.failed ? err_set(msg, ERR_NOMEM, "prompts: memory ran out")
                                       : render(p, x, strbuf_cstr(&messages), msg);
    strbuf_deinit(&messages);
    return e;
}

enum err prompts_add_text(struct prompt_list *l, const struct xenon *x, const char *text, size_t len, bool chat,
                          struct err_msg *msg) {
    struct prompt *const p = add(l, msg);
    return p ? fill_text(p, x, text, len, chat, msg) : ERR_NOMEM;
}

enum err prompts_add_ids(struct prompt_list *l, const char *text, struct err_msg *msg) {
    struct prompt *const p = add(l, msg);
    size_t cap = 0;
    if (!p) return ERR_NOMEM;
    for (const char *at = text; *at;) {
        char *end;
        errno = 0;
        const long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX || (*end && *end != ',' && *end != ' '))
            return err_set(msg, ERR_ARG, "--token-ids: \"%.32s\" is no id; write 1,2,3", at);
        if (!mem_grow(&p->ids, &cap, p->n + 1, sizeof *p->ids))
            return err_set(msg, ERR_NOMEM, "prompts: memory ran out");
        p->ids[p->n++] = (int32_t)id;
        at = end + strspn(end, ", ");
    }
    return ERR_OK;
}

static enum err fill_ids(struct prompt *p, const json_t *array, struct err_msg *msg) {
    const size_t n = json_array_size(array);
    p->ids = mem_calloc(n, sizeof *p->ids);
    if (!p->ids) return err_set(msg, ERR_NOMEM, "prompts: memory ran out");
    for (size_t i = 0; i < n; i++) {
        const json_t *const v = json_array_get(array, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return err_set(msg, ERR_ARG, "element %zu is no token id", i);
        p->ids[p->n++] = (int32_t)json_integer_value(v);
    }
    return ERR_OK;
}

static enum err fill_messages(struct prompt *p, const struct xenon *x, const json_t *messages, struct err_msg *msg) {
    char *const text = json_dumps(messages, JSON_COMPACT);
    if (!text) return err_set(msg, ERR_NOMEM, "prompts: memory ran out");
    const enum err e = render(p, x, text, msg);
    mem_free(text); /* load/ routes jansson's memory through base/mem */
    return e;
}

static enum err fill_value(struct prompt *p, const struct xenon *x, const json_t *v, bool chat, struct err_msg *msg) {
    if (json_is_string(v)) return fill_text(p, x, json_string_value(v), json_string_length(v), chat, msg);
    if (json_is_array(v)) return fill_ids(p, v, msg);
    if (!json_is_object(v)) return err_set(msg, ERR_ARG, "neither a string, nor ids, nor an object");
    const json_t *const max = json_object_get(v, "max_tokens"), *const t = json_object_get(v, "temperature"),
                 *const seed = json_object_get(v, "seed");
    if (json_is_integer(max) && json_integer_value(max) >= 0 && json_integer_value(max) <= INT32_MAX)
        p->max_tokens = (int32_t)json_integer_value(max);
    if (json_is_number(t)) p->temperature = json_number_value(t);
    p->has_seed = json_is_integer(seed);
    p->seed = p->has_seed ? (uint64_t)json_integer_value(seed) : 0;
    if (json_object_get(v, "messages")) return fill_messages(p, x, json_object_get(v, "messages"), msg);
    const json_t *const prompt = json_object_get(v, "prompt"), *const ids = json_object_get(v, "token_ids");
    if (!prompt && !ids) return err_set(msg, ERR_ARG, "has none of \"prompt\", \"token_ids\" and \"messages\"");
    return fill_value(p, x, prompt ? prompt : ids, chat, msg);
}

static enum err add_line(struct prompt_list *l, const struct xenon *x, const char *line, size_t len, bool chat,
                         struct err_msg *msg) {
    struct conf *c = NULL;
    if (len == 0 || strspn(line, " \t\r") == len) return ERR_OK;
    struct prompt *const p = add(l, msg);
    if (!p) return ERR_NOMEM;
    TRY(conf_parse_json(&c, line, len, "prompt", msg));
    const enum err e = fill_value(p, x, conf_json(c), chat, msg);
    conf_close(c);
    return e;
}

enum err prompts_add_file(struct prompt_list *l, const struct xenon *x, const char *path, bool chat,
                          struct err_msg *msg) {
    FILE *const f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!f) return err_set(msg, ERR_IO, "%s: cannot be read: %s", path, strerror(errno));
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    enum err e = ERR_OK;
    for (int no = 1; !e && (len = getline(&line, &cap, f)) >= 0; no++) {
        if (len > 0 && line[len - 1] == '\n') line[--len] = '\0';
        e = add_line(l, x, line, (size_t)len, chat, msg);
        if (e) err_prefix(msg, e, "%s line %d", path, no);
    }
    mem_free_foreign(line);
    if (f != stdin) fclose(f);
    return e;
}

void prompts_deinit(struct prompt_list *l) {
    for (size_t i = 0; i < l->n; i++) mem_free(l->items[i].ids);
    mem_free(l->items);
    *l = (struct prompt_list){0};
}
