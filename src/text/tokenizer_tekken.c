/* Mistral's tekken.json: ranks of byte strings with the expression that cuts the text. Ids are ranks behind a block of
 * special tokens, so rank r is id r + default_num_special_tokens. */
#include <stdio.h>
#include <string.h>

#include "text/base64.h"
#include "text/tokenizer_int.h"

/* Files before version v7 do not list their special tokens. */
static const char *const old_special[] = {
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
};
enum { N_OLD_SPECIAL = sizeof old_special / sizeof *old_special };

static enum err bad(struct err_msg *msg, const char *what) { return err_set(msg, ERR_FORMAT, "tekken.json: %s", what); }

static enum err add_special(struct tokenizer *t, const json_t *root, int64_t n_special, struct err_msg *msg) {
    const json_t *const list = json_object_get(root, "special_tokens");
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o) {
        const json_t *const rank = json_object_get(o, "rank"), *const text = json_object_get(o, "token_str");
        if (!json_is_integer(rank) || !json_is_string(text) || json_integer_value(rank) >= n_special)
            return bad(msg, "a special token without rank or text, or of a rank behind the special ones");
        TRY(vocab_add(&t->vocab, json_integer_value(rank), json_string_value(text), json_string_length(text),
                      TOKEN_CONTROL, msg));
    }
    for (int64_t id = 0; id < n_special; id++) {
        char name[32];
        if (vocab_has(&t->vocab, id)) continue;
        if (!json_is_array(list) && id < N_OLD_SPECIAL) snprintf(name, sizeof name, "%s", old_special[id]);
        else snprintf(name, sizeof name, "<SPECIAL_%d>", (int)id);
        TRY(vocab_add(&t->vocab, id, name, strlen(name), TOKEN_CONTROL, msg));
    }
    return ERR_OK;
}

static enum err add_ranks(struct tokenizer *t, const json_t *vocab, int64_t n_special, int64_t n_ranks,
                          struct err_msg *msg) {
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (size_t i = 0; i < json_array_size(vocab) && e == ERR_OK; i++) {
        const json_t *const o = json_array_get(vocab, i);
        const json_t *const rank = json_object_get(o, "rank"), *const bytes = json_object_get(o, "token_bytes");
        strbuf_clear(&buf);
        if (!json_is_integer(rank) || !json_is_string(bytes) || json_integer_value(rank) < 0 ||
            json_integer_value(rank) > VOCAB_ID_MAX ||
            !base64_decode(&buf, json_string_value(bytes), json_string_length(bytes)) || !buf.len)
            e = err_set(msg, ERR_FORMAT, "tekken.json: vocab[%zu] has no rank or no bytes in base64", i);
        else if (buf.failed) e = err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the vocabulary");
        else if (json_integer_value(rank) < n_ranks)
            e = vocab_add(&t->vocab, json_integer_value(rank) + n_special, buf.data, buf.len, TOKEN_NORMAL, msg);
    }
    strbuf_deinit(&buf);
    return e;
}

enum err tokenizer_tekken_load(struct tokenizer *t, const json_t *root, struct err_msg *msg) {
    const json_t *const config = json_object_get(root, "config"), *const vocab = json_object_get(root, "vocab");
    const json_t *const pattern = json_object_get(config, "pattern"), *const size =
                                                                          json_object_get(config, "default_vocab_size");
    const json_t *const special = json_object_get(config, "default_num_special_tokens");
    const int64_t n_special = json_is_integer(special) ? json_integer_value(special) : 1000;
    t->kind = "tekken";
    if (!json_is_string(pattern) || !json_is_array(vocab)) return bad(msg, "config.pattern or vocab is missing");
    const int64_t n_all =
        json_is_integer(size) ? json_integer_value(size) : n_special + (int64_t)json_array_size(vocab);
    if (n_special < 3 || n_special > 65536 || n_all < n_special || n_all > VOCAB_ID_MAX)
        return bad(msg, "config.default_vocab_size and config.default_num_special_tokens do not fit together");
    TRY(add_special(t, root, n_special, msg));
    TRY(add_ranks(t, vocab, n_special, n_all - n_special, msg));
    TRY(pretokenizer_add_regex(&t->pre, json_string_value(pattern), json_string_length(pattern), msg));
    TRY(tokenizer_build_ranked(t, msg));
    t->bos = tokenizer_find(t, "<s>", 3);
    t->eos = tokenizer_find(t, "</s>", 4);
    if (t->bos >= 0) t->prefix[t->n_prefix++] = t->bos;
    return ERR_OK;
}
