#include "engine/block_manager.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/page_pool.h"
#include "engine/prefix_index.h"

struct block_manager {
    struct cache_group_spec groups[SEQUENCE_GROUP_MAX];
    struct page_pool pools[SEQUENCE_GROUP_MAX];
    int n_groups, n_state_groups;
    bool has_paged;
    int block_size;
    int64_t max_model_len;
    int64_t step_min; /* tokens that a sequence must be able to advance at once */
    int64_t grid;     /* of state checkpoints */
    int64_t interval; /* a multiple of grid, or 0 */
    bool prefix_caching;
    struct prefix_index index;
    int32_t *walk;        /* [max_model_len / block_size + 1] index entries of the last lookup */
    struct block_op *ops; /* [cap_ops] */
    int64_t n_ops, cap_ops;
    int64_t n_slot_ops, cap_slot_ops; /* of those, on state slots */
    int64_t query_tokens, hit_tokens, evictions, checkpoints;
};

static int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t lcm_i64(int64_t a, int64_t b) {
    int64_t x = a, y = b;
    while (y != 0) {
        const int64_t r = x % y;
        x = y;
        y = r;
    }
    return a / x * b;
}

/* ---- Creation --------------------------------------------------------------------------------- */

static enum err check_config(const struct block_manager_config *c, struct err_msg *msg) {
    if (c->n_groups < 1 || c->n_groups > SEQUENCE_GROUP_MAX)
        return err_set(msg, ERR_ARG, "a model has %d cache groups, at most %d are possible", c->n_groups,
                       SEQUENCE_GROUP_MAX);
    if (c->block_size < 16 || c->block_size > 4096 || c->block_size % 16 != 0)
        return err_set(msg, ERR_ARG, "block size is %d, must be a multiple of 16 up to 4096", c->block_size);
    if (c->max_model_len < 1 || c->max_model_len > INT32_MAX)
        return err_set(msg, ERR_ARG, "max_model_len is %lld, must be in 1..2^31-1", (long long)c->max_model_len);
    if (c->chunk_grid < 0 || c->chunk_grid > 65536 || c->checkpoint_interval < 0)
        return err_set(msg, ERR_ARG, "chunk grid %d and checkpoint interval %lld must not be negative", c->chunk_grid,
                       (long long)c->checkpoint_interval);
    for (int g = 0; g < c->n_groups; g++) {
        if (c->groups[g].n_pages < 1)
            return err_set(msg, ERR_ARG, "cache group %d has %d pages, needs at least 1: give the cache more memory",
                           g, (int)c->groups[g].n_pages);
        if (c->groups[g].kind == CACHE_WINDOW && c->groups[g].window < 1)
            return err_set(msg, ERR_ARG, "cache group %d has a window of %lld tokens", g,
                           (long long)c->groups[g].window);
    }
    return ERR_OK;
}

static bool create_arrays(struct block_manager *bm, const struct block_manager_config *c) {
    int64_t n_pages = 0, n_slots = 0;
    for (int g = 0; g < c->n_groups; g++) {
        if (!page_pool_init(&bm->pools[g], c->groups[g].n_pages)) return false;
        *(c->groups[g].kind == CACHE_STATE ? &n_slots : &n_pages) += c->groups[g].n_pages;
    }
    const int64_t walk = c->max_model_len / c->block_size + 1;
    /* Every entry has a page, but where no group keeps all pages: there ghosts hold chains together. */
    const int64_t n_entries = n_pages + n_slots + (bm->has_paged ? 0 : n_pages + n_slots + 4 * walk);
    if (c->prefix_caching && !prefix_index_init(&bm->index, n_entries, c->block_size)) return false;
    bm->index.block_size = c->block_size;
    /* A page is on the list once; a slot once per admission and checkpoint: when the list is full those wait. */
    bm->cap_slot_ops = 4 * n_slots + 64;
    bm->cap_ops = n_pages + bm->cap_slot_ops;
    bm->ops = mem_calloc((size_t)bm->cap_ops, sizeof *bm->ops);
    bm->walk = mem_calloc((size_t)walk, sizeof *bm->walk);
    return bm->ops && bm->walk;
}

