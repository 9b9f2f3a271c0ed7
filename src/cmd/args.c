#include "cmd/args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_NAME_WIDTH = 30, HELP_WIDTH = 80 };

/* "max_model_len" and "max-model-len" are the same name; len bytes of `given` are looked at. */
static bool same_name(const char *name, const char *given, size_t len) {
    if (strlen(name) != len) return false;
    for (size_t i = 0; i < len; i++)
        if (name[i] != (given[i] == '_' ? '-' : given[i])) return false;
    return true;
}

static bool is_bool(const struct arg_def *d) {
    return d->kind == ARG_FLAG || d->kind == ARG_FLAG_NOT;
}

struct match {
    const struct arg_def *def;
    void *field;
    bool negated; /* --no-x */
};

static bool match_def(const struct arg_def *d, const char *flag, size_t len, bool *negated) {
    *negated = false;
    if (d->alias && strlen(d->alias) == len && strncmp(d->alias, flag, len) == 0) return true;
    if (len < 3 || strncmp(flag, "--", 2) != 0) return false;
    if (same_name(d->name, flag + 2, len - 2)) return true;
    const bool no = len > 5 && strncmp(flag, "--no", 4) == 0 && (flag[4] == '-' || flag[4] == '_');
    *negated = true;
    return no && is_bool(d) && same_name(d->name, flag + 5, len - 5);
}

static bool find_flag(const struct args *a, const char *flag, size_t len, struct match *out) {
    for (size_t g = 0; g < a->n_groups; g++) {
        for (size_t i = 0; i < a->groups[g].n_defs; i++) {
            const struct arg_def *const d = &a->groups[g].defs[i];
            if (!match_def(d, flag, len, &out->negated)) continue;
            out->def = d;
            out->field = (char *)a->groups[g].target + d->offset;
            return true;
        }
    }
    return false;
}

/* A number with an optional suffix k, m, g, t (and "ib" or "b" behind it), in powers of 1024. */
static bool parse_scaled(const char *text, double *out) {
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || !isfinite(v) || v < 0 || strpbrk(text, "xXpP")) return false;
    const char *const units = "kmgt", *const u = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (u) {
        for (const char *p = units; p <= u; p++)
            v *= 1024;
        end++;
        if (tolower((unsigned char)*end) == 'i') end++;
    }
    if (tolower((unsigned char)*end) == 'b') end++;
    *out = v;
    return *end == '\0' && v < 0x1p62;
}

enum err args_parse_size(int64_t *out, const char *text, struct err_msg *msg) {
    double v;
    if (!parse_scaled(text, &v))
        return err_set(msg, ERR_ARG, "'%s' is no size; write it like 4GiB, 512M or 4096", text);
    *out = (int64_t)v;
    return ERR_OK;
}

/* The index of `text` among the words of choices ("a|b"), snake case allowed; -1. */
static int choice_index(const char *choices, const char *text) {
    int i = 0;
    for (const char *p = choices;; i++) {
        const size_t len = strcspn(p, "|");
        if (strlen(text) == len) {
            size_t k = 0;
            while (k < len && (p[k] == text[k] || (p[k] == '-' && text[k] == '_')))
                k++;
            if (k == len) return i;
        }
        if (!p[len]) return -1;
        p += len + 1;
    }
}

static enum err check_range(const struct arg_def *d, double v, struct err_msg *msg) {
    const bool any = d->min == 0 && d->max == 0;
    if (any ? v >= 0 : (v >= d->min && v <= d->max)) return ERR_OK;
    if (any) return err_set(msg, ERR_ARG, "--%s must not be negative", d->name);
    return err_set(msg, ERR_ARG, "--%s must be between %.10g and %.10g", d->name, d->min, d->max);
}

static enum err set_integer(const struct arg_def *d, void *field, const char *text, struct err_msg *msg) {
    char *end;
    errno = 0;
    const long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return err_set(msg, ERR_ARG, "--%s needs a whole number, not '%s'", d->name, text);
    TRY(check_range(d, (double)v, msg));
    if (d->kind == ARG_INT64) {
        *(int64_t *)field = v;
        return ERR_OK;
    }
    if (v > (long long)INT32_MAX - d->bias || v < INT32_MIN)
        return err_set(msg, ERR_ARG, "--%s: %s is too large", d->name, text);
    *(int *)field = (int)v + d->bias;
    return ERR_OK;
}

static enum err set_uint64(const struct arg_def *d, void *field, const char *text, struct err_msg *msg) {
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end || errno)
        return err_set(msg, ERR_ARG, "--%s needs a whole number from 0, not '%s'", d->name, text);
    *(uint64_t *)field = v;
    return ERR_OK;
}

static enum err set_scaled(const struct arg_def *d, void *field, const char *text, struct err_msg *msg) {
    double v;
    if (!parse_scaled(text, &v))
        return err_set(msg, ERR_ARG,
                       d->kind == ARG_SIZE ? "--%s needs a size like 4GiB or 512M, not '%s'"
                                           : "--%s needs a whole number like 4096 or 4k, not '%s'",
                       d->name, text);
    TRY(check_range(d, v, msg));
    *(int64_t *)field = (int64_t)v;
    return ERR_OK;
}

static enum err set_double(const struct arg_def *d, void *field, const char *text, struct err_msg *msg) {
    char *end;
    const double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        return err_set(msg, ERR_ARG, "--%s needs a number, not '%s'", d->name, text);
    TRY(check_range(d, v, msg));
    *(double *)field = v;
    return ERR_OK;
}

static enum err list_add(const struct arg_def *d, struct arg_list *list, const char *text, struct err_msg *msg) {
    if (list->n == ARG_LIST_MAX) return err_set(msg, ERR_ARG, "--%s: more than %d values", d->name, ARG_LIST_MAX);
    list->items[list->n++] = text;
    return ERR_OK;
}

