#include "serve/stream.h"

#include "base/clock.h"

void stream_init(struct stream *s, struct http_request *r) {
    *s = (struct stream){.r = r, .last_flush_ns = clock_ns()};
}

struct strbuf *stream_event_begin(struct stream *s) {
    strbuf_puts(&s->out, "data: ");
    return &s->out;
}

void stream_event_end(struct stream *s) {
    strbuf_puts(&s->out, "\n\n");
}

static void begin(struct stream *s) {
    if (s->begun) return;
    http_add_header(s->r, "Cache-Control", "no-cache");
    http_add_header(s->r, "X-Accel-Buffering", "no");
    http_stream_begin(s->r, 200, "text/event-stream; charset=utf-8");
    s->begun = true;
}

bool stream_flush(struct stream *s) {
    const bool ok = !s->out.failed;
    if (ok && s->out.len > 0) {
        begin(s);
        http_stream_write(s->r, s->out.data, s->out.len);
        s->last_flush_ns = clock_ns();
    }
    strbuf_clear(&s->out);
    return ok;
}

void stream_keep_alive(struct stream *s) {
    static const char comment[] = ": keep-alive\n\n";
    begin(s);
    http_stream_write(s->r, comment, sizeof comment - 1);
    s->last_flush_ns = clock_ns();
}

void stream_end(struct stream *s, bool done) {
    static const char end[] = "data: [DONE]\n\n";
    begin(s);
    if (done) http_stream_write(s->r, end, sizeof end - 1);
    http_stream_end(s->r, true);
}

void stream_deinit(struct stream *s) {
    strbuf_deinit(&s->out);
}
