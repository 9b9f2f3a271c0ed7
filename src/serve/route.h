/* Which handler answers which path; keys, CORS and the errors of unknown routes.
 * Threads: the event loop's only. Owns: nothing. */
#ifndef SERVE_ROUTE_H
#define SERVE_ROUTE_H

#include "serve/server_int.h"

/* A handler answers r now or takes it over (hooks); r may be over when it returns. */
typedef void route_fn(struct server *s, struct http_request *r);

/* Answers or hands on every request of the server. */
void route_request(struct server *s, struct http_request *r);

/* The handlers, each in the file of its name; those that generate text are in generation.h. */
route_fn api_models_list, api_models_get, api_tokenize_encode, api_tokenize_decode, api_tokenize_info, health_live,
    health_version, health_metrics, page_index;

#endif
