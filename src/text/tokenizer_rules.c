/* Which ids begin and end a text. The rules hide in many files; here is their order of precedence.
 *
 * BOS in front (TOKENIZER_ADD_SPECIAL): an explicit add_bos_token of tokenizer_config.json or GGUF; else what the
 * post-processor of tokenizer.json does; else the kind's habit (SentencePiece and llama-bpe add it). One source
 * decides, so it is never there twice.
 * EOS behind: the same, with add_eos_token and no habit. */
#include <string.h>

#include "text/tokenizer_int.h"

void tokenizer_rules_add_eos(struct tokenizer *t, int64_t id) {
    if (!vocab_has(&t->vocab, id) || t->n_eos_ids == TOKENIZER_EOS_MAX) return;
    for (int i = 0; i < t->n_eos_ids; i++)
        if (t->eos_ids[i] == id) return;
    t->eos_ids[t->n_eos_ids++] = (int32_t)id;
}

static int32_t find_special(const struct tokenizer *t, const char *name) {
    const int32_t id = tokenizer_find(t, name, strlen(name));
    if (id < 0) return -1;
    const enum token_type type = vocab_type(&t->vocab, id);
    return type == TOKEN_CONTROL || type == TOKEN_USER ? id : -1;
}

void tokenizer_rules_known_eos(struct tokenizer *t) {
    static const char *const names[] = {
        "<|eot_id|>",    "<|im_end|>",       "<end_of_turn>", "<|endoftext|>",       "<|eom_id|>",
        "<EOT>",         "[EOT]",            "<|EOT|>",       "<|end_of_text|>",     "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) tokenizer_rules_add_eos(t, find_special(t, names[i]));
    /* Harmony ends its messages with <|end|> and its turns with the other two. */
    const int32_t back = find_special(t, "<|return|>"), call = find_special(t, "<|call|>"),
                  end = find_special(t, "<|end|>");
    if (back < 0 || call < 0) {
        tokenizer_rules_add_eos(t, end);
        return;
    }
    tokenizer_rules_add_eos(t, back);
    tokenizer_rules_add_eos(t, call);
    for (int i = 0; i < t->n_eos_ids; i++) {
        if (t->eos_ids[i] != end) continue;
        t->n_eos_ids--;
        memmove(&t->eos_ids[i], &t->eos_ids[i + 1], (size_t)(t->n_eos_ids - i) * sizeof *t->eos_ids);
        break;
    }
}

static void set_bos(struct tokenizer *t, bool on) {
    const bool has = tokenizer_adds_bos(t);
    if (t->bos < 0 || has == on) return;
    if (!on) {
        t->n_prefix--;
        memmove(t->prefix, t->prefix + 1, (size_t)t->n_prefix * sizeof *t->prefix);
    } else if (t->n_prefix < TOKENIZER_AFFIX_MAX) {
        memmove(t->prefix + 1, t->prefix, (size_t)t->n_prefix * sizeof *t->prefix);
        t->prefix[0] = t->bos;
        t->n_prefix++;
    }
}

static void set_eos(struct tokenizer *t, bool on) {
    const bool has = t->n_suffix > 0 && t->suffix[t->n_suffix - 1] == t->eos;
    if (t->eos < 0 || has == on) return;
    if (!on) t->n_suffix--;
    else if (t->n_suffix < TOKENIZER_AFFIX_MAX) t->suffix[t->n_suffix++] = t->eos;
}

/* The id of a special token of tokenizer_config.json: a string, or an object with its content. */
static int32_t token_of(const struct tokenizer *t, const json_t *file, const char *key) {
    const json_t *v = json_object_get(file, key);
    if (json_is_object(v)) v = json_object_get(v, "content");
    return json_is_string(v) ? tokenizer_find(t, json_string_value(v), json_string_length(v)) : -1;
}

static int64_t first_id(const json_t *file, const char *key) {
    const json_t *v = json_object_get(file, key);
    if (json_is_array(v)) v = json_array_get(v, 0);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static void add_eos_list(struct tokenizer *t, const json_t *file) {
    const json_t *const v = json_object_get(file, "eos_token_id");
    if (json_is_integer(v)) tokenizer_rules_add_eos(t, json_integer_value(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *const id = json_array_get(v, i);
        if (json_is_integer(id)) tokenizer_rules_add_eos(t, json_integer_value(id));
    }
}

static int32_t resolve(const struct tokenizer *t, const struct tokenizer_rules_files *f, const char *token,
                       const char *id_key, int32_t present) {
    int32_t id = token_of(t, f->tokenizer_config, token);
    if (id < 0) id = token_of(t, f->special_tokens_map, token);
    if (id < 0) id = present;
    int64_t from_config = id;
    if (from_config < 0) from_config = first_id(f->generation_config, id_key);
    if (from_config < 0) from_config = first_id(f->config, id_key);
    return vocab_has(&t->vocab, from_config) ? (int32_t)from_config : -1;
}

enum err tokenizer_rules_apply(struct tokenizer *t, const struct tokenizer_rules_files *f, struct err_msg *msg) {
    (void)msg;
    const bool habit = tokenizer_adds_bos(t); /* of a loader that knows its bos */
    const int32_t old_bos = t->bos;
    t->bos = resolve(t, f, "bos_token", "bos_token_id", t->bos);
    t->eos = resolve(t, f, "eos_token", "eos_token_id", t->eos);
    if (habit && t->bos != old_bos && t->bos >= 0) t->prefix[0] = t->bos;
    const json_t *const add_bos = json_object_get(f->tokenizer_config, "add_bos_token");
    const json_t *const add_eos = json_object_get(f->tokenizer_config, "add_eos_token");
    if (json_is_boolean(add_bos)) set_bos(t, json_is_true(add_bos));
    if (json_is_boolean(add_eos)) set_eos(t, json_is_true(add_eos));
    tokenizer_rules_add_eos(t, t->eos);
    add_eos_list(t, f->generation_config);
    add_eos_list(t, f->config);
    tokenizer_rules_known_eos(t);
    return ERR_OK;
}

static int32_t gguf_id(const struct tokenizer *t, const struct conf *meta, const char *key) {
    int64_t id = -1;
    return conf_i64(meta, key, &id) && vocab_has(&t->vocab, id) ? (int32_t)id : -1;
}

enum err tokenizer_rules_gguf(struct tokenizer *t, const struct conf *meta, bool adds_bos, struct err_msg *msg) {
    (void)msg;
    bool adds_eos = false;
    t->bos = gguf_id(t, meta, "tokenizer.ggml.bos_token_id");
    t->eos = gguf_id(t, meta, "tokenizer.ggml.eos_token_id");
    if (strcmp(t->kind, "spm") == 0) { /* the ids that SentencePiece gives by default */
        if (t->bos < 0 && vocab_type(&t->vocab, 1) == TOKEN_CONTROL) t->bos = 1;
        if (t->eos < 0 && vocab_type(&t->vocab, 2) == TOKEN_CONTROL) t->eos = 2;
    }
    (void)conf_bool(meta, "tokenizer.ggml.add_bos_token", &adds_bos);
    (void)conf_bool(meta, "tokenizer.ggml.add_eos_token", &adds_eos);
    set_bos(t, adds_bos);
    set_eos(t, adds_eos);
    tokenizer_rules_add_eos(t, t->eos);
    tokenizer_rules_add_eos(t, gguf_id(t, meta, "tokenizer.ggml.eot_token_id"));
    tokenizer_rules_add_eos(t, gguf_id(t, meta, "tokenizer.ggml.eom_token_id"));
    tokenizer_rules_known_eos(t);
    return ERR_OK;
}
