#include "text/jinja_tests.h"

#include "text/jinja_filters.h"
#include "text/jinja_ops.h"
#include "text/jinja_repr.h"
#include "text/jinja_str.h"

typedef enum err (*test_fn)(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out);

struct jinja_test {
    const char *name;
    const char *params;
    test_fn apply;
};

/* Tests of the type alone. */
#define TEST(name, cond)                                                                                               \
    static enum err test_##name(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p,        \
                                bool *out) {                                                                           \
        (void)r;                                                                                                       \
        (void)p;                                                                                                       \
        *out = (cond);                                                                                                 \
        return ERR_OK;                                                                                                 \
    }

TEST(defined, v->type != JINJA_UNDEF)
TEST(undefined, v->type == JINJA_UNDEF)
TEST(none, v->type == JINJA_NONE)
TEST(boolean, v->type == JINJA_BOOL)
TEST(true, v->type == JINJA_BOOL && v->b)
TEST(false, v->type == JINJA_BOOL && !v->b)
TEST(integer, v->type == JINJA_INT)
TEST(float, v->type == JINJA_FLOAT)
TEST(number, jinja_is_number(v))
TEST(string, v->type == JINJA_STR)
TEST(escaped, v->type == JINJA_STR && v->kind)
TEST(mapping, v->type == JINJA_DICT)
TEST(iterable, v->type == JINJA_UNDEF || v->type == JINJA_STR || v->type == JINJA_LIST || v->type == JINJA_DICT ||
                   v->type == JINJA_LOOP)
TEST(sequence, v->type == JINJA_UNDEF || v->type == JINJA_STR || v->type == JINJA_DICT ||
                   (v->type == JINJA_LIST && v->list->kind <= JINJA_SEQ_RANGE))
TEST(callable, v->type == JINJA_UNDEF || v->type == JINJA_MACRO || v->type == JINJA_FUNC || v->type == JINJA_METHOD ||
                   v->type == JINJA_LOOP || v->type == JINJA_JOINER)

static enum err test_sameas(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out) {
    (void)r;
    const struct jinja_value *const o = p[0];
    *out = v->type == o->type;
    if (!*out || v->type == JINJA_NONE) return ERR_OK;
    if (v->type == JINJA_BOOL)
        *out = v->b == o->b;
    else if (v->type == JINJA_INT)
        *out = v->i == o->i;
    else if (v->type == JINJA_FLOAT)
        *out = v->f == o->f;
    else if (v->type == JINJA_STR)
        *out = v->len == o->len && memcmp(v->s, o->s, v->len) == 0; /* texts have no identity here */
    else
        *out = v->list == o->list;
    return ERR_OK;
}

static enum err test_lower(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out) {
    struct jinja_value text;
    (void)p;
    TRY(jinja_repr_to_str(r, v, &text));
    *out = jinja_str_is(text.s, text.len, JINJA_STR_IS_LOWER);
    return jinja_run_walk(r, text.len * 8);
}

static enum err test_upper(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out) {
    struct jinja_value text;
    (void)p;
    TRY(jinja_repr_to_str(r, v, &text));
    *out = jinja_str_is(text.s, text.len, JINJA_STR_IS_UPPER);
    return jinja_run_walk(r, text.len * 8);
}

/* v % n == rest */
static enum err remainder_is(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *n, int rest,
                             bool *out) {
    struct jinja_value m;
    const struct jinja_value want = jinja_int(rest);
    TRY(jinja_ops_binary(r, NODE_MOD, v, n, &m));
    return jinja_value_equal(r, &m, &want, out);
}

static enum err test_odd(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out) {
    const struct jinja_value two = jinja_int(2);
    (void)p;
    return remainder_is(r, v, &two, 1, out);
}

static enum err test_even(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out) {
    const struct jinja_value two = jinja_int(2);
    (void)p;
    return remainder_is(r, v, &two, 0, out);
}

static enum err test_divisible(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p,
                               bool *out) {
    return remainder_is(r, v, p[0], 0, out);
}

#define COMPARISON(name, op)                                                                                           \
    static enum err test_##name(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p,        \
                                bool *out) {                                                                           \
        return jinja_ops_compare(r, op, v, p[0], out);                                                                 \
    }

COMPARISON(eq, CMP_EQ)
COMPARISON(ne, CMP_NE)
COMPARISON(lt, CMP_LT)
COMPARISON(le, CMP_LE)
COMPARISON(gt, CMP_GT)
COMPARISON(ge, CMP_GE)
COMPARISON(in, CMP_IN)

static enum err test_filter(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out) {
    (void)r;
    (void)p;
    *out = v->type == JINJA_STR && jinja_filters_find(v->s, v->len);
    return ERR_OK;
}

static enum err test_test(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value **p, bool *out) {
    (void)r;
    (void)p;
    *out = v->type == JINJA_STR && jinja_tests_find(v->s, v->len);
    return ERR_OK;
}

static const struct jinja_test tests[] = {
    /* clang-format off */
    {"defined", "", test_defined},       {"none", "", test_none},           {"string", "", test_string},
    {"mapping", "", test_mapping},       {"iterable", "", test_iterable},   {"sequence", "", test_sequence},
    {"undefined", "", test_undefined},   {"true", "", test_true},           {"false", "", test_false},
    {"boolean", "", test_boolean},       {"integer", "", test_integer},     {"float", "", test_float},
    {"number", "", test_number},         {"callable", "", test_callable},   {"escaped", "", test_escaped},
    {"odd", "", test_odd},               {"even", "", test_even},           {"divisibleby", "num", test_divisible},
    {"sameas", "other", test_sameas},    {"lower", "", test_lower},         {"upper", "", test_upper},
    {"filter", "", test_filter},         {"test", "", test_test},           {"in", "seq", test_in},
    {"eq", "other", test_eq},            {"equalto", "other", test_eq},     {"==", "other", test_eq},
    {"ne", "other", test_ne},            {"!=", "other", test_ne},          {"lt", "other", test_lt},
    {"lessthan", "other", test_lt},      {"<", "other", test_lt},           {"le", "other", test_le},
    {"<=", "other", test_le},            {"gt", "other", test_gt},          {"greaterthan", "other", test_gt},
    {">", "other", test_gt},             {"ge", "other", test_ge},          {">=", "other", test_ge},
    /* clang-format on */
};

const struct jinja_test *jinja_tests_find(const char *name, size_t len) {
    for (size_t i = 0; i < N_ELEMENTS(tests); i++)
        if (strlen(tests[i].name) == len && memcmp(tests[i].name, name, len) == 0) return &tests[i];
    return NULL;
}

enum err jinja_tests_apply(struct jinja_run *r, const struct jinja_test *t, const struct jinja_value *v,
                           const struct jinja_args *args, bool *out) {
    const struct jinja_value *p[JINJA_ARGS_MAX];
    *out = false;
    TRY(jinja_args_bind(r, args, t->name, t->params, p));
    return t->apply(r, v, p, out);
}

enum err jinja_tests_apply_name(struct jinja_run *r, const struct jinja_value *name, const struct jinja_value *v,
                                const struct jinja_args *args, bool *out) {
    const struct jinja_test *const t = name->type == JINJA_STR ? jinja_tests_find(name->s, name->len) : NULL;
    if (t) return jinja_tests_apply(r, t, v, args, out);
    return jinja_run_fail(r, "No test named '%.*s'.", name->type == JINJA_STR && name->len < 60 ? (int)name->len : 1,
                          name->type == JINJA_STR ? name->s : "?");
}
