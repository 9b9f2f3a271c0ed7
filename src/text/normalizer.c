#include "text/normalizer.h"

#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "text/utf8.h"

/* Ranges of code points of combining class 0 that NFC keeps and that compose with nothing before them. */
static const struct {
    uint32_t first, last;
} stable_ranges[] = {
    {0x0000, 0x02ff}, {0x0370, 0x0373},   {0x0376, 0x0377},   {0x037b, 0x037d}, {0x0388, 0x0482}, {0x048a, 0x0556},
    {0x05d0, 0x05ea}, {0x0620, 0x064a},   {0x0660, 0x066f},   {0x0e01, 0x0e33}, {0x0e40, 0x0e46}, {0x1e00, 0x1e9a},
    {0x1e9e, 0x1eff}, {0x2010, 0x205e},   {0x20a0, 0x20c0},   {0x2190, 0x2328}, {0x2500, 0x2adb}, {0x3001, 0x3029},
    {0x3041, 0x3096}, {0x309d, 0x30ff},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff}, {0xac00, 0xd7a3}, {0xfe00, 0xfe0f},
    {0xff01, 0xffbe}, {0x1f300, 0x1faff}, {0x20000, 0x2a6df},
};

bool normalizer_is_nfc_stable(uint32_t cp) {
    if (cp < 0x300) return true;
    for (size_t i = 1; i < sizeof stable_ranges / sizeof *stable_ranges; i++)
        if (cp <= stable_ranges[i].last) return cp >= stable_ranges[i].first;
    return false;
}

/* utf8proc's result for a stretch, appended. */
static bool append_mapped(struct strbuf *out, const char *s, size_t len, utf8proc_option_t options) {
    const utf8proc_uint8_t *const u = (const utf8proc_uint8_t *)s;
    if (!len) return true;
    utf8proc_ssize_t n = utf8proc_decompose(u, (utf8proc_ssize_t)len, NULL, 0, options);
    if (n < 0) return false;
    utf8proc_int32_t *const buffer = mem_alloc(((size_t)n + 1) * sizeof *buffer); /* the +1 holds the final NUL */
    if (!buffer) return false;
    n = utf8proc_decompose(u, (utf8proc_ssize_t)len, buffer, n, options);
    if (n >= 0) n = utf8proc_reencode(buffer, n, options);
    if (n >= 0) strbuf_append(out, buffer, (size_t)n);
    mem_free(buffer);
    return n >= 0;
}

/* NFC of the stretches that need it: each starts at the last stable character in front of an unstable one and ends
 * before the next stable one. */
static bool nfc(const char *s, size_t len, struct strbuf *out, bool *changed) {
    size_t done = 0, last_stable = 0;
    *changed = false;
    for (size_t at = 0; at < len;) {
        int n;
        if (normalizer_is_nfc_stable(utf8_get(s + at, &n))) {
            last_stable = at;
            at += (size_t)n;
            continue;
        }
        size_t end = at;
        while (end < len && !normalizer_is_nfc_stable(utf8_get(s + end, &n))) end += (size_t)n;
        strbuf_append(out, s + done, last_stable - done);
        if (!append_mapped(out, s + last_stable, end - last_stable, UTF8PROC_STABLE | UTF8PROC_COMPOSE)) return false;
        done = at = last_stable = end;
        *changed = true;
    }
    if (*changed) strbuf_append(out, s + done, len - done);
    return true;
}

/* One character's lower case or its removal. U+0130 is the only one whose lower case is two characters. */
static bool each_char(const char *s, size_t len, enum normalizer_kind kind, struct strbuf *out) {
    for (size_t at = 0; at < len;) {
        int n;
        char c[4];
        const utf8proc_int32_t cp = (utf8proc_int32_t)utf8_get(s + at, &n);
        const utf8proc_category_t category = utf8proc_category(cp);
        if (kind == NORMALIZER_LOWERCASE && cp == 0x130) strbuf_puts(out, "i\xcc\x87");
        else if (kind == NORMALIZER_LOWERCASE)
            strbuf_append(out, c, (size_t)utf8_put((uint32_t)utf8proc_tolower(cp), c));
        else if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME)
            strbuf_append(out, s + at, (size_t)n);
        at += (size_t)n;
    }
    return true;
}

static bool replace(const struct normalizer_step *st, const char *s, size_t len, struct strbuf *out) {
    struct regex_run run = {0};
    size_t at = 0;
    while (at < len) {
        size_t start, end;
        if (st->regex) {
            if (!regex_next(st->regex, &run, s, len, at, &start, &end)) break;
        } else {
            const char *const hit = st->from_len ? memmem(s + at, len - at, st->from, st->from_len) : NULL;
            if (!hit) break;
            start = (size_t)(hit - s);
            end = start + st->from_len;
        }
        strbuf_append(out, s + at, start - at);
        strbuf_append(out, st->to, st->to_len);
        at = end;
    }
    strbuf_append(out, s + at, len - at);
    regex_run_deinit(&run);
    return true;
}

static bool strip(const struct normalizer_step *st, const char *s, size_t len, struct strbuf *out) {
    size_t from = 0, to = len;
    int n;
    while (st->left && from < to && utf8_is_space(utf8_get(s + from, &n))) from += (size_t)n;
    while (st->right && to > from) {
        const size_t prev = utf8_prev(s, to);
        if (!utf8_is_space(utf8_get(s + prev, &n))) break;
        to = prev;
    }
    strbuf_append(out, s + from, to - from);
    return true;
}