enum err block_manager_create(struct block_manager **out, const struct block_manager_config *config,
                              struct err_msg *msg) {
    *out = NULL;
    TRY(check_config(config, msg));
    struct block_manager *const bm = mem_calloc(1, sizeof *bm);
    if (!bm) return err_set(msg, ERR_NOMEM, "no memory for the block manager");
    bm->n_groups = config->n_groups;
    for (int g = 0; g < config->n_groups; g++) {
        bm->groups[g] = config->groups[g];
        bm->has_paged |= config->groups[g].kind == CACHE_PAGED;
        bm->n_state_groups += config->groups[g].kind == CACHE_STATE;
    }
    bm->block_size = config->block_size;
    bm->max_model_len = config->max_model_len;
    bm->prefix_caching = config->prefix_caching;
    bm->step_min = max_i64(SEQUENCE_DRAFT_MAX + 1, config->chunk_grid);
    bm->grid = lcm_i64(max_i64(config->chunk_grid, 1), config->block_size);
    bm->interval = div_up(config->checkpoint_interval, bm->grid) * bm->grid;
    if (!create_arrays(bm, config)) {
        block_manager_destroy(bm);
        return err_set(msg, ERR_NOMEM, "no memory for the block manager's tables");
    }
    *out = bm;
    return ERR_OK;
}

void block_manager_destroy(struct block_manager *bm) {
    if (!bm) return;
    for (int g = 0; g < bm->n_groups; g++)
        page_pool_deinit(&bm->pools[g]);
    prefix_index_deinit(&bm->index);
    mem_free(bm->ops);
    mem_free(bm->walk);
    mem_free(bm);
}

/* ---- Capacity --------------------------------------------------------------------------------- */

/* The most pages of group g that a sequence of n rows holds at any time. A window group's sequence at position p that
 * advances by step_min holds those from floor((p - window) / size) to ceil((p + step_min) / size). */
static int64_t pages_at_most(const struct block_manager *bm, int g, int64_t n) {
    const int64_t all = div_up(n, bm->block_size);
    switch (bm->groups[g].kind) {
    case CACHE_PAGED:
        return all;
    case CACHE_WINDOW:
        if (bm->groups[g].window >= n) return all;
        return min_i64(all, (bm->groups[g].window + bm->step_min - 2) / bm->block_size + 2);
    case CACHE_STATE:
        return 1;
    }
    return all;
}

bool block_manager_fits(const struct block_manager *bm, int64_t n_tokens, int *group, int64_t *need) {
    for (int g = 0; g < bm->n_groups; g++) {
        const int64_t n = pages_at_most(bm, g, n_tokens);
        if (n <= bm->groups[g].n_pages) continue;
        if (group) *group = g;
        if (need) *need = n;
        return false;
    }
    return true;
}

int64_t block_manager_max_tokens(const struct block_manager *bm) {
    int64_t n = bm->max_model_len;
    for (int g = 0; g < bm->n_groups; g++) {
        const int64_t n_pages = bm->groups[g].n_pages;
        if (pages_at_most(bm, g, n) > n_pages) n = min_i64(n, n_pages * bm->block_size);
    }
    return n;
}

/* Rows that the sequence will want once its known tokens and one more are computed. */
static int64_t rows_wanted(const struct sequence *seq) {
    return min_i64(seq->n_tokens + 1, max_i64(seq->max_len - 1, seq->n_tokens));
}

int64_t block_manager_outstanding(const struct block_manager *bm, const struct sequence *seq) {
    int64_t n = 0;
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind != CACHE_PAGED) continue;
        n = max_i64(n, div_up(rows_wanted(seq), bm->block_size) - seq->n_pages[g]);
    }
    return n;
}

int64_t block_manager_room(const struct block_manager *bm, const struct sequence *seq) {
    int64_t room = INT64_MAX;
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind == CACHE_STATE) continue;
        const int64_t pages = seq->n_pages[g] + page_pool_available(&bm->pools[g]);
        room = min_i64(room, pages * bm->block_size - seq->n_computed);
    }
    return room;
}

/* ---- Pages ------------------------------------------------------------------------------------ */

/* Takes an entry out of the index; its cached pages become vacant. */
static void drop_entry(struct block_manager *bm, int32_t entry) {
    for (int g = 0; g < bm->n_groups; g++) {
        const int32_t page = bm->index.entries[entry].pages[g];
        if (page >= 0) page_pool_forget(&bm->pools[g], page);
    }
    prefix_index_remove(&bm->index, entry);
}

