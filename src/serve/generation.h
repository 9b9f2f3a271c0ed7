/* The life of a chat or completions request: parse and tokenize on a text worker, submit, poll, stream or gather,
 * finish.
 * Threads: the event loop's only. Owns: its handles; they are released the moment the client leaves. */
#ifndef SERVE_GENERATION_H
#define SERVE_GENERATION_H

#include "serve/server_int.h"

/* The handlers of /v1/chat/completions and /v1/completions: they take over the request. */
void generation_chat(struct server *s, struct http_request *r);
void generation_completion(struct server *s, struct http_request *r);

/* Takes the news of every handle. */
void generation_poll_all(struct server *s);

/* Once a second: keep-alive comments, and the end of everything when the engine is dead. */
void generation_tick(struct server *s);

/* Ends every request with an error, for the end of a drain. */
void generation_abort_all(struct server *s);

#endif
