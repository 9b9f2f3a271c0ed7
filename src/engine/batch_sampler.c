#include "engine/batch_sampler.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "engine/request.h"

enum err batch_sampler_create(struct batch_sampler *s, const struct kern *kern, struct pool *pool, int64_t n_vocab,
                              int max_rows, int max_seqs, struct err_msg *msg) {
    *s = (struct batch_sampler){.pool = pool, .n_vocab = n_vocab, .max_rows = max_rows, .max_seqs = max_seqs};
    s->rows = mem_calloc((size_t)max_rows, sizeof *s->rows);
    s->edited = mem_calloc((size_t)max_seqs, sizeof *s->edited);
    s->edited_item = mem_calloc((size_t)max_seqs, sizeof *s->edited_item);
    s->counts = mem_calloc((size_t)n_vocab, sizeof *s->counts);
    s->draws = mem_calloc((size_t)max_seqs, sizeof *s->draws);
    s->tokens = mem_calloc((size_t)max_seqs, sizeof *s->tokens);
    s->results = mem_calloc((size_t)max_seqs, sizeof *s->results);
    enum err e = ERR_NOMEM;
    if (!s->rows || !s->edited || !s->edited_item || !s->counts || !s->draws || !s->tokens || !s->results)
        err_set(msg, e, "sampler: memory ran out");
    else e = sample_reduce_create(&s->reduce, kern, n_vocab, max_rows, pool_n_lanes(pool), msg);
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
    mem_free(s->draws);
    mem_free(s->tokens);
    mem_free(s->results);
    *s = (struct batch_sampler){0};
}

/* Sets up a row: what is drawn from it, if seq is not NULL, and whether its logprobs are wanted. */
static void want(struct sample_row *r, const float *logits, const struct sequence *seq, bool logprobs) {
    r->logits = logits;
    r->want_best = logprobs;
    r->masked = false;
    r->draw = (struct sample_draw){0};
    if (seq) r->draw = sampler_draw(&seq->sampling, (uint64_t)seq->n_tokens);
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
            want(&s->rows[n], row, last && !edits ? it->seq : NULL, (last ? p->logprobs : p->prompt_logprobs) >= 0);
            if (edits) {
                want(&s->edited[*n_edited], logits + (int64_t)n * s->n_vocab, it->seq, false);
                s->edited[*n_edited].masked = true;
                s->edited_item[(*n_edited)++] = i;
            }
        }
    }
    return n;
}

static void put_logprob(const struct batch_sampler *s, const struct sample_row *r, struct logprob_store *store,
                        int64_t at, int32_t id) {
    const struct sampler_logprobs lp = sampler_logprobs(r, s->n_vocab, id, store->n_top);
    request_put_logprob(store, at, lp.logprob, lp.rank, lp.top, lp.n_top);
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
    s->tokens[i] = s->draws[i].raw->finite ? s->draws[i].from->token : -1;
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
