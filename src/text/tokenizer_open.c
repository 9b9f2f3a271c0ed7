/* Finding a checkpoint's tokenizer among the files it may be in. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_int.h"

enum { FILE_MAX = 256 << 20 };

/* The JSON files about tokens; any may be missing. */
struct side_files {
    struct conf *tokenizer_config, *special_tokens_map, *generation_config, *special_tokens;
};

static const json_t *json_of(const struct conf *c) { return c ? conf_json(c) : NULL; }

static enum err open_side_files(struct side_files *f, const struct ckpt *c, struct err_msg *msg) {
    TRY(ckpt_json(c, "tokenizer_config.json", &f->tokenizer_config, msg));
    TRY(ckpt_json(c, "special_tokens_map.json", &f->special_tokens_map, msg));
    TRY(ckpt_json(c, "generation_config.json", &f->generation_config, msg));
    return ckpt_json(c, "special_tokens.json", &f->special_tokens, msg);
}

static void close_side_files(struct side_files *f) {
    conf_close(f->tokenizer_config);
    conf_close(f->special_tokens_map);
    conf_close(f->generation_config);
    conf_close(f->special_tokens);
}

/* Rank files: their special tokens are written in one of several places, or known by the family alone. */
static enum err load_ranks(struct tokenizer *t, const char *bytes, size_t len, const struct side_files *f,
                           struct err_msg *msg) {
    const json_t *const own = json_of(f->special_tokens);
    const json_t *special = json_object_get(own, "special_tokens");
    if (!special) special = json_object_get(json_of(f->tokenizer_config), "added_tokens_decoder");
    return tokenizer_tiktoken_load(t, bytes, len, special, json_string_value(json_object_get(own, "pat_str")), msg);
}

static enum err load_file(struct tokenizer *t, const struct ckpt *c, const char *name, const struct side_files *f,
                          bool *found, struct err_msg *msg) {
    char *bytes = NULL;
    size_t len = 0;
    TRY(ckpt_file(c, name, FILE_MAX, &bytes, &len, msg));
    if (!bytes) return ERR_OK;
    *found = true;
    enum err e =
        tokenizer_tiktoken_is(bytes, len) ? load_ranks(t, bytes, len, f, msg) : tokenizer_spm_load(t, bytes, len, msg);
    mem_free(bytes);
    return e == ERR_OK ? e : err_prefix(msg, e, "%s", name);
}

typedef enum err json_loader(struct tokenizer *t, const json_t *root, struct err_msg *msg);

static enum err load_json(struct tokenizer *t, const struct ckpt *c, const char *name, json_loader *load, bool *found,
                          struct err_msg *msg) {
    struct conf *file = NULL;
    TRY(ckpt_json(c, name, &file, msg));
    if (!file) return ERR_OK;
    *found = true;
    const enum err e = load(t, conf_json(file), msg);
    conf_close(file);
    return e;
}

static enum err load_folder(struct tokenizer *t, const struct ckpt *c, const struct side_files *f,
                            struct err_msg *msg) {
    static const char *const names[] = {"tokenizer.model", "tiktoken.model", "qwen.tiktoken", "tokenizer.tiktoken",
                                        "o200k_base.tiktoken", "cl100k_base.tiktoken", "original/tokenizer.model",
                                        "tokenizer.model.v3"};
    bool found = false;
    TRY(load_json(t, c, "tokenizer.json", tokenizer_hf_load, &found, msg));
    if (!found) TRY(load_json(t, c, "tekken.json", tokenizer_tekken_load, &found, msg));
    for (size_t i = 0; !found && i < sizeof names / sizeof *names; i++) TRY(load_file(t, c, names[i], f, &found, msg));
    if (!found)
        return err_set(msg, ERR_IO, "%s: no tokenizer (tokenizer.json, tekken.json, tokenizer.model and tiktoken files were sought)",
                       ckpt_path(c));
    const struct tokenizer_rules_files rules = {json_of(f->tokenizer_config), json_of(f->special_tokens_map),
                                                conf_json(ckpt_conf(c)), json_of(f->generation_config)};
    return tokenizer_rules_apply(t, &rules, msg);
}

enum err tokenizer_open(struct tokenizer **out, const struct ckpt *c, struct err_msg *msg) {
    *out = NULL;
    struct tokenizer *const t = mem_calloc(1, sizeof *t);
    if (!t) return err_set(msg, ERR_NOMEM, "out of memory for the tokenizer");
    t->bos = t->eos = -1;
    struct side_files f = {0};
    enum err e = ckpt_is_gguf(c) ? tokenizer_gguf_load(t, ckpt_conf(c), msg) : open_side_files(&f, c, msg);
    if (e == ERR_OK && !ckpt_is_gguf(c)) e = load_folder(t, c, &f, msg);
    close_side_files(&f);
    if (e != ERR_OK) {
        tokenizer_close(t);
        return e;
    }
    *out = t;
    return ERR_OK;
}
