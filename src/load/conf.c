#include "load/conf.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "load/conf_int.h"
#include "load/jsonio.h"

struct conf {
    json_t *root;            /* owned; NULL for GGUF */
    const struct gguf *gguf; /* borrowed; NULL for JSON */
    char *source;
};

/* A whole number that int64 holds. 2^63 itself is the first that does not fit. */
static bool whole(double x, int64_t *out) {
    if (!(x >= -0x1p63 && x < 0x1p63) || trunc(x) != x) return false;
    *out = (int64_t)x;
    return true;
}

/* ---- JSON ---- */

/* The index that len digits spell; false for anything else. */
static bool parse_index(const char *s, size_t len, size_t *out) {
    size_t x = 0;
    if (len == 0 || len > 9) return false;
    for (size_t i = 0; i < len; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        x = x * 10 + (size_t)(s[i] - '0');
    }
    *out = x;
    return true;
}

/* The value at a path. NULL: none, or null. */
static const json_t *json_at(const struct conf *c, const char *key) {
    const json_t *v = c->root;
    for (;;) {
        const size_t rest = strlen(key);
        const json_t *const whole_key = json_object_getn(v, key, rest);
        if (whole_key) return json_is_null(whole_key) ? NULL : whole_key;
        if (rest == 0 && v == c->root) return json_is_null(v) ? NULL : v;
        const char *const dot = strchr(key, '.');
        const size_t len = dot ? (size_t)(dot - key) : rest;
        size_t i;
        if (json_is_array(v))
            v = parse_index(key, len, &i) ? json_array_get(v, i) : NULL;
        else
            v = dot ? json_object_getn(v, key, len) : NULL;
        if (!v || json_is_null(v)) return NULL;
        if (!dot) return v;
        key = dot + 1;
    }
}

static bool json_i64(const json_t *v, int64_t *out) {
    if (json_is_integer(v))
        *out = json_integer_value(v);
    else if (json_is_boolean(v))
        *out = json_is_true(v);
    else
        return json_is_real(v) && whole(json_real_value(v), out);
    return true;
}

static bool json_f64(const json_t *v, double *out) {
    if (!json_is_number(v)) return false;
    *out = json_number_value(v);
    return true;
}

static bool json_str(const json_t *v, const char **out, size_t *len) {
    if (!json_is_string(v)) return false;
    *out = json_string_value(v);
    if (len) *len = json_string_length(v);
    return true;
}

static enum conf_type json_conf_type(const json_t *v) {
    if (!v) return CONF_NONE;
    switch (json_typeof(v)) {
    case JSON_OBJECT: return CONF_OBJECT;
    case JSON_ARRAY: return CONF_ARRAY;
    case JSON_STRING: return CONF_STRING;
    case JSON_INTEGER: return CONF_INT;
    case JSON_REAL: return CONF_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return CONF_BOOL;
    case JSON_NULL: break;
    }
    return CONF_NONE;
}

/* ---- GGUF ---- */

/* The value of a key, "{arch}." replaced. NULL: none. */
static const struct gguf_value *gguf_at(const struct conf *c, const char *key) {
    static const char prefix[] = "{arch}.", arch_key[] = "general.architecture";
    const size_t n_prefix = sizeof prefix - 1;
    if (strncmp(key, prefix, n_prefix) != 0) return gguf_find(c->gguf, key, strlen(key));
    const struct gguf_value *const arch = gguf_find(c->gguf, arch_key, sizeof arch_key - 1);
    const char *name;
    char full[256];
    size_t n_name;
    const size_t n_rest = strlen(key + n_prefix);
    if (!arch || arch->is_array || !gguf_str(arch, 0, &name, &n_name)) return NULL;
    if (n_name >= sizeof full || n_rest + 1 > sizeof full - n_name) return NULL;
    memcpy(full, name, n_name);
    full[n_name] = '.';
    memcpy(full + n_name + 1, key + n_prefix, n_rest);
    return gguf_find(c->gguf, full, n_name + 1 + n_rest);
}

static const struct gguf_value *gguf_scalar(const struct conf *c, const char *key) {
    const struct gguf_value *const v = gguf_at(c, key);
    return v && !v->is_array ? v : NULL;
}

static const struct gguf_value *gguf_array(const struct conf *c, const char *key) {
    const struct gguf_value *const v = gguf_at(c, key);
    return v && v->is_array ? v : NULL;
}

/* As gguf_i64, but takes reals that are whole numbers as well. */
static bool gguf_whole(const struct gguf_value *v, uint64_t i, int64_t *out) {
    double x;
    if (gguf_i64(v, i, out)) return true;
    return (v->type == GGUF_F32 || v->type == GGUF_F64) && gguf_f64(v, i, &x) && whole(x, out);
}

