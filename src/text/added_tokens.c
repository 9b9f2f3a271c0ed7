#include "text/added_tokens.h"

#include "base/mem.h"
#include "text/utf8.h"

enum err added_tokens_add(struct added_tokens *a, const char *text, size_t len, bool normalized,
                          struct added_token token, struct err_msg *msg) {
    if (!len) return ERR_OK; /* an empty string matches nothing */
    if (!mem_grow(&a->tokens, &a->cap, a->n + 1, sizeof *a->tokens) ||
        !trie_add(normalized ? &a->normalized : &a->raw, text, len, (int32_t)a->n))
        return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for added tokens");
    a->tokens[a->n++] = token;
    return ERR_OK;
}

static bool inside_word(const char *text, size_t n, size_t start, size_t end) {
    int len;
    if (start > 0 && utf8_is_word(utf8_get(text + utf8_prev(text, start), &len))) return true;
    return end < n && utf8_is_word(utf8_get(text + end, &len));
}

static void strip(const struct added_token *t, const char *text, size_t n, size_t floor, size_t *start, size_t *end) {
    int len;
    while (t->lstrip && *start > floor) {
        const size_t prev = utf8_prev(text, *start);
        if (!utf8_is_space(utf8_get(text + prev, &len))) break;
        *start = prev;
    }
    while (t->rstrip && *end < n && utf8_is_space(utf8_get(text + *end, &len))) *end += (size_t)len;
}

bool added_tokens_next(const struct added_tokens *a, const struct trie *trie, const char *text, size_t n, size_t from,
                       bool skip_special, size_t *start, size_t *end, int32_t *id) {
    if (trie_empty(trie)) return false;
    for (size_t at = from; at < n;) {
        int32_t which = -1;
        const size_t len = trie->first[(unsigned char)text[at]] ? trie_longest(trie, text + at, n - at, &which) : 0;
        if (!len) {
            at++;
            continue;
        }
        const struct added_token *const t = &a->tokens[which];
        *start = at;
        *end = at + len;
        at += len; /* a match that does not count still uses up its text */
        if (skip_special && t->special) continue;
        if (t->single_word && inside_word(text, n, *start, *end)) continue;
        strip(t, text, n, from, start, end);
        *id = t->id;
        return true;
    }
    return false;
}

void added_tokens_deinit(struct added_tokens *a) {
    mem_free(a->tokens);
    trie_deinit(&a->raw);
    trie_deinit(&a->normalized);
    *a = (struct added_tokens){0};
}
