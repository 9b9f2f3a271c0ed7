#include "base/map.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static uint32_t key_hash(const char *key, size_t len) {
    const uint64_t h = hash_bytes(key, len, 0);
    return (uint32_t)(h ^ (h >> 32));
}

/* The slot that holds the key, or the empty one where it belongs. */
static struct map_slot *find(const struct map *m, const char *key, size_t len, uint32_t hash) {
    size_t i = hash & (m->n_slots - 1);
    for (;; i = (i + 1) & (m->n_slots - 1)) {
        struct map_slot *const s = &m->slots[i];
        if (!s->key) return s;
        if (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0) return s;
    }
}

static bool grow(struct map *m) {
    struct map bigger = {.n_slots = m->n_slots ? m->n_slots * 2 : 16, .copy_keys = m->copy_keys};
    bigger.slots = mem_calloc(bigger.n_slots, sizeof *bigger.slots);
    if (!bigger.slots) return false;
    bigger.n_used = m->n_used;
    for (size_t i = 0; i < m->n_slots; i++) {
        const struct map_slot *const s = &m->slots[i];
        if (s->key) *find(&bigger, s->key, s->len, s->hash) = *s;
    }
    mem_free(m->slots);
    *m = bigger;
    return true;
}

bool map_put(struct map *m, const char *key, size_t len, int64_t value) {
    if (len > UINT32_MAX) return false;
    if ((m->n_used + 1) * 4 > m->n_slots * 3 && !grow(m)) return false;
    const uint32_t hash = key_hash(key, len);
    struct map_slot *const s = find(m, key, len, hash);
    if (!s->key) {
        const char *const kept = m->copy_keys ? mem_strndup(key, len) : key;
        if (!kept) return false;
        *s = (struct map_slot){.key = kept, .len = (uint32_t)len, .hash = hash};
        m->n_used++;
    }
    s->value = value;
    return true;
}

bool map_get(const struct map *m, const char *key, size_t len, int64_t *value) {
    if (!m->n_slots || len > UINT32_MAX) return false;
    const struct map_slot *const s = find(m, key, len, key_hash(key, len));
    if (!s->key) return false;
    if (value) *value = s->value;
    return true;
}

void map_deinit(struct map *m) {
    if (m->copy_keys)
        for (size_t i = 0; i < m->n_slots; i++) {
            /* The copies are ours: casting the const away is what frees them. */
            union {
                const char *in;
                char *out;
            } key = {.in = m->slots[i].key};
            mem_free(key.out);
        }
    mem_free(m->slots);
    *m = (struct map){0};
}
