/* Reading typed fields of a JSON object, strictly: the wrong type is a 400 that names the field, null is the same as
 * absent, and an absent field leaves *out alone. All return false with *e filled on an error.
 * Threads: any. Owns: nothing. */
#ifndef SERVE_OPENAI_FIELDS_H
#define SERVE_OPENAI_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "serve/openai_error.h"

/* The value, or NULL when absent or null. */
json_t *openai_fields_get(const json_t *object, const char *key);

bool openai_fields_bool(const json_t *o, const char *key, bool *out, struct openai_error *e) ATTR_NODISCARD;

/* In [min, max]; a real number without a fraction counts. *present (may be NULL) tells whether it was there. */
bool openai_fields_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out, bool *present,
                       struct openai_error *e) ATTR_NODISCARD;

bool openai_fields_float(const json_t *o, const char *key, double min, double max, float *out,
                         struct openai_error *e) ATTR_NODISCARD;

/* Borrowed from o, at most max_len bytes, without NULs. */
bool openai_fields_string(const json_t *o, const char *key, size_t max_len, const char **out,
                          struct openai_error *e) ATTR_NODISCARD;

/* An object or an array; borrowed. */
bool openai_fields_object(const json_t *o, const char *key, json_t **out, struct openai_error *e) ATTR_NODISCARD;
bool openai_fields_array(const json_t *o, const char *key, json_t **out, struct openai_error *e) ATTR_NODISCARD;

/* A token id in [0, vocab_size); what names it in messages. */
bool openai_fields_token(const json_t *v, int64_t vocab_size, const char *what, int32_t *out,
                         struct openai_error *e) ATTR_NODISCARD;

/* "a string", "an object", … of a value, for messages. */
const char *openai_fields_type(const json_t *v);

/* Parses a request body: UTF-8, no duplicate keys, nesting of at most 100, an object on top. NULL: *e is filled; else
 * the caller owns the value. */
json_t *openai_fields_parse(const char *body, size_t len, struct openai_error *e) ATTR_NODISCARD;

#endif
