/* Where a checkpoint keeps its chat templates and its special tokens.
 * Threads: any. */
#ifndef TEXT_CHAT_SOURCE_H
#define TEXT_CHAT_SOURCE_H

#include <stddef.h>

#include "base/err.h"
#include "load/ckpt.h"

enum { CHAT_SPECIALS_MAX = 8 };

/* Variables such as bos_token and the texts of their tokens. */
struct chat_special {
    const char *name; /* static */
    char *text;       /* heap */
    size_t len;
};

struct chat_specials {
    struct chat_special v[CHAT_SPECIALS_MAX];
    int n;
};

/* The source of the template called name, or of the default one (NULL): *source is heap, freed with mem_free, or NULL
 * when there is none. Folders: chat_template.jinja, additional_chat_templates/NAME.jinja, tokenizer_config.json,
 * chat_template.json; GGUF: tokenizer.chat_template and tokenizer.chat_template.NAME. */
enum err chat_source_find(const struct ckpt *c, const char *name, char **source, size_t *len,
                          struct err_msg *msg) ATTR_NODISCARD;

/* tokenizer_config.json or special_tokens_map.json of a folder; the token ids of a GGUF file. */
enum err chat_source_specials(struct chat_specials *out, const struct ckpt *c, struct err_msg *msg) ATTR_NODISCARD;
void chat_source_specials_deinit(struct chat_specials *s);

#endif
