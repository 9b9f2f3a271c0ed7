#include "model/bind.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "quant/quant.h"

enum {
    JOB_BYTES = 2 << 20,   /* source bytes of one packing job */
    JOBS_AHEAD = 4,        /* per lane: jobs whose source the kernel is asked to read early */
    POOL_ELEMS = 1 << 17,  /* of a pool of random weights; a whole number of every block */
    POOL_RUN = 256,        /* consecutive elements of it that a row takes at a time */
    POOL_GRAIN = 32,       /* a run starts at a multiple of it: the largest block that can be encoded */
    POOLS_MAX = 32
};

/* Random weights, ready to be packed: drawing and encoding every element would take minutes for a large model. */
struct dummy_pool {
    enum dtype type;
    int64_t k; /* gives the spread */
    char *bytes;
};

/* A matrix to pack. */
struct mat_source {
    struct weight *w;
    const struct ckpt_tensor *t; /* NULL: random, from the pool */
    const struct dummy_pool *pool;
    enum dtype from, to;
    size_t from_row, to_row; /* bytes of a row */
    _Atomic int64_t panels_left;
};

/* Panels [first, end) of one matrix. */
struct pack_job {
    int mat;
    int64_t first, end;
};

struct binder {
    struct model *m;
    const struct ckpt *c;
    const struct bind_options *opt;
    struct bound *out;
    struct mat_source *mats;
    int n_mats;
    struct pack_job *jobs; /* by team */
    size_t n_jobs, cap_jobs;
    size_t job0[PAGED_TEAMS_MAX + 1];
    struct op_counter next[PAGED_TEAMS_MAX];
    _Atomic int64_t bytes_done;
    struct dummy_pool pools[POOLS_MAX];
    int n_pools;
    bool keep_cached; /* there is room for the files beside the weights: the next start need not read the disk */
    char *scratch;    /* one share per lane */
    size_t lane_scratch;
};

/* "%d" in a name becomes the layer. NULL: no memory. */
static const char *layer_name(struct model *m, const char *fmt, int layer) {
    struct strbuf b = {0};
    const char *const at = strstr(fmt, "%d");
    strbuf_append(&b, fmt, at ? (size_t)(at - fmt) : strlen(fmt));
    if (at) strbuf_printf(&b, "%d%s", layer, at + 2);
    char *const name = b.failed ? NULL : arena_alloc(&m->arena, b.len + 1);
    if (name) memcpy(name, strbuf_cstr(&b), b.len + 1);
    strbuf_deinit(&b);
    return name;
}

