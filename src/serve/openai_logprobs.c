#include "serve/openai_logprobs.h"

#include <string.h>

#include "serve/json_write.h"

static bool is_utf8(const char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        const size_t n = json_write_utf8_len(s + i, len - i);
        if (n == 0) return false;
        i += n;
    }
    return true;
}

/* {"token":…,"logprob":…,"bytes":[…] without the closing brace */
static void write_chat_entry(struct strbuf *b, const struct xenon *x, int32_t id, float logprob) {
    size_t len = 0;
    const char *const bytes = xenon_token_bytes(x, id, &len);
    strbuf_puts(b, "{\"token\":");
    json_write_string(b, bytes ? bytes : "", bytes ? len : 0);
    strbuf_puts(b, ",\"logprob\":");
    json_write_float(b, logprob);
    strbuf_puts(b, ",\"bytes\":");
    if (bytes)
        json_write_bytes(b, bytes, len);
    else
        strbuf_puts(b, "null");
}

static void add_chat(struct openai_logprobs *lp, const struct xenon *x, const struct xenon_token *t) {
    struct strbuf *const b = &lp->tokens;
    if (lp->n) strbuf_putc(b, ',');
    write_chat_entry(b, x, t->id, t->logprob);
    strbuf_puts(b, ",\"top_logprobs\":[");
    for (int i = 0; i < t->n_top; i++) {
        if (i) strbuf_putc(b, ',');
        write_chat_entry(b, x, t->top[i].id, t->top[i].logprob);
        strbuf_putc(b, '}');
    }
    strbuf_puts(b, "]}");
}

/* The text of a token; one that is no whole UTF-8 text is written as OpenAI does, "bytes:\xe2\x80". */
static void write_token_text(struct strbuf *b, const struct xenon *x, int32_t id) {
    size_t len = 0;
    const char *const bytes = xenon_token_bytes(x, id, &len);
    if (!bytes || is_utf8(bytes, len)) {
        json_write_string(b, bytes ? bytes : "", bytes ? len : 0);
        return;
    }
    strbuf_puts(b, "\"bytes:");
    for (size_t i = 0; i < len; i++)
        strbuf_printf(b, "\\\\x%02x", (unsigned char)bytes[i]);
    strbuf_putc(b, '"');
}

static bool same_text(const struct xenon *x, int32_t a, int32_t b) {
    size_t a_len = 0, b_len = 0;
    const char *const s = xenon_token_bytes(x, a, &a_len), *const t = xenon_token_bytes(x, b, &b_len);
    return a == b || (s && t && a_len == b_len && memcmp(s, t, a_len) == 0);
}

/* Whether an earlier (more likely) entry has the text of entry i: an object cannot hold both. */
static bool seen_before(const struct xenon *x, const struct xenon_token *t, int i) {
    for (int k = 0; k < i; k++)
        if (same_text(x, t->top[k].id, t->top[i].id)) return true;
    return false;
}

/* {"text":logprob,…}: the best ones and always the chosen one. */
static void write_top_object(struct strbuf *b, const struct xenon *x, const struct xenon_token *t) {
    bool any = false, has_chosen = false;
    strbuf_putc(b, '{');
    for (int i = 0; i < t->n_top; i++) {
        has_chosen |= same_text(x, t->top[i].id, t->id);
        if (seen_before(x, t, i)) continue;
        if (any) strbuf_putc(b, ',');
        any = true;
        write_token_text(b, x, t->top[i].id);
        strbuf_putc(b, ':');
        json_write_float(b, t->top[i].logprob);
    }
    if (!has_chosen) {
        if (any) strbuf_putc(b, ',');
        write_token_text(b, x, t->id);
        strbuf_putc(b, ':');
        json_write_float(b, t->logprob);
    }
    strbuf_putc(b, '}');
}

/* Characters that begin within the bytes, so that the pieces of a split one count once. */
static int64_t count_chars(const char *s, size_t len) {
    int64_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

static void add_completion(struct openai_logprobs *lp, const struct xenon *x, const struct xenon_token *t,
                           bool with_value) {
    const char *const comma = lp->n ? "," : "";
    size_t len = 0;
    const char *const bytes = xenon_token_bytes(x, t->id, &len);
    strbuf_puts(&lp->tokens, comma);
    write_token_text(&lp->tokens, x, t->id);
    strbuf_puts(&lp->values, comma);
    strbuf_puts(&lp->tops, comma);
    if (with_value) {
        json_write_float(&lp->values, t->logprob);
        write_top_object(&lp->tops, x, t);
    } else {
        strbuf_puts(&lp->values, "null");
        strbuf_puts(&lp->tops, "null");
    }
    strbuf_printf(&lp->offsets, "%s%lld", comma, (long long)lp->text_offset);
    if (bytes && !(lp->skip_special && xenon_token_is_special(x, t->id))) lp->text_offset += count_chars(bytes, len);
}

void openai_logprobs_add(struct openai_logprobs *lp, const struct xenon *x, const struct xenon_token *t,
                         bool with_value) {
    if (lp->chat)
        add_chat(lp, x, t);
    else
        add_completion(lp, x, t, with_value);
    lp->n++;
}

void openai_logprobs_write(struct openai_logprobs *lp, struct strbuf *out) {
    if (lp->chat) {
        strbuf_printf(out, "{\"content\":[");
        strbuf_append(out, lp->tokens.data, lp->tokens.len);
        strbuf_puts(out, "],\"refusal\":null}");
    } else {
        strbuf_puts(out, "{\"tokens\":[");
        strbuf_append(out, lp->tokens.data, lp->tokens.len);
        strbuf_puts(out, "],\"token_logprobs\":[");
        strbuf_append(out, lp->values.data, lp->values.len);
        strbuf_puts(out, "],\"top_logprobs\":[");
        strbuf_append(out, lp->tops.data, lp->tops.len);
        strbuf_puts(out, "],\"text_offset\":[");
        strbuf_append(out, lp->offsets.data, lp->offsets.len);
        strbuf_puts(out, "]}");
    }
    if (openai_logprobs_failed(lp)) out->failed = true;
    strbuf_clear(&lp->tokens);
    strbuf_clear(&lp->values);
    strbuf_clear(&lp->tops);
    strbuf_clear(&lp->offsets);
    lp->n = 0;
}

size_t openai_logprobs_bytes(const struct openai_logprobs *lp) {
    return lp->tokens.len + lp->values.len + lp->tops.len + lp->offsets.len;
}

bool openai_logprobs_failed(const struct openai_logprobs *lp) {
    return lp->tokens.failed || lp->values.failed || lp->tops.failed || lp->offsets.failed;
}

void openai_logprobs_deinit(struct openai_logprobs *lp) {
    strbuf_deinit(&lp->tokens);
    strbuf_deinit(&lp->values);
    strbuf_deinit(&lp->tops);
    strbuf_deinit(&lp->offsets);
}
