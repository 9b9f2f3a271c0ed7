#include "serve/openai_fields.h"

#include <math.h>
#include <string.h>

enum { DEPTH_MAX = 100 };

json_t *openai_fields_get(const json_t *object, const char *key) {
    json_t *const v = json_object_get(object, key);
    return v && !json_is_null(v) ? v : NULL;
}

const char *openai_fields_type(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a decimal number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

static bool wrong_type(struct openai_error *e, const char *key, const char *want, const json_t *got) {
    return openai_error_set(e, 400, "invalid_type", key, "Invalid type for '%s': expected %s, but got %s instead.", key,
                            want, openai_fields_type(got));
}

bool openai_fields_bool(const json_t *o, const char *key, bool *out, struct openai_error *e) {
    const json_t *const v = openai_fields_get(o, key);
    if (!v) return true;
    if (!json_is_boolean(v)) return wrong_type(e, key, "a boolean", v);
    *out = json_is_true(v);
    return true;
}

/* An integer, or a real without a fraction that fits. */
static bool to_int(const json_t *v, int64_t *out) {
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    const double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (d != floor(d) || fabs(d) > 0x1p53) return false;
    *out = (int64_t)d;
    return true;
}

bool openai_fields_int(const json_t *o, const char *key, int64_t min, int64_t max, int64_t *out, bool *present,
                       struct openai_error *e) {
    const json_t *const v = openai_fields_get(o, key);
    int64_t i;
    if (present) *present = v != NULL;
    if (!v) return true;
    if (!to_int(v, &i)) return wrong_type(e, key, "an integer", v);
    if (i < min || i > max)
        return openai_error_field(e, key, "Invalid '%s': it must be between %lld and %lld.", key, (long long)min,
                                  (long long)max);
    *out = i;
    return true;
}

bool openai_fields_float(const json_t *o, const char *key, double min, double max, float *out, struct openai_error *e) {
    const json_t *const v = openai_fields_get(o, key);
    if (!v) return true;
    if (!json_is_number(v)) return wrong_type(e, key, "a number", v);
    const double d = json_number_value(v);
    if (!(d >= min && d <= max))
        return openai_error_field(e, key, "Invalid '%s': it must be between %g and %g.", key, min, max);
    *out = (float)d;
    return true;
}

bool openai_fields_string(const json_t *o, const char *key, size_t max_len, const char **out, struct openai_error *e) {
    const json_t *const v = openai_fields_get(o, key);
    if (!v) return true;
    if (!json_is_string(v)) return wrong_type(e, key, "a string", v);
    const size_t len = json_string_length(v);
    if (len > max_len) return openai_error_field(e, key, "Invalid '%s': longer than %zu bytes.", key, max_len);
    if (strlen(json_string_value(v)) != len)
        return openai_error_field(e, key, "Invalid '%s': it holds a NUL character.", key);
    *out = json_string_value(v);
    return true;
}

bool openai_fields_object(const json_t *o, const char *key, json_t **out, struct openai_error *e) {
    json_t *const v = openai_fields_get(o, key);
    if (!v) return true;
    if (!json_is_object(v)) return wrong_type(e, key, "an object", v);
    *out = v;
    return true;
}

bool openai_fields_array(const json_t *o, const char *key, json_t **out, struct openai_error *e) {
    json_t *const v = openai_fields_get(o, key);
    if (!v) return true;
    if (!json_is_array(v)) return wrong_type(e, key, "an array", v);
    *out = v;
    return true;
}

bool openai_fields_token(const json_t *v, int64_t vocab_size, const char *what, int32_t *out, struct openai_error *e) {
    if (!json_is_integer(v)) return wrong_type(e, what, "token ids (integers)", v);
    const int64_t id = json_integer_value(v);
    if (id < 0 || id >= vocab_size)
        return openai_error_field(e, what, "Invalid '%s': token id %lld is outside the vocabulary of %lld.", what,
                                  (long long)id, (long long)vocab_size);
    *out = (int32_t)id;
    return true;
}

/* Nesting of brackets outside strings. jansson recurses, and so do the readers of its values. */
static bool depth_ok(const char *s, size_t len) {
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string) {
            if (s[i] == '\\')
                i++;
            else if (s[i] == '"')
                in_string = false;
        } else if (s[i] == '"') {
            in_string = true;
        } else if (s[i] == '[' || s[i] == '{') {
            if (++depth > DEPTH_MAX) return false;
        } else if (s[i] == ']' || s[i] == '}') {
            depth--;
        }
    }
    return true;
}

json_t *openai_fields_parse(const char *body, size_t len, struct openai_error *e) {
    json_error_t je;
    if (len == 0) {
        openai_error_set(e, 400, "invalid_json", NULL, "The request body is empty; send a JSON object.");
        return NULL;
    }
    if (!depth_ok(body, len)) {
        openai_error_set(e, 400, "invalid_json", NULL, "The JSON of the request is nested deeper than %d levels.",
                         DEPTH_MAX);
        return NULL;
    }
    json_t *const root = json_loadb(body, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!root && json_error_code(&je) == json_error_out_of_memory) {
        openai_error_set(e, 503, "server_is_overloaded", NULL, "memory is short; try again");
        return NULL;
    }
    if (!root) {
        /* What follows "near" is the request's own text. */
        char *const near = strstr(je.text, " near ");
        if (near) *near = '\0';
        openai_error_set(e, 400, "invalid_json", NULL, "The request body is not valid JSON: %s (line %d, column %d).",
                         je.text, je.line, je.column);
        return NULL;
    }
    if (json_is_object(root)) return root;
    openai_error_set(e, 400, "invalid_json", NULL, "The request body must be a JSON object, not %s.",
                     openai_fields_type(root));
    json_decref(root);
    return NULL;
}