static enum err check_tensor(const struct ckpt_tensor *t, const struct model_weight *r, struct err_msg *msg) {
    const bool ok = r->k ? t->n_dims == 2 && t->shape[0] == r->n && t->shape[1] == r->k
                         : t->n_dims >= 1 && t->shape[t->n_dims - 1] == r->n &&
                               (t->n_dims == 1 || t->shape[0] == 1 || t->shape[0] == r->n);
    if (!ok) {
        struct strbuf have = {0};
        for (int i = 0; i < t->n_dims; i++) strbuf_printf(&have, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
        err_set(msg, ERR_FORMAT, "tensor %s: shape [%s], the configuration wants [%lld%s%.0lld]", t->name,
                strbuf_cstr(&have), (long long)r->n, r->k ? ", " : "", (long long)r->k);
        strbuf_deinit(&have);
        return ERR_FORMAT;
    }
    if (!quant_supported(t->dtype))
        return err_set(msg, ERR_UNSUPPORTED, "tensor %s: weights of type %s are not supported", t->name,
                       dtype_info(t->dtype)->name);
    return ERR_OK;
}

/* The stored type of random weights: what the configuration says, bf16 otherwise. */
static enum dtype dummy_type(const struct ckpt *c) {
    const char *s = "";
    conf_str(ckpt_conf(c), "torch_dtype", &s, NULL);
    conf_str(ckpt_conf(c), "dtype", &s, NULL);
    return strcmp(s, "float32") == 0 ? DTYPE_F32 : strcmp(s, "float16") == 0 ? DTYPE_F16 : DTYPE_BF16;
}

/* The type that a matrix is packed in. */
static enum dtype packed_type(const struct bind_options *opt, enum dtype from, int64_t k) {
    if (opt->float32) return DTYPE_F32;
    if (opt->convert && k % dtype_info(opt->quantize)->block_elems == 0) return opt->quantize;
    return from;
}

/* The pool of weights for rows of k elements, with the spread of a trained layer. NULL: no memory. */
static const struct dummy_pool *pool_of(struct binder *b, enum dtype type, int64_t k) {
    const struct dummy_pool *like = NULL;
    size_t bytes;
    for (int i = 0; i < b->n_pools; i++) {
        if (b->pools[i].type != type) continue;
        like = &b->pools[i];
        if (like->k == k) return like;
    }
    if (b->n_pools == POOLS_MAX) return like; /* so many shapes: some have the spread of another */
    CHECK(dtype_row_bytes(type, POOL_ELEMS, &bytes));
    struct dummy_pool *const p = &b->pools[b->n_pools];
    float *const x = mem_alloc(POOL_ELEMS * sizeof *x);
    p->bytes = x ? mem_alloc(bytes) : NULL;
    if (p->bytes) {
        struct rng rng = rng_seeded((uint64_t)k);
        const float scale = 1.7f / __builtin_sqrtf((float)k);
        for (int64_t i = 0; i < POOL_ELEMS; i++) x[i] = rng_f32(&rng) * scale;
        quant_encode_row(type, p->bytes, x, POOL_ELEMS);
        p->type = type;
        p->k = k;
        b->n_pools++;
    }
    mem_free(x);
    return p->bytes ? p : NULL;
}

static enum err add_mat(struct binder *b, const struct model_weight *r, const struct ckpt_tensor *t, const char *name,
                        struct err_msg *msg) {
    struct mat_source *const s = &b->mats[b->n_mats++];
    int sizes[PAGED_TEAMS_MAX];
    const int n_teams = pool_n_teams(b->opt->pool);
    for (int i = 0; i < n_teams; i++) sizes[i] = pool_team_size(b->opt->pool, i);
    s->w = &b->m->mats[r->slot][r->layer];
    s->t = t;
    s->from = t ? t->dtype : dummy_type(b->c);
    s->to = packed_type(b->opt, s->from, r->k);
    if (!dtype_row_bytes(s->from, r->k, &s->from_row) || !dtype_row_bytes(s->to, r->k, &s->to_row))
        return err_set(msg, ERR_FORMAT, "tensor %s: rows of %lld do not fit type %s", name, (long long)r->k,
                       dtype_info(s->from)->name);
    TRY(weight_init(s->w, name, r->n, r->k, s->to, b->opt->kern, sizes, n_teams, msg));
    atomic_init(&s->panels_left, s->w->n_panels);
    b->out->source_bytes += (int64_t)(t ? s->from_row : s->to_row) * r->n;
    if (t || b->opt->dry) return ERR_OK;
    s->pool = pool_of(b, s->to, r->k);
    return s->pool ? ERR_OK : err_set(msg, ERR_NOMEM, "weights: memory ran out");
}

/* Vectors are few and small: copied here, in f32. Random norms are one, random biases zero. */
static enum err add_vec(struct binder *b, const struct model_weight *r, const struct ckpt_tensor *t, const char *name,
                        struct err_msg *msg) {
    float *const v = arena_alloc(&b->m->arena, (size_t)r->n * sizeof *v);
    if (!v) return err_set(msg, ERR_NOMEM, "tensor %s: memory ran out", name);
    if (t) quant_decode_row(t->dtype, v, t->data, r->n);
    else
        for (int64_t i = 0; i < r->n; i++) v[i] = strstr(name, "norm") ? 1.0f : 0.0f;
    b->m->vecs[r->slot][r->layer] = v;
    return ERR_OK;
}

static enum err add_row(struct binder *b, const struct model_weight *r, struct err_msg *msg) {
    const char *const fmt = b->m->gguf ? r->gguf : r->hf;
    const char *const name = fmt ? layer_name(b->m, fmt, r->layer) : NULL;
    if (!name) return err_set(msg, ERR_NOMEM, "weights: memory ran out");
    const struct ckpt_tensor *const t = b->opt->dummy ? NULL : ckpt_find(b->c, name);
    if (!t && (r->optional || b->opt->dummy)) {
        if (r->optional) return ERR_OK;
    } else if (!t) {
        return err_set(msg, ERR_FORMAT, "%s: tensor %s is missing", ckpt_path(b->c), name);
    } else {
        TRY(check_tensor(t, r, msg));
    }
    b->m->n_parameters += r->n * (r->k ? r->k : 1);
    return r->k ? add_mat(b, r, t, name, msg) : add_vec(b, r, t, name, msg);
}

/* One region per team, and every matrix its place in it. */
static enum err make_regions(struct binder *b, struct err_msg *msg) {
    const int n_teams = pool_n_teams(b->opt->pool);
    int64_t room = 0;
    for (int t = 0; t < n_teams; t++) {
        size_t total = 0;
        for (int i = 0; i < b->n_mats; i++)
            if (!mem_add_ok(total, weight_team_bytes(b->mats[i].w, t), &total))
                return err_set(msg, ERR_FORMAT, "weights: sizes overflow");
        const int node = pool_team_node(b->opt->pool, t);
        const int64_t available = topology_available(b->opt->topology, node);
        room += available - (int64_t)total;
        if (total > (size_t)available)
            return err_set(msg, ERR_NOMEM,
                           "weights: %.1f GiB are needed on node %d, %.1f GiB are free; use a smaller model, a smaller "
                           "format (--quantize q4_0), or free memory",
                           (double)total / (1 << 30), node, (double)available / (1 << 30));
        struct region *const r = &b->out->regions[t];
        TRY(region_create(r, "weights", b->opt->topology->nodes[node].os_index, total, msg));
        b->out->n_regions = t + 1;
        b->out->packed_bytes += (int64_t)total;
        for (int i = 0; i < b->n_mats; i++) {
            const size_t bytes = weight_team_bytes(b->mats[i].w, t);
            b->mats[i].w->base[t] = region_alloc(r, bytes, 64);
            CHECK(b->mats[i].w->base[t] || bytes == 0);
        }
    }
    b->keep_cached = b->out->source_bytes < room / 2;
    return ERR_OK;
}

static enum err make_jobs(struct binder *b, struct err_msg *msg) {
    const int n_teams = pool_n_teams(b->opt->pool);
    for (int t = 0; t < n_teams; t++) {
        b->job0[t] = b->n_jobs;
        for (int i = 0; i < b->n_mats; i++) {
            const struct weight *const w = b->mats[i].w;
            const int64_t per = 1 + (int64_t)(JOB_BYTES / (b->mats[i].from_row * (size_t)w->kern->panel));
            for (int64_t p = w->panel0[t]; p < w->panel0[t + 1]; p += per) {
                if (!mem_grow(&b->jobs, &b->cap_jobs, b->n_jobs + 1, sizeof *b->jobs))
                    return err_set(msg, ERR_NOMEM, "weights: memory ran out");
                const int64_t end = p + per < w->panel0[t + 1] ? p + per : w->panel0[t + 1];
                b->jobs[b->n_jobs++] = (struct pack_job){i, p, end};
            }
        }
    }
    b->job0[n_teams] = b->n_jobs;
    return ERR_OK;
}

/* Row `row` of a random matrix: runs of the pool that depend on the matrix and the row alone. */
static void dummy_row(const struct mat_source *s, uint64_t seed, char *out) {
    const int64_t elems = dtype_info(s->to)->block_elems;
    const size_t block = s->to_row / (size_t)(s->w->k / elems);
    for (int64_t i = 0; i < s->w->k; i += POOL_RUN) {
        const int64_t left = s->w->k - i, n = left < POOL_RUN ? left : POOL_RUN;
        const uint64_t starts = (POOL_ELEMS - POOL_RUN) / POOL_GRAIN;
        const size_t at = (size_t)(hash_mix(seed + (uint64_t)i) % starts) * (POOL_GRAIN / (size_t)elems);
        memcpy(out + (size_t)(i / elems) * block, s->pool->bytes + at * block, (size_t)(n / elems) * block);
    }
}

static void pack_panel(const struct binder *b, const struct mat_source *s, int64_t p, char *scratch) {
    const struct weight *const w = s->w;
    const int64_t row0 = p * w->kern->panel, left = w->n - row0;
    const int n_rows = (int)(left < w->kern->panel ? left : w->kern->panel);
    const char *const source = s->t ? (const char *)s->t->data + (size_t)row0 * s->from_row : NULL;
    if (s->t && s->from == s->to) {
        weight_pack_panel(w, p, source, s->from_row);
        return;
    }
    float *const floats = (float *)(void *)scratch; /* one row */
    char *const coded = scratch + (size_t)w->k * sizeof(float);
    for (int r = 0; r < n_rows; r++) {
        char *const row = coded + (size_t)r * s->to_row;
        if (!s->t) {
            dummy_row(s, hash_mix((uint64_t)(s - b->mats)) + hash_mix((uint64_t)(row0 + r)), row);
            continue;
        }
        quant_decode_row(s->from, floats, source + (size_t)r * s->from_row, w->k);
        quant_encode_row(s->to, row, floats, w->k);
    }
    weight_pack_panel(w, p, coded, s->to_row);
}

/* The bytes of a job in its tensor's file. */
static void job_range(const struct mat_source *s, const struct pack_job *j, size_t *offset, size_t *len) {
    const size_t panel = (size_t)s->w->kern->panel * s->from_row, end = (size_t)j->end * panel;
    *offset = (size_t)j->first * panel;
    *len = (end < s->t->bytes ? end : s->t->bytes) - *offset;
}

/* Asks for the source of a job some way ahead, so that a disk has a queue and not one reader at a time. */
static void prefetch_ahead(const struct binder *b, const struct lane *l, size_t i) {
    const size_t ahead = i + (size_t)(JOBS_AHEAD * l->team_size);
    if (ahead >= b->job0[l->team + 1]) return;
    const struct pack_job *const j = &b->jobs[ahead];
    const struct mat_source *const s = &b->mats[j->mat];
    size_t offset, len;
    if (!s->t) return;
    job_range(s, j, &offset, &len);
    ckpt_prefetch(b->c, s->t, offset, len);
}

/* What has been packed leaves this process at once, and the page cache where memory is short. */
static void release_source(const struct binder *b, struct mat_source *s, const struct pack_job *j) {
    const int64_t n = j->end - j->first;
    const bool last = atomic_fetch_sub_explicit(&s->panels_left, n, memory_order_relaxed) == n;
    size_t offset, len;
    if (!s->t) return;
    job_range(s, j, &offset, &len);
    ckpt_release(b->c, s->t, offset, len);
    if (last && !b->keep_cached) ckpt_drop(b->c, s->t, 0, s->t->bytes);
}

static void pack_lane(const struct lane *l, void *arg) {
    struct binder *const b = arg;
    struct op_counter *const next = &b->next[l->team];
    char *const scratch = b->scratch + (size_t)l->id * b->lane_scratch;
    for (;;) {
        const size_t i = b->job0[l->team] + (size_t)atomic_fetch_add_explicit(&next->next, 1, memory_order_relaxed);
        if (i >= b->job0[l->team + 1]) return;
        const struct pack_job *const j = &b->jobs[i];
        struct mat_source *const s = &b->mats[j->mat];
        prefetch_ahead(b, l, i);
        for (int64_t p = j->first; p < j->end; p++) pack_panel(b, s, p, scratch);
        release_source(b, s, j);
        const int64_t bytes = (j->end - j->first) * s->w->kern->panel * (int64_t)(s->t ? s->from_row : s->to_row);
        const int64_t done = atomic_fetch_add_explicit(&b->bytes_done, bytes, memory_order_relaxed) + bytes;
        if (l->id == 0 && b->opt->progress)
            b->opt->progress(b->opt->user, "loading weights",
                             done < b->out->source_bytes ? done : b->out->source_bytes, b->out->source_bytes);
    }
}

static enum err pack_all(struct binder *b, struct err_msg *msg) {
    for (int i = 0; i < b->n_mats; i++) {
        const struct mat_source *const s = &b->mats[i];
        const size_t need = (size_t)s->w->k * sizeof(float) + (size_t)s->w->kern->panel * s->to_row;
        if (need > b->lane_scratch) b->lane_scratch = need;
    }
    b->lane_scratch = (b->lane_scratch + 4095) / 4096 * 4096;
    b->scratch = mem_alloc_aligned(64, b->lane_scratch * (size_t)pool_n_lanes(b->opt->pool));
    if (!b->scratch) return err_set(msg, ERR_NOMEM, "weights: memory ran out");
    const int64_t start = clock_ns();
    pool_run(b->opt->pool, pack_lane, b);
    b->out->seconds = (double)(clock_ns() - start) * 1e-9;
    if (b->opt->progress)
        b->opt->progress(b->opt->user, "loading weights", b->out->source_bytes, b->out->source_bytes);
    return ERR_OK;
}

static enum err bind_all(struct binder *b, struct err_msg *msg) {
    for (size_t i = 0; i < b->m->n_rows; i++) TRY(add_row(b, &b->m->rows[i], msg));
    if (b->opt->dry) {
        for (int i = 0; i < b->n_mats; i++)
            for (int t = 0; t < b->mats[i].w->n_teams; t++)
                b->out->packed_bytes += (int64_t)weight_team_bytes(b->mats[i].w, t);
        return ERR_OK;
    }
    TRY(make_regions(b, msg));
    TRY(make_jobs(b, msg));
    return pack_all(b, msg);
}

enum err model_bind(struct model *m, const struct ckpt *c, const struct bind_options *opt, struct bound *out,
                    struct err_msg *msg) {
    *out = (struct bound){0};
    struct binder *const b = mem_calloc(1, sizeof *b);
    enum err e = ERR_NOMEM;
    if (!b) return err_set(msg, e, "weights: memory ran out");
    b->m = m;
    b->c = c;
    b->opt = opt;
    b->out = out;
    b->mats = mem_calloc(m->n_rows, sizeof *b->mats);
    if (b->mats) e = bind_all(b, msg);
    else err_set(msg, e, "weights: memory ran out");
    for (int i = 0; i < b->n_pools; i++) mem_free(b->pools[i].bytes);
    mem_free(b->mats);
    mem_free(b->jobs);
    mem_free(b->scratch);
    mem_free(b);
    if (e) bound_deinit(out);
    return e;
}

void bound_deinit(struct bound *b) {
    for (int i = 0; i < b->n_regions; i++) region_destroy(&b->regions[i]);
    *b = (struct bound){0};
}
