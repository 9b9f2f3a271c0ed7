/* From token ids to the text that a client gets: incremental detokenizing, stop strings across token borders, and
 * holding back what may become a stop string. Runs in the client's thread, so that the engine's step never touches
 * text. Threads: one owner at a time. Owns: its buffers. */
#ifndef ENGINE_OUTPUT_PROCESSOR_H
#define ENGINE_OUTPUT_PROCESSOR_H

#include "base/err.h"
#include "base/strbuf.h"
#include "text/detokenizer.h"
#include "xenon.h"

struct output_processor {
    struct detokenizer detok;
    bool has_text;               /* the model has a tokenizer */
    char **stops;                /* owned copies */
    size_t *stop_lens, n_stops, stop_max;
    bool include_stop;
    int32_t min_tokens;

    struct strbuf text;          /* since the last take: delivered text is cut off */
    size_t n_ready;              /* bytes of it that may be delivered */
    int64_t n_tokens;            /* pushed so far */
    const char *matched;         /* the stop string that ended the text, or NULL */

    struct xenon_token *pending; /* tokens not delivered yet; text_end counts from the start of text */
    size_t n_pending, cap_pending;
    size_t n_delivered;          /* pending entries handed out by the last take, dropped by the next */
    size_t n_text_delivered;
    struct strbuf delivered;     /* the text of the last take */
    bool failed;                 /* memory ran out */
};

/* tok may be NULL: no text then, and stop strings are ERR_ARG. Copies the stop strings. */
enum err output_processor_init(struct output_processor *p, const struct tokenizer *tok, const struct xenon_sampling *s,
                               struct err_msg *msg) ATTR_NODISCARD;
void output_processor_deinit(struct output_processor *p);

/* Adds one token of the answer (its text_end is set here). True when a stop string is complete: push no more. */
bool output_processor_push(struct output_processor *p, const struct xenon_token *token);

/* No more tokens: everything becomes deliverable. True when the last bytes complete a stop string. */
bool output_processor_finish(struct output_processor *p);

/* Moves what can be delivered into out's tokens and text, valid until the next take. */
void output_processor_take(struct output_processor *p, struct xenon_output *out);

#endif
