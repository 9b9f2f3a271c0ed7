#include "engine/request.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* Prompt tokens that decide how the answer's first ones are spelled: a space, the rest of a code point. */
enum { PROMPT_TAIL = 8 };

static bool store_init(struct logprob_store *st, int n_top, int64_t cap) {
    st->n_top = n_top;
    if (n_top < 0) return true;
    const size_t n = (size_t)cap;
    st->logprob = mem_calloc(n, sizeof *st->logprob);
    st->rank = mem_calloc(n, sizeof *st->rank);
    st->n_tops = mem_calloc(n, sizeof *st->n_tops);
    st->tops = mem_calloc(n, (size_t)(n_top > 0 ? n_top : 1) * sizeof *st->tops);
    return st->logprob && st->rank && st->n_tops && st->tops;
}

static void store_deinit(struct logprob_store *st) {
    mem_free(st->logprob);
    mem_free(st->rank);
    mem_free(st->n_tops);
    mem_free(st->tops);
}

static void request_free(struct xenon_handle *h) {
    store_deinit(&h->out);
    store_deinit(&h->prompt);
    output_processor_deinit(&h->processor);
    mem_free(h->client.prompt_tokens);
    sequence_destroy(h->seq);
    mem_free(h);
}

enum err request_create(struct xenon_handle **out, struct xenon *x, struct sequence *seq, const struct tokenizer *tok,
                        const struct xenon_sampling *s, struct err_msg *msg) {
    struct xenon_handle *const h = mem_calloc(1, sizeof *h);
    if (!h) return err_set(msg, ERR_NOMEM, "request: memory ran out");
    h->x = x;
    atomic_init(&h->refs, 2);
    enum err e = output_processor_init(&h->processor, tok, s, msg);
    if (!e && (!store_init(&h->out, s->logprobs, seq->max_len - seq->n_prompt) ||
               !store_init(&h->prompt, s->prompt_logprobs, seq->n_prompt)))
        e = err_set(msg, ERR_NOMEM, "request: memory ran out");
    if (e) {
        request_free(h);
        return e;
    }
    const int64_t tail = seq->n_prompt < PROMPT_TAIL ? seq->n_prompt : PROMPT_TAIL;
    if (tok) detokenizer_prompt(&h->processor.detok, seq->tokens + seq->n_prompt - tail, (size_t)tail);
    h->seq = seq;
    seq->user = h;
    *out = h;
    return ERR_OK;
}

void request_unref(struct xenon_handle *h) {
    /* acq_rel: the one that frees sees what the other wrote. */
    if (atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) == 1) request_free(h);
}

void request_put_logprob(struct logprob_store *st, int64_t i, float logprob, int32_t rank,
                         const struct xenon_logprob *top, int n_top) {
    if (n_top > st->n_top) n_top = st->n_top;
    st->logprob[i] = logprob;
    st->rank[i] = rank;
    st->n_tops[i] = n_top;
    if (n_top > 0) memcpy(st->tops + i * st->n_top, top, (size_t)n_top * sizeof *top);
}