/* Makes the least recently used cached page of a group vacant. Without its paged content a block cannot be hit, so
 * what the other groups cache of it goes too. */
static void evict(struct block_manager *bm, int g) {
    struct page_pool *const pool = &bm->pools[g];
    const int32_t page = pool->cached.head, entry = pool->pages[page].entry;
    bm->evictions++;
    if (bm->groups[g].kind == CACHE_PAGED) {
        drop_entry(bm, entry);
        return;
    }
    prefix_index_clear_page(&bm->index, entry, g);
    page_pool_forget(pool, page);
}

static void push_op(struct block_manager *bm, struct block_op op) {
    CHECK(bm->n_ops < bm->cap_ops);
    bm->n_slot_ops += bm->groups[op.group].kind == CACHE_STATE;
    bm->ops[bm->n_ops++] = op;
}

/* A page to write to, with one reference; there must be one. */
static int32_t take_page(struct block_manager *bm, int g) {
    struct page_pool *const pool = &bm->pools[g];
    if (pool->vacant.n == 0) evict(bm, g);
    const int32_t page = page_pool_take(pool);
    CHECK(page >= 0);
    return page;
}

/* A page of rows: zeroed, since readers may touch the rows behind a sequence's end. */
static int32_t take_zero_page(struct block_manager *bm, int g) {
    const int32_t page = take_page(bm, g);
    struct page *const p = &bm->pools[g].pages[page];
    if (!p->zero_pending) push_op(bm, (struct block_op){BLOCK_OP_ZERO, g, page, -1});
    p->zero_pending = true;
    return page;
}

const struct block_op *block_manager_ops(const struct block_manager *bm, int64_t *n) {
    *n = bm->n_ops;
    return bm->ops;
}

void block_manager_clear_ops(struct block_manager *bm) {
    for (int64_t i = 0; i < bm->n_ops; i++)
        bm->pools[bm->ops[i].group].pages[bm->ops[i].page].zero_pending = false;
    bm->n_ops = bm->n_slot_ops = 0;
}

/* ---- Sequences -------------------------------------------------------------------------------- */

static void reset_chain(struct sequence *seq) {
    seq->n_published = 0;
    seq->chain_node = -1;
    seq->chain_serial = seq->salt_ref ? seq->salt_ref->serial : 0;
    seq->chain_hash = seq->salt_ref ? seq->salt_ref->hash : 0;
    seq->chain_lost = false;
}

enum err block_manager_attach(struct block_manager *bm, struct sequence *seq) {
    CHECK(!seq->salt_ref && seq->n_groups == bm->n_groups);
    CHECK(seq->cap_pages >= div_up(seq->max_len, bm->block_size));
    seq->salt_ref = prefix_index_salt_ref(&bm->index, seq->salt);
    if (!seq->salt_ref) return err_set(NULL, ERR_NOMEM, "no memory for a cache salt");
    reset_chain(seq);
    return ERR_OK;
}

void block_manager_detach(struct block_manager *bm, struct sequence *seq) {
    if (!seq->salt_ref) return;
    block_manager_release(bm, seq);
    prefix_index_salt_unref(&bm->index, seq->salt_ref);
    seq->salt_ref = NULL;
}

void block_manager_release(struct block_manager *bm, struct sequence *seq) {
    for (int g = 0; g < bm->n_groups; g++) {
        for (int64_t b = seq->n_pages[g] - 1; b >= seq->first_page[g]; b--)
            page_pool_unref(&bm->pools[g], seq->pages[g][b]);
        seq->n_pages[g] = seq->first_page[g] = 0;
    }
    seq->n_computed = 0;
    reset_chain(seq);
}

/* ---- Lookup ----------------------------------------------------------------------------------- */

/* First block that a window group needs for a sequence whose first n rows exist. */
static int64_t window_first(const struct block_manager *bm, int g, int64_t n) {
    return max_i64(0, n - bm->groups[g].window) / bm->block_size;
}

struct lookup {
    int64_t n_blocks;       /* that can be used: a hit of n_blocks * block_size tokens */
    int64_t n_blocks_paged; /* that could, had the state groups a checkpoint there */
};

