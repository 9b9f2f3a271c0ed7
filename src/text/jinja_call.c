/* Calls: macros, global functions, bound methods, cyclers and joiners. */
#include <time.h>

#include "text/jinja_dict.h"
#include "text/jinja_eval.h"
#include "text/jinja_methods.h"
#include "text/jinja_repr.h"

typedef enum err (*function_fn)(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out);

/* ---- macros ---- */

static const struct jinja_value *keyword(const struct jinja_args *args, const struct jinja_value *name) {
    for (size_t i = 0; i < args->n_kw; i++)
        if (args->kw[i].key.len == name->len && memcmp(args->kw[i].key.s, name->s, name->len) == 0)
            return &args->kw[i].value;
    return NULL;
}

static enum err default_of(struct jinja_run *r, const struct jinja_macro *m, size_t i, struct jinja_scope *s,
                           struct jinja_value *out) {
    const struct jinja_signature *const sig = m->sig;
    const size_t first = sig->n - sig->n_defaults;
    if (i >= first) return jinja_expr_eval(r, s, sig->defaults[i - first], out);
    static const char text[] = "a parameter was not provided";
    *out = jinja_undef(JINJA_UNDEF_TEXT, NULL, text, sizeof text - 1);
    return ERR_OK;
}

static bool is_parameter(const struct jinja_signature *sig, const struct jinja_value *name) {
    for (size_t i = 0; i < sig->n; i++)
        if (sig->names[i].len == name->len && memcmp(sig->names[i].s, name->s, name->len) == 0) return true;
    return false;
}

/* The arguments that no parameter takes: varargs, kwargs, caller, or an error. */
static enum err bind_rest(struct jinja_run *r, const struct jinja_macro *m, const struct jinja_args *args,
                          struct jinja_scope *s) {
    const struct jinja_signature *const sig = m->sig;
    struct jinja_value varargs, kwargs, caller = jinja_undef(JINJA_UNDEF_TEXT, NULL, "No caller defined", 17);
    TRY(jinja_value_list(r, JINJA_SEQ_TUPLE, 0, &varargs));
    TRY(jinja_dict_new(r, JINJA_DICT, &kwargs));
    for (size_t i = sig->n; i < args->n_pos; i++)
        TRY(jinja_value_push(r, varargs.list, &args->pos[i]));
    for (size_t i = 0; i < args->n_kw; i++) {
        const struct jinja_pair *const kw = &args->kw[i];
        if (is_parameter(sig, &kw->key)) continue;
        if (sig->uses_caller && jinja_is_text(&kw->key, "caller"))
            caller = kw->value;
        else
            TRY(jinja_dict_put(r, kwargs.dict, &kw->key, &kw->value));
    }
    if (varargs.list->n && !sig->uses_varargs)
        return jinja_run_fail(r, "macro '%.*s' takes not more than %zu argument(s)", (int)sig->name.len, sig->name.s,
                              sig->n);
    if (kwargs.dict->n && !sig->uses_kwargs)
        return jinja_run_fail(r, "macro '%.*s' takes no keyword argument '%.*s'", (int)sig->name.len, sig->name.s,
                              (int)kwargs.dict->pairs[0].key.len, kwargs.dict->pairs[0].key.s);
    if (sig->uses_caller) TRY(jinja_eval_set(r, s, SYM_CALLER, &caller));
    if (sig->uses_varargs) TRY(jinja_eval_set(r, s, SYM_VARARGS, &varargs));
    return sig->uses_kwargs ? jinja_eval_set(r, s, SYM_KWARGS, &kwargs) : ERR_OK;
}

