#include "engine/batch_sampler.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/request.h"

_Static_assert((int)SAMPLE_BEST_MAX == (int)SAMPLER_BEST_MAX, "the reduction gives what the sampler takes");

enum err batch_sampler_create(struct batch_sampler *s, const struct kern *kern, struct pool *pool, int64_t n_vocab,
                              int max_rows, int max_seqs, struct err_msg *msg) {
    *s = (struct batch_sampler){.pool = pool, .n_vocab = n_vocab, .max_rows = max_rows, .max_seqs = max_seqs};
    s->rows = mem_calloc((size_t)max_rows, sizeof *s->rows);
    s->edited = mem_calloc((size_t)max_seqs, sizeof *s->edited);
    s->edited_item = mem_calloc((size_t)max_seqs, sizeof *s->edited_item);
    s->counts = mem_calloc((size_t)n_vocab, sizeof *s->counts);
    s->ids = mem_calloc((size_t)n_vocab * (size_t)pool_n_lanes(pool), sizeof *s->ids);
    s->draws = mem_calloc((size_t)max_seqs, sizeof *s->draws);
    s->tokens = mem_calloc((size_t)max_seqs, sizeof *s->tokens);
    s->results = mem_calloc((size_t)max_seqs, sizeof *s->results);
    enum err e = ERR_NOMEM;
    if (!s->rows || !s->edited || !s->edited_item || !s->counts || !s->ids || !s->draws || !s->tokens || !s->results)
        err_set(msg, e, "sampler: memory ran out");
    else e = sample_reduce_create(&s->reduce, kern, n_vocab, max_rows, msg);
    const size_t copies = (size_t)max_seqs * (size_t)n_vocab * sizeof(float);
    if (!e) e = region_create(&s->copies, "logits copies", -1, copies, msg);
    if (e) batch_sampler_destroy(s);
    return e;
}

void batch_sampler_destroy(struct batch_sampler *s) {
    sample_reduce_destroy(s->reduce);
    region_destroy(&s->copies);
    mem_free(s->rows);
    mem_free(s->edited);
    mem_free(s->edited_item);
    mem_free(s->counts);
    mem_free(s->ids);
    mem_free(s->draws);
    mem_free(s->tokens);
    mem_free(s->results);
    *s = (struct batch_sampler){0};
}

/* A sum that nobody asked for is finite when the row is: the maximum alone gives 1. */
static struct sampler_input input_of(const struct batch_sampler *s, const struct sample_row *r, bool finite) {
    return (struct sampler_input){.logits = r->logits,
                                  .n_vocab = s->n_vocab,
                                  .argmax = r->argmax,
                                  .max = finite ? r->max : __builtin_nanf(""),
                                  .sum_exp = r->want_sum ? r->sum_exp : 1.0,
                                  .n_best = r->n_best,
                                  .best_ids = r->best_ids,
                                  .best_logits = r->best_logits};
}

/* What has to be known of a row to draw from it and to report logprobs. */
static void want(struct sample_row *r, const float *logits, bool draws, int n_logprobs) {
    r->logits = logits;
    r->want_sum = draws || n_logprobs >= 0;
    r->want_best = draws || n_logprobs >= 0;
}

/* Sets up the reduction of every row; returns their number. Rows that will be edited are copied where their raw
 * logprobs are wanted. */
static int plan_rows(struct batch_sampler *s, const struct sched_batch *batch, float *logits, int *n_edited) {
    int n = 0;
    *n_edited = 0;
    for (int i = 0; i < batch->n_items; i++) {
        const struct sched_item *const it = &batch->items[i];
        const struct sampling_params *const p = &it->seq->sampling;
        for (int j = it->first_logits; j < it->n_tokens; j++, n++) {
            const bool last = it->samples && j == it->n_tokens - 1;
            const bool edits = last && sequence_has_edits(it->seq);
            float *row = logits + (int64_t)n * s->n_vocab;
            if (edits && p->logprobs >= 0) {
                float *const copy = (float *)(void *)s->copies.base + (int64_t)*n_edited * s->n_vocab;
                row = memcpy(copy, row, (size_t)s->n_vocab * sizeof *row);
            }
            want(&s->rows[n], row, last && !edits && p->temperature > 0, last ? p->logprobs : p->prompt_logprobs);
            if (edits) {
                want(&s->edited[*n_edited], logits + (int64_t)n * s->n_vocab, p->temperature > 0, -1);
                s->edited[*n_edited].masked = true;
                s->edited_item[(*n_edited)++] = i;
            }
        }
    }
    return n;
}

