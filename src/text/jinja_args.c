#include "text/jinja_args.h"

/* The next name of a parameter list; len 0 at its end. */
static const char *next_name(const char **at, size_t *len) {
    while (**at == ' ')
        ++*at;
    const char *const name = *at;
    *len = strcspn(name, " ");
    *at += *len;
    return name;
}

static const struct jinja_value *keyword(const struct jinja_args *args, const char *name, size_t len) {
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jinja_value *const key = &args->kw[i].key;
        if (key->len == len && memcmp(key->s, name, len) == 0) return &args->kw[i].value;
    }
    return NULL;
}

/* A keyword that no parameter took. */
static enum err unknown_keyword(struct jinja_run *r, const struct jinja_args *args, const char *function,
                                const char *params) {
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jinja_value *const key = &args->kw[i].key;
        const char *at = params;
        size_t len;
        bool known = false;
        for (const char *name; name = next_name(&at, &len), len > 0;)
            known |= len == key->len && memcmp(name, key->s, len) == 0;
        if (!known)
            return jinja_run_fail(r, "%s() got an unexpected keyword argument '%.*s'", function,
                                  key->len > 60 ? 60 : (int)key->len, key->s);
    }
    return jinja_run_fail(r, "%s() got multiple values for one argument", function);
}

enum err jinja_args_bind(struct jinja_run *r, const struct jinja_args *args, const char *function, const char *params,
                         const struct jinja_value *out[JINJA_ARGS_MAX]) {
    const char *at = params;
    size_t n = 0, len, n_keywords = 0;
    bool optional = false;
    memset(out, 0, JINJA_ARGS_MAX * sizeof *out);
    for (const char *name; name = next_name(&at, &len), len > 0;) {
        if (*name == '|') {
            optional = true;
            continue;
        }
        const struct jinja_value *const named = keyword(args, name, len);
        out[n] = n < args->n_pos ? &args->pos[n] : named;
        n_keywords += named && out[n] == named;
        if (!out[n] && !optional)
            return jinja_run_fail(r, "%s() missing a required argument: '%.*s'", function, (int)len, name);
        n++;
    }
    if (args->n_pos > n)
        return jinja_run_fail(r, "%s() takes at most %zu arguments (%zu given)", function, n, args->n_pos);
    if (n_keywords < args->n_kw) return unknown_keyword(r, args, function, params);
    return ERR_OK;
}

enum err jinja_args_int(struct jinja_run *r, const struct jinja_value *v, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (!v || v->type == JINJA_NONE) return ERR_OK;
    if (v->type == JINJA_UNDEF) return jinja_value_fail_undef(r, v);
    if (!jinja_is_int(v))
        return jinja_run_fail(r, "'%s' object cannot be interpreted as an integer", jinja_value_type_name(v));
    const __int128 i = jinja_as_int(v);
    *out = i > INT64_MAX ? INT64_MAX : i < -INT64_MAX ? -INT64_MAX : (int64_t)i;
    return ERR_OK;
}

bool jinja_args_bool(const struct jinja_value *v, bool fallback) {
    return v ? jinja_value_truth(v) : fallback;
}

enum err jinja_args_str(struct jinja_run *r, const struct jinja_value *v) {
    if (v->type == JINJA_STR) return ERR_OK;
    if (v->type == JINJA_UNDEF && v->kind == JINJA_UNDEF_UNSAFE) return jinja_value_fail_undef(r, v);
    return jinja_run_fail(r, "argument must be str, not %s", jinja_value_type_name(v));
}
