#include "engine/kv_cache.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "par/shard.h"

enum err kv_cache_type(const char *name, enum attn_cache *out, struct err_msg *msg) {
    static const struct {
        const char *name;
        enum attn_cache type;
    } types[] = {{"auto", ATTN_CACHE_BF16},     {"bf16", ATTN_CACHE_BF16}, {"bfloat16", ATTN_CACHE_BF16},
                 {"f32", ATTN_CACHE_F32},       {"float32", ATTN_CACHE_F32}, {"int8", ATTN_CACHE_INT8},
                 {"fp8", ATTN_CACHE_FP8},       {"fp8_e4m3", ATTN_CACHE_FP8}};
    for (size_t i = 0; i < N_ELEMENTS(types); i++)
        if (strcmp(name, types[i].name) == 0) {
            *out = types[i].type;
            return ERR_OK;
        }
    return err_set(msg, ERR_ARG, "--kv-cache-dtype %s: unknown; use auto, bf16, f32, int8 or fp8", name);
}

/* Everything about a layer but where its pages are. */
static void describe_layer(struct paged_layer *p, const struct kv_cache_options *opt) {
    const struct attn_kern *const k = &opt->kern->attn.cache[opt->type];
    int sizes[PAGED_TEAMS_MAX];
    p->n_teams = pool_n_teams(opt->pool);
    for (int t = 0; t < p->n_teams; t++) sizes[t] = pool_team_size(opt->pool, t);
    p->block_size = opt->block_size;
    p->groups_per_page = opt->block_size / ATTN_GROUP;
    p->k_group_bytes = k->k_group_bytes(p->d);
    p->v_group_bytes = k->v_group_bytes(p->dv);
    p->cache = opt->type;
    for (int t = 0; t <= p->n_teams; t++) p->head0[t] = (int)shard_first(p->n_kv, sizes, p->n_teams, t);
}

static void page_sizes(struct kv_cache *kv, const struct model *m) {
    for (int l = 0; l < m->h.n_layers; l++) {
        const struct paged_layer *const p = &m->layers[l];
        for (int t = 0; t < p->n_teams; t++)
            kv->page_bytes[p->group][t] += (size_t)(p->head0[t + 1] - p->head0[t]) * paged_head_bytes(p);
    }
}

/* Pages of group g when a paged group has n: a window group needs no more than its running sequences can hold, and some
 * to remember. */
static int64_t group_pages(const struct kv_cache *kv, const struct kv_cache_options *opt, int g, int64_t n) {
    if (kv->groups[g].kind != CACHE_WINDOW) return n;
    const int64_t per_seq = kv->groups[g].window / opt->block_size + 2;
    const int64_t most = 2 * per_seq * opt->max_num_seqs + opt->max_num_batched_tokens / opt->block_size + 1;
    return n < most ? n : most;
}

/* Bytes that n pages take, on the team where it is tightest when team < 0 is asked for all. */
static int64_t bytes_for(const struct kv_cache *kv, const struct kv_cache_options *opt, int team, int64_t n) {
    int64_t sum = 0;
    for (int g = 0; g < kv->n_groups; g++)
        for (int t = 0; t < pool_n_teams(opt->pool); t++)
            if (team < 0 || t == team) sum += group_pages(kv, opt, g, n) * (int64_t)kv->page_bytes[g][t];
    return sum;
}

/* Whether n pages stay within the memory that was given, or within 80 % of what each node really has. */
static bool affordable(const struct kv_cache *kv, const struct kv_cache_options *opt, int64_t n) {
    if (opt->memory > 0) return bytes_for(kv, opt, -1, n) <= opt->memory;
    for (int t = 0; t < pool_n_teams(opt->pool); t++) {
        const int64_t free_bytes = topology_available(opt->topology, pool_team_node(opt->pool, t));
        if (bytes_for(kv, opt, t, n) > free_bytes / 10 * 8) return false;
    }
    return true;
}

static enum err choose_pages(struct kv_cache *kv, const struct kv_cache_options *opt, struct err_msg *msg) {
    const int64_t per_seq = (opt->max_model_len + opt->block_size - 1) / opt->block_size;
    int64_t low = 0, high = per_seq * opt->max_num_seqs;
    if (high > INT32_MAX / 2) high = INT32_MAX / 2;
    if (opt->num_blocks > 0) low = high = opt->num_blocks < INT32_MAX / 2 ? opt->num_blocks : INT32_MAX / 2;
    while (low < high) {
        const int64_t mid = low + (high - low + 1) / 2;
        if (affordable(kv, opt, mid)) low = mid;
        else high = mid - 1;
    }
    if (low < 1)
        return err_set(msg, ERR_NOMEM, "KV cache: not even one page of %d tokens fits into the memory that is free; "
                       "use a smaller model or --kv-cache-dtype int8, or free memory", opt->block_size);
    for (int g = 0; g < kv->n_groups; g++)
        kv->groups[g].n_pages = (int32_t)(opt->num_blocks > 0 ? low : group_pages(kv, opt, g, low));
    return ERR_OK;
}

