/* One key/value view over config.json (and other JSON files) and GGUF metadata, so that whoever
 * reads a configuration does not know which it was.
 *
 * JSON: a key is a path with dots, "rope_scaling.factor", "added_tokens_decoder.0.content" is NOT
 * split further than objects go: each part names a member; a part that is a number indexes an array.
 * A member whose own name contains dots is found when the whole rest of the path equals it.
 * GGUF: a key is the metadata key; a leading "{arch}." is replaced by general.architecture.
 *
 * Threads: immutable; any. Owns: every string and array that it hands out (borrowed, until closed). */
#ifndef LOAD_CONF_H
#define LOAD_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct conf; /* opaque */

/* What a key holds. Numbers: JSON integers and every GGUF integer type are CONF_INT. */
enum conf_type {
    CONF_NONE, /* no such key, or JSON null */
    CONF_BOOL,
    CONF_INT,
    CONF_REAL,
    CONF_STRING,
    CONF_ARRAY,
    CONF_OBJECT, /* JSON only */
};

enum conf_type conf_type(const struct conf *c, const char *key);

/* Typed reads: true and *out when the key holds that type (conf_f64 takes integers as well, conf_i64
 * takes reals that are whole numbers and booleans). False leaves *out alone. */
bool conf_bool(const struct conf *c, const char *key, bool *out);
bool conf_i64(const struct conf *c, const char *key, int64_t *out);
bool conf_f64(const struct conf *c, const char *key, double *out);

/* Strings may contain NUL bytes (GGUF tokens): *len counts them; the bytes are NUL-terminated. len
 * may be NULL. */
bool conf_str(const struct conf *c, const char *key, const char **out, size_t *len);

/* Arrays. conf_len: number of elements of an array or object, -1 for anything else. */
int64_t conf_len(const struct conf *c, const char *key);
bool conf_arr_i64(const struct conf *c, const char *key, int64_t i, int64_t *out);
bool conf_arr_f64(const struct conf *c, const char *key, int64_t i, double *out);
bool conf_arr_str(const struct conf *c, const char *key, int64_t i, const char **out, size_t *len);

/* The jansson value behind a JSON view (json_t *, borrowed), for readers that walk large files such
 * as tokenizer.json themselves; NULL for GGUF. */
const void *conf_json(const struct conf *c);

/* Where the values come from, for messages: "model/config.json" or "model.gguf". */
const char *conf_source(const struct conf *c);

/* Parses JSON text. source is copied. Depth is limited to 64, size by the caller. */
enum err conf_parse_json(struct conf **out, const char *text, size_t len, const char *source,
                         struct err_msg *msg) ATTR_NODISCARD;

/* Only for views that the caller owns (ckpt_json, conf_parse_json). NULL is fine. */
void conf_close(struct conf *c);

#endif
