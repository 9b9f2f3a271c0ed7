/* The cache's memory: one region per team, cut into pages per cache group. Page i of a group is page i on every node;
 * KV heads are spread over the teams, so each lane reads only its own node. How many pages there are follows from what
 * the process may use.
 *
 *     region of team t:  [group 0: page 0 | page 1 | ...][group 1: ...]
 *     page:              [layer 0: head a: K groups, V groups | head b: ... ][layer 1: ...]
 *
 * Threads: created by the engine thread; kv_cache_apply runs on the pool. Owns: the regions. */
#ifndef ENGINE_KV_CACHE_H
#define ENGINE_KV_CACHE_H

#include "engine/block_manager.h"
#include "model/model.h"
#include "sys/region.h"
#include "sys/team.h"
#include "sys/topology.h"

struct kv_cache_options {
    const struct kern *kern;
    struct pool *pool;
    const struct topology *topology;
    enum attn_cache type;
    int block_size;       /* a multiple of ATTN_GROUP */
    int64_t num_blocks;   /* > 0: pages per group, overrides memory */
    int64_t memory;       /* > 0: bytes over all nodes */
    int max_num_seqs, max_num_batched_tokens;
    int64_t max_model_len;
};

struct kv_cache {
    struct region regions[PAGED_TEAMS_MAX];
    int n_regions;
    struct cache_group_spec groups[MODEL_CACHE_GROUPS_MAX];
    int n_groups;
    size_t page_bytes[MODEL_CACHE_GROUPS_MAX][PAGED_TEAMS_MAX];
    char *base[MODEL_CACHE_GROUPS_MAX][PAGED_TEAMS_MAX];
    int64_t bytes; /* reserved, all teams */
};

/* Sizes and reserves the cache of a model and fills model->layers. */
enum err kv_cache_create(struct kv_cache *kv, struct model *m, const struct kv_cache_options *opt,
                         struct err_msg *msg) ATTR_NODISCARD;
void kv_cache_destroy(struct kv_cache *kv);

/* Does the block manager's operations in order, every team on its own part. */
void kv_cache_apply(struct kv_cache *kv, struct pool *pool, const struct block_op *ops, int64_t n_ops);

/* "auto" "f32" "bf16" "int8" "fp8" into the cache type. */
enum err kv_cache_type(const char *name, enum attn_cache *out, struct err_msg *msg) ATTR_NODISCARD;

#endif
