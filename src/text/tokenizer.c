#include "text/tokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "text/detokenizer.h"
#include "text/tokenizer_int.h"
#include "text/utf8.h"

enum { TEXT_LEN_MAX = 1 << 30 };

/* One encode call. */
struct encoder {
    const struct tokenizer *t;
    unsigned flags;
    struct token_ids *out;
    struct strbuf norm[2];
    struct pretokenizer_run pre;
    struct bpe_scratch bpe;
    struct unigram_scratch unigram;
    size_t last_piece; /* out->n before the last piece */
};

void token_ids_deinit(struct token_ids *t) {
    mem_free(t->ids);
    *t = (struct token_ids){0};
}

static bool encode_piece(struct encoder *e, const char *s, size_t len) {
    const struct tokenizer *const t = e->t;
    e->last_piece = e->out->n;
    return t->use_unigram ? unigram_encode(&t->unigram, s, len, &e->unigram, e->out)
                          : bpe_encode(&t->bpe, s, len, &e->bpe, e->out);
}

/* A stretch of normalized text without added tokens. */
static bool encode_plain(struct encoder *e, const char *s, size_t len, bool at_start) {
    if (!len) return true;
    if (!pretokenizer_cut(&e->t->pre, s, len, at_start, &e->pre)) return false;
    for (size_t i = 0; i < e->pre.n_spans; i++)
        if (!encode_piece(e, e->pre.text + e->pre.spans[i].at, e->pre.spans[i].len)) return false;
    return true;
}

typedef bool stretch_fn(struct encoder *e, const char *s, size_t len, bool at_start);

/* Gives the stretches between added tokens to `plain`, and the tokens themselves to the output. */
static bool split_added(struct encoder *e, const struct trie *trie, const char *s, size_t len, bool at_start,
                        stretch_fn *plain) {
    const bool skip_special = !(e->flags & TOKENIZER_PARSE_SPECIAL);
    size_t from = 0, start, end;
    int32_t id;
    while (added_tokens_next(&e->t->added, trie, s, len, from, skip_special, &start, &end, &id)) {
        if (start > from && !plain(e, s + from, start - from, at_start && from == 0)) return false;
        e->last_piece = e->out->n;
        if (!bpe_push_id(e->out, id)) return false;
        from = end;
    }
    return from == len || plain(e, s + from, len - from, at_start && from == 0);
}

static bool encode_raw(struct encoder *e, const char *s, size_t len, bool at_start) {
    const char *norm;
    size_t norm_len;
    if (!normalizer_apply(&e->t->norm, s, len, e->norm, &norm, &norm_len)) return false;
    if (norm_len >= INT32_MAX) return false;
    return split_added(e, &e->t->added.normalized, norm, norm_len, at_start, encode_plain);
}

static bool encode_valid(struct encoder *e, const char *s, size_t len) {
    return split_added(e, &e->t->added.raw, s, len, true, encode_raw);
}

/* Bytes that are no UTF-8, as the libraries take them. SentencePiece: each is a U+FFFD. tiktoken: the last piece of
 * the valid text before them and all that follows is one piece of bytes. */
static bool encode_invalid(struct encoder *e, const char *s, size_t len, size_t valid) {
    if (!e->t->use_unigram && e->t->bpe.byte_level) {
        const size_t first = e->out->n;
        e->last_piece = first;
        if (!encode_valid(e, s, valid)) return false;
        size_t tail = 0; /* bytes of the last piece */
        for (size_t i = e->last_piece; i < e->out->n; i++) {
            size_t n;
            (void)vocab_text(&e->t->vocab, e->out->ids[i], &n);
            tail += n;
        }
        e->out->n = e->last_piece;
        if (tail > valid) tail = valid;
        return encode_piece(e, s + valid - tail, len - valid + tail);
    }
    struct strbuf text = {0};
    for (size_t at = 0; at < len;) {
        uint32_t cp;
        const int n = utf8_step(s + at, len - at, &cp);
        if (n > 0) strbuf_append(&text, s + at, (size_t)n);
        else strbuf_puts(&text, UTF8_REPLACEMENT);
        at += n > 0 ? (size_t)n : 1;
    }
    const bool ok = !text.failed && encode_valid(e, strbuf_cstr(&text), text.len);
    strbuf_deinit(&text);
    return ok;
}

