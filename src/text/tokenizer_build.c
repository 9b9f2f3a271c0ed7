/* What the loaders of tokenizers share. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_int.h"
#include "text/utf8.h"

static enum err no_memory(struct err_msg *msg) {
    return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the vocabulary");
}

/* GPT-2's table: the byte that a printable code point stands for, or -1. Bytes 0x21-0x7e, 0xa1-0xac and 0xae-0xff
 * stand for themselves, the other 68 in order for U+0100 and up (models.md 0.9). */
static int byte_of(uint32_t cp) {
    if ((cp >= 0x21 && cp <= 0x7e) || (cp >= 0xa1 && cp <= 0xac) || (cp >= 0xae && cp <= 0xff)) return (int)cp;
    if (cp < 0x100 || cp > 0x143) return -1;
    const int n = (int)cp - 0x100;
    if (n < 0x21) return n;
    if (n < 0x21 + 0x22) return 0x7f + n - 0x21;
    return 0xad;
}

void tokenizer_build_unmap(struct strbuf *out, const char *text, size_t len) {
    const size_t start = out->len;
    for (size_t at = 0; at < len;) {
        uint32_t cp = 0;
        const int n = utf8_step(text + at, len - at, &cp);
        const int byte = n > 0 ? byte_of(cp) : -1;
        if (byte < 0) {
            if (!out->failed) strbuf_truncate(out, start);
            strbuf_append(out, text, len);
            return;
        }
        strbuf_putc(out, (char)byte);
        at += (size_t)n;
    }
}

int tokenizer_build_byte(const char *text, size_t len) {
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; i++) {
        const char c = text[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Tables are as long as the largest id: a file of few tokens with huge ids is damaged or hostile. */
static enum err check_density(const struct tokenizer *t, struct err_msg *msg) {
    int64_t n = 0;
    for (int32_t id = 0; id < t->vocab.n; id++) n += vocab_has(&t->vocab, id);
    if (t->vocab.n <= 16 * n + 65536) return ERR_OK;
    return err_set(msg, ERR_FORMAT, "tokenizer: %lld tokens with ids up to %d; the gaps are too large to be right", (long long)n,
                   t->vocab.n - 1);
}

enum err tokenizer_build_index(struct tokenizer *t, struct err_msg *msg) {
    TRY(check_density(t, msg));
    /* Two rounds, so that an ordinary token wins over a user-defined one of the same bytes. */
    for (int round = 0; round < 2; round++) {
        for (int32_t id = 0; id < t->vocab.n; id++) {
            const enum token_type type = vocab_type(&t->vocab, id);
            if (type == TOKEN_NONE || type == TOKEN_CONTROL || type == TOKEN_UNKNOWN) continue;
            if ((type == TOKEN_USER) != (round == 1)) continue;
            TRY(vocab_index(&t->vocab, id, NULL, msg));
        }
    }
    return ERR_OK;
}

enum err tokenizer_build_added(struct tokenizer *t, int32_t id, bool normalized, struct err_msg *msg) {
    size_t len;
    const char *const text = vocab_text(&t->vocab, id, &len);
    return added_tokens_add(&t->added, text, len, normalized,
                            (struct added_token){.id = id, .special = tokenizer_is_special(t, id)}, msg);
}

enum err tokenizer_build_show_added(struct tokenizer *t, struct err_msg *msg) {
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (int32_t id = 0; id < t->vocab.n && e == ERR_OK; id++) {
        const enum token_type type = vocab_type(&t->vocab, id);
        if (type != TOKEN_CONTROL && type != TOKEN_USER) continue;
        size_t len;
        const char *const text = vocab_shown(&t->vocab, id, &len);
        strbuf_clear(&buf);
        tokenizer_build_unmap(&buf, text, len);
        if (buf.failed) e = no_memory(msg);
        else if (buf.len != len || (len && memcmp(buf.data, text, len) != 0))
            e = vocab_show(&t->vocab, id, strbuf_cstr(&buf), buf.len, msg);
    }
    strbuf_deinit(&buf);
    return e;
}

enum err tokenizer_build_ranked(struct tokenizer *t, struct err_msg *msg) {
    TRY(tokenizer_build_index(t, msg));
    TRY(bpe_init(&t->bpe, &t->vocab, true, msg));
    t->bpe.ignore_merges = true; /* tiktoken looks for the whole piece first */
    uint32_t *const rank = mem_calloc((size_t)t->vocab.n + 1, sizeof *rank);
    if (!rank) return no_memory(msg);
    for (int32_t id = 0; id < t->vocab.n; id++) rank[id] = (uint32_t)id;
    const enum err e = bpe_add_all_splits(&t->bpe, rank, msg);
    mem_free(rank);
    TRY(e);
    for (int32_t id = 0; id < t->vocab.n; id++) {
        const enum token_type type = vocab_type(&t->vocab, id);
        if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER)
            TRY(tokenizer_build_added(t, id, false, msg));
    }
    return ERR_OK;
}

struct scored {
    double score;
    int32_t id;
};

/* Highest score first; NaN last. */
static int by_score(const void *a, const void *b) {
    const double x = ((const struct scored *)a)->score, y = ((const struct scored *)b)->score;
    if (x > y) return -1;
    if (x < y) return 1;
    return (x != x) - (y != y);
}

/* Equal scores get equal ranks, so that the leftmost pair wins among them. */
static uint32_t *ranks_of(const double *scores, int32_t n) {
    uint32_t *const rank = mem_calloc((size_t)n + 1, sizeof *rank);
    struct scored *const list = mem_calloc((size_t)n + 1, sizeof *list);
    if (rank && list) {
        for (int32_t i = 0; i < n; i++) list[i] = (struct scored){scores[i], i};
        qsort(list, (size_t)n, sizeof *list, by_score);
        uint32_t r = 0;
        for (int32_t i = 0; i < n; i++) {
            if (i > 0 && by_score(&list[i - 1], &list[i]) != 0) r++;
            rank[list[i].id] = r;
        }
        mem_free(list);
        return rank;
    }
    mem_free(rank);
    mem_free(list);
    return NULL;
}

/* What decoding shows for the token: U+2581 is a space, <0x1F> a byte, unknown SentencePiece's surface. */
static enum err show_spm(struct tokenizer *t, int32_t id, struct strbuf *buf, struct err_msg *msg) {
    size_t len;
    const char *const text = vocab_text(&t->vocab, id, &len);
    const enum token_type type = vocab_type(&t->vocab, id);
    strbuf_clear(buf);
    if (type == TOKEN_BYTE) strbuf_putc(buf, (char)tokenizer_build_byte(text, len));
    else if (type == TOKEN_UNKNOWN) strbuf_puts(buf, " \xe2\x81\x87 ");
    else if (!memmem(text, len, UTF8_SPM_SPACE, 3)) return ERR_OK;
    else {
        for (size_t at = 0; at < len; at++) {
            const bool space = len - at >= 3 && memcmp(text + at, UTF8_SPM_SPACE, 3) == 0;
            strbuf_putc(buf, space ? ' ' : text[at]);
            if (space) at += 2;
        }
    }
    if (buf->failed) return no_memory(msg);
    return vocab_show(&t->vocab, id, buf->data, buf->len, msg);
}

/* Types that the text contradicts, what is shown, and which tokens are matched ahead of the model. */
static enum err spm_tokens(struct tokenizer *t, struct err_msg *msg) {
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (int32_t id = 0; id < t->vocab.n && e == ERR_OK; id++) {
        size_t len;
        const char *const text = vocab_text(&t->vocab, id, &len);
        const enum token_type type = vocab_type(&t->vocab, id);
        if (type == TOKEN_NONE) continue;
        if (type == TOKEN_BYTE && tokenizer_build_byte(text, len) < 0)
            e = err_set(msg, ERR_FORMAT, "tokenizer: byte token %d is not named <0xNN>", id);
        if (e == ERR_OK && type == TOKEN_USER && len && !trie_add(&t->keep, text, len, id)) e = no_memory(msg);
        if (e == ERR_OK && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN))
            e = tokenizer_build_added(t, id, false, msg);
        if (e == ERR_OK && type == TOKEN_USER && !t->use_unigram) e = tokenizer_build_added(t, id, true, msg);
        if (e == ERR_OK) e = show_spm(t, id, &buf, msg);
    }
    strbuf_deinit(&buf);
    return e;
}

