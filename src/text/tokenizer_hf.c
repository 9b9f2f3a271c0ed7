/* tokenizer.json of the Hugging Face tokenizers library: model, vocabulary, merges and added tokens. Its pipeline of
 * normalizers, pre-tokenizers, post-processors and decoders is read by tokenizer_hf_parts.c. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_hf_int.h"
#include "text/utf8.h"

static enum err no_memory(struct err_msg *msg) {
    return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the vocabulary");
}

static enum err bad(struct err_msg *msg, const char *what) {
    return err_set(msg, ERR_FORMAT, "tokenizer.json: %s", what);
}

const char *tokenizer_hf_type(const json_t *o) {
    const char *const type = json_string_value(json_object_get(o, "type"));
    return type ? type : "";
}

bool tokenizer_hf_flag(const json_t *o, const char *key, bool fallback) {
    const json_t *const v = json_object_get(o, key);
    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

/* Added tokens go into the vocabulary first: their text is never byte-level text. */
static enum err load_added(struct tokenizer *t, const json_t *root, struct err_msg *msg) {
    const json_t *const list = json_object_get(root, "added_tokens");
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o) {
        const json_t *const id = json_object_get(o, "id"), *const text = json_object_get(o, "content");
        if (!json_is_integer(id) || !json_is_string(text)) return bad(msg, "an added token without id or content");
        const bool special = tokenizer_hf_flag(o, "special", false);
        if (vocab_has(&t->vocab, json_integer_value(id)))
            return err_set(msg, ERR_FORMAT, "tokenizer.json: two added tokens have the id %lld",
                           (long long)json_integer_value(id));
        TRY(vocab_add(&t->vocab, json_integer_value(id), json_string_value(text), json_string_length(text),
                      special ? TOKEN_CONTROL : TOKEN_USER, msg));
        const struct added_token token = {
            .id = (int32_t)json_integer_value(id),
            .special = special,
            .single_word = tokenizer_hf_flag(o, "single_word", false),
            .lstrip = tokenizer_hf_flag(o, "lstrip", false),
            .rstrip = tokenizer_hf_flag(o, "rstrip", false),
        };
        const bool normalized = tokenizer_hf_flag(o, "normalized", !special);
        TRY(tokenizer_hf_added(t, normalized, token, msg));
    }
    return ERR_OK;
}

static enum err add_token(struct tokenizer *t, int64_t id, const char *text, size_t len, bool byte_level,
                          struct strbuf *buf, struct err_msg *msg) {
    if (vocab_has(&t->vocab, id)) {
        size_t have_len;
        const char *const have = vocab_text(&t->vocab, (int32_t)id, &have_len);
        const enum token_type type = vocab_type(&t->vocab, id);
        if (type != TOKEN_CONTROL && type != TOKEN_USER) return vocab_add(&t->vocab, id, text, len, TOKEN_NORMAL, msg);
        if (have_len == len && memcmp(have, text, len) == 0) return ERR_OK;
        return err_set(msg, ERR_FORMAT, "tokenizer.json: id %lld is \"%.40s\" in the vocabulary but \"%.40s\" in added_tokens",
                       (long long)id, text, have);
    }
    strbuf_clear(buf);
    if (byte_level) tokenizer_build_unmap(buf, text, len);
    else strbuf_append(buf, text, len);
    if (buf->failed) return no_memory(msg);
    return vocab_add(&t->vocab, id, strbuf_cstr(buf), buf->len, TOKEN_NORMAL, msg);
}

/* {"text": id, ...} */
static enum err load_vocab(struct tokenizer *t, const json_t *model, bool byte_level, struct err_msg *msg) {
    json_t *const vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab)) return bad(msg, "model.vocab is not an object");
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (void *it = json_object_iter(vocab); it && e == ERR_OK; it = json_object_iter_next(vocab, it)) {
        const json_t *const id = json_object_iter_value(it);
        const char *const text = json_object_iter_key(it);
        if (!json_is_integer(id))
            e = err_set(msg, ERR_FORMAT, "tokenizer.json: model.vocab[\"%.40s\"] is not an integer", text);
        else e = add_token(t, json_integer_value(id), text, json_object_iter_key_len(it), byte_level, &buf, msg);
    }
    strbuf_deinit(&buf);
    return e;
}

/* One merge, "a b" or ["a", "b"]: both halves as bytes in buf, the second from *cut. */
static enum err merge_halves(const json_t *m, size_t i, bool byte_level, struct strbuf *buf, size_t *cut,
                             struct err_msg *msg) {
    const char *half[2] = {json_string_value(json_array_get(m, 0)), json_string_value(json_array_get(m, 1))};
    size_t len[2] = {json_string_length(json_array_get(m, 0)), json_string_length(json_array_get(m, 1))};
    if (json_is_string(m)) {
        half[0] = json_string_value(m);
        const size_t n = json_string_length(m);
        const char *const space = n > 1 ? memchr(half[0] + 1, ' ', n - 1) : NULL;
        half[1] = space ? space + 1 : NULL;
        len[0] = space ? (size_t)(space - half[0]) : 0;
        len[1] = space ? n - len[0] - 1 : 0;
    }
    if (!half[0] || !half[1] || !len[0] || !len[1] || (json_is_array(m) && json_array_size(m) != 2))
        return err_set(msg, ERR_FORMAT, "tokenizer.json: model.merges[%zu] is not two tokens", i);
    strbuf_clear(buf);
    for (int k = 0; k < 2; k++) {
        *cut = k ? buf->len : 0;
        if (byte_level) tokenizer_build_unmap(buf, half[k], len[k]);
        else strbuf_append(buf, half[k], len[k]);
    }
    return buf->failed ? no_memory(msg) : ERR_OK;
}

