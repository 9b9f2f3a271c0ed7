/* The pipeline of tokenizer.json: one table row per kind of normalizer, pre-tokenizer, post-processor and decoder that
 * model files use. */
#include <string.h>

#include "base/mem.h"
#include "text/base64.h"
#include "text/tokenizer_hf_int.h"
#include "text/utf8.h"

enum { DEPTH_MAX = 8 };

struct part_ctx {
    struct tokenizer *t;
    struct err_msg *msg;
    bool byte_level; /* pre-tokenizer: ByteLevel was there */
    bool fused;      /* decoder: Fuse was there, so what follows sees the whole text */
};

typedef enum err part_fn(struct part_ctx *c, const json_t *o);

struct part {
    const char *type;
    part_fn *read;
};

static enum err no_memory(struct err_msg *msg) { return err_set(msg, ERR_NOMEM, "tokenizer: out of memory"); }

/* Looks the kind up in its table; a Sequence goes through its members, which `list` names. */
static enum err read_part(struct part_ctx *c, const json_t *o, const char *what, const char *list,
                          const struct part *table, int depth) {
    if (!o || json_is_null(o)) return ERR_OK;
    const char *const type = tokenizer_hf_type(o);
    if (strcmp(type, "Sequence") == 0 && depth < DEPTH_MAX) {
        const json_t *const members = json_object_get(o, list);
        for (size_t i = 0; i < json_array_size(members); i++)
            TRY(read_part(c, json_array_get(members, i), what, list, table, depth + 1));
        return ERR_OK;
    }
    for (const struct part *p = table; p->type; p++)
        if (strcmp(p->type, type) == 0) return p->read(c, o);
    return err_set(c->msg, ERR_UNSUPPORTED, "tokenizer.json: %s of type \"%.40s\" is not supported", what, type);
}

/* {"String": "..."} or {"Regex": "..."}, or the string itself. */
static enum err read_pattern(struct part_ctx *c, const json_t *o, struct regex **regex, char **literal, size_t *len) {
    const json_t *p = json_object_get(o, "pattern");
    const json_t *const r = json_object_get(p, "Regex");
    if (json_is_object(p) && !r) p = json_object_get(p, "String");
    if (json_is_string(r)) return regex_compile(regex, json_string_value(r), json_string_length(r), c->msg);
    if (!json_is_string(p))
        return err_set(c->msg, ERR_FORMAT, "tokenizer.json: %s has no pattern", tokenizer_hf_type(o));
    *len = json_string_length(p);
    *literal = mem_strndup(json_string_value(p), *len);
    return *literal ? ERR_OK : no_memory(c->msg);
}

/* Normalizers. */

static enum err norm_simple(struct part_ctx *c, const json_t *o) {
    static const struct {
        const char *type;
        enum normalizer_kind kind;
    } kinds[] = {
        {"NFC", NORMALIZER_NFC},   {"NFD", NORMALIZER_NFD},             {"NFKC", NORMALIZER_NFKC},
        {"NFKD", NORMALIZER_NFKD}, {"Lowercase", NORMALIZER_LOWERCASE}, {"StripAccents", NORMALIZER_STRIP_ACCENTS},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].type, tokenizer_hf_type(o)) == 0)
            return normalizer_add(&c->t->norm, (struct normalizer_step){.kind = kinds[i].kind}, c->msg);
    return ERR_OK;
}

static enum err norm_strip(struct part_ctx *c, const json_t *o) {
    const struct normalizer_step s = {.kind = NORMALIZER_STRIP,
                                      .left = tokenizer_hf_flag(o, "strip_left", true),
                                      .right = tokenizer_hf_flag(o, "strip_right", true)};
    return normalizer_add(&c->t->norm, s, c->msg);
}

static enum err take_string(struct part_ctx *c, const json_t *o, const char *key, char **s, size_t *len) {
    const json_t *const v = json_object_get(o, key);
    if (!json_is_string(v))
        return err_set(c->msg, ERR_FORMAT, "tokenizer.json: %s has no %s", tokenizer_hf_type(o), key);
    *len = json_string_length(v);
    *s = mem_strndup(json_string_value(v), *len);
    return *s ? ERR_OK : no_memory(c->msg);
}