/* Follows the chain of the sequence's full blocks, leaving at least one token to compute, and writes the entries to
 * bm->walk. run[g]: blocks in a row, up to the current one, that group g has. */
static struct lookup find_prefix(struct block_manager *bm, const struct sequence *seq) {
    struct lookup found = {0, 0};
    int64_t run[SEQUENCE_GROUP_MAX] = {0};
    uint64_t parent = seq->salt_ref->serial, hash = seq->salt_ref->hash;
    for (int64_t b = 0; (b + 1) * bm->block_size < seq->n_tokens; b++) {
        const int32_t *const tokens = seq->tokens + b * bm->block_size;
        hash = prefix_index_hash(&bm->index, hash, tokens);
        const int32_t entry = prefix_index_find(&bm->index, parent, hash, tokens);
        if (entry < 0) break;
        const struct prefix_entry *const e = &bm->index.entries[entry];
        parent = e->serial;
        bm->walk[b] = entry;
        bool usable = true, has_state = true;
        const int64_t n = (b + 1) * bm->block_size;
        for (int g = 0; g < bm->n_groups; g++) {
            run[g] = e->pages[g] >= 0 ? run[g] + 1 : 0;
            if (bm->groups[g].kind == CACHE_PAGED) usable &= run[g] == b + 1;
            if (bm->groups[g].kind == CACHE_WINDOW) usable &= run[g] >= b + 1 - window_first(bm, g, n);
            if (bm->groups[g].kind == CACHE_STATE) has_state &= run[g] > 0;
        }
        if (usable) found.n_blocks_paged = b + 1;
        if (usable && has_state) found.n_blocks = b + 1;
    }
    return found;
}

/* Points the tables at the first n_blocks blocks of bm->walk. State slots are copied later. */
static void claim(struct block_manager *bm, struct sequence *seq, int64_t n_blocks) {
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind == CACHE_STATE) continue;
        const bool windowed = bm->groups[g].kind == CACHE_WINDOW;
        const int64_t first = windowed ? window_first(bm, g, n_blocks * bm->block_size) : 0;
        for (int64_t b = 0; b < first; b++)
            seq->pages[g][b] = -1;
        for (int64_t b = first; b < n_blocks; b++) {
            seq->pages[g][b] = bm->index.entries[bm->walk[b]].pages[g];
            page_pool_ref(&bm->pools[g], seq->pages[g][b]);
        }
        seq->first_page[g] = first;
        seq->n_pages[g] = n_blocks;
    }
    seq->n_computed = n_blocks * bm->block_size;
    seq->n_published = n_blocks;
    if (n_blocks == 0) return;
    const struct prefix_entry *const last = &bm->index.entries[bm->walk[n_blocks - 1]];
    seq->chain_node = bm->walk[n_blocks - 1];
    seq->chain_serial = last->serial;
    seq->chain_hash = last->hash;
}

/* Whether the rest of the sequence could be held now, beside what others are promised. */
static bool rest_is_free(const struct block_manager *bm, const struct sequence *seq, int64_t n_reserved) {
    for (int g = 0; g < bm->n_groups; g++) {
        const int64_t available = page_pool_available(&bm->pools[g]);
        if (bm->groups[g].kind == CACHE_STATE) {
            if (available < 1) return false;
            continue;
        }
        const bool windowed = bm->groups[g].kind == CACHE_WINDOW;
        int64_t rows = rows_wanted(seq);
        if (windowed) rows = min_i64(rows, seq->n_computed + bm->step_min);
        const int64_t fresh = div_up(rows, bm->block_size) - seq->n_pages[g];
        if (fresh + (windowed ? 0 : n_reserved) > available) return false;
    }
    return true;
}

/* Gives the sequence its state slots: copies of the checkpoint at its last cached block, or zeros. */
static void take_slots(struct block_manager *bm, struct sequence *seq, int64_t n_blocks) {
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind != CACHE_STATE) continue;
        const int32_t from = n_blocks > 0 ? bm->index.entries[bm->walk[n_blocks - 1]].pages[g] : -1;
        if (from >= 0) page_pool_touch(&bm->pools[g], from);
        const int32_t slot = take_page(bm, g);
        /* The checkpoint itself may be the slot that was evicted: then the state is where it has to be. */
        if (from < 0) {
            push_op(bm, (struct block_op){BLOCK_OP_ZERO, g, slot, -1});
        } else if (from != slot) {
            push_op(bm, (struct block_op){BLOCK_OP_COPY, g, slot, from});
        }
        seq->pages[g][0] = slot;
        seq->n_pages[g] = 1;
    }
}

