/* Cache pages: who holds them, what is in them, which are free. Pure bookkeeping on ids: the rows themselves live in
 * the regions that the model runner owns, page i of a group being the same i on every node.
 *
 * Groups. Layers whose caches have one kind and page size form a group with its own pages 0..n_pages-1:
 *   CACHE_PAGED   every page of the sequence is kept;
 *   CACHE_WINDOW  pages that end at or before n_computed - window are given back, their table entry becomes -1;
 *   CACHE_STATE   one page (slot) per sequence, updated in place; copies of it are kept as checkpoints.
 *
 * A page is in exactly one place: referenced by sequences, on its group's vacant list, or on its group's list of
 * cached pages (unreferenced, content kept, least recently used first). Vacant pages go first; then the oldest cached
 * page loses its content (an eviction).
 *
 * Prefix cache (prefix_index.h): a full page is published under its identity; a later sequence with the same tokens
 * and salt shares it without a copy. A sequence that computed the same block at the same time is moved over to the
 * published page. A hit at length L counts only if every group can serve it: paged groups all pages below L, window
 * groups those that cover [L - window, L), state groups a checkpoint at L; the longest L below the sequence's length
 * wins.
 *
 * Work for the runner is an ordered list of operations (zero a page, copy a state slot); all of them must be done in
 * order before the next step computes. All memory is taken at creation, but for one small record per new salt in
 * block_manager_attach.
 * Threads: engine thread only. Owns: everything but the sequences. */
#ifndef ENGINE_BLOCK_MANAGER_H
#define ENGINE_BLOCK_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/sequence.h"

enum cache_kind { CACHE_PAGED, CACHE_WINDOW, CACHE_STATE };

struct cache_group_spec {
    enum cache_kind kind;
    int64_t window;  /* CACHE_WINDOW: position p reads (p - window, p] */
    int32_t n_pages; /* CACHE_STATE: slots for running sequences and checkpoints together */
};

struct block_manager_config {
    const struct cache_group_spec *groups; /* [n_groups], copied */
    int n_groups;                          /* 1..SEQUENCE_GROUP_MAX */
    int block_size;                        /* tokens of a page: a multiple of 16 */
    int64_t max_model_len;                 /* longest sequence */
    bool prefix_caching;
    int chunk_grid; /* state checkpoints lie on multiples of lcm(chunk_grid, block_size); 0 or 1: no grid */
    int64_t checkpoint_interval; /* tokens between state checkpoints; 0: only at a prompt's last grid point and at
                                    branches */
};

enum block_op_kind { BLOCK_OP_ZERO, BLOCK_OP_COPY };

struct block_op {
    enum block_op_kind kind;
    int group;
    int32_t page; /* written */
    int32_t from; /* BLOCK_OP_COPY: read */
};

struct block_group_stats {
    int32_t n_pages, n_used, n_cached, n_vacant; /* used: referenced; cached: unreferenced with content */
};

struct block_stats {
    int64_t query_tokens, hit_tokens; /* of successful admissions */
    int64_t evictions;
    int64_t checkpoints; /* state checkpoints written */
    int n_groups;
    struct block_group_stats groups[SEQUENCE_GROUP_MAX];
};

struct block_manager;

/* ERR_ARG: a bad configuration; ERR_NOMEM. *out: block_manager_destroy. */
enum err block_manager_create(struct block_manager **out, const struct block_manager_config *config,
                              struct err_msg *msg) ATTR_NODISCARD;

/* Sequences must have been detached. NULL is fine. */
void block_manager_destroy(struct block_manager *bm);

/* Whether a sequence of n_tokens rows could run alone in an empty cache. When not, *group and *need say which group
 * lacks pages and how many pages it would take (both may be NULL). */
bool block_manager_fits(const struct block_manager *bm, int64_t n_tokens, int *group, int64_t *need);

/* The longest sequence (rows) that could run alone. */
int64_t block_manager_max_tokens(const struct block_manager *bm);

/* Makes the sequence known (its salt); once, before anything below. ERR_NOMEM. */
enum err block_manager_attach(struct block_manager *bm, struct sequence *seq) ATTR_NODISCARD;

/* Gives everything back: pages (the tail first, so that a prefix outlives its continuation) and the salt. Fine for a
 * sequence that was never attached. */
void block_manager_detach(struct block_manager *bm, struct sequence *seq);

/* Lets a sequence without pages in: finds the longest usable prefix of its tokens (use_cache), takes references on
 * those pages, takes its state slots, sets n_computed. False, nothing changed, when the pages for all its known
 * tokens are not free now beside n_reserved pages of every paged group that others are going to need. */
bool block_manager_admit(struct block_manager *bm, struct sequence *seq, bool use_cache, int64_t n_reserved);

/* Pages of a paged group that the sequence still needs for its known tokens and one more. */
int64_t block_manager_outstanding(const struct block_manager *bm, const struct sequence *seq);

/* How many tokens after n_computed could be given rows now. */
int64_t block_manager_room(const struct block_manager *bm, const struct sequence *seq);

/* Extends the tables so that rows for n_new tokens after n_computed exist. All or nothing: false when pages lack. */
bool block_manager_allocate(struct block_manager *bm, struct sequence *seq, int64_t n_new) ATTR_NODISCARD;

/* After a step: n_computed has been advanced, the rows are written. Publishes full pages, records a state checkpoint
 * when n_computed is at a place where one is wanted, gives back pages behind the window. */
void block_manager_publish(struct block_manager *bm, struct sequence *seq);

/* The next position after `from` at which a state checkpoint of this sequence is wanted: prompt chunks should end
 * there. INT64_MAX: none. */
int64_t block_manager_next_checkpoint(const struct block_manager *bm, const struct sequence *seq, int64_t from);

/* Gives back all pages of a sequence (preemption), n_computed = 0; it may be admitted again. */
void block_manager_release(struct block_manager *bm, struct sequence *seq);

/* Operations since the last clear, oldest first; borrowed until the next call that changes the manager. */
const struct block_op *block_manager_ops(const struct block_manager *bm, int64_t *n);
void block_manager_clear_ops(struct block_manager *bm);

/* Drops all cached content; running sequences keep their pages. */
void block_manager_clear_cache(struct block_manager *bm);

void block_manager_stats(const struct block_manager *bm, struct block_stats *out);

/* Checks every invariant against the tables of all attached sequences: reference counts, lists, index, contents.
 * False with a line in msg. For tests: O(everything). */
bool block_manager_check(const struct block_manager *bm, const struct sequence *const *seqs, int n_seqs,
                         struct err_msg *msg);

#endif