static enum err reserve(struct kv_cache *kv, const struct kv_cache_options *opt, struct err_msg *msg) {
    for (int t = 0; t < pool_n_teams(opt->pool); t++) {
        size_t total = 0;
        for (int g = 0; g < kv->n_groups; g++) {
            size_t part;
            if (!mem_mul_ok((size_t)kv->groups[g].n_pages, kv->page_bytes[g][t], &part) ||
                !mem_add_ok(total, part, &total))
                return err_set(msg, ERR_LIMIT, "KV cache: %d pages are too many", kv->groups[g].n_pages);
        }
        const int node = pool_team_node(opt->pool, t);
        TRY(region_create(&kv->regions[t], "KV cache", opt->topology->nodes[node].os_index, total ? total : 64, msg));
        kv->n_regions = t + 1;
        kv->bytes += (int64_t)total;
        for (int g = 0; g < kv->n_groups; g++) {
            kv->base[g][t] = region_alloc(&kv->regions[t], (size_t)kv->groups[g].n_pages * kv->page_bytes[g][t], 64);
            CHECK(kv->base[g][t]);
        }
    }
    return ERR_OK;
}

enum err kv_cache_create(struct kv_cache *kv, struct model *m, const struct kv_cache_options *opt,
                         struct err_msg *msg) {
    *kv = (struct kv_cache){.n_groups = m->n_caches};
    if (opt->block_size < ATTN_GROUP || opt->block_size % ATTN_GROUP)
        return err_set(msg, ERR_ARG, "--block-size %d: must be a multiple of %d", opt->block_size, ATTN_GROUP);
    for (int g = 0; g < m->n_caches; g++) {
        const int64_t window = m->caches[g].window;
        kv->groups[g] = (struct cache_group_spec){.kind = window ? CACHE_WINDOW : CACHE_PAGED, .window = window};
    }
    for (int l = 0; l < m->h.n_layers; l++) describe_layer(&m->layers[l], opt);
    page_sizes(kv, m);
    enum err e = choose_pages(kv, opt, msg);
    if (!e) e = reserve(kv, opt, msg);
    if (e) {
        kv_cache_destroy(kv);
        return e;
    }
    for (int l = 0; l < m->h.n_layers; l++) {
        struct paged_layer *const p = &m->layers[l];
        for (int t = 0; t < p->n_teams; t++) {
            p->base[t] = kv->base[p->group][t];
            p->page_stride[t] = kv->page_bytes[p->group][t];
        }
    }
    return ERR_OK;
}

void kv_cache_destroy(struct kv_cache *kv) {
    for (int i = 0; i < kv->n_regions; i++) region_destroy(&kv->regions[i]);
    *kv = (struct kv_cache){0};
}

struct apply_job {
    const struct kv_cache *kv;
    const struct block_op *ops;
    int64_t n_ops;
};

/* A team's lanes each take a stretch of every page, so that order between operations needs no barrier. */
static void apply_lane(const struct lane *l, void *arg) {
    const struct apply_job *const job = arg;
    for (int64_t i = 0; i < job->n_ops; i++) {
        const struct block_op *const op = &job->ops[i];
        const size_t bytes = job->kv->page_bytes[op->group][l->team];
        char *const base = job->kv->base[op->group][l->team];
        const size_t from = bytes / 64 * (size_t)l->team_lane / (size_t)l->team_size * 64;
        const size_t to = bytes / 64 * (size_t)(l->team_lane + 1) / (size_t)l->team_size * 64;
        char *const at = base + (size_t)op->page * bytes + from;
        if (op->kind == BLOCK_OP_ZERO) memset(at, 0, to - from);
        else memcpy(at, base + (size_t)op->from * bytes + from, to - from);
    }
}

void kv_cache_apply(struct kv_cache *kv, struct pool *pool, const struct block_op *ops, int64_t n_ops) {
    struct apply_job job = {.kv = kv, .ops = ops, .n_ops = n_ops};
    if (n_ops > 0) pool_run(pool, apply_lane, &job);
}
