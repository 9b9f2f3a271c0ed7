/* /health, /version and /metrics: what monitors ask for; none of them waits for the engine. */
#include <string.h>

#include "serve/route.h"

void health_live(struct server *s, struct http_request *r) {
    struct openai_error e;
    if (!server_ready(s, &e, false)) {
        server_reply_error(r, &e);
        return;
    }
    http_reply(r, 200, "application/json", "{\"status\":\"ok\"}", strlen("{\"status\":\"ok\"}"));
}

void health_version(struct server *s, struct http_request *r) {
    static const char text[] = "{\"version\":\"" XENON_VERSION "\"}";
    (void)s;
    http_reply(r, 200, "application/json", text, sizeof text - 1);
}

void health_metrics(struct server *s, struct http_request *r) {
    struct xenon_stats stats = {0};
    struct strbuf b = {0};
    if (s->engine) xenon_stats(s->engine, &stats);
    const struct metrics_now now = {.model_name = s->opt.served_model_names[0],
                                    .stats = &stats,
                                    .info = s->engine ? xenon_info(s->engine) : NULL,
                                    .enable_prefix_caching = !s->opt.disable_prefix_caching,
                                    .n_text_jobs = jobs_n_pending(s->jobs),
                                    .n_connections = http_n_connections(s->http)};
    metrics_write(&s->metrics, &now, &b);
    if (b.failed)
        http_reply(r, 503, "text/plain", "memory is short\n", strlen("memory is short\n"));
    else
        http_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    strbuf_deinit(&b);
}