static enum err call_macro(struct jinja_run *r, const struct jinja_macro *m, const struct jinja_args *args,
                           struct jinja_value *out) {
    struct jinja_scope *s;
    TRY(jinja_eval_scope(r, m->scope, &s));
    if (args->n_pos > m->sig->n || args->n_kw || m->sig->uses_caller || m->sig->uses_varargs || m->sig->uses_kwargs)
        TRY(bind_rest(r, m, args, s));
    for (size_t i = 0; i < m->sig->n; i++) {
        const struct jinja_value *const named = keyword(args, &m->sig->names[i]);
        struct jinja_value v;
        if (i < args->n_pos && named)
            return jinja_run_fail(r, "macro '%.*s' got two values for one argument", (int)m->sig->name.len,
                                  m->sig->name.s);
        if (i < args->n_pos)
            v = args->pos[i];
        else if (named)
            v = *named;
        else
            TRY(default_of(r, m, i, s, &v));
        TRY(jinja_eval_set(r, s, m->sig->syms[i], &v));
    }
    return jinja_eval_capture(r, s, m->body, out);
}

/* ---- global functions ---- */

static enum err fn_range(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_value *p[JINJA_ARGS_MAX];
    int64_t a, b, step;
    TRY(jinja_args_bind(r, args, "range", "start | stop step", p));
    for (int i = 0; i < 3; i++)
        if (p[i] && p[i]->type == JINJA_NONE)
            return jinja_run_fail(r, "'NoneType' object cannot be interpreted as an integer");
    TRY(jinja_args_int(r, p[0], 0, &a));
    TRY(jinja_args_int(r, p[1], 0, &b));
    TRY(jinja_args_int(r, p[2], 1, &step));
    if (step == 0) return jinja_run_fail(r, "range() arg 3 must not be zero");
    if (!p[1]) {
        b = a;
        a = 0;
    }
    const __int128 span = step > 0 ? (__int128)b - a : (__int128)a - b;
    const __int128 n = span <= 0 ? 0 : (span - 1) / (step > 0 ? step : -(__int128)step) + 1;
    if (n > JINJA_RANGE_MAX)
        return jinja_run_fail(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                              JINJA_RANGE_MAX);
    TRY(jinja_value_list(r, JINJA_SEQ_RANGE, (size_t)n, out));
    for (int64_t i = 0; i < (int64_t)n; i++)
        out->list->v[i] = jinja_int((__int128)a + (__int128)step * i);
    out->list->n = (size_t)n;
    return ERR_OK;
}

static enum err dict_from(struct jinja_run *r, const struct jinja_args *args, enum jinja_type type,
                          struct jinja_value *out) {
    TRY(jinja_dict_new(r, type, out));
    if (args->n_pos > 1) return jinja_run_fail(r, "dict expected at most 1 argument, got %zu", args->n_pos);
    if (args->n_pos) TRY(jinja_dict_update(r, out->dict, &args->pos[0]));
    for (size_t i = 0; i < args->n_kw; i++)
        TRY(jinja_dict_put(r, out->dict, &args->kw[i].key, &args->kw[i].value));
    return ERR_OK;
}

static enum err fn_dict(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out) {
    return dict_from(r, args, JINJA_DICT, out);
}

static enum err fn_namespace(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out) {
    TRY(dict_from(r, args, JINJA_NS, out));
    for (size_t i = 0; i < out->dict->n; i++) {
        const struct jinja_value *const key = &out->dict->pairs[i].key;
        if (key->type == JINJA_STR && key->len && key->s[0] == '_')
            return jinja_run_fail(r, "Chat templates cannot store underscore-prefixed attributes on a namespace");
    }
    return ERR_OK;
}

/* The template refuses its input: its own words are the message. */
static enum err fn_raise(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_value *p[JINJA_ARGS_MAX];
    TRY(jinja_args_bind(r, args, "raise_exception", "message", p));
    TRY(jinja_repr_to_str(r, p[0], out));
    if (out->len == 0 || out->s[0] == '\0') return jinja_run_fail(r, "raise_exception without a message");
    return err_set(r->msg, ERR_ARG, "%.*s", out->len > 470 ? 470 : (int)out->len, out->s);
}

