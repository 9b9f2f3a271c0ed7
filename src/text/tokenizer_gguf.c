/* Tokenizers in GGUF metadata (models.md 15.3): `gpt2` byte-level BPE with merges, `llama` SentencePiece BPE with
 * scores, `t5` SentencePiece Unigram. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_int.h"
#include "text/utf8.h"

#define KEY(name) "tokenizer.ggml." name

static enum err no_memory(struct err_msg *msg) {
    return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the vocabulary");
}

static enum token_type type_of(const struct conf *meta, int64_t id, const char *text, size_t len) {
    int64_t type = TOKEN_NORMAL;
    (void)conf_arr_i64(meta, KEY("token_type"), id, &type);
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE) type = TOKEN_NORMAL;
    /* Converters fill the rows of the embedding that have no token. */
    if (len >= 5 && memcmp(text, "[PAD", 4) == 0 && type == TOKEN_USER) type = TOKEN_UNUSED;
    return (enum token_type)type;
}

/* How the bytes of a token are written depends on the kind: byte-level text for ordinary tokens of gpt2; plain spaces
 * for U+2581 in the user-defined ones of llama. */
static void token_text(struct strbuf *buf, bool byte_level, enum token_type type, const char *text, size_t len) {
    strbuf_clear(buf);
    if (byte_level && (type == TOKEN_NORMAL || type == TOKEN_UNUSED)) {
        tokenizer_build_unmap(buf, text, len);
        return;
    }
    if (byte_level || type != TOKEN_USER) {
        strbuf_append(buf, text, len);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == ' ') strbuf_puts(buf, UTF8_SPM_SPACE);
        else strbuf_putc(buf, text[i]);
    }
}

static enum err load_tokens(struct tokenizer *t, const struct conf *meta, bool byte_level, struct err_msg *msg) {
    const int64_t n = conf_len(meta, KEY("tokens"));
    if (n <= 0) return err_set(msg, ERR_FORMAT, "%s: tokenizer.ggml.tokens is missing or empty", conf_source(meta));
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (int64_t id = 0; id < n && e == ERR_OK; id++) {
        const char *text;
        size_t len;
        if (!conf_arr_str(meta, KEY("tokens"), id, &text, &len)) {
            e = err_set(msg, ERR_FORMAT, "%s: tokenizer.ggml.tokens[%lld] is not a string", conf_source(meta),
                        (long long)id);
            break;
        }
        const enum token_type type = type_of(meta, id, text, len);
        token_text(&buf, byte_level, type, text, len);
        e = buf.failed ? no_memory(msg) : vocab_add(&t->vocab, id, strbuf_cstr(&buf), buf.len, type, msg);
    }
    strbuf_deinit(&buf);
    return e;
}

static enum err bad_merge(const struct conf *meta, int64_t i, const char *why, struct err_msg *msg) {
    return err_set(msg, ERR_FORMAT, "%s: tokenizer.ggml.merges[%lld] %s", conf_source(meta), (long long)i, why);
}

static enum err add_merge(struct tokenizer *t, const struct conf *meta, int64_t i, struct strbuf *buf,
                          struct err_msg *msg) {
    const char *text;
    size_t len;
    if (!conf_arr_str(meta, KEY("merges"), i, &text, &len)) return bad_merge(meta, i, "is not a string", msg);
    const char *const space = len > 1 ? memchr(text + 1, ' ', len - 1) : NULL;
    if (!space || space + 1 == text + len) return bad_merge(meta, i, "is not two tokens with a space between", msg);
    const size_t left_len = (size_t)(space - text);
    strbuf_clear(buf);
    tokenizer_build_unmap(buf, text, left_len);
    const size_t cut = buf->len;
    tokenizer_build_unmap(buf, space + 1, len - left_len - 1);
    if (buf->failed) return no_memory(msg);
    const int32_t left = vocab_find(&t->vocab, buf->data, cut),
                  right = vocab_find(&t->vocab, buf->data + cut, buf->len - cut);
    const int32_t id = vocab_find(&t->vocab, buf->data, buf->len);
    if (left < 0 || right < 0 || id < 0) return bad_merge(meta, i, "names a token that is not in the vocabulary", msg);
    return bpe_add_merge(&t->bpe, left, right, (uint32_t)i, id, msg);
}

