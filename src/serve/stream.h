/* Server-sent events on an HTTP stream. The reply's head goes out with the first flush, so that errors found before it
 * still get their own status.
 * Threads: the event loop's only. Owns: the bytes of events that are not flushed yet. */
#ifndef SERVE_STREAM_H
#define SERVE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "serve/http.h"

struct stream {
    struct http_request *r;
    struct strbuf out;      /* events since the last flush */
    bool begun;             /* the head is out */
    int64_t last_flush_ns;
};

void stream_init(struct stream *s, struct http_request *r);

/* The buffer to write one event's JSON into, up to stream_event_end. */
struct strbuf *stream_event_begin(struct stream *s);
void stream_event_end(struct stream *s);

/* Sends the events so far; false when memory ran out (they are lost: end the stream with an error). */
bool stream_flush(struct stream *s) ATTR_NODISCARD;

/* Sends a comment, which clients skip and proxies count as life. */
void stream_keep_alive(struct stream *s);

/* Ends the reply, with "data: [DONE]" when it is complete. The request is over then. */
void stream_end(struct stream *s, bool done);

void stream_deinit(struct stream *s);

#endif
