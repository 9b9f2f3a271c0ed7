#include <string.h>

#include "serve/json_write.h"
#include "serve/route.h"

static void write_model(struct strbuf *b, const struct server *s, const char *name) {
    strbuf_puts(b, "{\"id\":");
    json_write_cstr(b, name);
    strbuf_printf(b, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"xenon\",\"root\":",
                  (long long)s->metrics.start_unix_s);
    json_write_cstr(b, s->opt.served_model_names[0]);
    strbuf_puts(b, ",\"parent\":null");
    if (s->engine) {
        const struct xenon_info *const i = xenon_info(s->engine);
        strbuf_printf(
            b,
            ",\"max_model_len\":%lld,\"meta\":{\"n_ctx\":%lld,\"n_vocab\":%lld,\"n_params\":%lld,\"size\":%lld,"
            "\"architecture\":",
            (long long)i->max_model_len, (long long)i->max_model_len, (long long)i->vocab_size,
            (long long)i->n_parameters, (long long)i->weight_bytes);
        json_write_cstr(b, i->architecture);
        strbuf_putc(b, '}');
    }
    strbuf_putc(b, '}');
}

void api_models_list(struct server *s, struct http_request *r) {
    struct strbuf b = {0};
    strbuf_puts(&b, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < s->opt.n_served_model_names; i++) {
        if (i) strbuf_putc(&b, ',');
        write_model(&b, s, s->opt.served_model_names[i]);
    }
    strbuf_puts(&b, "]}");
    server_reply_json(r, 200, &b);
    strbuf_deinit(&b);
}

/* Names may hold slashes: the rest of the path is the name. */
void api_models_get(struct server *s, struct http_request *r) {
    const char *const name = strstr(r->head->path, "models/") + strlen("models/");
    struct openai_error e;
    for (int i = 0; i < s->opt.n_served_model_names; i++) {
        if (strcmp(s->opt.served_model_names[i], name) != 0) continue;
        struct strbuf b = {0};
        write_model(&b, s, name);
        server_reply_json(r, 200, &b);
        strbuf_deinit(&b);
        return;
    }
    openai_error_set(&e, 404, "model_not_found", "model",
                     "The model asked for does not exist here; this server has '%.200s'.",
                     s->opt.served_model_names[0]);
    server_reply_error(r, &e);
}
