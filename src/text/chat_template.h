/* Chat templates: the jinja subset that checkpoints use, and the rules for finding and calling a model's
 * template (models.md 0.12).
 * Threads: an opened template is immutable; any thread may render. */
#ifndef TEXT_CHAT_TEMPLATE_H
#define TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"
#include "load/ckpt.h"

struct chat_template; /* opaque */

struct chat_template_input {
    const char *messages;  /* JSON array */
    const char *tools;     /* JSON array or NULL */
    const char *documents; /* JSON array or NULL */
    const char *kwargs;    /* JSON object or NULL: further variables */
    bool add_generation_prompt;
    bool continue_final_message;
    bool parse_arguments; /* arguments of tool calls that are JSON text of an object become that object */
    int64_t now_unix_s;   /* for strftime_now, shown in local time */
};

/* The checkpoint's own template: chat_template.jinja, tokenizer_config.json (a string, or the named list with
 * tool_use), GGUF tokenizer.chat_template. *out NULL and ERR_OK when it has none. bos_token, eos_token and the
 * other special-token variables come from the checkpoint as well; one that it does not have is undefined. */
enum err chat_template_open(struct chat_template **out, const struct ckpt *c, struct err_msg *msg) ATTR_NODISCARD;

/* A template by name: one of the checkpoint's named list ("tool_use", "rag"), "default" for chat_template_open's, or
 * the built-in "chatml". ERR_ARG for an unknown name, with those that there are. */
enum err chat_template_open_named(struct chat_template **out, const struct ckpt *c, const char *name,
                                  struct err_msg *msg) ATTR_NODISCARD;

/* A template from its source; the special-token variables from c (may be NULL: they are undefined, which prints as
 * nothing). */
enum err chat_template_parse(struct chat_template **out, const struct ckpt *c, const char *source, size_t len,
                             struct err_msg *msg) ATTR_NODISCARD;
void chat_template_close(struct chat_template *t);

/* The source, for `xenon inspect`. Borrowed. */
const char *chat_template_source(const struct chat_template *t);

/* Appends the rendered prompt; on an error out is as it was. raise_exception: ERR_ARG with the template's own
 * message; other errors of the template and bad input JSON: ERR_ARG with the line or the field. Steps, depth and
 * output size are limited: ERR_LIMIT. Messages lose keys whose value is null, and reasoning_content, thinking and
 * reasoning stand for one another. */
enum err chat_template_render(const struct chat_template *t, const struct chat_template_input *in, struct strbuf *out,
                              struct err_msg *msg) ATTR_NODISCARD;

#endif
