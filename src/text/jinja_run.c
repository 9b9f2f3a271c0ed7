#include "text/jinja_run.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { CHUNK_BYTES_MIN = 16 << 10, CHUNK_BYTES_MAX = 1 << 20, ALIGN = 16 };

struct jinja_chunk {
    struct jinja_chunk *next;
    size_t size;
};

static_assert(sizeof(struct jinja_chunk) % ALIGN == 0, "chunk data stays aligned");

void *jinja_run_arena_alloc(struct jinja_arena *a, size_t size) {
    size_t want;
    if (!mem_add_ok(size ? size : 1, ALIGN - 1, &want)) return NULL;
    want &= ~(size_t)(ALIGN - 1);
    if (want > (size_t)(a->end - a->at)) {
        size_t grow = a->bytes < CHUNK_BYTES_MIN ? CHUNK_BYTES_MIN : a->bytes;
        if (grow > CHUNK_BYTES_MAX) grow = CHUNK_BYTES_MAX;
        if (grow < want) grow = want;
        size_t total;
        a->full = !mem_add_ok(grow, sizeof(struct jinja_chunk), &total) || total > a->limit - a->bytes;
        if (a->full) return NULL;
        struct jinja_chunk *const c = mem_alloc_aligned(ALIGN, total);
        if (!c) return NULL;
        *c = (struct jinja_chunk){.next = a->chunks, .size = total};
        a->chunks = c;
        a->bytes += total;
        a->at = (char *)(c + 1);
        a->end = (char *)c + total;
    }
    void *const p = a->at;
    a->at += want;
    return p;
}

void jinja_run_arena_deinit(struct jinja_arena *a) {
    for (struct jinja_chunk *c = a->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    *a = (struct jinja_arena){0};
}

void jinja_run_init(struct jinja_run *r, const struct jinja_limits *limits, struct err_msg *msg) {
    *r = (struct jinja_run){.msg = msg};
    if (limits) r->limits = *limits;
    if (!r->limits.steps) r->limits.steps = JINJA_STEPS_MAX;
    if (!r->limits.depth) r->limits.depth = JINJA_DEPTH_MAX;
    if (!r->limits.output_bytes) r->limits.output_bytes = JINJA_OUTPUT_MAX;
    if (!r->limits.arena_bytes) r->limits.arena_bytes = JINJA_ARENA_MAX;
    r->arena.limit = r->limits.arena_bytes;
    r->steps_left = r->limits.steps;
    r->depth_left = r->limits.depth;
}

void jinja_run_deinit(struct jinja_run *r) {
    jinja_run_arena_deinit(&r->arena);
    strbuf_deinit(&r->out);
}

void *jinja_run_alloc(struct jinja_run *r, size_t size) {
    return jinja_run_arena_alloc(&r->arena, size);
}

enum err jinja_run_nomem(struct jinja_run *r) {
    if (r->arena.full)
        return err_set(r->msg, ERR_LIMIT, "chat template, line %u: values take more than %zu MiB", r->line,
                       r->limits.arena_bytes >> 20);
    return err_set(r->msg, ERR_NOMEM, "out of memory while rendering the chat template");
}

enum err jinja_run_fail(struct jinja_run *r, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(r->msg, ERR_ARG, "chat template, line %u: %s", r->line, text);
}

enum err jinja_run_step(struct jinja_run *r, int64_t n) {
    r->steps_left -= n;
    if (LIKELY(r->steps_left >= 0)) return ERR_OK;
    r->steps_left = 0;
    return err_set(r->msg, ERR_LIMIT, "chat template, line %u: more than %lld steps", r->line,
                   (long long)r->limits.steps);
}

enum err jinja_run_walk(struct jinja_run *r, size_t len) {
    return jinja_run_step(r, (int64_t)(len / JINJA_STEP_BYTES));
}

enum err jinja_run_enter(struct jinja_run *r) {
    if (r->depth_left > 0) {
        r->depth_left--;
        return ERR_OK;
    }
    return err_set(r->msg, ERR_LIMIT, "chat template, line %u: nested deeper than %d levels", r->line, r->limits.depth);
}

void jinja_run_leave(struct jinja_run *r) {
    r->depth_left++;
}

enum err jinja_run_emit(struct jinja_run *r, const char *s, size_t len) {
    if (len <= r->limits.output_bytes && r->out.len <= r->limits.output_bytes - len) {
        strbuf_append(&r->out, s, len);
        if (LIKELY(!r->out.failed)) return ERR_OK;
        return err_set(r->msg, ERR_NOMEM, "out of memory while rendering the chat template");
    }
    return err_set(r->msg, ERR_LIMIT, "chat template, line %u: the text passes %zu bytes", r->line,
                   r->limits.output_bytes);
}

enum err jinja_run_check_out(struct jinja_run *r) {
    return jinja_run_emit(r, "", 0);
}

enum err jinja_run_cut(struct jinja_run *r, size_t mark, const char **s, size_t *len) {
    TRY(jinja_run_check_out(r));
    const size_t n = r->out.len - mark;
    TRY(jinja_run_walk(r, n));
    char *const copy = jinja_run_alloc(r, n);
    if (!copy) return jinja_run_nomem(r);
    if (n) memcpy(copy, r->out.data + mark, n);
    strbuf_truncate(&r->out, mark);
    *s = copy;
    *len = n;
    return ERR_OK;
}
