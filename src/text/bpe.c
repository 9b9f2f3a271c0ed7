#include "text/bpe.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/utf8.h"

enum {
    SHORT_SYMBOLS = 48, /* up to this many the whole list is searched for each merge; above, a heap */
    DEAD = -2,          /* the id of a symbol that was merged into its left neighbour */
};
#define RANK_NONE UINT32_MAX

/* A symbol of a piece. In short pieces an array without gaps; in long ones a list, where next and prev are indices. */
struct bpe_node {
    uint32_t at;   /* offset of its text in the piece */
    int32_t id;    /* -1: unknown character */
    uint32_t rank; /* of the pair with the next symbol; RANK_NONE: no such merge */
    int32_t merged;
    int32_t next, prev;
};

bool bpe_push_id(struct token_ids *out, int32_t id) {
    if (out->n == out->cap && !mem_grow(&out->ids, &out->cap, out->n + 1, sizeof *out->ids)) return false;
    out->ids[out->n++] = id;
    return true;
}

const struct bpe_pair *bpe_find_pair(const struct bpe *b, int32_t left, int32_t right) {
    if (left < 0 || right < 0 || !b->n_slots) return NULL;
    const uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
    const size_t mask = b->n_slots - 1;
    for (size_t i = (size_t)hash_mix(key) & mask;; i = (i + 1) & mask) {
        if (b->pairs[i].key == key) return &b->pairs[i];
        if (!b->pairs[i].key) return NULL;
    }
}

static inline void set_rank(const struct bpe *b, struct bpe_node *left, const struct bpe_node *right) {
    const struct bpe_pair *const p = right ? bpe_find_pair(b, left->id, right->id) : NULL;
    left->rank = p ? p->rank : RANK_NONE;
    left->merged = p ? p->id : -1;
}

int32_t bpe_symbol(const struct bpe *b, const char *s, size_t len) {
    if (b->byte_level) return b->byte_ids[(unsigned char)*s];
    int32_t id = len == 1 ? b->ascii_ids[(unsigned char)*s & 127] : vocab_find(b->vocab, s, len);
    if (id < 0 && b->chars.n) {
        id = vocab_find(&b->chars, s, len);
        if (id >= 0) id += b->vocab->n;
    }
    return id;
}

/* The first symbols of a piece into nodes; returns their number. nodes has room for one per byte. */
static size_t first_symbols(const struct bpe *b, const char *s, size_t len, struct bpe_node *nodes) {
    size_t n = 0;
    if (b->byte_level) {
        for (; n < len; n++) nodes[n] = (struct bpe_node){.at = (uint32_t)n, .id = b->byte_ids[(unsigned char)s[n]]};
        return n;
    }
    for (size_t at = 0; at < len;) {
        int k;
        (void)utf8_get(s + at, &k);
        nodes[n++] = (struct bpe_node){.at = (uint32_t)at, .id = bpe_symbol(b, s + at, (size_t)k)};
        at += (size_t)k;
    }
    return n;
}

/* Merges in an array of n symbols; returns how many are left. */
static size_t merge_short(const struct bpe *b, struct bpe_node *v, size_t n) {
    for (size_t i = 0; i < n; i++) set_rank(b, &v[i], i + 1 < n ? &v[i + 1] : NULL);
    for (;;) {
        uint32_t best = RANK_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            if (v[i].rank < best) {
                best = v[i].rank;
                at = i;
            }
        }
        if (best == RANK_NONE) return n;
        v[at].id = v[at].merged;
        memmove(&v[at + 1], &v[at + 2], (n - at - 2) * sizeof *v);
        n--;
        set_rank(b, &v[at], at + 1 < n ? &v[at + 1] : NULL);
        if (at > 0) set_rank(b, &v[at - 1], &v[at]);
    }
}

/* A binary heap of rank << 32 | position: the smallest is the lowest rank, leftmost. */
static void sift_down(uint64_t *h, size_t n, size_t i) {
    const uint64_t x = h[i];
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && h[c + 1] < h[c]) c++;
        if (h[c] >= x) break;
        h[i] = h[c];
    }
    h[i] = x;
}

