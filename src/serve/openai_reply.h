/* The JSON of replies: whole ones and the chunks of a stream, for chat and for completions.
 * Threads: any. Owns: nothing. */
#ifndef SERVE_OPENAI_REPLY_H
#define SERVE_OPENAI_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "serve/openai_logprobs.h"

struct openai_usage {
    int64_t prompt, completion, cached; /* tokens */
};

/* What every chunk of one reply repeats. */
struct openai_meta {
    bool chat;
    const char *id;
    int64_t created; /* Unix seconds */
    const char *model;
    const char *fingerprint;
    bool usage_null;                  /* chunks say "usage": null (include_usage) */
    const struct openai_usage *usage; /* chunks carry these numbers (continuous_usage_stats); NULL: no */
};

/* How a choice ended. */
struct openai_finish {
    const char *reason;      /* "stop", "length" */
    const char *stop_string; /* the stop string that matched, or NULL */
    int32_t stop_id;         /* the stop id that matched, or -1 */
};

struct openai_choice_text {
    const char *text;
    size_t len;
    struct openai_logprobs *logprobs; /* NULL: not asked for; written and emptied */
    struct openai_finish finish;
};

/* Chunks of a stream: one JSON object each. */
void openai_reply_role_chunk(struct strbuf *b, const struct openai_meta *m, int index);
void openai_reply_text_chunk(struct strbuf *b, const struct openai_meta *m, int index, const char *text, size_t len,
                             struct openai_logprobs *logprobs);
void openai_reply_finish_chunk(struct strbuf *b, const struct openai_meta *m, int index, const struct openai_finish *f);
void openai_reply_usage_chunk(struct strbuf *b, const struct openai_meta *m, const struct openai_usage *u);

/* A whole reply: begin, each choice in order, end. */
void openai_reply_begin(struct strbuf *b, const struct openai_meta *m);
void openai_reply_choice(struct strbuf *b, const struct openai_meta *m, int index, const struct openai_choice_text *c);
void openai_reply_end(struct strbuf *b, const struct openai_meta *m, const struct openai_usage *u);

#endif
