#include "text/unigram.h"

#include <float.h>

#include "base/mem.h"
#include "text/bpe.h"
#include "text/utf8.h"

/* The best way to reach a place: from where, by which token. from: UINT32_MAX when there is none yet. */
struct unigram_node {
    double score;
    int32_t id; /* -1: an unknown character */
    uint32_t from;
};

#define UNKNOWN_PENALTY 10.0 /* below the lowest score (kUnkPenalty of SentencePiece) */

enum err unigram_init(struct unigram *u, const struct vocab *vocab, const double *scores, int32_t unknown,
                      bool byte_fallback, struct err_msg *msg) {
    u->vocab = vocab;
    u->unknown = unknown;
    u->fuse_unknown = true;
    u->scores = mem_calloc((size_t)vocab->n + 1, sizeof *u->scores);
    if (!u->scores) return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the scores");
    u->min_score = DBL_MAX;
    u->max_score = -DBL_MAX;
    for (int32_t id = 0; id < vocab->n; id++) {
        size_t len;
        const char *const text = vocab_text(vocab, id, &len);
        u->scores[id] = scores[id];
        if (vocab_type(vocab, id) == TOKEN_NORMAL) {
            if (scores[id] < u->min_score) u->min_score = scores[id];
            if (scores[id] > u->max_score) u->max_score = scores[id];
        }
        if (!len || vocab_find(vocab, text, len) != id || utf8_valid_prefix(text, len) != len) continue;
        const enum token_type type = vocab_type(vocab, id);
        if (type != TOKEN_NORMAL && type != TOKEN_USER) continue;
        if (!trie_add(&u->trie, text, len, id))
            return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the tokens");
    }
    for (int i = 0; i < 256; i++) {
        char name[8] = "<0x00>";
        static const char hex[] = "0123456789ABCDEF";
        name[3] = hex[i >> 4];
        name[4] = hex[i & 15];
        u->byte_ids[i] = byte_fallback ? vocab_find(vocab, name, 6) : -1;
    }
    return ERR_OK;
}

static double score_of(const struct unigram *u, int32_t id, size_t len) {
    if (vocab_type(u->vocab, id) == TOKEN_USER)
        return (double)(float)((double)((float)len * (float)u->max_score) - 0.1);
    return u->scores[id];
}

static void offer(const struct unigram *u, struct unigram_node *n, double score, int32_t id, size_t from) {
    if (!u->wide) score = (double)(float)score;
    if (n->from != UINT32_MAX && score <= n->score) return;
    *n = (struct unigram_node){score, id, (uint32_t)from};
}

/* Fills nodes[0..len] from left to right. */
static void viterbi(const struct unigram *u, const char *s, size_t len, struct unigram_node *nodes) {
    for (size_t i = 0; i <= len; i++) nodes[i].from = UINT32_MAX;
    nodes[0] = (struct unigram_node){0.0, -1, 0};
    const double unknown =
        u->wide ? u->min_score - UNKNOWN_PENALTY : (double)((float)u->min_score - (float)UNKNOWN_PENALTY);
    for (size_t at = 0; at < len;) {
        int char_len;
        (void)utf8_get(s + at, &char_len);
        const double so_far = nodes[at].score;
        bool single = false;
        uint32_t node = 0;
        for (size_t end = at; end < len;) {
            node = trie_next(&u->trie, node, (unsigned char)s[end++]);
            if (!node) break;
            const int32_t id = trie_value(&u->trie, node);
            if (id < 0) continue;
            offer(u, &nodes[end], score_of(u, id, end - at) + so_far, id, at);
            single = single || end - at == (size_t)char_len;
        }
        if (!single) offer(u, &nodes[at + (size_t)char_len], unknown + so_far, -1, at);
        at += (size_t)char_len;
    }
}

static bool push_unknown(const struct unigram *u, const char *s, size_t len, bool after_unknown,
                         struct token_ids *out) {
    bool bytes = true;
    for (size_t i = 0; i < len; i++) bytes = bytes && u->byte_ids[(unsigned char)s[i]] >= 0;
    if (!bytes) {
        if (u->unknown < 0 || (after_unknown && u->fuse_unknown)) return true;
        return bpe_push_id(out, u->unknown);
    }
    for (size_t i = 0; i < len; i++)
        if (!bpe_push_id(out, u->byte_ids[(unsigned char)s[i]])) return false;
    return true;
}

bool unigram_encode(const struct unigram *u, const char *piece, size_t len, struct unigram_scratch *s,
                    struct token_ids *out) {
    if (!len) return true;
    if (!mem_grow(&s->nodes, &s->cap_nodes, len + 1, sizeof *s->nodes)) return false;
    viterbi(u, piece, len, s->nodes);
    /* Turn the links around: from the end back to the start, then forwards. */
    if (!mem_grow(&s->path, &s->cap_path, len + 1, sizeof *s->path)) return false;
    size_t n = 0;
    for (size_t at = len; at > 0; at = s->nodes[at].from) s->path[n++] = (int32_t)at;
    bool after_unknown = false;
    for (size_t from = 0; n > 0; n--) {
        const size_t end = (size_t)s->path[n - 1];
        const int32_t id = s->nodes[end].id;
        const bool ok = id >= 0 ? bpe_push_id(out, id)
                                : push_unknown(u, piece + from, end - from, after_unknown, out);
        if (!ok) return false;
        after_unknown = id < 0;
        from = end;
    }
    return true;
}

void unigram_scratch_deinit(struct unigram_scratch *s) {
    mem_free(s->nodes);
    mem_free(s->path);
    *s = (struct unigram_scratch){0};
}

void unigram_deinit(struct unigram *u) {
    trie_deinit(&u->trie);
    mem_free(u->scores);
    *u = (struct unigram){0};
}
