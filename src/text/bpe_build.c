/* Filling the tables of bpe.h. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/bpe.h"
#include "text/utf8.h"

static enum err no_memory(struct err_msg *msg) {
    return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the merges");
}

enum err bpe_init(struct bpe *b, const struct vocab *vocab, bool byte_level, struct err_msg *msg) {
    b->vocab = vocab;
    b->byte_level = byte_level;
    b->unknown = -1;
    b->reach = mem_calloc((size_t)vocab->n + 1, 1);
    if (!b->reach) return no_memory(msg);
    for (int i = 0; i < 256; i++) {
        const char c = (char)i;
        char name[8];
        static const char hex[] = "0123456789ABCDEF";
        memcpy(name, "<0x00>", 7);
        name[3] = hex[i >> 4];
        name[4] = hex[i & 15];
        b->byte_ids[i] = byte_level ? vocab_find(vocab, &c, 1) : vocab_find(vocab, name, 6);
        if (i < 128) b->ascii_ids[i] = vocab_find(vocab, &c, 1);
    }
    return ERR_OK;
}

static size_t pair_slot(const struct bpe_pair *pairs, size_t n_slots, uint64_t key) {
    const size_t mask = n_slots - 1;
    size_t i = (size_t)hash_mix(key) & mask;
    while (pairs[i].key && pairs[i].key != key) i = (i + 1) & mask;
    return i;
}

static bool grow_pairs(struct bpe *b) {
    const size_t n = b->n_slots ? b->n_slots * 2 : 1024;
    struct bpe_pair *const pairs = mem_calloc(n, sizeof *pairs);
    if (!pairs) return false;
    for (size_t i = 0; i < b->n_slots; i++)
        if (b->pairs[i].key) pairs[pair_slot(pairs, n, b->pairs[i].key)] = b->pairs[i];
    mem_free(b->pairs);
    b->pairs = pairs;
    b->n_slots = n;
    return true;
}

enum err bpe_add_merge(struct bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id, struct err_msg *msg) {
    if (b->n_pairs * 2 >= b->n_slots && !grow_pairs(b)) return no_memory(msg);
    const uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    struct bpe_pair *const p = &b->pairs[pair_slot(b->pairs, b->n_slots, key)];
    if (p->key) return ERR_OK;
    *p = (struct bpe_pair){key, rank, id};
    b->n_pairs++;
    return ERR_OK;
}

/* Whether text can become this token by merging: it is the one found by its text, and no <0xNN>. */
static bool takes_part(const struct bpe *b, int32_t id, const char *text, size_t len) {
    if (!len || vocab_type(b->vocab, id) == TOKEN_BYTE || vocab_find(b->vocab, text, len) != id) return false;
    return b->byte_level || utf8_valid_prefix(text, len) == len;
}

/* Every character of a token gets an id, so that a merge may start from it. */
static enum err add_chars(struct bpe *b, const char *text, size_t len, struct err_msg *msg) {
    for (size_t at = 0; at < len;) {
        int n;
        (void)utf8_get(text + at, &n);
        if (bpe_symbol(b, text + at, (size_t)n) < 0) {
            const int32_t id = b->chars.n;
            TRY(vocab_add(&b->chars, id, text + at, (size_t)n, TOKEN_NORMAL, msg));
            TRY(vocab_index(&b->chars, id, NULL, msg));
        }
        at += (size_t)n;
    }
    return ERR_OK;
}

/* A symbol of any length that merging may have made: a token, or a first symbol. */
static int32_t part_id(const struct bpe *b, const char *s, size_t len, bool one_char) {
    const int32_t id = vocab_find(b->vocab, s, len);
    return id >= 0 || !one_char ? id : bpe_symbol(b, s, len);
}

static enum err add_splits(struct bpe *b, int32_t id, uint32_t rank, struct err_msg *msg) {
    size_t len;
    const char *const text = vocab_text(b->vocab, id, &len);
    size_t last = len; /* where the last symbol starts */
    if (b->byte_level) last = len ? len - 1 : 0;
    else if (len) last = utf8_prev(text, len);
    for (size_t at = 0, step; at < last;) {
        int n = 1;
        if (!b->byte_level) (void)utf8_get(text + at, &n);
        step = (size_t)n;
        const size_t cut = at + step;
        const int32_t left = part_id(b, text, cut, at == 0);
        if (left >= 0) {
            const int32_t right = part_id(b, text + cut, len - cut, cut == last);
            if (right >= 0) TRY(bpe_add_merge(b, left, right, rank, id, msg));
        }
        at = cut;
    }
    return ERR_OK;
}

enum err bpe_add_all_splits(struct bpe *b, const uint32_t *rank, struct err_msg *msg) {
    for (int pass = b->byte_level ? 1 : 0; pass < 2; pass++) {
        for (int32_t id = 0; id < b->vocab->n; id++) {
            size_t len;
            const char *const text = vocab_text(b->vocab, id, &len);
            if (!takes_part(b, id, text, len)) continue;
            if (pass == 0) TRY(add_chars(b, text, len, msg));
            else TRY(add_splits(b, id, rank[id], msg));
        }
    }
    return ERR_OK;
}

enum err bpe_find_joints(struct bpe *b, struct err_msg *msg) {
    b->joints = mem_calloc(((size_t)1 << BPE_JOINT_BITS) / 64, sizeof *b->joints);
    if (!b->joints) return no_memory(msg);
    for (int32_t id = 0; id < b->vocab->n; id++) {
        size_t len;
        const char *const text = vocab_text(b->vocab, id, &len);
        if (!takes_part(b, id, text, len)) continue;
        int n;
        uint32_t before = utf8_get(text, &n);
        for (size_t at = (size_t)n; at < len; at += (size_t)n) {
            const uint32_t cp = utf8_get(text + at, &n);
            const uint32_t bit = bpe_joint_bit(before, cp);
            b->joints[bit / 64] |= (uint64_t)1 << (bit % 64);
            before = cp;
        }
    }
    return ERR_OK;
}

void bpe_deinit(struct bpe *b) {
    mem_free(b->pairs);
    mem_free(b->reach);
    mem_free(b->joints);
    vocab_deinit(&b->chars);
    *b = (struct bpe){0};
}