bool block_manager_admit(struct block_manager *bm, struct sequence *seq, bool use_cache, int64_t n_reserved) {
    for (int g = 0; g < bm->n_groups; g++)
        CHECK(seq->n_pages[g] == 0);
    if (bm->n_slot_ops + bm->n_state_groups > bm->cap_slot_ops) return false;
    use_cache &= bm->prefix_caching;
    const struct lookup found = use_cache ? find_prefix(bm, seq) : (struct lookup){0, 0};
    reset_chain(seq);
    claim(bm, seq, found.n_blocks);
    if (!rest_is_free(bm, seq, n_reserved)) {
        block_manager_release(bm, seq);
        return false;
    }
    take_slots(bm, seq, found.n_blocks);
    const int64_t branch = found.n_blocks_paged * bm->block_size / bm->grid * bm->grid;
    seq->checkpoint_at = bm->n_state_groups > 0 && branch > seq->n_computed ? branch : 0;
    if (use_cache && seq->n_preempted == 0) {
        seq->n_cached = seq->n_computed;
        bm->query_tokens += seq->n_tokens;
        bm->hit_tokens += seq->n_computed;
    }
    return true;
}

/* ---- A step ----------------------------------------------------------------------------------- */

bool block_manager_allocate(struct block_manager *bm, struct sequence *seq, int64_t n_new) {
    const int64_t n_blocks = div_up(seq->n_computed + n_new, bm->block_size);
    CHECK(n_blocks <= seq->cap_pages);
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind == CACHE_STATE) continue;
        if (n_blocks - seq->n_pages[g] > page_pool_available(&bm->pools[g])) return false;
    }
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind == CACHE_STATE) continue;
        while (seq->n_pages[g] < n_blocks)
            seq->pages[g][seq->n_pages[g]++] = take_zero_page(bm, g);
    }
    return true;
}

/* The index entry of block b, which follows the chain; -1: the chain's end has left the index. */
static int32_t enter_block(struct block_manager *bm, struct sequence *seq, int64_t b) {
    struct prefix_index *const ix = &bm->index;
    if (seq->chain_node >= 0 && ix->entries[seq->chain_node].serial != seq->chain_serial) return -1;
    const int32_t *const tokens = seq->tokens + b * bm->block_size;
    const uint64_t hash = prefix_index_hash(ix, seq->chain_hash, tokens);
    const int32_t entry = prefix_index_find(ix, seq->chain_serial, hash, tokens);
    if (entry >= 0) return entry;
    return prefix_index_insert(ix, seq->chain_serial, hash, tokens, b == 0 ? seq->salt_ref : NULL);
}

/* Files the sequence's pages of block b under an entry, or moves the sequence over to the pages that are there. */
static void publish_block(struct block_manager *bm, struct sequence *seq, int64_t b, int32_t entry) {
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind == CACHE_STATE || b < seq->first_page[g]) continue;
        struct page_pool *const pool = &bm->pools[g];
        int32_t *const own = &seq->pages[g][b];
        const int32_t there = bm->index.entries[entry].pages[g];
        if (there < 0) {
            CHECK(pool->pages[*own].entry < 0);
            prefix_index_set_page(&bm->index, entry, g, *own);
            pool->pages[*own].entry = entry;
        } else if (there != *own) {
            page_pool_ref(pool, there);
            page_pool_unref(pool, *own);
            *own = there;
        }
    }
}

int64_t block_manager_next_checkpoint(const struct block_manager *bm, const struct sequence *seq, int64_t from) {
    if (bm->n_state_groups == 0 || !bm->prefix_caching) return INT64_MAX;
    int64_t at = INT64_MAX;
    const int64_t last = (seq->n_prompt - 1) / bm->grid * bm->grid;
    if (last > from) at = last;
    if (seq->checkpoint_at > from) at = min_i64(at, seq->checkpoint_at);
    if (bm->interval > 0) at = min_i64(at, (from / bm->interval + 1) * bm->interval);
    return at;
}

