#include "text/pretokenizer.h"

#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

/* A stretch of a piece that matched, or that lies between matches. */
struct pretokenizer_mark {
    uint32_t at, len;
    bool match;
};

typedef bool next_fn(const struct pretokenizer_step *s, struct pretokenizer_run *run, const char *text, size_t n,
                     size_t from, size_t *start, size_t *end);

static bool next_regex(const struct pretokenizer_step *s, struct pretokenizer_run *run, const char *text, size_t n,
                       size_t from, size_t *start, size_t *end) {
    return regex_next(s->regex, &run->regex, text, n, from, start, end);
}

static bool next_literal(const struct pretokenizer_step *s, struct pretokenizer_run *run, const char *text, size_t n,
                         size_t from, size_t *start, size_t *end) {
    (void)run;
    const char *const hit = s->literal_len ? memmem(text + from, n - from, s->literal, s->literal_len) : NULL;
    if (!hit) return false;
    *start = (size_t)(hit - text);
    *end = *start + s->literal_len;
    return true;
}

/* The next character of a class, or the whole run of them. */
static bool next_class(bool (*in)(uint32_t), bool run_of_them, const char *text, size_t n, size_t from, size_t *start,
                       size_t *end) {
    for (size_t at = from; at < n;) {
        int len;
        const bool hit = in(utf8_get(text + at, &len));
        *start = at;
        at += (size_t)len;
        if (!hit) continue;
        while (run_of_them && at < n && in(utf8_get(text + at, &len))) at += (size_t)len;
        *end = at;
        return true;
    }
    return false;
}

static bool next_digits(const struct pretokenizer_step *s, struct pretokenizer_run *run, const char *text, size_t n,
                        size_t from, size_t *start, size_t *end) {
    (void)run;
    return next_class(utf8_is_number, !s->individual, text, n, from, start, end);
}

static bool next_punctuation(const struct pretokenizer_step *s, struct pretokenizer_run *run, const char *text,
                             size_t n, size_t from, size_t *start, size_t *end) {
    (void)run;
    (void)s;
    return next_class(utf8_is_punct, false, text, n, from, start, end);
}

static bool next_whitespace(const struct pretokenizer_step *s, struct pretokenizer_run *run, const char *text, size_t n,
                            size_t from, size_t *start, size_t *end) {
    (void)run;
    (void)s;
    return next_class(utf8_is_space, false, text, n, from, start, end);
}

static next_fn *const next_of[] = {
    [PRETOKENIZER_REGEX] = next_regex,         [PRETOKENIZER_LITERAL] = next_literal,
    [PRETOKENIZER_DIGITS] = next_digits,       [PRETOKENIZER_PUNCTUATION] = next_punctuation,
    [PRETOKENIZER_WHITESPACE] = next_whitespace, [PRETOKENIZER_METASPACE] = next_literal,
    [PRETOKENIZER_PREFIX_SPACE] = NULL,
};

static bool push_span(struct pretokenizer_run *run, size_t *n, size_t at, size_t len) {
    if (!len) return true;
    if (*n == run->caps[1] && !mem_grow(&run->lists[1], &run->caps[1], *n + 1, sizeof **run->lists)) return false;
    run->lists[1][(*n)++] = (struct pretokenizer_span){(uint32_t)at, (uint32_t)len};
    return true;
}

static bool push_mark(struct pretokenizer_run *run, size_t at, size_t len, bool match) {
    if (!len) return true;
    if (!mem_grow(&run->marks, &run->cap_marks, run->n_marks + 1, sizeof *run->marks)) return false;
    run->marks[run->n_marks++] = (struct pretokenizer_mark){(uint32_t)at, (uint32_t)len, match};
    return true;
}

/* The common case: every match and every gap is a piece. */
static bool cut_isolated(const struct pretokenizer_step *s, struct pretokenizer_run *run, struct pretokenizer_span in,
                         size_t *n) {
    next_fn *const next = next_of[s->kind];
    const char *const text = run->text + in.at;
    size_t from = 0, start, end;
    while (from < in.len && next(s, run, text, in.len, from, &start, &end)) {
        if (!push_span(run, n, in.at + from, start - from) || !push_span(run, n, in.at + start, end - start))
            return false;
        from = end;
    }
    return push_span(run, n, in.at + from, in.len - from);
}

static bool mark_piece(const struct pretokenizer_step *s, struct pretokenizer_run *run, struct pretokenizer_span in) {
    next_fn *const next = next_of[s->kind];
    const char *const text = run->text + in.at;
    size_t from = 0, start, end;
    run->n_marks = 0;
    while (from < in.len && next(s, run, text, in.len, from, &start, &end)) {
        if (!push_mark(run, in.at + from, start - from, s->invert) ||
            !push_mark(run, in.at + start, end - start, !s->invert))
            return false;
        from = end;
    }
    return push_mark(run, in.at + from, in.len - from, s->invert);
}

/* Whether the boundary in front of mark i goes away under this behavior. */
static bool joins(enum pretokenizer_behavior b, const struct pretokenizer_mark *m, size_t i) {
    if (i == 0) return false;
    if (b == PRETOKENIZER_CONTIGUOUS) return m[i].match == m[i - 1].match;
    if (b == PRETOKENIZER_MERGED_PREVIOUS) return m[i].match && !m[i - 1].match;
    if (b == PRETOKENIZER_MERGED_NEXT) return m[i - 1].match && !m[i].match;
    return false;
}

