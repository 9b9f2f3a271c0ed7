/* map, select, reject and their attribute forms: filters that take another filter or test. */
#include "text/jinja_access.h"
#include "text/jinja_filters.h"
#include "text/jinja_filters_int.h"
#include "text/jinja_tests.h"

static const struct jinja_value *keyword(const struct jinja_args *args, const char *name) {
    for (size_t i = 0; i < args->n_kw; i++)
        if (jinja_is_text(&args->kw[i].key, name)) return &args->kw[i].value;
    return NULL;
}

static enum err map_attribute(struct jinja_run *r, const struct jinja_value *item, const struct jinja_args *args,
                              struct jinja_value *out) {
    const struct jinja_value *fallback = keyword(args, "default");
    if (fallback && fallback->type == JINJA_NONE) fallback = NULL;
    return jinja_access_path(r, item, keyword(args, "attribute"), fallback, out);
}

enum err jinja_filters_pick_map(struct jinja_run *r, const struct jinja_value *in, const struct jinja_args *args,
                                struct jinja_value *out) {
    struct jinja_value *items = NULL;
    size_t n = 0;
    const bool by_attribute = args->n_pos == 0 && keyword(args, "attribute");
    if (!jinja_value_truth(in)) return jinja_value_list(r, JINJA_SEQ_GENERATOR, 0, out); /* none is as good as empty */
    if (!by_attribute && args->n_pos == 0) return jinja_run_fail(r, "map requires a filter argument");
    if (by_attribute && args->n_kw > 1 + (keyword(args, "default") != NULL))
        return jinja_run_fail(r, "map() got an unexpected keyword argument");
    struct jinja_args rest = *args;
    if (!by_attribute) {
        rest.pos++;
        rest.n_pos--;
    }
    TRY(jinja_value_iterate(r, in, &items, &n));
    TRY(jinja_value_list(r, JINJA_SEQ_GENERATOR, n, out));
    for (size_t i = 0; i < n; i++) {
        struct jinja_value v;
        TRY(jinja_run_step(r, 1));
        TRY(by_attribute ? map_attribute(r, &items[i], args, &v)
                         : jinja_filters_apply_name(r, &args->pos[0], &items[i], &rest, &v));
        TRY(jinja_value_push(r, out->list, &v));
    }
    return ERR_OK;
}

/* Keeps the items whose test (or truth) equals `keep`; attribute: the first argument names what is tested. */
static enum err pick(struct jinja_run *r, const struct jinja_value *in, const struct jinja_args *args, bool attribute,
                     bool keep, struct jinja_value *out) {
    struct jinja_value *items = NULL;
    size_t n = 0;
    const size_t skip = attribute;
    if (!jinja_value_truth(in)) return jinja_value_list(r, JINJA_SEQ_GENERATOR, 0, out);
    if (args->n_pos < skip) return jinja_run_fail(r, "Missing parameter for attribute name");
    const bool tested = args->n_pos > skip;
    struct jinja_args rest = *args;
    if (skip + tested > 0) rest.pos += skip + tested; /* no arguments: no array */
    rest.n_pos -= skip + tested;
    TRY(jinja_value_iterate(r, in, &items, &n));
    TRY(jinja_value_list(r, JINJA_SEQ_GENERATOR, 0, out));
    for (size_t i = 0; i < n; i++) {
        struct jinja_value v = items[i];
        bool yes = false;
        TRY(jinja_run_step(r, 1));
        if (attribute) TRY(jinja_access_path(r, &items[i], &args->pos[0], NULL, &v));
        if (tested)
            TRY(jinja_tests_apply_name(r, &args->pos[skip], &v, &rest, &yes));
        else
            yes = jinja_value_truth(&v);
        if (yes == keep) TRY(jinja_value_push(r, out->list, &items[i]));
    }
    return ERR_OK;
}

#define PICK(name, attribute, keep)                                                                                    \
    enum err jinja_filters_pick_##name(struct jinja_run *r, const struct jinja_value *in,                              \
                                       const struct jinja_args *args, struct jinja_value *out) {                       \
        return pick(r, in, args, attribute, keep, out);                                                                \
    }

PICK(select, false, true)
PICK(reject, false, false)
PICK(selectattr, true, true)
PICK(rejectattr, true, false)