/* Copies the sequence's state to slots filed under the entry of its last block; declines when no slot can be had. */
static void write_checkpoint(struct block_manager *bm, struct sequence *seq) {
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind != CACHE_STATE) continue;
        struct page_pool *const pool = &bm->pools[g];
        const int32_t there = bm->index.entries[seq->chain_node].pages[g];
        if (there >= 0) {
            page_pool_touch(pool, there);
            continue;
        }
        if (page_pool_available(pool) == 0 || bm->n_slot_ops >= bm->cap_slot_ops / 2) continue;
        const int32_t slot = take_page(bm, g);
        prefix_index_set_page(&bm->index, seq->chain_node, g, slot);
        pool->pages[slot].entry = seq->chain_node;
        page_pool_unref(pool, slot);
        push_op(bm, (struct block_op){BLOCK_OP_COPY, g, slot, seq->pages[g][0]});
        bm->checkpoints++;
    }
}

static void release_behind_window(struct block_manager *bm, struct sequence *seq) {
    for (int g = 0; g < bm->n_groups; g++) {
        if (bm->groups[g].kind != CACHE_WINDOW) continue;
        const int64_t first = min_i64(window_first(bm, g, seq->n_computed), seq->n_pages[g]);
        for (; seq->first_page[g] < first; seq->first_page[g]++) {
            int32_t *const page = &seq->pages[g][seq->first_page[g]];
            page_pool_unref(&bm->pools[g], *page);
            *page = -1;
        }
    }
}

void block_manager_publish(struct block_manager *bm, struct sequence *seq) {
    const int64_t n_full = seq->n_computed / bm->block_size;
    while (bm->prefix_caching && !seq->chain_lost && seq->n_published < n_full) {
        const int32_t entry = enter_block(bm, seq, seq->n_published);
        seq->chain_lost = entry < 0;
        if (entry < 0) break;
        publish_block(bm, seq, seq->n_published++, entry);
        seq->chain_node = entry;
        seq->chain_serial = bm->index.entries[entry].serial;
        seq->chain_hash = bm->index.entries[entry].hash;
    }
    const bool aligned = seq->n_computed > 0 && seq->n_computed == seq->n_published * bm->block_size;
    if (aligned && !seq->chain_lost && bm->index.entries[seq->chain_node].serial == seq->chain_serial &&
        block_manager_next_checkpoint(bm, seq, seq->n_computed - 1) == seq->n_computed)
        write_checkpoint(bm, seq);
    release_behind_window(bm, seq);
}

/* ---- Statistics ------------------------------------------------------------------------------- */

void block_manager_clear_cache(struct block_manager *bm) {
    for (int32_t i = 0; i < bm->index.n_entries; i++) {
        if (bm->index.entries[i].serial != 0) drop_entry(bm, i);
    }
}

void block_manager_stats(const struct block_manager *bm, struct block_stats *out) {
    *out = (struct block_stats){.query_tokens = bm->query_tokens,
                                .hit_tokens = bm->hit_tokens,
                                .evictions = bm->evictions,
                                .checkpoints = bm->checkpoints,
                                .n_groups = bm->n_groups};
    for (int g = 0; g < bm->n_groups; g++) {
        const struct page_pool *const pool = &bm->pools[g];
        out->groups[g] = (struct block_group_stats){.n_pages = pool->n_pages,
                                                    .n_used = pool->n_pages - page_pool_available(pool),
                                                    .n_cached = pool->cached.n,
                                                    .n_vacant = pool->vacant.n};
    }
}

/* ---- Checking --------------------------------------------------------------------------------- */