static enum err norm_replace(struct part_ctx *c, const json_t *o) {
    struct normalizer_step s = {.kind = NORMALIZER_REPLACE};
    TRY(read_pattern(c, o, &s.regex, &s.from, &s.from_len));
    const enum err e = take_string(c, o, "content", &s.to, &s.to_len);
    if (e == ERR_OK) return normalizer_add(&c->t->norm, s, c->msg);
    regex_free(s.regex);
    mem_free(s.from);
    return e;
}

static enum err norm_prepend(struct part_ctx *c, const json_t *o) {
    struct normalizer_step s = {.kind = NORMALIZER_PREPEND};
    TRY(take_string(c, o, "prepend", &s.to, &s.to_len));
    return normalizer_add(&c->t->norm, s, c->msg);
}

static enum err norm_precompiled(struct part_ctx *c, const json_t *o) {
    const json_t *const v = json_object_get(o, "precompiled_charsmap");
    struct normalizer_step s = {.kind = NORMALIZER_CHARSMAP};
    struct strbuf blob = {0};
    if (!json_string_length(v)) return ERR_OK;
    enum err e = ERR_OK;
    if (!base64_decode(&blob, json_string_value(v), json_string_length(v)))
        e = err_set(c->msg, ERR_FORMAT, "tokenizer.json: precompiled_charsmap is not base64");
    else e = blob.failed ? no_memory(c->msg) : charsmap_open(&s.map, strbuf_cstr(&blob), blob.len, c->msg);
    strbuf_deinit(&blob);
    if (e != ERR_OK) {
        charsmap_deinit(&s.map);
        return e;
    }
    return normalizer_add(&c->t->norm, s, c->msg);
}

enum err tokenizer_hf_normalizer(struct tokenizer *t, const json_t *o, struct err_msg *msg) {
    static const struct part table[] = {
        {"NFC", norm_simple},       {"NFD", norm_simple},          {"NFKC", norm_simple},
        {"NFKD", norm_simple},      {"Lowercase", norm_simple},    {"StripAccents", norm_simple},
        {"Strip", norm_strip},      {"Replace", norm_replace},     {"Prepend", norm_prepend},
        {"Precompiled", norm_precompiled}, {0},
    };
    struct part_ctx c = {.t = t, .msg = msg};
    return read_part(&c, o, "normalizer", "normalizers", table, 0);
}

enum err tokenizer_hf_added(struct tokenizer *t, bool normalized, struct added_token token, struct err_msg *msg) {
    struct strbuf bufs[2] = {{0}, {0}};
    size_t len, out_len;
    const char *out, *const text = vocab_text(&t->vocab, token.id, &len);
    enum err e;
    if (!normalized) return added_tokens_add(&t->added, text, len, false, token, msg);
    if (!normalizer_apply(&t->norm, text, len, bufs, &out, &out_len)) e = no_memory(msg);
    else {
        e = added_tokens_add(&t->added, out, out_len, true, token, msg);
        if (e == ERR_OK && out != text) e = vocab_show(&t->vocab, token.id, out, out_len, msg);
    }
    strbuf_deinit(&bufs[0]);
    strbuf_deinit(&bufs[1]);
    return e;
}

/* Pre-tokenizers. */

#define GPT2_PATTERN "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static enum err read_behavior(struct part_ctx *c, const json_t *o, enum pretokenizer_behavior *out) {
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *const name = json_string_value(json_object_get(o, "behavior"));
    for (int i = 0; name && i < 5; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (enum pretokenizer_behavior)i;
        return ERR_OK;
    }
    return name ? err_set(c->msg, ERR_UNSUPPORTED, "tokenizer.json: behavior \"%.40s\" is not supported", name)
                : ERR_OK;
}