static enum err load_merges(struct tokenizer *t, const json_t *model, bool byte_level, struct err_msg *msg) {
    const json_t *const merges = json_object_get(model, "merges");
    if (!json_is_array(merges)) return bad(msg, "model.merges is not an array");
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (size_t i = 0; i < json_array_size(merges) && e == ERR_OK; i++) {
        size_t cut = 0;
        e = merge_halves(json_array_get(merges, i), i, byte_level, &buf, &cut, msg);
        if (e != ERR_OK) break;
        const int32_t left = vocab_find(&t->vocab, buf.data, cut),
                      right = vocab_find(&t->vocab, buf.data + cut, buf.len - cut);
        const int32_t id = vocab_find(&t->vocab, buf.data, buf.len);
        if (left < 0 || right < 0 || id < 0)
            e = err_set(msg, ERR_FORMAT, "tokenizer.json: model.merges[%zu] names a token that is not in the vocabulary", i);
        else e = bpe_add_merge(&t->bpe, left, right, (uint32_t)i, id, msg);
    }
    strbuf_deinit(&buf);
    return e;
}

/* An id given by its text, as unk_token is. */
static int32_t id_of(const struct tokenizer *t, const json_t *text) {
    return json_is_string(text) ? tokenizer_find(t, json_string_value(text), json_string_length(text)) : -1;
}

static enum err load_bpe(struct tokenizer *t, const json_t *model, bool byte_level, struct err_msg *msg) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    t->kind = byte_level ? "bpe" : "spm";
    for (int i = 0; i < 2; i++)
        if (json_string_length(json_object_get(model, affixes[i])))
            return err_set(msg, ERR_UNSUPPORTED, "tokenizer.json: model.%s is not supported", affixes[i]);
    TRY(load_vocab(t, model, byte_level, msg));
    TRY(tokenizer_build_index(t, msg));
    TRY(bpe_init(&t->bpe, &t->vocab, byte_level, msg));
    t->bpe.ignore_merges = tokenizer_hf_flag(model, "ignore_merges", false);
    t->bpe.fuse_unknown = tokenizer_hf_flag(model, "fuse_unk", false);
    t->bpe.unknown = id_of(t, json_object_get(model, "unk_token"));
    if (!byte_level && !tokenizer_hf_flag(model, "byte_fallback", false))
        memset(t->bpe.byte_ids, -1, sizeof t->bpe.byte_ids);
    TRY(load_merges(t, model, byte_level, msg));
    return byte_level ? ERR_OK : bpe_find_joints(&t->bpe, msg);
}

/* [["text", score], ...]; the place is the id. */
static enum err load_unigram(struct tokenizer *t, const json_t *model, struct err_msg *msg) {
    const json_t *const vocab = json_object_get(model, "vocab");
    const size_t n = json_array_size(vocab);
    if (!n) return bad(msg, "model.vocab is not a list of tokens");
    t->kind = "unigram";
    t->use_unigram = true;
    double *scores = NULL;
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (size_t i = 0; i < n && e == ERR_OK; i++) {
        const json_t *const row = json_array_get(vocab, i), *const text = json_array_get(row, 0);
        if (!json_is_string(text) || !json_is_number(json_array_get(row, 1)))
            e = err_set(msg, ERR_FORMAT, "tokenizer.json: model.vocab[%zu] is not [token, score]", i);
        else e = add_token(t, (int64_t)i, json_string_value(text), json_string_length(text), false, &buf, msg);
    }
    strbuf_deinit(&buf);
    if (e == ERR_OK) e = tokenizer_build_index(t, msg);
    if (e == ERR_OK) {
        scores = mem_calloc((size_t)t->vocab.n, sizeof *scores);
        if (!scores) e = no_memory(msg);
    }
    if (e == ERR_OK) {
        for (size_t i = 0; i < n; i++) scores[i] = json_number_value(json_array_get(json_array_get(vocab, i), 1));
        const json_t *const unk = json_object_get(model, "unk_id");
        const int64_t id = json_is_integer(unk) ? json_integer_value(unk) : -1;
        t->unigram.wide = true;
        e = unigram_init(&t->unigram, &t->vocab, scores, vocab_has(&t->vocab, id) ? (int32_t)id : -1,
                         tokenizer_hf_flag(model, "byte_fallback", false), msg);
    }
    mem_free(scores);
    return e;
}

enum err tokenizer_hf_load(struct tokenizer *t, const json_t *root, struct err_msg *msg) {
    const json_t *const model = json_object_get(root, "model");
    if (!json_is_object(model)) return bad(msg, "there is no model: not a file of the tokenizers library");
    /* Old files leave the type out; their merges tell. */
    const char *const type = json_object_get(model, "type")     ? tokenizer_hf_type(model)
                             : json_object_get(model, "merges") ? "BPE"
                                                                : "";
    bool byte_level = false;
    TRY(tokenizer_hf_normalizer(t, json_object_get(root, "normalizer"), msg));
    TRY(tokenizer_hf_pretokenizer(t, json_object_get(root, "pre_tokenizer"), &byte_level, msg));
    TRY(load_added(t, root, msg));
    if (strcmp(type, "BPE") == 0) TRY(load_bpe(t, model, byte_level, msg));
    else if (strcmp(type, "Unigram") == 0 && !byte_level) TRY(load_unigram(t, model, msg));
    else return err_set(msg, ERR_UNSUPPORTED, "tokenizer.json: model type \"%.40s\" is not supported (BPE and Unigram are)", type);
    TRY(tokenizer_hf_post(t, json_object_get(root, "post_processor"), msg));
    return tokenizer_hf_decoder(t, json_object_get(root, "decoder"), msg);
}
