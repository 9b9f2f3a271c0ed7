/* include/xenon.h: tokenizing and chat templates. */
#include "engine/xenon_int.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sys/file.h"

enum { TEMPLATE_BYTES_MAX = 4 << 20 };

enum err xenon_int_open_template(struct xenon *x, const char *wanted, struct err_msg *msg) {
    if (!wanted) return chat_template_open(&x->chat, x->ckpt, msg);
    if (strstr(wanted, "{{") || strstr(wanted, "{%"))
        return chat_template_parse(&x->chat, x->ckpt, wanted, strlen(wanted), msg);
    if (access(wanted, F_OK) != 0) return chat_template_open_named(&x->chat, x->ckpt, wanted, msg);
    char *source = NULL;
    size_t len = 0;
    TRY(file_read_all(wanted, TEMPLATE_BYTES_MAX, &source, &len, msg));
    const enum err e = chat_template_parse(&x->chat, x->ckpt, source, len, msg);
    mem_free(source);
    return e;
}

static enum err need_tokenizer(const struct xenon *x, struct err_msg *msg) {
    return x->tok ? ERR_OK : err_set(msg, ERR_ARG, "this model has no tokenizer: send token ids");
}

int xenon_tokenize(const struct xenon *x, const char *text, size_t len, bool add_special, bool parse_special,
                   int32_t **ids, size_t *n, struct xenon_error *err) {
    struct token_ids t = {0};
    const unsigned flags = (add_special ? TOKENIZER_ADD_SPECIAL : 0u) | (parse_special ? TOKENIZER_PARSE_SPECIAL : 0u);
    *ids = NULL;
    *n = 0;
    TRY(need_tokenizer(x, xenon_int_msg(err)));
    const enum err e = tokenizer_encode(x->tok, text, len, flags, &t, xenon_int_msg(err));
    if (e) {
        token_ids_deinit(&t);
        return (int)e;
    }
    *ids = t.ids;
    *n = t.n;
    return XENON_OK;
}

/* Hands the buffer's bytes to the caller. */
static int give_text(struct strbuf *b, enum err e, char **text, size_t *len, struct xenon_error *err) {
    *text = NULL;
    *len = b->len;
    if (!e && !(*text = strbuf_take(b))) e = err_set(xenon_int_msg(err), ERR_NOMEM, "memory ran out");
    strbuf_deinit(b);
    return (int)e;
}

int xenon_detokenize(const struct xenon *x, const int32_t *ids, size_t n, bool skip_special, char **text, size_t *len,
                     struct xenon_error *err) {
    struct strbuf b = {0};
    enum err e = need_tokenizer(x, xenon_int_msg(err));
    if (!e) e = tokenizer_decode(x->tok, ids, n, skip_special, &b, xenon_int_msg(err));
    return give_text(&b, e, text, len, err);
}

const char *xenon_token_bytes(const struct xenon *x, int32_t id, size_t *len) {
    if (x->tok) return tokenizer_bytes(x->tok, id, len);
    *len = 0;
    return NULL;
}

bool xenon_token_is_special(const struct xenon *x, int32_t id) { return x->tok && tokenizer_is_special(x->tok, id); }

int xenon_render_chat(const struct xenon *x, const struct xenon_chat *chat, char **text, size_t *len,
                      struct xenon_error *err) {
    struct err_msg *const msg = xenon_int_msg(err);
    const struct chat_template_input in = {.messages = chat->messages,
                                           .tools = chat->tools,
                                           .documents = chat->documents,
                                           .kwargs = chat->kwargs,
                                           .add_generation_prompt = chat->add_generation_prompt,
                                           .continue_final_message = chat->continue_final_message,
                                           .parse_arguments = true,
                                           .now_unix_s = clock_unix_s()};
    struct chat_template *own = NULL;
    struct strbuf b = {0};
    enum err e = ERR_OK;
    if (chat->chat_template)
        e = chat_template_parse(&own, x->ckpt, chat->chat_template, strlen(chat->chat_template), msg);
    const struct chat_template *const t = own ? own : x->chat;
    if (!e && !t)
        e = err_set(msg, ERR_ARG, "this model has no chat template; start with --chat-template FILE or use /v1/completions");
    if (!e) e = chat_template_render(t, &in, &b, msg);
    chat_template_close(own);
    return give_text(&b, e, text, len, err);
}

void xenon_free(void *p) { mem_free(p); }