static void put_logprob(const struct batch_sampler *s, const struct sample_row *r, struct logprob_store *store,
                        int64_t at, int32_t id) {
    struct xenon_logprob top[XENON_TOP_LOGPROBS_MAX];
    const struct sampler_input in = input_of(s, r, r->finite);
    int n_top = 0;
    int32_t rank = 0;
    const float lp = sampler_logprobs(&in, id, store->n_top, top, &n_top, &rank);
    request_put_logprob(store, at, lp, rank, top, n_top);
}

static void draw_item(const struct batch_sampler *s, int i, int32_t *ids) {
    const struct draw_row *const r = &s->draws[i];
    const struct sequence *const seq = s->batch->items[i].seq;
    if (!r->raw) return;
    const struct sampler_input in = input_of(s, r->from, r->raw->finite && r->from->finite);
    s->tokens[i] = sampler_draw(&in, &seq->sampling, (uint64_t)seq->n_tokens, ids);
}

static void draw_lane(const struct lane *l, void *arg) {
    struct batch_sampler *const s = arg;
    int32_t *const ids = s->ids + (int64_t)l->id * s->n_vocab;
    for (;;) {
        const int64_t i = atomic_fetch_add_explicit(&s->next.next, 1, memory_order_relaxed);
        if (i >= s->batch->n_items) return;
        draw_item(s, (int)i, ids);
    }
}

/* Draws every item that samples. A draw may have to read its whole row, so lanes share them; a step of greedy ones is
 * not worth waking anybody. */
static void draw_all(struct batch_sampler *s, const struct sched_batch *batch) {
    bool greedy = true;
    s->batch = batch;
    for (int i = 0; i < batch->n_items; i++)
        if (s->draws[i].raw && batch->items[i].seq->sampling.temperature > 0) greedy = false;
    atomic_store_explicit(&s->next.next, 0, memory_order_relaxed);
    if (!greedy) pool_run(s->pool, draw_lane, s);
    for (int i = 0; greedy && i < batch->n_items; i++) draw_item(s, i, s->ids);
}

/* Finds the row of every item that samples, and gives out the prompt's logprobs on the way. */
static void sort_rows(struct batch_sampler *s, const struct sched_batch *batch, int n_edited) {
    int row = 0, edited = 0;
    for (int i = 0; i < batch->n_items; i++) {
        const struct sched_item *const it = &batch->items[i];
        struct xenon_handle *const h = it->seq->user;
        s->results[i] = (struct sched_result){0};
        s->draws[i] = (struct draw_row){0};
        for (int j = it->first_logits; j < it->n_tokens; j++, row++) {
            const struct sample_row *const r = &s->rows[row];
            const int64_t next = it->first + j + 1;
            if (it->samples && j == it->n_tokens - 1) {
                const bool edits = edited < n_edited && s->edited_item[edited] == i;
                s->draws[i] = (struct draw_row){r, edits ? &s->edited[edited++] : r};
            } else if (next < it->seq->n_prompt && r->finite) {
                put_logprob(s, r, &h->prompt, next, it->seq->tokens[next]);
            } else if (!r->finite) {
                s->results[i].failed = true;
            }
        }
    }
}

/* What was drawn becomes item i's result. */
static void take_item(struct batch_sampler *s, const struct sched_item *it, int i) {
    struct xenon_handle *const h = it->seq->user;
    if (!s->draws[i].raw) return;
    s->results[i].failed = s->results[i].failed || s->tokens[i] < 0;
    s->results[i].ids = &s->tokens[i];
    s->results[i].n_ids = 1;
    if (s->tokens[i] >= 0 && it->seq->sampling.logprobs >= 0)
        put_logprob(s, s->draws[i].raw, &h->out, it->seq->n_tokens - it->seq->n_prompt, s->tokens[i]);
}

struct sched_result *batch_sampler_run(struct batch_sampler *s, const struct sched_batch *batch, float *logits) {
    int n_edited;
    const int n = plan_rows(s, batch, logits, &n_edited);
    CHECK(n <= s->max_rows && n_edited <= s->max_seqs);
    sample_reduce_run(s->reduce, s->pool, s->rows, n);
    for (int e = 0; e < n_edited; e++) {
        float *const edit = logits + (s->edited[e].logits - logits);
        sampler_edit(batch->items[s->edited_item[e]].seq, s->eos_ids, s->n_eos, edit, s->n_vocab, s->counts);
    }
    sample_reduce_run(s->reduce, s->pool, s->edited, n_edited);
    sort_rows(s, batch, n_edited);
    draw_all(s, batch);
    for (int i = 0; i < batch->n_items; i++) take_item(s, &batch->items[i], i);
    return s->results;
}

struct sched_result *batch_sampler_nothing(struct batch_sampler *s, const struct sched_batch *batch) {
    for (int i = 0; i < batch->n_items; i++) {
        s->tokens[i] = 0;
        s->results[i] = (struct sched_result){.ids = &s->tokens[i], .n_ids = 1};
    }
    return s->results;
}
