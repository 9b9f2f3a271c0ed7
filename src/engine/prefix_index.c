#include "engine/prefix_index.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

bool prefix_index_init(struct prefix_index *ix, int64_t n_entries, int block_size) {
    memset(ix, 0, sizeof *ix);
    CHECK(n_entries >= 1 && block_size >= 1);
    if (n_entries > INT32_MAX / 2) return false;
    int64_t n_buckets = 64;
    while (n_buckets < n_entries)
        n_buckets *= 2;
    size_t n_ids = 0;
    if (!mem_mul_ok((size_t)n_entries, (size_t)block_size, &n_ids)) return false;
    ix->entries = mem_calloc((size_t)n_entries, sizeof *ix->entries);
    ix->tokens = mem_calloc(n_ids, sizeof *ix->tokens);
    ix->buckets = mem_calloc((size_t)n_buckets, sizeof *ix->buckets);
    if (!ix->entries || !ix->tokens || !ix->buckets) return false;
    ix->n_entries = (int32_t)n_entries;
    ix->n_buckets = (int32_t)n_buckets;
    ix->block_size = block_size;
    for (int32_t i = 0; i < ix->n_buckets; i++)
        ix->buckets[i] = -1;
    for (int32_t i = 0; i < ix->n_entries; i++)
        ix->entries[i].next = i + 1 < ix->n_entries ? i + 1 : -1;
    ix->free_head = 0;
    ix->ghost_head = ix->ghost_tail = -1;
    return true;
}

void prefix_index_deinit(struct prefix_index *ix) {
    for (size_t i = 0; i < N_ELEMENTS(ix->salts); i++) {
        for (struct prefix_salt *s = ix->salts[i], *next; s; s = next) {
            next = s->next;
            mem_free(s);
        }
    }
    mem_free(ix->entries);
    mem_free(ix->tokens);
    mem_free(ix->buckets);
    memset(ix, 0, sizeof *ix);
}

/* ---- Salts ------------------------------------------------------------------------------------ */

static struct prefix_salt **salt_bucket(struct prefix_index *ix, uint64_t hash) {
    return &ix->salts[hash % N_ELEMENTS(ix->salts)];
}

struct prefix_salt *prefix_index_salt_ref(struct prefix_index *ix, const char *text) {
    const size_t len = strlen(text);
    const uint64_t hash = hash_bytes(text, len, 0);
    struct prefix_salt **const bucket = salt_bucket(ix, hash);
    for (struct prefix_salt *s = *bucket; s; s = s->next) {
        if (s->len == len && memcmp(s->text, text, len) == 0) {
            s->refs++;
            return s;
        }
    }
    struct prefix_salt *const s = mem_alloc(sizeof *s + len + 1);
    if (!s) return NULL;
    *s = (struct prefix_salt){.next = *bucket, .serial = ++ix->last_serial, .hash = hash, .refs = 1, .len = len};
    memcpy(s->text, text, len + 1);
    *bucket = s;
    return s;
}

void prefix_index_salt_unref(struct prefix_index *ix, struct prefix_salt *salt) {
    CHECK(salt->refs > 0);
    if (--salt->refs > 0) return;
    struct prefix_salt **at = salt_bucket(ix, salt->hash);
    while (*at != salt)
        at = &(*at)->next;
    *at = salt->next;
    mem_free(salt);
}

/* ---- Ghosts ----------------------------------------------------------------------------------- */

static void ghost_append(struct prefix_index *ix, int32_t entry) {
    struct prefix_entry *const e = &ix->entries[entry];
    e->prev = ix->ghost_tail;
    e->next = -1;
    if (ix->ghost_tail >= 0) {
        ix->entries[ix->ghost_tail].next = entry;
    } else {
        ix->ghost_head = entry;
    }
    ix->ghost_tail = entry;
}

static void ghost_unlink(struct prefix_index *ix, int32_t entry) {
    const struct prefix_entry *const e = &ix->entries[entry];
    if (e->prev >= 0) {
        ix->entries[e->prev].next = e->next;
    } else {
        ix->ghost_head = e->next;
    }
    if (e->next >= 0) {
        ix->entries[e->next].prev = e->prev;
    } else {
        ix->ghost_tail = e->prev;
    }
}

/* ---- Entries ---------------------------------------------------------------------------------- */

static int32_t *entry_tokens(const struct prefix_index *ix, int32_t entry) {
    return ix->tokens + (int64_t)entry * ix->block_size;
}

static int32_t *entry_bucket(const struct prefix_index *ix, uint64_t hash) {
    return &ix->buckets[hash & (uint64_t)(ix->n_buckets - 1)];
}