static bool check_pool(const struct page_pool *pool, const int32_t *refs, int g, struct err_msg *msg) {
    int32_t n[3] = {0};
    for (int32_t i = 0; i < pool->n_pages; i++) {
        const struct page *const p = &pool->pages[i];
        n[p->place]++;
        const bool placed = p->place == PAGE_USED ? p->refs > 0 : p->refs == 0;
        const bool filed = p->place == PAGE_VACANT ? p->entry < 0 : p->place == PAGE_USED || p->entry >= 0;
        if (p->refs == refs[i] && placed && filed) continue;
        err_set(msg, ERR_ARG, "group %d page %d: %d references, tables hold %d, place %d, entry %d", g, (int)i,
                (int)p->refs, (int)refs[i], (int)p->place, (int)p->entry);
        return false;
    }
    const struct page_list *const lists[] = {&pool->vacant, &pool->cached};
    for (int l = 0; l < 2; l++) {
        int32_t n_linked = 0, last = -1;
        for (int32_t i = lists[l]->head; i >= 0 && n_linked <= pool->n_pages; last = i, i = pool->pages[i].next) {
            n_linked++;
            if (pool->pages[i].place != (l == 0 ? PAGE_VACANT : PAGE_CACHED) || pool->pages[i].prev != last)
                n_linked = INT32_MAX / 2;
        }
        if (n_linked == lists[l]->n && n_linked == n[l == 0 ? PAGE_VACANT : PAGE_CACHED] && last == lists[l]->tail)
            continue;
        err_set(msg, ERR_ARG, "group %d: the %s list is broken", g, l == 0 ? "vacant" : "cached");
        return false;
    }
    return true;
}

/* Counts the references of one sequence's table and compares published contents with its tokens. */
static bool check_table(const struct block_manager *bm, const struct sequence *seq, int g, int32_t *refs) {
    const bool is_state = bm->groups[g].kind == CACHE_STATE;
    const int64_t n = seq->n_pages[g];
    if (n > seq->cap_pages || seq->first_page[g] > n) return false;
    if (is_state ? n != (seq->status == SEQUENCE_RUNNING) : n * bm->block_size < seq->n_computed) return false;
    for (int64_t b = 0; b < n; b++) {
        const int32_t page = seq->pages[g][b];
        if (b < seq->first_page[g]) {
            if (page != -1) return false;
            continue;
        }
        if (page < 0 || page >= bm->pools[g].n_pages) return false;
        refs[page]++;
        const int32_t entry = bm->pools[g].pages[page].entry;
        if (entry < 0) continue;
        const int32_t *const tokens = bm->index.tokens + (int64_t)entry * bm->block_size;
        if (is_state || b >= seq->n_published) return false;
        if (memcmp(tokens, seq->tokens + b * bm->block_size, (size_t)bm->block_size * sizeof *tokens) != 0)
            return false;
    }
    return true;
}

static bool check_index(const struct block_manager *bm, struct err_msg *msg) {
    int64_t n_filed = 0, n_named = 0;
    for (int32_t i = 0; i < bm->index.n_entries; i++) {
        const struct prefix_entry *const e = &bm->index.entries[i];
        for (int g = 0; g < bm->n_groups && e->serial != 0; g++) {
            if (e->pages[g] < 0) continue;
            n_named++;
            if (bm->pools[g].pages[e->pages[g]].entry == i) continue;
            err_set(msg, ERR_ARG, "entry %d names page %d of group %d, which is not its", (int)i, (int)e->pages[g],
                    g);
            return false;
        }
    }
    for (int g = 0; g < bm->n_groups; g++) {
        for (int32_t i = 0; i < bm->pools[g].n_pages; i++)
            n_filed += bm->pools[g].pages[i].entry >= 0;
    }
    if (n_filed == n_named && (!bm->prefix_caching || prefix_index_check(&bm->index))) return true;
    err_set(msg, ERR_ARG, "the prefix index is broken: %lld pages filed, %lld named", (long long)n_filed,
            (long long)n_named);
    return false;
}

bool block_manager_check(const struct block_manager *bm, const struct sequence *const *seqs, int n_seqs,
                         struct err_msg *msg) {
    for (int g = 0; g < bm->n_groups; g++) {
        int32_t *const refs = mem_calloc((size_t)bm->pools[g].n_pages, sizeof *refs);
        bool ok = refs != NULL;
        for (int i = 0; ok && i < n_seqs; i++) {
            ok = check_table(bm, seqs[i], g, refs);
            if (!ok)
                err_set(msg, ERR_ARG, "sequence %llu: its table of group %d is wrong",
                        (unsigned long long)seqs[i]->id, g);
        }
        ok = ok && check_pool(&bm->pools[g], refs, g, msg);
        mem_free(refs);
        if (!ok) return false;
    }
    return check_index(bm, msg);
}
