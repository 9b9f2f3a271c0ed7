#include "text/detokenizer.h"

#include <string.h>

#include "text/tokenizer_int.h"
#include "text/utf8.h"

/* Two rules of assembling characters. Byte-level: the bytes of all tokens are one stream, and a maximal subpart of a
 * broken character is one U+FFFD. Byte fallback (byte_runs): only runs of <0xNN> tokens make characters, and every
 * bad byte is a U+FFFD. */

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special) {
    *d = (struct detokenizer){.t = t, .skip_special = skip_special};
}

/* Final text goes out here, less the leading spaces that the rules drop. */
static void emit(struct detokenizer *d, const char *s, size_t len, struct strbuf *out) {
    const struct tokenizer_decode_rules *const r = &d->t->decode;
    while (!d->started && len && *s == ' ' && (r->strip_all ? r->strip_spaces > 0 : d->n_stripped < r->strip_spaces)) {
        d->n_stripped++;
        s++;
        len--;
    }
    if (!len) return;
    d->started = true;
    strbuf_append(out, s, len);
}

static void emit_bad(struct detokenizer *d, int n_bytes, struct strbuf *out) {
    for (int i = d->t->decode.byte_runs ? n_bytes : 1; i > 0; i--) emit(d, UTF8_REPLACEMENT, 3, out);
}

static void drop_pending(struct detokenizer *d, int n) {
    d->n_pending -= n;
    memmove(d->pending, d->pending + n, (size_t)d->n_pending);
}

static void push_byte(struct detokenizer *d, char c, struct strbuf *out) {
    d->pending[d->n_pending++] = c;
    while (d->n_pending) {
        uint32_t cp;
        const int step = utf8_step(d->pending, (size_t)d->n_pending, &cp);
        if (step == 0) return; /* not whole yet; never more than three bytes */
        if (step > 0) emit(d, d->pending, (size_t)step, out);
        else emit_bad(d, -step, out);
        drop_pending(d, step > 0 ? step : -step);
    }
}

static void flush(struct detokenizer *d, struct strbuf *out) {
    if (d->n_pending) emit_bad(d, d->n_pending, out);
    d->n_pending = 0;
}

static void push_bytes(struct detokenizer *d, const char *s, size_t len, struct strbuf *out) {
    size_t at = 0;
    while (at < len) {
        const size_t valid = d->n_pending ? 0 : utf8_valid_prefix(s + at, len - at);
        if (valid) emit(d, s + at, valid, out);
        else push_byte(d, s[at], out);
        at += valid ? valid : 1;
    }
}

/* The first token of a Metaspace text shows none of its spaces. */
static void push_without_spaces(struct detokenizer *d, const char *s, size_t len, struct strbuf *out) {
    for (size_t i = 0; i < len; i++)
        if (s[i] != ' ') push_bytes(d, s + i, 1, out);
}

void detokenizer_push(struct detokenizer *d, int32_t id, struct strbuf *out) {
    const struct tokenizer *const t = d->t;
    if (!vocab_has(&t->vocab, id)) return;
    const enum token_type type = vocab_type(&t->vocab, id);
    const bool hidden =
        (d->skip_special && tokenizer_is_special(t, id)) || (t->decode.skip_control && type == TOKEN_CONTROL);
    if (t->decode.byte_runs && type != TOKEN_BYTE) flush(d, out);
    if (hidden) return;
    if (type == TOKEN_UNKNOWN) d->started = true; /* the spaces that stand for it are no word boundary */
    size_t len;
    const char *const s = vocab_shown(&t->vocab, id, &len);
    const size_t nth = d->n_tokens++;
    if (nth > 0 && t->decode.join_with_space) push_bytes(d, " ", 1, out);
    if (nth == 0 && t->decode.first_without_spaces) push_without_spaces(d, s, len, out);
    else push_bytes(d, s, len, out);
    if (t->decode.byte_runs && type != TOKEN_BYTE) flush(d, out); /* a piece stands alone even if it ends badly */
}

void detokenizer_prompt(struct detokenizer *d, const int32_t *ids, size_t n) {
    struct strbuf nowhere = {0};
    for (size_t i = 0; i < n; i++) {
        detokenizer_push(d, ids[i], &nowhere);
        strbuf_clear(&nowhere);
    }
    strbuf_deinit(&nowhere);
}

void detokenizer_finish(struct detokenizer *d, struct strbuf *out) { flush(d, out); }