static bool heap_push(struct bpe_scratch *s, const struct bpe_node *v, size_t at) {
    if (v[at].rank == RANK_NONE) return true;
    if (!mem_grow(&s->heap, &s->cap_heap, s->n_heap + 1, sizeof *s->heap)) return false;
    const uint64_t x = (uint64_t)v[at].rank << 32 | at;
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2] > x; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = x;
    return true;
}

static bool heap_fill(struct bpe_scratch *s, const struct bpe_node *v, size_t n) {
    s->n_heap = 0;
    if (!mem_grow(&s->heap, &s->cap_heap, n, sizeof *s->heap)) return false;
    for (size_t i = 0; i < n; i++)
        if (v[i].rank != RANK_NONE) s->heap[s->n_heap++] = (uint64_t)v[i].rank << 32 | i;
    for (size_t i = s->n_heap / 2; i-- > 0;) sift_down(s->heap, s->n_heap, i);
    return true;
}

/* Merges in a list of n symbols, then packs it; *left: how many remain. An entry of the heap is stale, and skipped,
 * when its symbol is gone or its pair has another rank by now. */
static bool merge_long(const struct bpe *b, struct bpe_scratch *s, struct bpe_node *v, size_t n, size_t *left) {
    for (size_t i = 0; i < n; i++) {
        v[i].prev = (int32_t)i - 1;
        v[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
        set_rank(b, &v[i], i + 1 < n ? &v[i + 1] : NULL);
    }
    if (!heap_fill(s, v, n)) return false;
    while (s->n_heap) {
        const uint64_t top = s->heap[0];
        s->heap[0] = s->heap[--s->n_heap];
        if (s->n_heap) sift_down(s->heap, s->n_heap, 0);
        struct bpe_node *const l = &v[(uint32_t)top];
        if (l->id == DEAD || l->rank != (uint32_t)(top >> 32)) continue;
        struct bpe_node *const r = &v[l->next];
        l->id = l->merged;
        l->next = r->next;
        r->id = DEAD;
        if (l->next >= 0) v[l->next].prev = (int32_t)(l - v);
        set_rank(b, l, l->next >= 0 ? &v[l->next] : NULL);
        if (!heap_push(s, v, (size_t)(l - v))) return false;
        if (l->prev < 0) continue;
        set_rank(b, &v[l->prev], l);
        if (!heap_push(s, v, (size_t)l->prev)) return false;
    }
    size_t k = 0;
    for (int32_t i = 0, next; i >= 0; i = next) {
        next = v[i].next;
        v[k++] = v[i]; /* k <= i: what lies behind i stays whole */
    }
    *left = k;
    return true;
}

/* A character that is no token: its bytes' tokens, or the unknown token, or nothing. */
static bool push_unknown(const struct bpe *b, const char *s, size_t len, struct bpe_scratch *scratch,
                         struct token_ids *out) {
    bool bytes = !b->byte_level;
    for (size_t i = 0; i < len; i++) bytes = bytes && b->byte_ids[(unsigned char)s[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < len; i++)
            if (!bpe_push_id(out, b->byte_ids[(unsigned char)s[i]])) return false;
        return true;
    }
    if (b->unknown < 0 || (b->fuse_unknown && scratch->after_unknown == out->n)) return true;
    if (!bpe_push_id(out, b->unknown)) return false;
    scratch->after_unknown = out->n;
    return true;
}

/* An unused token may be made by merges but not given out: it falls apart into a pair that makes it. */
static bool push_unused(const struct bpe *b, int32_t id, int depth, struct bpe_scratch *s, struct token_ids *out) {
    size_t len;
    const char *const text = vocab_text(b->vocab, id, &len);
    for (size_t cut = 1; cut < len && depth < 64; cut++) {
        int32_t part[2] = {vocab_find(b->vocab, text, cut), vocab_find(b->vocab, text + cut, len - cut)};
        if (!bpe_find_pair(b, part[0], part[1])) continue;
        for (int i = 0; i < 2; i++) {
            const bool unused = vocab_type(b->vocab, part[i]) == TOKEN_UNUSED;
            if (!(unused ? push_unused(b, part[i], depth + 1, s, out) : bpe_push_id(out, part[i]))) return false;
        }
        return true;
    }
    return push_unknown(b, text, len, s, out);
}

static bool push_nodes(const struct bpe *b, const char *s, size_t len, const struct bpe_node *v, size_t n,
                       struct bpe_scratch *scratch, struct token_ids *out) {
    for (size_t i = 0; i < n; i++) {
        const int32_t id = v[i].id;
        bool ok;
        if (id >= 0 && id < b->vocab->n && b->vocab->entries[id].type != TOKEN_UNUSED) ok = bpe_push_id(out, id);
        else if (id >= 0 && id < b->vocab->n) ok = push_unused(b, id, 0, scratch, out);
        else ok = push_unknown(b, s + v[i].at, (i + 1 < n ? v[i + 1].at : len) - v[i].at, scratch, out);
        if (!ok) return false;
    }
    return true;
}

static bool merge_segment(const struct bpe *b, const char *s, size_t len, struct bpe_scratch *scratch,
                          struct token_ids *out) {
    struct bpe_node small[SHORT_SYMBOLS];
    struct bpe_node *v = small;
    if (len > SHORT_SYMBOLS) {
        if (!mem_grow(&scratch->nodes, &scratch->cap_nodes, len, sizeof *v)) return false;
        v = scratch->nodes;
    }
    size_t n = first_symbols(b, s, len, v);
    if (n <= SHORT_SYMBOLS) n = merge_short(b, v, n);
    else if (!merge_long(b, scratch, v, n, &n)) return false;
    return push_nodes(b, s, len, v, n, scratch, out);
}

/* Whether merging the text of token id gives exactly id. Known once, then read from reach. */
static bool reachable(const struct bpe *b, int32_t id, const char *s, size_t len, bool *failed) {
    uint8_t state = __atomic_load_n(&b->reach[id], __ATOMIC_RELAXED);
    if (!state) {
        struct token_ids own = {0};
        struct bpe_scratch scratch = {.after_unknown = SIZE_MAX};
        if (!merge_segment(b, s, len, &scratch, &own)) *failed = true;
        else state = own.n == 1 && own.ids[0] == id ? 1 : 2;
        bpe_scratch_deinit(&scratch);
        token_ids_deinit(&own);
        if (state) __atomic_store_n(&b->reach[id], state, __ATOMIC_RELAXED); /* every writer finds the same value */
    }
    return state == 1;
}

static bool encode_segment(const struct bpe *b, const char *s, size_t len, struct bpe_scratch *scratch,
                           struct token_ids *out) {
    const int32_t whole = vocab_find(b->vocab, s, len);
    if (whole >= 0) {
        bool failed = false;
        if (reachable(b, whole, s, len, &failed)) return bpe_push_id(out, whole);
        if (failed) return false;
    }
    return merge_segment(b, s, len, scratch, out);
}

bool bpe_encode(const struct bpe *b, const char *piece, size_t len, struct bpe_scratch *s, struct token_ids *out) {
    s->after_unknown = SIZE_MAX;
    if (b->ignore_merges) {
        const int32_t whole = vocab_find(b->vocab, piece, len);
        if (whole >= 0) return bpe_push_id(out, whole);
    }
    if (!b->joints) return len == 0 || encode_segment(b, piece, len, s, out);
    /* Between two characters that no token has side by side nothing can merge: cut there. */
    size_t from = 0;
    uint32_t before = 0;
    for (size_t at = 0; at < len;) {
        int n;
        const uint32_t cp = utf8_get(piece + at, &n);
        const uint32_t bit = bpe_joint_bit(before, cp);
        if (at > from && !(b->joints[bit / 64] >> (bit % 64) & 1)) {
            if (!encode_segment(b, piece + from, at - from, s, out)) return false;
            from = at;
        }
        before = cp;
        at += (size_t)n;
    }
    return from == len || encode_segment(b, piece + from, len - from, s, out);
}

void bpe_scratch_deinit(struct bpe_scratch *s) {
    mem_free(s->nodes);
    mem_free(s->heap);
    *s = (struct bpe_scratch){0};
}