static enum conf_type gguf_conf_type(const struct gguf_value *v) {
    if (!v) return CONF_NONE;
    if (v->is_array) return CONF_ARRAY;
    switch (v->type) {
    case GGUF_BOOL: return CONF_BOOL;
    case GGUF_STRING: return CONF_STRING;
    case GGUF_F32:
    case GGUF_F64: return CONF_REAL;
    default: return CONF_INT;
    }
}

/* ---- both ---- */

enum conf_type conf_type(const struct conf *c, const char *key) {
    return c->gguf ? gguf_conf_type(gguf_at(c, key)) : json_conf_type(json_at(c, key));
}

bool conf_bool(const struct conf *c, const char *key, bool *out) {
    int64_t x;
    if (conf_type(c, key) != CONF_BOOL || !conf_i64(c, key, &x)) return false;
    *out = x != 0;
    return true;
}

bool conf_i64(const struct conf *c, const char *key, int64_t *out) {
    if (!c->gguf) return json_i64(json_at(c, key), out);
    const struct gguf_value *const v = gguf_scalar(c, key);
    return v && gguf_whole(v, 0, out);
}

bool conf_f64(const struct conf *c, const char *key, double *out) {
    if (!c->gguf) return json_f64(json_at(c, key), out);
    const struct gguf_value *const v = gguf_scalar(c, key);
    return v && gguf_f64(v, 0, out);
}

bool conf_str(const struct conf *c, const char *key, const char **out, size_t *len) {
    if (!c->gguf) return json_str(json_at(c, key), out, len);
    const struct gguf_value *const v = gguf_scalar(c, key);
    return v && gguf_str(v, 0, out, len);
}

int64_t conf_len(const struct conf *c, const char *key) {
    if (c->gguf) {
        const struct gguf_value *const v = gguf_array(c, key);
        return v ? (int64_t)v->n : -1;
    }
    const json_t *const v = json_at(c, key);
    if (json_is_array(v)) return (int64_t)json_array_size(v);
    return json_is_object(v) ? (int64_t)json_object_size(v) : -1;
}

/* Element i of a JSON array; NULL: none. */
static const json_t *json_element(const struct conf *c, const char *key, int64_t i) {
    return i < 0 ? NULL : json_array_get(json_at(c, key), (size_t)i);
}

bool conf_arr_i64(const struct conf *c, const char *key, int64_t i, int64_t *out) {
    if (!c->gguf) return json_i64(json_element(c, key, i), out);
    const struct gguf_value *const v = gguf_array(c, key);
    return v && i >= 0 && gguf_whole(v, (uint64_t)i, out);
}

bool conf_arr_f64(const struct conf *c, const char *key, int64_t i, double *out) {
    if (!c->gguf) return json_f64(json_element(c, key, i), out);
    const struct gguf_value *const v = gguf_array(c, key);
    return v && i >= 0 && gguf_f64(v, (uint64_t)i, out);
}

bool conf_arr_str(const struct conf *c, const char *key, int64_t i, const char **out, size_t *len) {
    if (!c->gguf) return json_str(json_element(c, key, i), out, len);
    const struct gguf_value *const v = gguf_array(c, key);
    return v && i >= 0 && gguf_str(v, (uint64_t)i, out, len);
}

const void *conf_json(const struct conf *c) { return c->root; }

const char *conf_source(const struct conf *c) { return c->source; }

static enum err create(struct conf **out, const char *source, struct err_msg *msg) {
    struct conf *const c = mem_calloc(1, sizeof *c);
    if (c) c->source = mem_strdup(source);
    if (!c || !c->source) {
        mem_free(c);
        return err_set(msg, ERR_NOMEM, "%s: no memory to open it", source);
    }
    *out = c;
    return ERR_OK;
}

enum err conf_parse_json(struct conf **out, const char *text, size_t len, const char *source, struct err_msg *msg) {
    struct conf *c = NULL;
    *out = NULL;
    TRY(create(&c, source, msg));
    const enum err e = jsonio_parse(&c->root, text, len, false, source, msg);
    if (e != ERR_OK) {
        conf_close(c);
        return e;
    }
    *out = c;
    return ERR_OK;
}

enum err conf_open_gguf(struct conf **out, const struct gguf *g, const char *source, struct err_msg *msg) {
    *out = NULL;
    TRY(create(out, source, msg));
    (*out)->gguf = g;
    return ERR_OK;
}

void conf_close(struct conf *c) {
    if (!c) return;
    json_decref(c->root);
    mem_free(c->source);
    mem_free(c);
}