static enum err set_value(const struct match *m, const char *text, struct err_msg *msg) {
    const struct arg_def *const d = m->def;
    switch (d->kind) {
    case ARG_STRING:
        *(const char **)m->field = text;
        return ERR_OK;
    case ARG_LIST:
        return list_add(d, m->field, text, msg);
    case ARG_INT:
    case ARG_INT64:
        return set_integer(d, m->field, text, msg);
    case ARG_UINT64:
        return set_uint64(d, m->field, text, msg);
    case ARG_SIZE:
    case ARG_COUNT:
        return set_scaled(d, m->field, text, msg);
    case ARG_DOUBLE:
        return set_double(d, m->field, text, msg);
    case ARG_CHOICE:
    case ARG_ENUM:
        break;
    case ARG_FLAG:
    case ARG_FLAG_NOT:
        return err_set(msg, ERR_ARG, "--%s takes no value", d->name);
    }
    const int i = choice_index(d->choices, text);
    if (i < 0) return err_set(msg, ERR_ARG, "--%s: '%s' is none of %s", d->name, text, d->choices);
    if (d->kind == ARG_ENUM)
        *(int *)m->field = i;
    else
        *(const char **)m->field = text;
    return ERR_OK;
}

/* Parses the flag at argv[*i] and moves *i to the last word that belongs to it. */
static enum err parse_flag(const struct args *a, int argc, char **argv, int *i, struct err_msg *msg) {
    const char *const word = argv[*i], *const eq = strchr(word, '=');
    const size_t len = eq ? (size_t)(eq - word) : strlen(word);
    struct match m;
    if (!find_flag(a, word, len, &m))
        return err_set(msg, ERR_ARG, "unknown flag %.*s; --help lists the flags", (int)len, word);
    if (is_bool(m.def) && !eq) {
        *(bool *)m.field = (m.def->kind == ARG_FLAG) != m.negated;
        return ERR_OK;
    }
    if (eq) return set_value(&m, eq + 1, msg);
    if (*i + 1 >= argc) return err_set(msg, ERR_ARG, "--%s needs a value", m.def->name);
    TRY(set_value(&m, argv[++*i], msg));
    while (m.def->kind == ARG_LIST && *i + 1 < argc && argv[*i + 1][0] != '-')
        TRY(set_value(&m, argv[++*i], msg));
    return ERR_OK;
}

static enum err add_positional(struct args *a, const char *word, struct err_msg *msg) {
    if (a->n_positional >= a->n_positional_max || a->n_positional == ARG_POSITIONAL_MAX)
        return err_set(msg, ERR_ARG, "unexpected word '%s'; --help lists the flags", word);
    a->positional[a->n_positional++] = word;
    return ERR_OK;
}

enum err args_parse(struct args *a, int argc, char **argv, struct err_msg *msg) {
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        const char *const w = argv[i];
        if (only_words || w[0] != '-' || !w[1]) {
            TRY(add_positional(a, w, msg));
        } else if (strcmp(w, "--") == 0) {
            only_words = true;
        } else if (strcmp(w, "-h") == 0 || strcmp(w, "--help") == 0) {
            a->help = true;
            return ERR_OK;
        } else if (strcmp(w, "--help-all") == 0 || strcmp(w, "--help_all") == 0) {
            a->help = a->help_all = true;
            return ERR_OK;
        } else {
            TRY(parse_flag(a, argc, argv, &i, msg));
        }
    }
    return ERR_OK;
}

static void print_flag(const struct arg_def *d, FILE *out) {
    const char *const value = d->value ? d->value : d->choices ? d->choices : "";
    const int n = fprintf(out, "  %s%s--%s%s%s%s", d->alias ? d->alias : "", d->alias ? ", " : "",
                          is_bool(d) ? "[no-]" : "", d->name, *value ? " " : "", value);
    if (n >= HELP_NAME_WIDTH)
        fprintf(out, "\n%*s%s\n", HELP_NAME_WIDTH, "", d->help);
    else
        fprintf(out, "%*s%s\n", HELP_NAME_WIDTH - n, "", d->help);
}

/* The names of the rare flags of all groups as one wrapped paragraph. */
static void print_rare(const struct args *a, FILE *out) {
    int col = fprintf(out, "more (--help-all explains them):");
    for (size_t g = 0; g < a->n_groups; g++) {
        for (size_t i = 0; i < a->groups[g].n_defs; i++) {
            const struct arg_def *const d = &a->groups[g].defs[i];
            if (!d->rare) continue;
            const int n = (int)strlen(d->name) + (is_bool(d) ? 8 : 3);
            if (col + n >= HELP_WIDTH) col = fprintf(out, "\n ") - 1;
            col += fprintf(out, " --%s%s", is_bool(d) ? "[no-]" : "", d->name);
        }
    }
    fputc('\n', out);
}

void args_print_help(const struct args *a, FILE *out, const char *usage, bool all) {
    bool any_rare = false;
    fprintf(out, "usage: %s\n", usage);
    for (size_t g = 0; g < a->n_groups; g++) {
        bool titled = false;
        for (size_t i = 0; i < a->groups[g].n_defs; i++) {
            const struct arg_def *const d = &a->groups[g].defs[i];
            any_rare |= d->rare;
            if (d->rare && !all) continue;
            if (!titled) fprintf(out, "%s:\n", a->groups[g].title);
            titled = true;
            print_flag(d, out);
        }
    }
    if (any_rare && !all) print_rare(a, out);
}

bool args_listed(const char *list, const char *name) {
    const size_t len = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, len) == 0 && (p[len] == ',' || !p[len])) return true;
    return strcmp(list, "all") == 0;
}
