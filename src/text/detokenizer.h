/* Incremental detokenizer: ids in, text out, as soon as it is certain. The concatenation of all pieces is what
 * tokenizer_decode gives for all ids at once. Never splits a code point: incomplete bytes wait for the next id
 * (or become U+FFFD at the end).
 * Threads: one owner. Owns: a few bytes of pending state. */
#ifndef TEXT_DETOKENIZER_H
#define TEXT_DETOKENIZER_H

#include "text/tokenizer.h"

struct detokenizer {
    const struct tokenizer *t; /* borrowed */
    bool skip_special;
    bool started; /* some text came out already (rules about the first space) */
    char pending[8]; /* the beginning of a code point */
    int n_pending;
    size_t n_tokens; /* that were shown so far */
    int n_stripped;  /* leading spaces dropped so far */
};

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool skip_special);

/* Takes over the ids of a prompt without showing them, so that what is pushed next continues it (a space at the start
 * of the answer stays). */
void detokenizer_prompt(struct detokenizer *d, const int32_t *ids, size_t n);

/* Appends the text that id makes certain to *out (maybe nothing). */
void detokenizer_push(struct detokenizer *d, int32_t id, struct strbuf *out);

/* No more ids: appends what was held back. */
void detokenizer_finish(struct detokenizer *d, struct strbuf *out);

#endif