static enum err fn_strftime_now(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_value *p[JINJA_ARGS_MAX];
    char format[256], text[1024];
    struct tm tm;
    const time_t now = (time_t)r->now_unix_s;
    TRY(jinja_args_bind(r, args, "strftime_now", "format", p));
    TRY(jinja_args_str(r, p[0]));
    if (p[0]->len >= sizeof format - 1) return jinja_run_fail(r, "strftime_now: the format is too long");
    memcpy(format, p[0]->s, p[0]->len);
    format[p[0]->len] = ' '; /* so that a result is never empty, which strftime could not tell from a failure */
    format[p[0]->len + 1] = '\0';
    if (!localtime_r(&now, &tm)) return jinja_run_fail(r, "strftime_now: the time is out of range");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the format is the template's; strftime reads no arguments */
    const size_t n = strftime(text, sizeof text, format, &tm);
#pragma GCC diagnostic pop
    if (n == 0) return jinja_run_fail(r, "strftime_now: the result is too long");
    return jinja_value_str(r, text, n - 1, out);
}

static enum err list_object(struct jinja_run *r, enum jinja_type type, const struct jinja_value *v, size_t n,
                            struct jinja_value *out) {
    struct jinja_value list;
    TRY(jinja_value_list(r, JINJA_SEQ_LIST, n, &list));
    memcpy(list.list->v, v, n * sizeof *v);
    list.list->n = n;
    *out = (struct jinja_value){.type = (uint8_t)type, .cycle = list.list};
    return ERR_OK;
}

static enum err fn_cycler(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out) {
    if (args->n_pos == 0) return jinja_run_fail(r, "at least one item has to be provided");
    return list_object(r, JINJA_CYCLER, args->pos, args->n_pos, out);
}

static enum err fn_joiner(struct jinja_run *r, const struct jinja_args *args, struct jinja_value *out) {
    const struct jinja_value *p[JINJA_ARGS_MAX];
    const struct jinja_value comma = jinja_cstr(", ");
    TRY(jinja_args_bind(r, args, "joiner", "| sep", p));
    return list_object(r, JINJA_JOINER, p[0] ? p[0] : &comma, 1, out);
}

static const struct {
    const char *name;
    function_fn call;
} functions[] = {
    {"range", fn_range},
    {"dict", fn_dict},
    {"namespace", fn_namespace},
    {"raise_exception", fn_raise},
    {"strftime_now", fn_strftime_now},
    {"cycler", fn_cycler},
    {"joiner", fn_joiner},
};

bool jinja_call_global(const struct jinja_value *name, struct jinja_value *out) {
    for (size_t i = 0; i < N_ELEMENTS(functions); i++) {
        if (!jinja_is_text(name, functions[i].name)) continue;
        *out = (struct jinja_value){.type = JINJA_FUNC, .kind = (uint8_t)i};
        return true;
    }
    return false;
}

/* Nothing the first time, then its text. */
static enum err call_joiner(struct jinja_list *l, struct jinja_value *out) {
    *out = l->pos ? l->v[0] : jinja_cstr("");
    l->pos = 1;
    return ERR_OK;
}

enum err jinja_call_value(struct jinja_run *r, const struct jinja_value *callee, const struct jinja_args *args,
                          struct jinja_value *out) {
    switch ((enum jinja_type)callee->type) {
    case JINJA_MACRO:
        return call_macro(r, callee->macro, args, out);
    case JINJA_FUNC:
        return functions[callee->kind].call(r, args, out);
    case JINJA_METHOD:
        return jinja_methods_call(r, callee, args, out);
    case JINJA_LOOP:
        return jinja_loop_recurse(r, callee->loop, args, out);
    case JINJA_JOINER:
        return call_joiner(callee->cycle, out);
    case JINJA_UNDEF:
        return jinja_value_fail_undef(r, callee);
    default:
        return jinja_run_fail(r, "'%s' object is not callable", jinja_value_type_name(callee));
    }
}
