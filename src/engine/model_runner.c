#include "engine/model_runner.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "graph/lower.h"
#include "quant/quant.h"

enum { DEFAULT_MAX_SEQS = 256, DEFAULT_MAX_TOKENS = 2048, DEFAULT_BLOCK = 16, MEASURE_TOKENS = 64 };

static enum err open_machine(struct model_runner *r, const struct xenon_options *opt, struct err_msg *msg) {
    const struct topology_options topo = {.fake_nodes = opt->fake_nodes};
    enum cpu_level level;
    TRY(cpu_level_wanted(&level, msg));
    kern_init(&r->kern, level);
    TRY(topology_read(&r->topology, &topo, msg));
    r->has_topology = true;
    const struct pool_options pool = {.n_lanes = opt->threads > 0 ? opt->threads : topology_default_lanes(&r->topology),
                                      .pin = !opt->no_pin};
    return pool_create(&r->pool, &r->topology, &pool, msg);
}

static enum err set_limits(struct model_runner *r, const struct xenon_options *opt, struct err_msg *msg) {
    r->block_size = opt->block_size > 0 ? opt->block_size : DEFAULT_BLOCK;
    r->max_num_seqs = opt->max_num_seqs > 0 ? opt->max_num_seqs : DEFAULT_MAX_SEQS;
    r->max_num_batched_tokens = opt->max_num_batched_tokens > 0 ? opt->max_num_batched_tokens : DEFAULT_MAX_TOKENS;
    if (r->max_num_batched_tokens < r->max_num_seqs && opt->max_num_batched_tokens > 0)
        r->max_num_seqs = r->max_num_batched_tokens;
    r->max_model_len = opt->max_model_len > 0 ? opt->max_model_len : r->model.h.max_position;
    if (r->max_model_len > r->model.h.max_position)
        return err_set(msg, ERR_ARG, "--max-model-len %lld: the model was made for %lld positions",
                       (long long)r->max_model_len, (long long)r->model.h.max_position);
    r->level = opt->level > 0 ? opt->level - 1 : PLAN_LEVEL_MAX;
    if (r->level > PLAN_LEVEL_MAX)
        return err_set(msg, ERR_ARG, "--level %d: levels 0 to %d are built", r->level, PLAN_LEVEL_MAX);
    return ERR_OK;
}

static enum err bind_weights(struct model_runner *r, const struct ckpt *c, const struct xenon_options *opt, bool dry,
                             struct err_msg *msg) {
    const char *const dtype = opt->dtype ? opt->dtype : "auto";
    const char *const format = opt->load_format ? opt->load_format : "auto";
    struct bind_options bind = {.kern = &r->kern,
                                .pool = r->pool,
                                .topology = &r->topology,
                                .float32 = strcmp(dtype, "float32") == 0 || strcmp(dtype, "f32") == 0,
                                .dry = dry,
                                .dummy = strcmp(format, "dummy") == 0,
                                .progress = opt->progress,
                                .user = opt->user};
    if (!bind.float32 && strcmp(dtype, "auto") != 0)
        return err_set(msg, ERR_ARG, "--dtype %s: unknown; use auto or float32", dtype);
    if (!bind.dummy && strcmp(format, "auto") != 0)
        return err_set(msg, ERR_ARG, "--load-format %s: unknown; use auto or dummy", format);
    if (opt->quantize) {
        bind.convert = true;
        if (!dtype_by_name(opt->quantize, &bind.quantize) || !quant_encodable(bind.quantize))
            return err_set(msg, ERR_ARG, "--quantize %s: unknown; use q8_0, q5_1, q5_0, q4_1, q4_0, bf16 or f16", opt->quantize);
    }
    return model_bind(&r->model, c, &bind, &r->weights, msg);
}

static enum err make_cache(struct model_runner *r, const struct xenon_options *opt, struct err_msg *msg) {
    struct kv_cache_options kv = {.kern = &r->kern,
                                  .pool = r->pool,
                                  .topology = &r->topology,
                                  .block_size = r->block_size,
                                  .num_blocks = opt->num_kv_blocks,
                                  .memory = opt->kv_cache_memory,
                                  .max_num_seqs = r->max_num_seqs,
                                  .max_num_batched_tokens = r->max_num_batched_tokens,
                                  .max_model_len = r->max_model_len};
    TRY(kv_cache_type(opt->kv_cache_dtype ? opt->kv_cache_dtype : "auto", &kv.type, msg));
    return kv_cache_create(&r->kv, &r->model, &kv, msg);
}

static enum err make_plan(struct model_runner *r, struct err_msg *msg) {
    const struct op_limits lim = {.max_tokens = r->max_num_batched_tokens,
                                  .max_logits = r->max_num_batched_tokens,
                                  .max_len = r->max_model_len,
                                  .n_lanes = pool_n_lanes(r->pool),
                                  .n_teams = pool_n_teams(r->pool),
                                  .kern = &r->kern};
    const int node = pool_n_teams(r->pool) == 1 ? r->topology.nodes[0].os_index : -1;
    graph_init(&r->graph, r->max_num_batched_tokens);
    r->model.def->build(&r->graph, &r->model);
    TRY(lower_graph(&r->graph, r->level, msg));
    return plan_make(&r->plan, &r->graph, &lim, r->level, node, msg);
}