static enum err pre_byte_level(struct part_ctx *c, const json_t *o) {
    c->byte_level = true;
    if (tokenizer_hf_flag(o, "add_prefix_space", true))
        TRY(pretokenizer_add(&c->t->pre, (struct pretokenizer_step){.kind = PRETOKENIZER_PREFIX_SPACE}, c->msg));
    if (!tokenizer_hf_flag(o, "use_regex", true)) return ERR_OK;
    return pretokenizer_add_regex(&c->t->pre, GPT2_PATTERN, strlen(GPT2_PATTERN), c->msg);
}

static enum err pre_split(struct part_ctx *c, const json_t *o) {
    struct pretokenizer_step s = {.invert = tokenizer_hf_flag(o, "invert", false)};
    TRY(read_behavior(c, o, &s.behavior));
    TRY(read_pattern(c, o, &s.regex, &s.literal, &s.literal_len));
    s.kind = s.regex ? PRETOKENIZER_REGEX : PRETOKENIZER_LITERAL;
    return pretokenizer_add(&c->t->pre, s, c->msg);
}

static enum err pre_digits(struct part_ctx *c, const json_t *o) {
    const struct pretokenizer_step s = {.kind = PRETOKENIZER_DIGITS,
                                        .individual = tokenizer_hf_flag(o, "individual_digits", false)};
    return pretokenizer_add(&c->t->pre, s, c->msg);
}

static enum err pre_punctuation(struct part_ctx *c, const json_t *o) {
    struct pretokenizer_step s = {.kind = PRETOKENIZER_PUNCTUATION};
    TRY(read_behavior(c, o, &s.behavior));
    return pretokenizer_add(&c->t->pre, s, c->msg);
}

static enum err pre_whitespace_split(struct part_ctx *c, const json_t *o) {
    (void)o;
    const struct pretokenizer_step s = {.kind = PRETOKENIZER_WHITESPACE, .behavior = PRETOKENIZER_REMOVED};
    return pretokenizer_add(&c->t->pre, s, c->msg);
}

static enum err pre_whitespace(struct part_ctx *c, const json_t *o) {
    (void)o;
    static const char pattern[] = "\\w+|[^\\w\\s]+";
    struct pretokenizer_step s = {.kind = PRETOKENIZER_REGEX, .behavior = PRETOKENIZER_REMOVED, .invert = true};
    TRY(regex_compile(&s.regex, pattern, sizeof pattern - 1, c->msg));
    return pretokenizer_add(&c->t->pre, s, c->msg);
}

/* New files say prepend_scheme, old ones add_prefix_space. */
static enum err read_prepend(struct part_ctx *c, const json_t *o, enum pretokenizer_prepend *out) {
    const char *const scheme = json_string_value(json_object_get(o, "prepend_scheme"));
    *out = tokenizer_hf_flag(o, "add_prefix_space", true) ? PRETOKENIZER_PREPEND_ALWAYS : PRETOKENIZER_PREPEND_NEVER;
    if (!scheme) return ERR_OK;
    if (strcmp(scheme, "always") == 0) *out = PRETOKENIZER_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0) *out = PRETOKENIZER_PREPEND_FIRST;
    else if (strcmp(scheme, "never") == 0) *out = PRETOKENIZER_PREPEND_NEVER;
    else return err_set(c->msg, ERR_UNSUPPORTED, "tokenizer.json: prepend_scheme \"%.40s\" is not supported", scheme);
    return ERR_OK;
}

static enum err pre_metaspace(struct part_ctx *c, const json_t *o) {
    struct pretokenizer_step s = {.kind = PRETOKENIZER_METASPACE, .split = tokenizer_hf_flag(o, "split", true)};
    TRY(read_prepend(c, o, &s.prepend));
    TRY(take_string(c, o, "replacement", &s.literal, &s.literal_len));
    return pretokenizer_add(&c->t->pre, s, c->msg);
}

enum err tokenizer_hf_pretokenizer(struct tokenizer *t, const json_t *o, bool *byte_level, struct err_msg *msg) {
    static const struct part table[] = {
        {"ByteLevel", pre_byte_level},     {"Split", pre_split},
        {"Digits", pre_digits},            {"Punctuation", pre_punctuation},
        {"Metaspace", pre_metaspace},      {"WhitespaceSplit", pre_whitespace_split},
        {"Whitespace", pre_whitespace},    {0},
    };
    struct part_ctx c = {.t = t, .msg = msg};
    TRY(read_part(&c, o, "pre_tokenizer", "pretokenizers", table, 0));
    *byte_level = c.byte_level;
    return ERR_OK;
}

