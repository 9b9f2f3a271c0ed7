#include "text/vocab.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { BYTES_MAX = 1 << 30 };

static enum err no_memory(struct err_msg *msg) {
    return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the vocabulary");
}

/* Appends bytes to the buffer and says where they are. */
static enum err store(struct vocab *v, const char *text, size_t len, uint32_t *at, struct err_msg *msg) {
    if (len > VOCAB_TOKEN_LEN_MAX)
        return err_set(msg, ERR_LIMIT, "tokenizer: a token of %zu bytes; at most %d are allowed", len,
                       VOCAB_TOKEN_LEN_MAX);
    if (v->n_bytes + len + 1 > BYTES_MAX)
        return err_set(msg, ERR_LIMIT, "tokenizer: the vocabulary has over 1 GiB of text");
    if (!mem_grow(&v->bytes, &v->cap_bytes, v->n_bytes + len + 1, 1)) return no_memory(msg);
    if (len) memcpy(v->bytes + v->n_bytes, text, len);
    v->bytes[v->n_bytes + len] = 0;
    *at = (uint32_t)v->n_bytes;
    v->n_bytes += len + 1;
    return ERR_OK;
}

enum err vocab_add(struct vocab *v, int64_t id, const char *text, size_t len, enum token_type type,
                   struct err_msg *msg) {
    if (id < 0 || id >= VOCAB_ID_MAX)
        return err_set(msg, ERR_FORMAT, "tokenizer: token id %lld is outside 0..%d", (long long)id, VOCAB_ID_MAX - 1);
    if (vocab_has(v, id)) return err_set(msg, ERR_FORMAT, "tokenizer: two tokens have the id %lld", (long long)id);
    uint32_t at;
    TRY(store(v, text, len, &at, msg));
    if (id >= v->n) {
        if (!mem_grow(&v->entries, &v->cap, (size_t)id + 1, sizeof *v->entries)) return no_memory(msg);
        memset(v->entries + v->n, 0, (size_t)(id + 1 - v->n) * sizeof *v->entries);
        v->n = (int32_t)id + 1;
    }
    v->entries[id] = (struct vocab_entry){at, at, (uint16_t)len, (uint16_t)len, (uint8_t)type};
    return ERR_OK;
}

enum err vocab_show(struct vocab *v, int32_t id, const char *shown, size_t len, struct err_msg *msg) {
    uint32_t at;
    TRY(store(v, shown, len, &at, msg));
    v->entries[id].shown_at = at;
    v->entries[id].shown_len = (uint16_t)len;
    return ERR_OK;
}

static uint32_t text_hash(const char *text, size_t len) { return (uint32_t)hash_bytes(text, len, 0); }

/* The slot of this text, or the empty slot where it belongs. */
static size_t slot_of(const struct vocab *v, uint32_t hash, const char *text, size_t len) {
    const size_t mask = v->n_slots - 1;
    size_t i = hash & mask;
    for (;; i = (i + 1) & mask) {
        const struct vocab_slot *const s = &v->slots[i];
        if (s->id < 0) return i;
        if (s->hash != hash) continue;
        const struct vocab_entry *const e = &v->entries[s->id];
        if (e->text_len == len && memcmp(v->bytes + e->text_at, text, len) == 0) return i;
    }
}

static bool grow_slots(struct vocab *v) {
    const size_t n = v->n_slots ? v->n_slots * 2 : 1024;
    struct vocab_slot *const slots = mem_calloc(n, sizeof *slots);
    if (!slots) return false;
    for (size_t i = 0; i < n; i++) slots[i].id = -1;
    for (size_t i = 0; i < v->n_slots; i++) {
        if (v->slots[i].id < 0) continue;
        size_t k = v->slots[i].hash & (n - 1);
        while (slots[k].id >= 0) k = (k + 1) & (n - 1);
        slots[k] = v->slots[i];
    }
    mem_free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    return true;
}

enum err vocab_index(struct vocab *v, int32_t id, bool *added, struct err_msg *msg) {
    if (v->n_used * 2 >= v->n_slots && !grow_slots(v)) return no_memory(msg);
    size_t len;
    const char *const text = vocab_text(v, id, &len);
    const uint32_t hash = text_hash(text, len);
    struct vocab_slot *const s = &v->slots[slot_of(v, hash, text, len)];
    if (added) *added = s->id < 0;
    if (s->id >= 0) return ERR_OK;
    *s = (struct vocab_slot){hash, id};
    v->n_used++;
    return ERR_OK;
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t len) {
    if (!v->n_slots || len > VOCAB_TOKEN_LEN_MAX) return -1;
    return v->slots[slot_of(v, text_hash(text, len), text, len)].id;
}

void vocab_deinit(struct vocab *v) {
    mem_free(v->entries);
    mem_free(v->bytes);
    mem_free(v->slots);
    *v = (struct vocab){0};
}
