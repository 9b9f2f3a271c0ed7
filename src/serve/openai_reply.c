#include "serve/openai_reply.h"

#include "serve/json_write.h"

static void write_usage(struct strbuf *b, const struct openai_usage *u) {
    strbuf_printf(
        b,
        "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,"
        "\"prompt_tokens_details\":{\"cached_tokens\":%lld},\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
        (long long)u->prompt, (long long)u->completion, (long long)(u->prompt + u->completion), (long long)u->cached);
}

static void write_head(struct strbuf *b, const struct openai_meta *m, const char *object) {
    strbuf_puts(b, "{\"id\":");
    json_write_cstr(b, m->id);
    strbuf_printf(b, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object, (long long)m->created);
    json_write_cstr(b, m->model);
    strbuf_puts(b, ",\"system_fingerprint\":");
    json_write_cstr(b, m->fingerprint);
    strbuf_puts(b, ",\"choices\":[");
}

static void begin_chunk(struct strbuf *b, const struct openai_meta *m) {
    write_head(b, m, m->chat ? "chat.completion.chunk" : "text_completion");
}

static void end_chunk(struct strbuf *b, const struct openai_meta *m) {
    strbuf_puts(b, "]");
    if (m->usage) {
        strbuf_puts(b, ",\"usage\":");
        write_usage(b, m->usage);
    } else if (m->usage_null) {
        strbuf_puts(b, ",\"usage\":null");
    }
    strbuf_putc(b, '}');
}

static void write_logprobs(struct strbuf *b, struct openai_logprobs *lp) {
    strbuf_puts(b, ",\"logprobs\":");
    if (lp)
        openai_logprobs_write(lp, b);
    else
        strbuf_puts(b, "null");
}

static void write_finish(struct strbuf *b, const struct openai_finish *f) {
    strbuf_puts(b, ",\"finish_reason\":");
    json_write_cstr(b, f->reason);
    strbuf_puts(b, ",\"stop_reason\":");
    if (f->stop_string)
        json_write_cstr(b, f->stop_string);
    else if (f->stop_id >= 0)
        strbuf_printf(b, "%d", f->stop_id);
    else
        strbuf_puts(b, "null");
    strbuf_putc(b, '}');
}

void openai_reply_role_chunk(struct strbuf *b, const struct openai_meta *m, int index) {
    begin_chunk(b, m);
    strbuf_printf(b,
                  "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                  "\"finish_reason\":null}",
                  index);
    end_chunk(b, m);
}

void openai_reply_text_chunk(struct strbuf *b, const struct openai_meta *m, int index, const char *text, size_t len,
                             struct openai_logprobs *logprobs) {
    begin_chunk(b, m);
    strbuf_printf(b, m->chat ? "{\"index\":%d,\"delta\":{\"content\":" : "{\"index\":%d,\"text\":", index);
    json_write_string(b, text, len);
    if (m->chat) strbuf_putc(b, '}');
    write_logprobs(b, logprobs);
    strbuf_puts(b, ",\"finish_reason\":null}");
    end_chunk(b, m);
}

void openai_reply_finish_chunk(struct strbuf *b, const struct openai_meta *m, int index,
                               const struct openai_finish *f) {
    begin_chunk(b, m);
    strbuf_printf(b, "{\"index\":%d,%s,\"logprobs\":null", index, m->chat ? "\"delta\":{}" : "\"text\":\"\"");
    write_finish(b, f);
    end_chunk(b, m);
}

void openai_reply_usage_chunk(struct strbuf *b, const struct openai_meta *m, const struct openai_usage *u) {
    begin_chunk(b, m);
    strbuf_puts(b, "],\"usage\":");
    write_usage(b, u);
    strbuf_putc(b, '}');
}

void openai_reply_begin(struct strbuf *b, const struct openai_meta *m) {
    write_head(b, m, m->chat ? "chat.completion" : "text_completion");
}

void openai_reply_choice(struct strbuf *b, const struct openai_meta *m, int index, const struct openai_choice_text *c) {
    if (index > 0) strbuf_putc(b, ',');
    strbuf_printf(b, "{\"index\":%d,", index);
    strbuf_puts(b, m->chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
    json_write_string(b, c->text, c->len);
    if (m->chat) strbuf_puts(b, ",\"refusal\":null}");
    write_logprobs(b, c->logprobs);
    write_finish(b, &c->finish);
}

void openai_reply_end(struct strbuf *b, const struct openai_meta *m, const struct openai_usage *u) {
    (void)m;
    strbuf_puts(b, "],\"usage\":");
    write_usage(b, u);
    strbuf_putc(b, '}');
}
