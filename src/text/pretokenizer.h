/* Pre-tokenizers: cut a normalized text into pieces that merges never cross. A pipeline of steps, each applied inside
 * every piece made so far.
 * Threads: immutable once built; each thread brings its own pretokenizer_run. */
#ifndef TEXT_PRETOKENIZER_H
#define TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"
#include "text/regex.h"

enum pretokenizer_kind {
    PRETOKENIZER_REGEX,   /* matches of `regex` */
    PRETOKENIZER_LITERAL, /* occurrences of `literal` */
    PRETOKENIZER_DIGITS,  /* runs of category N; `individual`: each by itself */
    PRETOKENIZER_PUNCTUATION,
    PRETOKENIZER_WHITESPACE,   /* runs of White_Space */
    PRETOKENIZER_METASPACE,    /* spaces become `literal`, one is put in front by `prepend`, pieces start with it */
    PRETOKENIZER_PREFIX_SPACE, /* a piece that does not start with a space gets one */
};

/* What becomes of a match (Hugging Face's SplitDelimiterBehavior). */
enum pretokenizer_behavior {
    PRETOKENIZER_ISOLATED,
    PRETOKENIZER_REMOVED,
    PRETOKENIZER_MERGED_PREVIOUS,
    PRETOKENIZER_MERGED_NEXT,
    PRETOKENIZER_CONTIGUOUS,
};

enum pretokenizer_prepend { PRETOKENIZER_PREPEND_ALWAYS, PRETOKENIZER_PREPEND_FIRST, PRETOKENIZER_PREPEND_NEVER };

struct pretokenizer_step {
    enum pretokenizer_kind kind;
    enum pretokenizer_behavior behavior;
    enum pretokenizer_prepend prepend;
    bool invert;     /* what does not match is the match */
    bool individual; /* digits */
    bool split;      /* metaspace: cut in front of each `literal` */
    struct regex *regex;
    char *literal;
    size_t literal_len;
};

enum { PRETOKENIZER_STEPS_MAX = 16 };

struct pretokenizer {
    struct pretokenizer_step steps[PRETOKENIZER_STEPS_MAX];
    int n_steps;
};

struct pretokenizer_span {
    uint32_t at, len;
};

/* Scratch and result of one thread; zeroed = empty. */
struct pretokenizer_run {
    const char *text; /* what the spans point into: the caller's text or one of bufs */
    struct pretokenizer_span *spans;
    size_t n_spans;
    /* private */
    struct pretokenizer_span *lists[2];
    size_t caps[2];
    struct pretokenizer_mark *marks;
    size_t n_marks, cap_marks;
    struct strbuf bufs[2];
    struct regex_run regex;
};

/* Appends an Isolated split by this regular expression. */
enum err pretokenizer_add_regex(struct pretokenizer *p, const char *pattern, size_t len,
                                struct err_msg *msg) ATTR_NODISCARD;

/* Appends a step, whose regex and literal are taken over (also on failure). */
enum err pretokenizer_add(struct pretokenizer *p, struct pretokenizer_step step, struct err_msg *msg) ATTR_NODISCARD;

/* Cuts text [len < 2^31, valid UTF-8]. at_start: it begins the whole input. False: no memory. */
bool pretokenizer_cut(const struct pretokenizer *p, const char *text, size_t len, bool at_start,
                      struct pretokenizer_run *run) ATTR_NODISCARD;

void pretokenizer_run_deinit(struct pretokenizer_run *run);
void pretokenizer_deinit(struct pretokenizer *p);

#endif
