#include "engine/output_processor.h"

#include <string.h>

#include "base/mem.h"

enum err output_processor_init(struct output_processor *p, const struct tokenizer *tok, const struct xenon_sampling *s,
                               struct err_msg *msg) {
    *p = (struct output_processor){.has_text = tok != NULL,
                                   .include_stop = s->include_stop_str_in_output,
                                   .min_tokens = s->min_tokens};
    if (tok) detokenizer_init(&p->detok, tok, s->skip_special_tokens);
    if (s->n_stop > XENON_STOP_MAX)
        return err_set(msg, ERR_ARG, "stop: at most %d strings, not %zu", XENON_STOP_MAX, s->n_stop);
    if (s->n_stop > 0 && !tok) return err_set(msg, ERR_ARG, "stop: this model has no tokenizer, so no stop strings");
    p->stops = mem_calloc(s->n_stop, sizeof *p->stops);
    p->stop_lens = mem_calloc(s->n_stop, sizeof *p->stop_lens);
    if (!p->stops || !p->stop_lens) return err_set(msg, ERR_NOMEM, "request: memory ran out");
    for (size_t i = 0; i < s->n_stop; i++) {
        if (!s->stop[i][0]) return err_set(msg, ERR_ARG, "stop: an empty string matches everywhere");
        p->stops[i] = mem_strdup(s->stop[i]);
        if (!p->stops[i]) return err_set(msg, ERR_NOMEM, "request: memory ran out");
        p->n_stops++;
        p->stop_lens[i] = strlen(s->stop[i]);
        if (p->stop_lens[i] > p->stop_max) p->stop_max = p->stop_lens[i];
    }
    return ERR_OK;
}

void output_processor_deinit(struct output_processor *p) {
    for (size_t i = 0; i < p->n_stops; i++) mem_free(p->stops[i]);
    mem_free(p->stops);
    mem_free(p->stop_lens);
    mem_free(p->pending);
    strbuf_deinit(&p->text);
    strbuf_deinit(&p->delivered);
    *p = (struct output_processor){0};
}

/* Cuts the text at the earliest stop string that ends behind `from`; of two that start together the longer wins. */
static bool cut_at_stop(struct output_processor *p, size_t from) {
    const char *const text = strbuf_cstr(&p->text);
    size_t best = SIZE_MAX, which = 0;
    for (size_t i = 0; i < p->n_stops; i++) {
        const size_t len = p->stop_lens[i];
        const size_t start = from >= len ? from - len + 1 : 0;
        const char *const at =
            p->text.len > start ? memmem(text + start, p->text.len - start, p->stops[i], len) : NULL;
        const size_t pos = at ? (size_t)(at - text) : SIZE_MAX;
        if (pos < best || (at && pos == best && len > p->stop_lens[which])) {
            best = pos;
            which = i;
        }
    }
    if (best == SIZE_MAX) return false;
    p->matched = p->stops[which];
    strbuf_truncate(&p->text, best + (p->include_stop ? p->stop_lens[which] : 0));
    p->n_ready = p->text.len;
    for (size_t i = 0; i < p->n_pending; i++)
        if ((size_t)p->pending[i].text_end > p->text.len) p->pending[i].text_end = (int32_t)p->text.len;
    return true;
}

/* Bytes at the end of the text that may grow into a stop string. */
static size_t held_back(const struct output_processor *p) {
    const char *const text = strbuf_cstr(&p->text);
    size_t most = 0;
    for (size_t i = 0; i < p->n_stops; i++) {
        size_t n = p->stop_lens[i] - 1 < p->text.len ? p->stop_lens[i] - 1 : p->text.len;
        for (; n > most; n--)
            if (memcmp(text + p->text.len - n, p->stops[i], n) == 0) most = n;
    }
    return most;
}

static void drop_delivered(struct output_processor *p) {
    if (p->n_delivered == 0 && p->n_text_delivered == 0) return;
    const size_t n_text = p->n_text_delivered, n_tokens = p->n_delivered;
    memmove(p->pending, p->pending + n_tokens, (p->n_pending - n_tokens) * sizeof *p->pending);
    p->n_pending -= n_tokens;
    for (size_t i = 0; i < p->n_pending; i++) p->pending[i].text_end -= (int32_t)n_text;
    if (n_text > 0) {
        memmove(p->text.data, p->text.data + n_text, p->text.len - n_text);
        strbuf_truncate(&p->text, p->text.len - n_text);
    }
    p->n_ready -= n_text;
    p->n_delivered = p->n_text_delivered = 0;
}

bool output_processor_push(struct output_processor *p, const struct xenon_token *token) {
    drop_delivered(p);
    if (!mem_grow(&p->pending, &p->cap_pending, p->n_pending + 1, sizeof *p->pending)) {
        p->failed = true;
        return false;
    }
    const size_t before = p->text.len;
    if (p->has_text) detokenizer_push(&p->detok, token->id, &p->text);
    p->failed = p->failed || p->text.failed;
    p->n_tokens++;
    struct xenon_token *const t = &p->pending[p->n_pending++];
    *t = *token;
    t->text_end = (int32_t)p->text.len;
    if (p->n_stops > 0 && p->n_tokens >= p->min_tokens && p->text.len > before && cut_at_stop(p, before)) return true;
    p->n_ready = p->text.len - held_back(p);
    return false;
}

bool output_processor_finish(struct output_processor *p) {
    drop_delivered(p);
    const size_t before = p->text.len;
    if (p->has_text) detokenizer_finish(&p->detok, &p->text);
    if (p->n_pending > 0) p->pending[p->n_pending - 1].text_end = (int32_t)p->text.len;
    p->failed = p->failed || p->text.failed;
    if (p->n_stops > 0 && p->text.len > before && cut_at_stop(p, before)) return true;
    p->n_ready = p->text.len;
    return false;
}

void output_processor_take(struct output_processor *p, struct xenon_output *out) {
    drop_delivered(p);
    size_t n = 0;
    while (n < p->n_pending && (size_t)p->pending[n].text_end <= p->n_ready) n++;
    p->n_delivered = n;
    p->n_text_delivered = p->n_ready;
    strbuf_clear(&p->delivered);
    strbuf_append(&p->delivered, strbuf_cstr(&p->text), p->n_ready);
    p->failed = p->failed || p->delivered.failed;
    out->tokens = p->pending;
    out->n_tokens = n;
    out->text = strbuf_cstr(&p->delivered);
    out->text_len = p->delivered.len;
}