/* Post-processors: what goes in front of a text and behind it. */

static enum err post_none(struct part_ctx *c, const json_t *o) {
    (void)c;
    (void)o;
    return ERR_OK;
}

static enum err push_affix(struct part_ctx *c, bool front, const json_t *name) {
    int32_t *const list = front ? c->t->prefix : c->t->suffix;
    int *const n = front ? &c->t->n_prefix : &c->t->n_suffix;
    const int32_t id =
        json_is_string(name) ? tokenizer_find(c->t, json_string_value(name), json_string_length(name)) : -1;
    if (id < 0 || *n == TOKENIZER_AFFIX_MAX)
        return err_set(c->msg, ERR_FORMAT, "tokenizer.json: post_processor adds the token \"%.40s\", which does not exist",
                       json_is_string(name) ? json_string_value(name) : "");
    list[(*n)++] = id;
    return ERR_OK;
}

static enum err post_template(struct part_ctx *c, const json_t *o) {
    const json_t *const single = json_object_get(o, "single");
    bool front = true;
    size_t i;
    json_t *item;
    json_array_foreach(single, i, item) {
        if (json_object_get(item, "Sequence")) front = false;
        const json_t *const special = json_object_get(item, "SpecialToken");
        if (special) TRY(push_affix(c, front, json_object_get(special, "id")));
    }
    return ERR_OK;
}

/* {"cls": ["text", id], "sep": ["text", id]} */
static enum err post_roberta(struct part_ctx *c, const json_t *o) {
    TRY(push_affix(c, true, json_array_get(json_object_get(o, "cls"), 0)));
    return push_affix(c, false, json_array_get(json_object_get(o, "sep"), 0));
}

enum err tokenizer_hf_post(struct tokenizer *t, const json_t *o, struct err_msg *msg) {
    static const struct part table[] = {
        {"ByteLevel", post_none},
        {"TemplateProcessing", post_template},
        {"RobertaProcessing", post_roberta},
        {"BertProcessing", post_roberta},
        {0},
    };
    struct part_ctx c = {.t = t, .msg = msg};
    TRY(read_part(&c, o, "post_processor", "processors", table, 0));
    if (t->bos < 0 && t->n_prefix) t->bos = t->prefix[0];
    return ERR_OK;
}

/* Decoders. All but the rules about the whole text are worked into what vocab shows for each token. */

typedef void show_fn(struct strbuf *out, const char *text, size_t len, const void *arg);

static enum err reshow(struct part_ctx *c, show_fn *fn, const void *arg) {
    struct strbuf buf = {0};
    enum err e = ERR_OK;
    for (int32_t id = 0; id < c->t->vocab.n && e == ERR_OK; id++) {
        if (!vocab_has(&c->t->vocab, id)) continue;
        size_t len;
        const char *const text = vocab_shown(&c->t->vocab, id, &len);
        strbuf_clear(&buf);
        fn(&buf, text, len, arg);
        if (buf.failed) e = no_memory(c->msg);
        else if (buf.len != len || (len && memcmp(buf.data, text, len) != 0))
            e = vocab_show(&c->t->vocab, id, strbuf_cstr(&buf), buf.len, c->msg);
    }
    strbuf_deinit(&buf);
    return e;
}

static enum err dec_byte_level(struct part_ctx *c, const json_t *o) {
    (void)o;
    return tokenizer_build_show_added(c->t, c->msg);
}

struct replacement {
    const char *from, *to;
    size_t from_len, to_len;
};

static void show_replaced(struct strbuf *out, const char *text, size_t len, const void *arg) {
    const struct replacement *const r = arg;
    for (size_t at = 0; at < len;) {
        const char *const hit = r->from_len ? memmem(text + at, len - at, r->from, r->from_len) : NULL;
        strbuf_append(out, text + at, hit ? (size_t)(hit - text) - at : len - at);
        if (!hit) break;
        strbuf_append(out, r->to, r->to_len);
        at = (size_t)(hit - text) + r->from_len;
    }
}

