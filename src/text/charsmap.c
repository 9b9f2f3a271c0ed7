#include "text/charsmap.h"

#include <string.h>

#include "base/mem.h"

enum err charsmap_open(struct charsmap *m, const void *blob, size_t len, struct err_msg *msg) {
    uint32_t trie_bytes = 0;
    if (len >= 4) memcpy(&trie_bytes, blob, 4);
    if (len < 8 || trie_bytes < 4 || trie_bytes % 4 || trie_bytes > len - 4)
        return err_set(msg, ERR_FORMAT, "tokenizer: precompiled_charsmap of %zu bytes is damaged (trie of %u bytes)", len,
                       trie_bytes);
    m->n_units = trie_bytes / 4;
    m->n_strings = len - 4 - trie_bytes;
    m->units = mem_alloc(trie_bytes);
    m->strings = m->units ? mem_strndup((const char *)blob + 4 + trie_bytes, m->n_strings) : NULL;
    if (!m->strings) return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for precompiled_charsmap");
    memcpy(m->units, (const char *)blob + 4, trie_bytes);
    return ERR_OK;
}

/* The fields of a unit of Darts-clone's double array. */
static uint32_t unit_offset(uint32_t u) { return (u >> 10) << ((u & (1u << 9)) >> 6); }
static bool unit_has_leaf(uint32_t u) { return u >> 8 & 1; }
static uint32_t unit_label(uint32_t u) { return u & (1u << 31 | 0xff); }

size_t charsmap_longest(const struct charsmap *m, const char *s, size_t n, const char **to, size_t *to_len) {
    if (!m->n_units) return 0;
    size_t best = 0, pos = unit_offset(m->units[0]);
    uint32_t value = 0;
    for (size_t i = 0; i < n; i++) {
        pos ^= (unsigned char)s[i];
        if (pos >= m->n_units) break;
        const uint32_t unit = m->units[pos];
        if (unit_label(unit) != (unsigned char)s[i]) break;
        pos ^= unit_offset(unit);
        if (pos >= m->n_units) break;
        if (!unit_has_leaf(unit)) continue;
        const uint32_t v = m->units[pos] & 0x7fffffffu;
        if (v >= m->n_strings) continue;
        value = v;
        best = i + 1;
    }
    if (!best) return 0;
    *to = m->strings + value;
    *to_len = strnlen(*to, m->n_strings - value);
    return best;
}

void charsmap_deinit(struct charsmap *m) {
    mem_free(m->units);
    mem_free(m->strings);
    *m = (struct charsmap){0};
}
