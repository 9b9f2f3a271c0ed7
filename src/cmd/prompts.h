/* Prompts of `xenon generate`: from flags, or from a file with one JSON value per line.
 * Threads: main. Owns: the ids and message texts. */
#ifndef CMD_PROMPTS_H
#define CMD_PROMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "xenon.h"

struct prompt {
    int32_t *ids;       /* owned */
    size_t n;
    int32_t max_tokens; /* this line's own; INT32_MIN: as the flags say */
    double temperature; /* likewise; NaN */
    bool has_seed;
    uint64_t seed;
};

struct prompt_list {
    struct prompt *items;
    size_t n, cap;
};

/* Text is a plain prompt (with the model's BOS rule), or with `chat` one user message. */
enum err prompts_add_text(struct prompt_list *l, const struct xenon *x, const char *text, size_t len, bool chat,
                          struct err_msg *msg) ATTR_NODISCARD;

/* "1,2,3" */
enum err prompts_add_ids(struct prompt_list *l, const char *text, struct err_msg *msg) ATTR_NODISCARD;

/* A line: a JSON string, an array of ids, or an object with "prompt" (string or ids), "token_ids" or "messages", and
 * optionally "max_tokens", "temperature", "seed". Empty lines are passed over. path "-": standard input. */
enum err prompts_add_file(struct prompt_list *l, const struct xenon *x, const char *path, bool chat,
                          struct err_msg *msg) ATTR_NODISCARD;

void prompts_deinit(struct prompt_list *l);

#endif