static enum err dec_replace(struct part_ctx *c, const json_t *o) {
    struct regex *regex = NULL;
    char *from = NULL;
    struct replacement r = {0};
    const json_t *const to = json_object_get(o, "content");
    TRY(read_pattern(c, o, &regex, &from, &r.from_len));
    r.from = from;
    r.to = json_is_string(to) ? json_string_value(to) : "";
    r.to_len = json_string_length(to);
    const enum err e = regex || c->fused
                           ? err_set(c->msg, ERR_UNSUPPORTED,
                                     "tokenizer.json: decoder Replace with a Regex or behind Fuse is not supported")
                           : reshow(c, show_replaced, &r);
    regex_free(regex);
    mem_free(from);
    return e;
}

static enum err dec_byte_fallback(struct part_ctx *c, const json_t *o) {
    (void)o;
    c->t->decode.byte_runs = true;
    for (int32_t id = 0; id < c->t->vocab.n; id++) {
        size_t len;
        if (vocab_type(&c->t->vocab, id) != TOKEN_NORMAL) continue;
        const char *const text = vocab_shown(&c->t->vocab, id, &len);
        const int byte = tokenizer_build_byte(text, len);
        if (byte < 0) continue;
        const char b = (char)byte;
        TRY(vocab_show(&c->t->vocab, id, &b, 1, c->msg));
        c->t->vocab.entries[id].type = TOKEN_BYTE;
    }
    return ERR_OK;
}

static enum err dec_fuse(struct part_ctx *c, const json_t *o) {
    (void)o;
    c->fused = true;
    return ERR_OK;
}

/* Behind Fuse: the first spaces of the text. In front of it: those of each token. */
static void show_stripped(struct strbuf *out, const char *text, size_t len, const void *arg) {
    const int *const ends = arg;
    size_t from = 0, to = len;
    while (from < (size_t)ends[0] && from < to && text[from] == ' ') from++;
    for (int i = 0; i < ends[1] && to > from && text[to - 1] == ' '; i++) to--;
    strbuf_append(out, text + from, to - from);
}

static enum err dec_strip(struct part_ctx *c, const json_t *o) {
    const char *const content = json_string_value(json_object_get(o, "content"));
    const int ends[2] = {(int)json_integer_value(json_object_get(o, "start")),
                         (int)json_integer_value(json_object_get(o, "stop"))};
    if (!content || strcmp(content, " ") != 0 || ends[0] < 0 || ends[1] < 0 || (c->fused && ends[1]))
        return err_set(c->msg, ERR_UNSUPPORTED, "tokenizer.json: decoder Strip of anything but leading spaces is not supported");
    if (!c->fused) return reshow(c, show_stripped, ends);
    c->t->decode.strip_spaces = ends[0];
    return ERR_OK;
}

static enum err dec_metaspace(struct part_ctx *c, const json_t *o) {
    const json_t *const mark = json_object_get(o, "replacement");
    enum pretokenizer_prepend prepend;
    if (!json_string_length(mark))
        return err_set(c->msg, ERR_FORMAT, "tokenizer.json: decoder Metaspace has no replacement");
    TRY(read_prepend(c, o, &prepend));
    c->t->decode.first_without_spaces = prepend != PRETOKENIZER_PREPEND_NEVER;
    const struct replacement r = {json_string_value(mark), " ", json_string_length(mark), 1};
    return reshow(c, show_replaced, &r);
}

enum err tokenizer_hf_decoder(struct tokenizer *t, const json_t *o, struct err_msg *msg) {
    static const struct part table[] = {
        {"ByteLevel", dec_byte_level}, {"Replace", dec_replace},     {"ByteFallback", dec_byte_fallback},
        {"Fuse", dec_fuse},            {"Strip", dec_strip},         {"Metaspace", dec_metaspace},
        {0},
    };
    struct part_ctx c = {.t = t, .msg = msg};
    t->decode.join_with_space = !o || json_is_null(o);
    return read_part(&c, o, "decoder", "decoders", table, 0);
}