static enum err make_step(struct model_runner *r, struct err_msg *msg) {
    const size_t n = (size_t)r->max_num_batched_tokens;
    r->token_ids = mem_calloc(n, sizeof *r->token_ids);
    r->positions = mem_calloc(n, sizeof *r->positions);
    r->row_seq = mem_calloc(n, sizeof *r->row_seq);
    r->logit_rows = mem_calloc(n, sizeof *r->logit_rows);
    r->seqs = mem_calloc((size_t)r->max_num_seqs, sizeof *r->seqs);
    if (!r->token_ids || !r->positions || !r->row_seq || !r->logit_rows || !r->seqs)
        return err_set(msg, ERR_NOMEM, "model runner: memory ran out");
    r->step.token_ids = r->token_ids;
    r->step.positions = r->positions;
    r->step.row_seq = r->row_seq;
    r->step.logit_rows = r->logit_rows;
    r->step.seqs = r->seqs;
    return ERR_OK;
}

static enum err open_all(struct model_runner *r, const struct ckpt *c, const struct xenon_options *opt, bool dry,
                         struct err_msg *msg) {
    TRY(open_machine(r, opt, msg));
    TRY(model_open(&r->model, c, msg));
    r->has_model = true;
    TRY(set_limits(r, opt, msg));
    TRY(bind_weights(r, c, opt, dry, msg));
    TRY(make_cache(r, opt, msg));
    TRY(make_plan(r, msg));
    return make_step(r, msg);
}

static enum err open_or_close(struct model_runner *r, const struct ckpt *c, const struct xenon_options *opt, bool dry,
                              struct err_msg *msg) {
    memset(r, 0, sizeof *r);
    const enum err e = open_all(r, c, opt, dry, msg);
    if (e) model_runner_close(r);
    return e;
}

enum err model_runner_open(struct model_runner *r, const struct ckpt *c, const struct xenon_options *opt,
                           struct err_msg *msg) {
    return open_or_close(r, c, opt, false, msg);
}

enum err model_runner_describe(struct model_runner *r, const struct ckpt *c, const struct xenon_options *opt,
                               struct err_msg *msg) {
    return open_or_close(r, c, opt, true, msg);
}

void model_runner_close(struct model_runner *r) {
    mem_free(r->token_ids);
    mem_free(r->positions);
    mem_free(r->row_seq);
    mem_free(r->logit_rows);
    mem_free(r->seqs);
    plan_deinit(&r->plan);
    graph_deinit(&r->graph);
    kv_cache_destroy(&r->kv);
    bound_deinit(&r->weights);
    if (r->has_model) model_deinit(&r->model);
    if (r->pool) pool_destroy(r->pool);
    if (r->has_topology) topology_deinit(&r->topology);
    memset(r, 0, sizeof *r);
}

/* Adds one item's rows to the step. */
static void add_item(struct model_runner *r, const struct sched_item *it) {
    struct step *const s = &r->step;
    const struct sequence *const seq = it->seq;
    struct step_seq *const q = &r->seqs[s->n_seqs];
    *q = (struct step_seq){.row0 = s->n_tokens, .n_rows = it->n_tokens, .pos0 = it->first};
    for (int g = 0; g < r->kv.n_groups; g++) q->pages[g] = seq->pages[g];
    const int n_known = it->n_tokens - it->n_draft;
    for (int j = 0; j < it->n_tokens; j++) {
        const int row = s->n_tokens++;
        r->token_ids[row] = j < n_known ? seq->tokens[it->first + j] : seq->drafts[j - n_known];
        r->positions[row] = (int32_t)(it->first + j);
        r->row_seq[row] = s->n_seqs;
        if (j >= it->first_logits) r->logit_rows[s->n_logits++] = row;
    }
    s->n_seqs++;
}

float *model_runner_step(struct model_runner *r, const struct sched_batch *batch, const struct exec_watch *watch) {
    struct step *const s = &r->step;
    kv_cache_apply(&r->kv, r->pool, batch->ops, batch->n_ops);
    s->serial++;
    s->n_tokens = s->n_seqs = s->n_logits = 0;
    CHECK(batch->n_tokens <= r->max_num_batched_tokens && batch->n_items <= r->max_num_seqs);
    for (int i = 0; i < batch->n_items; i++) add_item(r, &batch->items[i]);
    return exec_run(&r->plan, s, r->pool, watch) ? r->plan.output_data : NULL;
}

/* One prompt of MEASURE_TOKENS tokens in the first pages; the pages are zeroed again when they are handed out. */
static double timed_step(struct model_runner *r, int n) {
    struct step *const s = &r->step;
    int32_t pages[MEASURE_TOKENS / ATTN_GROUP];
    for (int i = 0; i < MEASURE_TOKENS / ATTN_GROUP; i++) pages[i] = i;
    s->serial++;
    s->n_tokens = n;
    s->n_seqs = 1;
    s->n_logits = 0;
    r->seqs[0] = (struct step_seq){.n_rows = n};
    for (int g = 0; g < r->kv.n_groups; g++) r->seqs[0].pages[g] = pages;
    for (int i = 0; i < n; i++) {
        r->token_ids[i] = (int32_t)(i % r->model.h.vocab);
        r->positions[i] = i;
        r->row_seq[i] = 0;
    }
    const int64_t start = clock_ns();
    (void)exec_run(&r->plan, s, r->pool, NULL);
    return (double)(clock_ns() - start) * 1e-9;
}

double model_runner_measure_prefill(struct model_runner *r) {
    int64_t n = MEASURE_TOKENS;
    if (n > r->max_num_batched_tokens) n = r->max_num_batched_tokens;
    if (n > r->max_model_len) n = r->max_model_len;
    for (int g = 0; g < r->kv.n_groups; g++)
        if (n > (int64_t)r->kv.groups[g].n_pages * r->block_size) n = (int64_t)r->kv.groups[g].n_pages * r->block_size;
    (void)timed_step(r, (int)n); /* touches memory */
    return (double)n / timed_step(r, (int)n);
}