static enum err load_bpe(struct tokenizer *t, const struct conf *meta, bool *adds_bos, struct err_msg *msg) {
    const char *pre = "default";
    t->kind = "bpe";
    (void)conf_str(meta, KEY("pre"), &pre, NULL);
    TRY(tokenizer_named_apply(t, pre, adds_bos, msg));
    TRY(load_tokens(t, meta, true, msg));
    TRY(tokenizer_build_index(t, msg));
    const bool ignore_merges = t->bpe.ignore_merges;
    TRY(bpe_init(&t->bpe, &t->vocab, true, msg));
    t->bpe.ignore_merges = ignore_merges;
    for (int32_t id = 0; id < t->vocab.n; id++) {
        const enum token_type type = vocab_type(&t->vocab, id);
        if (type == TOKEN_CONTROL || type == TOKEN_USER || type == TOKEN_UNKNOWN)
            TRY(tokenizer_build_added(t, id, false, msg));
    }
    TRY(tokenizer_build_show_added(t, msg));
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    const int64_t n = conf_len(meta, KEY("merges"));
    if (n < 0) e = err_set(msg, ERR_FORMAT, "%s: tokenizer.ggml.merges is missing", conf_source(meta));
    for (int64_t i = 0; i < n && e == ERR_OK; i++) e = add_merge(t, meta, i, &buf, msg);
    strbuf_deinit(&buf);
    return e;
}

static enum err load_charsmap(struct charsmap *map, const struct conf *meta, struct err_msg *msg) {
    const int64_t n = conf_len(meta, KEY("precompiled_charsmap"));
    if (n <= 0) return ERR_OK;
    unsigned char *const blob = n < 64 << 20 ? mem_alloc((size_t)n) : NULL;
    if (!blob) return no_memory(msg);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = 0;
        (void)conf_arr_i64(meta, KEY("precompiled_charsmap"), i, &v);
        blob[i] = (unsigned char)v;
    }
    const enum err e = charsmap_open(map, blob, (size_t)n, msg);
    mem_free(blob);
    return e;
}

static enum err load_spm(struct tokenizer *t, const struct conf *meta, bool unigram, struct err_msg *msg) {
    struct normalizer_step step = {.spm = {.add_dummy_prefix = true, .escape_whitespaces = true}};
    t->kind = unigram ? "unigram" : "spm";
    t->use_unigram = unigram;
    (void)conf_bool(meta, KEY("add_space_prefix"), &step.spm.add_dummy_prefix);
    (void)conf_bool(meta, KEY("remove_extra_whitespaces"), &step.spm.remove_extra_whitespaces);
    TRY(load_tokens(t, meta, false, msg));
    if (conf_len(meta, KEY("scores")) < t->vocab.n)
        return err_set(msg, ERR_FORMAT, "%s: tokenizer.ggml.scores has fewer entries than there are tokens",
                       conf_source(meta));
    double *const scores = mem_calloc((size_t)t->vocab.n, sizeof *scores);
    if (!scores) return no_memory(msg);
    for (int32_t id = 0; id < t->vocab.n; id++) {
        double v = 0;
        (void)conf_arr_f64(meta, KEY("scores"), id, &v);
        scores[id] = (double)(float)v;
    }
    enum err e = load_charsmap(&step.map, meta, msg);
    if (e == ERR_OK) e = tokenizer_build_spm(t, scores, step, msg);
    else charsmap_deinit(&step.map);
    mem_free(scores);
    return e;
}

enum err tokenizer_gguf_load(struct tokenizer *t, const struct conf *meta, struct err_msg *msg) {
    const char *model = NULL;
    bool adds_bos = true;
    if (!conf_str(meta, KEY("model"), &model, NULL))
        return err_set(msg, ERR_FORMAT, "%s: tokenizer.ggml.model is missing: the file has no tokenizer",
                       conf_source(meta));
    if (strcmp(model, "gpt2") == 0) TRY(load_bpe(t, meta, &adds_bos, msg));
    else if (strcmp(model, "llama") == 0) TRY(load_spm(t, meta, false, msg));
    else if (strcmp(model, "t5") == 0) {
        TRY(load_spm(t, meta, true, msg));
        adds_bos = false;
    } else
        return err_set(msg, ERR_UNSUPPORTED, "%s: tokenizer.ggml.model \"%.40s\" is not supported (gpt2, llama and t5 are)",
                       conf_source(meta), model);
    return tokenizer_rules_gguf(t, meta, adds_bos, msg);
}
