/* The state of one rendering: its arena, its limits, its error. Everything that a rendering makes lives in the arena
 * and dies with it, so values need no reference counts and errors need no unwinding.
 * Threads: one owner. Owns: the arena's chunks and the output buffer. */
#ifndef TEXT_JINJA_RUN_H
#define TEXT_JINJA_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/strbuf.h"

struct jinja_chunk;

/* A bump allocator; bytes counts what was asked of the heap, and never passes limit. */
struct jinja_arena {
    struct jinja_chunk *chunks;
    char *at, *end;
    size_t bytes;
    size_t limit;
    bool full; /* a request was refused because of the limit */
};

/* What a template may use. A zeroed field means the default. */
struct jinja_limits {
    int64_t steps;       /* evaluated nodes, plus one per JINJA_STEP_BYTES bytes that a string operation walks */
    int depth;           /* nested evaluations: expressions, blocks, macro calls, values inside values */
    size_t output_bytes; /* the rendered text, captured blocks included */
    size_t arena_bytes;  /* values alive in the rendering; none is freed before its end */
};

enum {
    JINJA_STEP_BYTES = 64,
    JINJA_STEPS_MAX = 50 * 1000 * 1000,
    JINJA_DEPTH_MAX = 900,
    JINJA_OUTPUT_MAX = 64 << 20,
    JINJA_ARENA_MAX = 256 << 20,
    JINJA_RANGE_MAX = 100000, /* the reference sandbox's limit on range() */
};

enum jinja_flow { JINJA_FLOW_ON, JINJA_FLOW_BREAK, JINJA_FLOW_CONTINUE };

struct jinja_run {
    struct jinja_arena arena;
    struct strbuf out; /* captured blocks are rendered at its end, then cut off */
    struct err_msg *msg;
    int64_t steps_left;
    int depth_left;
    struct jinja_limits limits;
    uint32_t line;        /* of the node being evaluated, for messages */
    enum jinja_flow flow; /* set by break and continue until the loop sees it */
    int loop_depth;       /* loops entered through loop(...) of a recursive one */
    int64_t now_unix_s;
    const char *block_text; /* what a filter block or set block rendered, for the first of its filters */
    size_t block_len;
};

/* Fills in the defaults. msg may be NULL. */
void jinja_run_init(struct jinja_run *r, const struct jinja_limits *limits, struct err_msg *msg);
void jinja_run_deinit(struct jinja_run *r);

/* size bytes aligned to 16, uninitialised. NULL: no memory or over the limit; jinja_run_nomem says which. */
void *jinja_run_alloc(struct jinja_run *r, size_t size) ATTR_NODISCARD;
void *jinja_run_arena_alloc(struct jinja_arena *a, size_t size) ATTR_NODISCARD;
void jinja_run_arena_deinit(struct jinja_arena *a);

/* The error behind a NULL of jinja_run_alloc: ERR_LIMIT when the arena is full, else ERR_NOMEM. */
enum err jinja_run_nomem(struct jinja_run *r) ATTR_COLD;

/* An error of the template or of its data: ERR_ARG, "chat template, line N: text". */
enum err jinja_run_fail(struct jinja_run *r, const char *fmt, ...) ATTR_PRINTF(2, 3) ATTR_COLD;

/* Takes n steps, or ERR_LIMIT. */
enum err jinja_run_step(struct jinja_run *r, int64_t n) ATTR_NODISCARD;

/* Steps for walking len bytes. */
enum err jinja_run_walk(struct jinja_run *r, size_t len) ATTR_NODISCARD;

/* One level deeper, or ERR_LIMIT; every success is paired with jinja_run_leave. */
enum err jinja_run_enter(struct jinja_run *r) ATTR_NODISCARD;
void jinja_run_leave(struct jinja_run *r);

/* Appends to the output: ERR_LIMIT when it would pass the limit, ERR_NOMEM. */
enum err jinja_run_emit(struct jinja_run *r, const char *s, size_t len) ATTR_NODISCARD;

/* The text behind `mark`, an earlier length of the output, cut off it and kept in the arena. */
enum err jinja_run_cut(struct jinja_run *r, size_t mark, const char **s, size_t *len) ATTR_NODISCARD;

/* Turns a failure of the output buffer, or a length above the limit, into an error: after direct appends to r->out. */
enum err jinja_run_check_out(struct jinja_run *r) ATTR_NODISCARD;

#endif
