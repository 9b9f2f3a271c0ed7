/* Log probabilities in the two shapes of the API, gathered token by token.
 * Threads: one owner. Owns: its buffers. */
#ifndef SERVE_OPENAI_LOGPROBS_H
#define SERVE_OPENAI_LOGPROBS_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "xenon.h"

struct openai_logprobs {
    bool chat;
    bool skip_special;       /* control tokens have no place in the text */
    size_t n;                /* tokens gathered since the last write */
    int64_t text_offset;     /* characters of the text before the next token (completions) */
    struct strbuf tokens, values, tops, offsets; /* chat uses `tokens` alone */
};

/* with_value false: the first token of a prompt, which has no probability. */
void openai_logprobs_add(struct openai_logprobs *lp, const struct xenon *x, const struct xenon_token *t,
                         bool with_value);

/* Appends the logprobs object and forgets the tokens. */
void openai_logprobs_write(struct openai_logprobs *lp, struct strbuf *out);

/* What the tokens gathered since the last write take. */
size_t openai_logprobs_bytes(const struct openai_logprobs *lp);

/* Memory ran out somewhere. */
bool openai_logprobs_failed(const struct openai_logprobs *lp);

void openai_logprobs_deinit(struct openai_logprobs *lp);

#endif