static bool cut_marked(const struct pretokenizer_step *s, struct pretokenizer_run *run, struct pretokenizer_span in,
                       size_t *n) {
    enum pretokenizer_behavior b = s->behavior;
    if (s->kind == PRETOKENIZER_METASPACE) b = PRETOKENIZER_MERGED_NEXT;
    if (!mark_piece(s, run, in)) return false;
    for (size_t i = 0; i < run->n_marks;) {
        size_t end = i + 1;
        while (end < run->n_marks && joins(b, run->marks, end)) end++;
        const struct pretokenizer_mark *const first = &run->marks[i], *const last = &run->marks[end - 1];
        if (!(b == PRETOKENIZER_REMOVED && first->match) &&
            !push_span(run, n, first->at, last->at + last->len - first->at))
            return false;
        i = end;
    }
    return true;
}

/* Rewrites the text: what a step puts in front of pieces, and spaces that become something else. */
static bool rewrite(const struct pretokenizer_step *s, struct pretokenizer_run *run, bool at_start) {
    const bool meta = s->kind == PRETOKENIZER_METASPACE;
    const char *const from = run->text;
    struct strbuf *const to = from == run->bufs[0].data ? &run->bufs[1] : &run->bufs[0];
    strbuf_clear(to);
    for (size_t i = 0; i < run->n_spans; i++) {
        struct pretokenizer_span *const p = &run->spans[i];
        const char *const piece = from + p->at;
        const size_t start = to->len;
        const bool first = at_start && p->at == 0;
        if (!meta && *piece != ' ') strbuf_putc(to, ' ');
        if (meta &&
            (s->prepend == PRETOKENIZER_PREPEND_ALWAYS || (s->prepend == PRETOKENIZER_PREPEND_FIRST && first)) &&
            *piece != ' ' && !(p->len >= s->literal_len && memcmp(piece, s->literal, s->literal_len) == 0))
            strbuf_append(to, s->literal, s->literal_len);
        for (size_t k = 0, next; k < p->len; k = next + 1) {
            const char *const space = meta ? memchr(piece + k, ' ', p->len - k) : NULL;
            next = space ? (size_t)(space - piece) : p->len;
            strbuf_append(to, piece + k, next - k);
            if (space) strbuf_append(to, s->literal, s->literal_len);
        }
        *p = (struct pretokenizer_span){(uint32_t)start, (uint32_t)(to->len - start)};
    }
    run->text = to->data;
    return !to->failed && to->len < INT32_MAX;
}

static bool apply(const struct pretokenizer_step *s, struct pretokenizer_run *run, bool at_start) {
    if (s->kind == PRETOKENIZER_METASPACE || s->kind == PRETOKENIZER_PREFIX_SPACE) {
        if (!rewrite(s, run, at_start)) return false;
        if (s->kind == PRETOKENIZER_PREFIX_SPACE || !s->split) return true;
    }
    const bool isolated = s->kind != PRETOKENIZER_METASPACE && s->behavior == PRETOKENIZER_ISOLATED;
    size_t n = 0;
    for (size_t i = 0; i < run->n_spans; i++) {
        const struct pretokenizer_span in = run->spans[i];
        if (!(isolated ? cut_isolated(s, run, in, &n) : cut_marked(s, run, in, &n))) return false;
    }
    struct pretokenizer_span *const list = run->lists[0];
    const size_t cap = run->caps[0];
    run->lists[0] = run->lists[1];
    run->caps[0] = run->caps[1];
    run->lists[1] = list;
    run->caps[1] = cap;
    run->spans = run->lists[0];
    run->n_spans = n;
    return true;
}

bool pretokenizer_cut(const struct pretokenizer *p, const char *text, size_t len, bool at_start,
                      struct pretokenizer_run *run) {
    run->text = text;
    run->n_spans = 0;
    if (!mem_grow(&run->lists[0], &run->caps[0], 1, sizeof **run->lists)) return false;
    run->spans = run->lists[0];
    if (len) run->spans[run->n_spans++] = (struct pretokenizer_span){0, (uint32_t)len};
    for (int i = 0; i < p->n_steps && run->n_spans; i++)
        if (!apply(&p->steps[i], run, at_start)) return false;
    return true;
}

enum err pretokenizer_add(struct pretokenizer *p, struct pretokenizer_step step, struct err_msg *msg) {
    if (p->n_steps == PRETOKENIZER_STEPS_MAX) {
        regex_free(step.regex);
        mem_free(step.literal);
        return err_set(msg, ERR_LIMIT, "tokenizer: over %d pre-tokenizer steps", PRETOKENIZER_STEPS_MAX);
    }
    p->steps[p->n_steps++] = step;
    return ERR_OK;
}

enum err pretokenizer_add_regex(struct pretokenizer *p, const char *pattern, size_t len, struct err_msg *msg) {
    struct pretokenizer_step step = {.kind = PRETOKENIZER_REGEX};
    TRY(regex_compile(&step.regex, pattern, len, msg));
    return pretokenizer_add(p, step, msg);
}

void pretokenizer_run_deinit(struct pretokenizer_run *run) {
    mem_free(run->lists[0]);
    mem_free(run->lists[1]);
    mem_free(run->marks);
    strbuf_deinit(&run->bufs[0]);
    strbuf_deinit(&run->bufs[1]);
    regex_run_deinit(&run->regex);
    *run = (struct pretokenizer_run){0};
}

void pretokenizer_deinit(struct pretokenizer *p) {
    for (int i = 0; i < p->n_steps; i++) {
        regex_free(p->steps[i].regex);
        mem_free(p->steps[i].literal);
    }
    *p = (struct pretokenizer){0};
}