static bool push_all(struct token_ids *out, const int32_t *ids, int n) {
    for (int i = 0; i < n; i++)
        if (!bpe_push_id(out, ids[i])) return false;
    return true;
}

enum err tokenizer_encode(const struct tokenizer *t, const char *text, size_t len, unsigned flags,
                          struct token_ids *out, struct err_msg *msg) {
    if (len > TEXT_LEN_MAX) return err_set(msg, ERR_LIMIT, "a text of %zu bytes; at most 1 GiB can be tokenized", len);
    const size_t valid = utf8_valid_prefix(text, len);
    if (valid != len && !(flags & TOKENIZER_RAW_BYTES))
        return err_set(msg, ERR_ARG, "the text is not valid UTF-8 at byte %zu", valid);
    struct encoder e = {.t = t, .flags = flags, .out = out};
    const size_t before = out->n;
    const bool special = flags & TOKENIZER_ADD_SPECIAL;
    bool ok = !special || push_all(out, t->prefix, t->n_prefix);
    ok = ok && (valid == len ? encode_valid(&e, text, len) : encode_invalid(&e, text, len, valid));
    ok = ok && (!special || push_all(out, t->suffix, t->n_suffix));
    strbuf_deinit(&e.norm[0]);
    strbuf_deinit(&e.norm[1]);
    pretokenizer_run_deinit(&e.pre);
    bpe_scratch_deinit(&e.bpe);
    unigram_scratch_deinit(&e.unigram);
    if (ok) return ERR_OK;
    out->n = before;
    return err_set(msg, ERR_NOMEM, "out of memory while tokenizing %zu bytes", len);
}

enum err tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                          struct strbuf *out, struct err_msg *msg) {
    struct detokenizer d;
    detokenizer_init(&d, t, skip_special);
    for (size_t i = 0; i < n; i++) detokenizer_push(&d, ids[i], out);
    detokenizer_finish(&d, out);
    return out->failed ? err_set(msg, ERR_NOMEM, "out of memory while detokenizing %zu ids", n) : ERR_OK;
}

void tokenizer_close(struct tokenizer *t) {
    if (!t) return;
    vocab_deinit(&t->vocab);
    bpe_deinit(&t->bpe);
    unigram_deinit(&t->unigram);
    normalizer_deinit(&t->norm);
    pretokenizer_deinit(&t->pre);
    added_tokens_deinit(&t->added);
    trie_deinit(&t->keep);
    mem_free(t);
}

const char *tokenizer_kind(const struct tokenizer *t) { return t->kind; }

int32_t tokenizer_size(const struct tokenizer *t) { return t->vocab.n; }

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len) {
    *len = 0;
    return vocab_has(&t->vocab, id) ? vocab_shown(&t->vocab, id, len) : NULL;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t len) {
    int32_t which = trie_find(&t->added.raw, text, len);
    if (which < 0) which = trie_find(&t->added.normalized, text, len);
    return which >= 0 ? t->added.tokens[which].id : vocab_find(&t->vocab, text, len);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id) {
    const enum token_type type = vocab_type(&t->vocab, id);
    return type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
}

int32_t tokenizer_bos(const struct tokenizer *t) { return t->bos; }
int32_t tokenizer_eos(const struct tokenizer *t) { return t->eos; }

bool tokenizer_adds_bos(const struct tokenizer *t) {
    return t->n_prefix > 0 && t->bos >= 0 && t->prefix[0] == t->bos;
}

const int32_t *tokenizer_eos_ids(const struct tokenizer *t, int *n) {
    *n = t->n_eos_ids;
    return t->eos_ids;
}