uint64_t prefix_index_hash(const struct prefix_index *ix, uint64_t parent_hash, const int32_t *tokens) {
    return hash_bytes(tokens, (size_t)ix->block_size * sizeof *tokens, parent_hash);
}

int32_t prefix_index_find(const struct prefix_index *ix, uint64_t parent, uint64_t hash, const int32_t *tokens) {
    const size_t bytes = (size_t)ix->block_size * sizeof *tokens;
    for (int32_t i = *entry_bucket(ix, hash); i >= 0; i = ix->entries[i].bucket_next) {
        const struct prefix_entry *const e = &ix->entries[i];
        if (e->hash == hash && e->parent == parent && memcmp(entry_tokens(ix, i), tokens, bytes) == 0) return i;
    }
    return -1;
}

int32_t prefix_index_insert(struct prefix_index *ix, uint64_t parent, uint64_t hash, const int32_t *tokens,
                            struct prefix_salt *salt) {
    if (ix->free_head < 0) {
        if (ix->ghost_head < 0) return -1;
        prefix_index_remove(ix, ix->ghost_head);
    }
    const int32_t entry = ix->free_head;
    struct prefix_entry *const e = &ix->entries[entry];
    ix->free_head = e->next;
    int32_t *const bucket = entry_bucket(ix, hash);
    *e = (struct prefix_entry){
        .serial = ++ix->last_serial, .parent = parent, .hash = hash, .salt = salt, .bucket_next = *bucket};
    for (int g = 0; g < SEQUENCE_GROUP_MAX; g++)
        e->pages[g] = -1;
    *bucket = entry;
    memcpy(entry_tokens(ix, entry), tokens, (size_t)ix->block_size * sizeof *tokens);
    if (salt) salt->refs++;
    ghost_append(ix, entry);
    ix->n_used++;
    return entry;
}

void prefix_index_set_page(struct prefix_index *ix, int32_t entry, int group, int32_t page) {
    struct prefix_entry *const e = &ix->entries[entry];
    CHECK(e->serial != 0 && e->pages[group] < 0 && page >= 0);
    if (e->n_pages++ == 0) ghost_unlink(ix, entry);
    e->pages[group] = page;
}

void prefix_index_clear_page(struct prefix_index *ix, int32_t entry, int group) {
    struct prefix_entry *const e = &ix->entries[entry];
    CHECK(e->serial != 0 && e->pages[group] >= 0);
    e->pages[group] = -1;
    if (--e->n_pages == 0) ghost_append(ix, entry);
}

void prefix_index_remove(struct prefix_index *ix, int32_t entry) {
    struct prefix_entry *const e = &ix->entries[entry];
    CHECK(e->serial != 0);
    if (e->n_pages == 0) ghost_unlink(ix, entry);
    int32_t *at = entry_bucket(ix, e->hash);
    while (*at != entry)
        at = &ix->entries[*at].bucket_next;
    *at = e->bucket_next;
    if (e->salt) prefix_index_salt_unref(ix, e->salt);
    *e = (struct prefix_entry){.next = ix->free_head};
    ix->free_head = entry;
    ix->n_used--;
}

bool prefix_index_check(const struct prefix_index *ix) {
    int32_t n_listed = 0, n_ghosts = 0, n_bare = 0, n_free = 0;
    for (int32_t b = 0; b < ix->n_buckets; b++) {
        for (int32_t i = ix->buckets[b]; i >= 0; i = ix->entries[i].bucket_next) {
            const struct prefix_entry *const e = &ix->entries[i];
            if (e->serial == 0 || entry_bucket(ix, e->hash) != &ix->buckets[b]) return false;
            int32_t n_pages = 0;
            for (int g = 0; g < SEQUENCE_GROUP_MAX; g++)
                n_pages += e->pages[g] >= 0;
            if (n_pages != e->n_pages) return false;
            if (prefix_index_find(ix, e->parent, e->hash, entry_tokens(ix, i)) != i) return false;
            n_bare += n_pages == 0;
            if (++n_listed > ix->n_used) return false;
        }
    }
    for (int32_t i = ix->ghost_head; i >= 0 && n_ghosts <= ix->n_used; i = ix->entries[i].next)
        n_ghosts++;
    for (int32_t i = ix->free_head; i >= 0 && n_free <= ix->n_entries; i = ix->entries[i].next)
        n_free++;
    return n_listed == ix->n_used && n_ghosts == n_bare && n_free == ix->n_entries - ix->n_used;
}
