/* Command-line flags from tables: one struct arg_def per flag says its name, its type and the field it fills.
 *
 * Every long flag is accepted in kebab and snake case, as `--flag value` and as `--flag=value`; short spellings
 * ("-tp") are given as an alias. Boolean flags take no value and have a `--no-` form; the last one wins.
 * Strings are borrowed from argv.
 * Threads: one. Owns: nothing. */
#ifndef CMD_ARGS_H
#define CMD_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

enum arg_kind {
    ARG_STRING,   /* const char * */
    ARG_CHOICE,   /* const char *: one of the words in `choices` */
    ARG_ENUM,     /* int or enum: the index of the word in `choices` */
    ARG_LIST,     /* struct arg_list: the flag may be repeated, or given several words up to the next flag */
    ARG_INT,      /* int in [min, max], stored plus `bias` */
    ARG_INT64,    /* int64_t in [min, max] */
    ARG_UINT64,   /* uint64_t */
    ARG_SIZE,     /* int64_t bytes: "4GiB", "512M", "1.5g", "4096"; powers of 1024 throughout */
    ARG_COUNT,    /* int64_t in [min, max]: "32k" and "32K" mean 32768, as context lengths are written */
    ARG_DOUBLE,   /* double in [min, max] */
    ARG_FLAG,     /* bool */
    ARG_FLAG_NOT, /* bool that holds the opposite of the flag */
};

enum { ARG_LIST_MAX = 32, ARG_POSITIONAL_MAX = 16 };

struct arg_list {
    int n;
    const char *items[ARG_LIST_MAX];
};

struct arg_def {
    const char *name;    /* kebab case without dashes, "max-model-len" */
    const char *alias;   /* with its dash, "-tp"; or NULL */
    enum arg_kind kind;
    size_t offset;       /* of the field in the group's target */
    const char *choices; /* "auto|float32" */
    double min, max;     /* both 0: only what the type allows, and no negative numbers */
    int bias;
    const char *value;   /* what the help calls the value, "N" */
    const char *help;    /* one line */
    bool rare;           /* only named, not explained, by the short help */
};

struct arg_group {
    const char *title;
    const struct arg_def *defs;
    size_t n_defs;
    void *target;
};

struct args {
    const struct arg_group *groups;
    size_t n_groups;
    int n_positional_max;                       /* more words than these are an error */
    int n_positional;                           /* out */
    const char *positional[ARG_POSITIONAL_MAX]; /* out: words that are no flags; all words behind "--" */
    bool help, help_all;                        /* out: -h or --help, --help-all; parsing stops there */
};

/* Fills the targets from argv[1 .. argc-1]. ERR_ARG with one line that names the flag. */
enum err args_parse(struct args *a, int argc, char **argv, struct err_msg *msg) ATTR_NODISCARD;

/* Prints the usage line, then the flags; without `all` the rare ones are only listed. */
void args_print_help(const struct args *a, FILE *out, const char *usage, bool all);

/* Bytes from "4GiB" and the like (see ARG_SIZE). */
enum err args_parse_size(int64_t *out, const char *text, struct err_msg *msg) ATTR_NODISCARD;

/* Whether a word of the comma-separated list is `name`, or the list is "all". */
bool args_listed(const char *list, const char *name);

#endif
