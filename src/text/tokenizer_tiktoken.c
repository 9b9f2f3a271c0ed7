/* tiktoken rank files: lines of base64(bytes) SP rank, where the rank is the id (models.md 0.9). The files hold neither
 * the expression that cuts the text nor the special tokens; both come from the checkpoint's other files or from the
 * family, which the number of ranks tells. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/base64.h"
#include "text/tokenizer_int.h"

struct family_special {
    int32_t id;
    const char *name;
};

struct family {
    int32_t n_ranks;
    const char *pre; /* of tokenizer_named.c */
    bool adds_bos;
    const char *bos, *eos;
    const char *filler; /* ids up to n_total without a name are called filler, a number and "|>"; NULL: they are not */
    bool filler_by_id;    /* the number is the id; else they are counted */
    int32_t n_total;
    struct family_special special[32];
};

static const struct family families[] = {
    {128000,
     "llama-bpe",
     true,
     "<|begin_of_text|>",
     "<|end_of_text|>",
     "<|reserved_special_token_",
     false,
     128256,
     {{128000, "<|begin_of_text|>"},
      {128001, "<|end_of_text|>"},
      {128004, "<|finetune_right_pad_id|>"},
      {128005, "<|step_id|>"},
      {128006, "<|start_header_id|>"},
      {128007, "<|end_header_id|>"},
      {128008, "<|eom_id|>"},
      {128009, "<|eot_id|>"},
      {128010, "<|python_tag|>"}}},
    {151643,
     "qwen2",
     false,
     "",
     "<|endoftext|>",
     "<|extra_",
     false,
     151851,
     {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
    {199998,
     "gpt-4o",
     false,
     "<|startoftext|>",
     "<|return|>",
     "<|reserved_",
     true,
     201088,
     {{199998, "<|startoftext|>"},
      {199999, "<|endoftext|>"},
      {200002, "<|return|>"},
      {200003, "<|constrain|>"},
      {200005, "<|channel|>"},
      {200006, "<|start|>"},
      {200007, "<|end|>"},
      {200008, "<|message|>"},
      {200012, "<|call|>"},
      {200018, "<|endofprompt|>"}}},
    {163584,
     "kimi-k2",
     false,
     "[BOS]",
     "[EOS]",
     "<|reserved_token_",
     true,
     163840,
     {{163584, "[BOS]"},
      {163585, "[EOS]"},
      {163586, "<|im_end|>"},
      {163587, "<|im_user|>"},
      {163588, "<|im_assistant|>"},
      {163590, "<|start_header_id|>"},
      {163591, "<|end_header_id|>"},
      {163593, "[EOT]"},
      {163594, "<|im_system|>"},
      {163595, "<|tool_calls_section_begin|>"},
      {163596, "<|tool_calls_section_end|>"},
      {163597, "<|tool_call_begin|>"},
      {163598, "<|tool_call_argument_begin|>"},
      {163599, "<|tool_call_end|>"},
      {163601, "<|im_middle|>"},
      {163606, "<think>"},
      {163607, "</think>"},
      {163838, "[UNK]"},
      {163839, "[PAD]"}}},
    {100256,
     "llama-bpe",
     false,
     "",
     "<|endoftext|>",
     NULL,
     false,
     100277,
     {{100257, "<|endoftext|>"},
      {100258, "<|fim_prefix|>"},
      {100259, "<|fim_middle|>"},
      {100260, "<|fim_suffix|>"},
      {100276, "<|endofprompt|>"}}},
};

bool tokenizer_tiktoken_is(const char *bytes, size_t len) {
    /* The first line decides: base64, one space, digits. */
    size_t i = 0;
    while (i < len && i < 1024 && (isalnum((unsigned char)bytes[i]) || strchr("+/=", bytes[i] ? bytes[i] : '!'))) i++;
    return i > 1 && i + 1 < len && bytes[i] == ' ' && isdigit((unsigned char)bytes[i + 1]);
}

static enum err bad_line(size_t line, const char *why, struct err_msg *msg) {
    return err_set(msg, ERR_FORMAT, "tiktoken file, line %zu: %s", line, why);
}

static enum err add_line(struct tokenizer *t, const char *s, size_t len, size_t line, struct strbuf *buf,
                         struct err_msg *msg) {
    const char *const space = memchr(s, ' ', len);
    if (!space || space == s) return bad_line(line, "not base64, a space and a rank", msg);
    int64_t rank = 0;
    const char *p = space + 1;
    if (p == s + len) return bad_line(line, "the rank is missing", msg);
    for (; p < s + len; p++) {
        if (!isdigit((unsigned char)*p) || rank > VOCAB_ID_MAX)
            return bad_line(line, "the rank is not a small number", msg);
        rank = rank * 10 + (*p - '0');
    }
    strbuf_clear(buf);
    if (!base64_decode(buf, s, (size_t)(space - s))) return bad_line(line, "not base64", msg);
    if (buf->failed) return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the vocabulary");
    if (!buf->len) return bad_line(line, "an empty token", msg);
    return vocab_add(&t->vocab, rank, buf->data, buf->len, TOKEN_NORMAL, msg);
}

static enum err load_lines(struct tokenizer *t, const char *bytes, size_t len, struct err_msg *msg) {
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    size_t line = 0;
    for (size_t at = 0; at < len && e == ERR_OK;) {
        const char *const end = memchr(bytes + at, '\n', len - at);
        size_t n = end ? (size_t)(end - bytes) - at : len - at;
        const size_t next = at + n + 1;
        if (n && bytes[at + n - 1] == '\r') n--;
        line++;
        if (n) e = add_line(t, bytes + at, n, line, &buf, msg);
        at = next;
    }
    strbuf_deinit(&buf);
    if (e == ERR_OK && !t->vocab.n) e = err_set(msg, ERR_FORMAT, "tiktoken file: no ranks in it");
    return e;
}

static enum err add_special(struct tokenizer *t, int64_t id, const char *name, bool control, struct err_msg *msg) {
    return vocab_add(&t->vocab, id, name, strlen(name), control ? TOKEN_CONTROL : TOKEN_USER, msg);
}

/* A second name of an id is matched in texts, too; the first is what decoding shows. */
static enum err add_listed_one(struct tokenizer *t, int64_t id, const char *name, bool control, struct err_msg *msg) {
    const enum token_type type = vocab_type(&t->vocab, id);
    if (type != TOKEN_CONTROL && type != TOKEN_USER) return add_special(t, id, name, control, msg);
    const struct added_token token = {.id = (int32_t)id, .special = control};
    return added_tokens_add(&t->added, name, strlen(name), false, token, msg);
}

/* {name: id} or added_tokens_decoder's {id: {content, special}}. */
static enum err add_listed(struct tokenizer *t, const json_t *special, struct err_msg *msg) {
    /* Jansson walks an object that it may not change by address only: its iterators want a plain json_t. */
    json_t *const list = (json_t *)(uintptr_t)special;
    enum err e = ERR_OK;
    for (void *it = json_object_iter(list); it && e == ERR_OK; it = json_object_iter_next(list, it)) {
        const json_t *const v = json_object_iter_value(it), *const content = json_object_get(v, "content");
        const char *const key = json_object_iter_key(it);
        if (json_is_integer(v)) e = add_listed_one(t, json_integer_value(v), key, true, msg);
        else if (json_is_string(content))
            e = add_listed_one(t, strtoll(key, NULL, 10), json_string_value(content),
                               !json_is_false(json_object_get(v, "special")), msg);
        else e = err_set(msg, ERR_FORMAT, "tokenizer: special token \"%.40s\" has no id", key);
    }
    return e;
}

static enum err add_family(struct tokenizer *t, const struct family *f, struct err_msg *msg) {
    char name[TOKENIZER_NAME_LEN_MAX];
    for (size_t i = 0; i < sizeof f->special / sizeof *f->special && f->special[i].name; i++) {
        const bool control = !strstr(f->special[i].name, "think>"); /* thoughts are shown */
        TRY(add_special(t, f->special[i].id, f->special[i].name, control, msg));
    }
    for (int32_t id = f->n_ranks, n = 0; id < f->n_total && f->filler; id++) {
        if (vocab_has(&t->vocab, id)) continue;
        snprintf(name, sizeof name, "%s%d|>", f->filler, f->filler_by_id ? id : n++);
        TRY(add_special(t, id, name, true, msg));
    }
    return ERR_OK;
}

static const struct family *family_of(int32_t n_ranks) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].n_ranks == n_ranks) return &families[i];
    return NULL;
}

enum err tokenizer_tiktoken_load(struct tokenizer *t, const char *bytes, size_t len, const json_t *special,
                                 const char *pattern, struct err_msg *msg) {
    t->kind = "tiktoken";
    TRY(load_lines(t, bytes, len, msg));
    const struct family *const f = family_of(t->vocab.n);
    if (!f && !pattern)
        return err_set(msg, ERR_UNSUPPORTED, "tiktoken file of %d ranks: of no family that is known, and nothing says how to cut the text",
                       t->vocab.n);
    TRY(special ? add_listed(t, special, msg) : f ? add_family(t, f, msg) : ERR_OK);
    bool adds_bos = false;
    if (pattern) TRY(pretokenizer_add_regex(&t->pre, pattern, strlen(pattern), msg));
    else TRY(tokenizer_named_apply(t, f->pre, &adds_bos, msg));
    TRY(tokenizer_build_ranked(t, msg));
    if (!f) return ERR_OK;
    t->bos = tokenizer_find(t, f->bos, strlen(f->bos));
    t->eos = tokenizer_find(t, f->eos, strlen(f->eos));
    if (f->adds_bos && t->bos >= 0) t->prefix[t->n_prefix++] = t->bos;
    return ERR_OK;
}
