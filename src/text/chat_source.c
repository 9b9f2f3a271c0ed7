#include "text/chat_source.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "load/conf.h"

enum { TEMPLATE_BYTES_MAX = 4 << 20 };

static enum err nomem(struct err_msg *msg) {
    return err_set(msg, ERR_NOMEM, "out of memory for the chat template");
}

static enum err copy(const char *s, size_t n, char **source, size_t *len, struct err_msg *msg) {
    *source = mem_strndup(s, n);
    if (!*source) return nomem(msg);
    *len = n;
    return ERR_OK;
}

/* ---- templates ---- */

/* chat_template of tokenizer_config.json: one text, or a list of names and texts. */
static enum err find_in_conf(const struct conf *conf, const char *name, char **source, size_t *len,
                             struct err_msg *msg) {
    const char *s;
    size_t n;
    if (conf_str(conf, "chat_template", &s, &n)) return name ? ERR_OK : copy(s, n, source, len, msg);
    const int64_t count = conf_len(conf, "chat_template");
    for (int64_t i = 0; i < count; i++) {
        char key[64];
        const char *found;
        snprintf(key, sizeof key, "chat_template.%lld.name", (long long)i);
        if (!conf_str(conf, key, &found, NULL) || strcmp(found, name ? name : "default") != 0) continue;
        snprintf(key, sizeof key, "chat_template.%lld.template", (long long)i);
        if (conf_str(conf, key, &s, &n)) return copy(s, n, source, len, msg);
    }
    return ERR_OK;
}

static enum err find_in_json(const struct ckpt *c, const char *file, const char *name, char **source, size_t *len,
                             struct err_msg *msg) {
    struct conf *conf = NULL;
    TRY(ckpt_json(c, file, &conf, msg));
    if (!conf) return ERR_OK;
    const enum err e = find_in_conf(conf, name, source, len, msg);
    conf_close(conf);
    return e;
}

/* Names that cannot leave the folder. */
static bool plain_name(const char *name) {
    return !strchr(name, '/') && name[0] != '.' && strlen(name) < 64;
}

static enum err find_in_folder(const struct ckpt *c, const char *name, char **source, size_t *len,
                               struct err_msg *msg) {
    char file[128] = "chat_template.jinja";
    if (name) snprintf(file, sizeof file, "additional_chat_templates/%s.jinja", name);
    if (!name || plain_name(name)) TRY(ckpt_file(c, file, TEMPLATE_BYTES_MAX, source, len, msg));
    if (!*source) TRY(find_in_json(c, "tokenizer_config.json", name, source, len, msg));
    if (!*source) TRY(find_in_json(c, "chat_template.json", name, source, len, msg));
    return ERR_OK;
}

enum err chat_source_find(const struct ckpt *c, const char *name, char **source, size_t *len, struct err_msg *msg) {
    char key[128] = "tokenizer.chat_template";
    const char *s;
    size_t n;
    *source = NULL;
    *len = 0;
    if (!ckpt_is_gguf(c)) return find_in_folder(c, name, source, len, msg);
    if (name) snprintf(key, sizeof key, "tokenizer.chat_template.%.64s", name);
    return conf_str(ckpt_conf(c), key, &s, &n) ? copy(s, n, source, len, msg) : ERR_OK;
}

/* ---- special tokens ---- */

static const struct {
    const char *name;
    const char *gguf;
} specials[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},       {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},   {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id"}, {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"},
};

static_assert(N_ELEMENTS(specials) <= CHAT_SPECIALS_MAX, "every special token has a place");

static enum err add(struct chat_specials *out, const char *name, const char *text, size_t len, struct err_msg *msg) {
    char *const kept = mem_strndup(text, len);
    if (!kept) return nomem(msg);
    out->v[out->n++] = (struct chat_special){.name = name, .text = kept, .len = len};
    return ERR_OK;
}

static bool has(const struct chat_specials *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->v[i].name, name) == 0) return true;
    return false;
}

/* "bos_token": "<s>" or {"content": "<s>", ...} */
static enum err specials_of_json(struct chat_specials *out, const struct ckpt *c, const char *file,
                                 struct err_msg *msg) {
    struct conf *conf = NULL;
    TRY(ckpt_json(c, file, &conf, msg));
    enum err e = ERR_OK;
    for (size_t i = 0; conf && i < N_ELEMENTS(specials) && e == ERR_OK; i++) {
        char key[64];
        const char *s;
        size_t n;
        snprintf(key, sizeof key, "%s.content", specials[i].name);
        const bool found = conf_str(conf, specials[i].name, &s, &n) || conf_str(conf, key, &s, &n);
        if (found && !has(out, specials[i].name)) e = add(out, specials[i].name, s, n, msg);
    }
    conf_close(conf);
    return e;
}

static enum err specials_of_gguf(struct chat_specials *out, const struct conf *conf, struct err_msg *msg) {
    for (size_t i = 0; i < N_ELEMENTS(specials); i++) {
        int64_t id;
        const char *s;
        size_t n;
        if (!conf_i64(conf, specials[i].gguf, &id) || id < 0) continue;
        if (conf_arr_str(conf, "tokenizer.ggml.tokens", id, &s, &n)) TRY(add(out, specials[i].name, s, n, msg));
    }
    return ERR_OK;
}

enum err chat_source_specials(struct chat_specials *out, const struct ckpt *c, struct err_msg *msg) {
    if (ckpt_is_gguf(c)) return specials_of_gguf(out, ckpt_conf(c), msg);
    TRY(specials_of_json(out, c, "tokenizer_config.json", msg));
    return specials_of_json(out, c, "special_tokens_map.json", msg);
}

void chat_source_specials_deinit(struct chat_specials *s) {
    for (int i = 0; i < s->n; i++)
        mem_free(s->v[i].text);
    *s = (struct chat_specials){0};
}