static enum err spm_bpe(struct tokenizer *t, const double *scores, int32_t unknown, struct err_msg *msg) {
    TRY(bpe_init(&t->bpe, &t->vocab, false, msg));
    t->bpe.unknown = unknown;
    t->bpe.fuse_unknown = true;
    uint32_t *const rank = ranks_of(scores, t->vocab.n);
    if (!rank) return no_memory(msg);
    const enum err e = bpe_add_all_splits(&t->bpe, rank, msg);
    mem_free(rank);
    TRY(e);
    return bpe_find_joints(&t->bpe, msg);
}

enum err tokenizer_build_spm(struct tokenizer *t, const double *scores, struct normalizer_step step,
                             struct err_msg *msg) {
    const struct normalizer_spm o = step.spm;
    step.kind = NORMALIZER_SPM;
    step.keep = &t->keep;
    TRY(normalizer_add(&t->norm, step, msg));
    TRY(spm_tokens(t, msg));
    TRY(tokenizer_build_index(t, msg));
    int32_t unknown = -1;
    for (int32_t id = t->vocab.n - 1; id >= 0; id--)
        if (vocab_type(&t->vocab, id) == TOKEN_UNKNOWN) unknown = id;
    t->decode.skip_control = t->decode.byte_runs = true;
    t->decode.strip_spaces = o.add_dummy_prefix || o.remove_extra_whitespaces;
    t->decode.strip_all = o.remove_extra_whitespaces;
    if (t->use_unigram) return unigram_init(&t->unigram, &t->vocab, scores, unknown, true, msg);
    return spm_bpe(t, scores, unknown, msg);
}