/* One unit of input: a user-defined piece as it is, the longest key of the map, or one character. */
static size_t spm_prefix(const struct normalizer_step *st, const char *s, size_t len, const char **to, size_t *to_len) {
    int32_t value;
    size_t n = st->keep ? trie_longest(st->keep, s, len, &value) : 0;
    if (!n) n = charsmap_longest(&st->map, s, len, to, to_len);
    else *to = NULL;
    if (n && *to) return n;
    if (!n) {
        int k;
        (void)utf8_get(s, &k);
        n = (size_t)k;
    }
    *to = s;
    *to_len = n;
    return n;
}

static void spm_put(const struct normalizer_spm *o, const char *s, size_t n, struct strbuf *out) {
    for (size_t k = 0, next; k < n; k = next + 1) {
        const char *const space = o->escape_whitespaces ? memchr(s + k, ' ', n - k) : NULL;
        next = space ? (size_t)(space - s) : n;
        strbuf_append(out, s + k, next - k);
        if (space) strbuf_puts(out, UTF8_SPM_SPACE);
    }
}

/* Normalizer::Normalize of SentencePiece. */
static bool spm(const struct normalizer_step *st, const char *s, size_t len, struct strbuf *out) {
    const struct normalizer_spm *const o = &st->spm;
    const char *const space = o->escape_whitespaces ? UTF8_SPM_SPACE : " ";
    const size_t space_len = strlen(space);
    const char *to = NULL;
    size_t to_len = 0, at = 0;
    while (o->remove_extra_whitespaces && at < len) {
        const size_t n = spm_prefix(st, s + at, len - at, &to, &to_len);
        if (to_len != 1 || *to != ' ') break;
        at += n;
    }
    if (at >= len) return true;
    if (o->add_dummy_prefix && !o->suffix) strbuf_puts(out, space);
    if (!o->remove_extra_whitespaces && !st->map.n_units)
        spm_put(o, s + at, len - at, out); /* the usual case, in bulk */
    else {
        bool after_space = o->remove_extra_whitespaces;
        while (at < len) {
            at += spm_prefix(st, s + at, len - at, &to, &to_len);
            while (after_space && to_len && *to == ' ') {
                to++;
                to_len--;
            }
            if (!to_len) continue;
            spm_put(o, to, to_len, out);
            after_space = o->remove_extra_whitespaces && to[to_len - 1] == ' ';
        }
    }
    while (o->remove_extra_whitespaces && out->len >= space_len &&
           memcmp(out->data + out->len - space_len, space, space_len) == 0)
        strbuf_truncate(out, out->len - space_len);
    if (o->add_dummy_prefix && o->suffix) strbuf_puts(out, space);
    return true;
}

static bool charsmap(const struct normalizer_step *st, const char *s, size_t len, struct strbuf *out) {
    const char *to = NULL;
    size_t to_len = 0;
    for (size_t at = 0; at < len;) {
        at += spm_prefix(st, s + at, len - at, &to, &to_len);
        strbuf_append(out, to, to_len);
    }
    return true;
}

/* *changed false: the step left the text as it is and out is not used. */
static bool apply(const struct normalizer_step *st, const char *s, size_t len, struct strbuf *out, bool *changed) {
    *changed = true;
    switch (st->kind) {
    case NORMALIZER_NFC: return nfc(s, len, out, changed);
    case NORMALIZER_NFD: return append_mapped(out, s, len, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    case NORMALIZER_NFKC: return append_mapped(out, s, len, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case NORMALIZER_NFKD: return append_mapped(out, s, len, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
    case NORMALIZER_LOWERCASE:
    case NORMALIZER_STRIP_ACCENTS: return each_char(s, len, st->kind, out);
    case NORMALIZER_STRIP: return strip(st, s, len, out);
    case NORMALIZER_REPLACE: return replace(st, s, len, out);
    case NORMALIZER_PREPEND:
        if (len) strbuf_append(out, st->to, st->to_len);
        strbuf_append(out, s, len);
        return true;
    case NORMALIZER_CHARSMAP: return charsmap(st, s, len, out);
    case NORMALIZER_SPM: return spm(st, s, len, out);
    }
    return true;
}

bool normalizer_apply(const struct normalizer *n, const char *text, size_t len, struct strbuf bufs[2], const char **out,
                      size_t *out_len) {
    int to = 0;
    *out = text;
    *out_len = len;
    for (int i = 0; i < n->n_steps; i++) {
        bool changed;
        strbuf_clear(&bufs[to]);
        if (!strbuf_reserve(&bufs[to], *out_len + 16)) return false;
        if (!apply(&n->steps[i], *out, *out_len, &bufs[to], &changed) || bufs[to].failed) return false;
        if (!changed) continue;
        *out = bufs[to].data;
        *out_len = bufs[to].len;
        to = !to;
    }
    return true;
}

static void step_deinit(struct normalizer_step *s) {
    regex_free(s->regex);
    mem_free(s->from);
    mem_free(s->to);
    charsmap_deinit(&s->map);
}

enum err normalizer_add(struct normalizer *n, struct normalizer_step step, struct err_msg *msg) {
    if (n->n_steps == NORMALIZER_STEPS_MAX) {
        step_deinit(&step);
        return err_set(msg, ERR_LIMIT, "tokenizer: over %d normalizer steps", NORMALIZER_STEPS_MAX);
    }
    n->steps[n->n_steps++] = step;
    return ERR_OK;
}

void normalizer_deinit(struct normalizer *n) {
    for (int i = 0; i < n->n_steps; i++) step_deinit(&n->steps[i]);
    *n = (struct normalizer){0};
}
