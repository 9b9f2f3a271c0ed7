/* Simulation of the engine's decisions: scheduler, pages, prefix index and sampler run under a virtual clock with a
 * fake model, from one seed. The fake model keeps the contents of every page and works only on what it reads through
 * the block tables, so a page that is shared wrongly, handed out twice, released early or not zeroed changes an
 * answer. After every step all invariants are checked; at the end every answer is compared with the one of the same
 * request alone.
 *
 *     engine_sim_test [--seeds N] [--seed FIRST]      a failing seed is printed; --seeds 1 --seed S replays it */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

enum { BLOCK = 16, GROUPS_MAX = 3, PAGES_MAX = 64, REQUESTS_MAX = 40, LEN_MAX = 256, VOCAB = 24, EOS = 3 };

static uint64_t first_seed = 1, n_seeds = 10000;
static struct sample_reduce *reducer;

struct request {
    struct sequence *seq; /* while the scheduler has it */
    int32_t prompt[LEN_MAX];
    struct sequence_spec spec;
    struct xenon_sampling sampling;
    struct xenon_bias bias;
    int32_t stop_id;
    int64_t cancel_ns;
    bool submitted, ended, cancelled;
    int follows;           /* the request whose conversation this one goes on with, or -1 */
    int32_t said[LEN_MAX]; /* prompt and answer, once it has ended */
    int64_t n_said;
    uint8_t logprob_rows[LEN_MAX];
};

struct sim {
    uint64_t seed;
    struct rng rng;
    struct block_manager_config blocks;
    struct cache_group_spec groups[GROUPS_MAX];
    struct scheduler_config config;
    struct block_manager *bm;
    struct scheduler *s;
    int64_t now_ns;
    int n_requests, n_ended, arrivals_ms;
    struct request requests[REQUESTS_MAX];
    uint64_t rows[GROUPS_MAX][PAGES_MAX][BLOCK]; /* contents of pages; of a state slot: [0] state, [1] tokens in it */
    int64_t n_steps, n_stale;                    /* steps; of them in a row without anything ended */
    int32_t counts[VOCAB];
};

/* What all seeds together went through: a simulation that never preempts shows nothing. */
static struct {
    int64_t requests, steps, preemptions, hits, evictions, checkpoints, aborted, refused, chunks, drafts_kept;
} total;

#define REQUIRE(sim, cond)                                                                                           \
    do {                                                                                                             \
        if (!(cond)) fail_seed((sim), __LINE__, #cond);                                                              \
    } while (0)

static void fail_seed(const struct sim *sim, int line, const char *text) {
    print_error("seed %llu, step %lld, line %d: %s\nreplay: engine_sim_test --seeds 1 --seed %llu\n",
                (unsigned long long)sim->seed, (long long)sim->n_steps, line, text, (unsigned long long)sim->seed);
    fail();
}

static int between(struct sim *sim, int low, int high) {
    return low + (int)rng_below(&sim->rng, (uint32_t)(high - low + 1));
}

static bool chance(struct sim *sim, int percent) {
    return between(sim, 1, 100) <= percent;
}

/* ---- The fake model ---------------------------------------------------------------------------- */

static uint64_t salt_hash(const char *salt) {
    return hash_bytes(salt ? salt : "", salt ? strlen(salt) : 0, 7);
}

/* The row of a token: a function of its position's whole prefix, through the row before it. Never 0. */
static uint64_t next_row(uint64_t before, int32_t token) {
    return hash_mix(before * 3 + (uint64_t)(uint32_t)token + 0x9e37) | 1;
}

static uint64_t fold(uint64_t acc, uint64_t row) {
    return hash_mix(acc ^ row) + 0x1234567;
}

/* Logits from a context: small integers over 4, so that ties happen. */
static void context_logits(uint64_t context, float *logits) {
    for (uint64_t v = 0; v < VOCAB; v++)
        logits[v] = (float)(hash_mix(context + v * 77) % 29) / 4.0f;
}

/* Samples as the engine does: edits, reduction, draw. */
static int32_t sample(struct sim *sim, const struct sequence *seq, uint64_t context) {
    float logits[VOCAB];
    const int32_t eos = EOS;
    context_logits(context, logits);
    if (sequence_has_edits(seq)) sampler_edit(seq, &eos, 1, logits, VOCAB, sim->counts);
    struct sample_row row = {.logits = logits, .masked = true};
    row.draw = sampler_draw(&seq->sampling, (uint64_t)seq->n_tokens);
    sample_reduce_run(reducer, NULL, &row, 1);
    return row.token;
}

/* The cell of position p, which must be in the table. */
static uint64_t *cell(struct sim *sim, const struct sequence *seq, int g, int64_t p) {
    const int64_t b = p / BLOCK;
    REQUIRE(sim, b < seq->n_pages[g]);
    const int32_t page = seq->pages[g][b];
    REQUIRE(sim, page >= 0 && page < sim->groups[g].n_pages);
    return &sim->rows[g][page][p % BLOCK];
}

static int64_t context_start(const struct sim *sim, int g, int64_t p) {
    if (sim->groups[g].kind != CACHE_WINDOW || p + 1 < sim->groups[g].window) return 0;
    return p + 1 - sim->groups[g].window;
}

/* Computes the row of one token in one group and returns what the group's layers make of its context. */
static uint64_t compute_row(struct sim *sim, const struct sequence *seq, int g, int64_t p, int32_t token) {
    if (sim->groups[g].kind == CACHE_STATE) {
        uint64_t *const slot = sim->rows[g][seq->pages[g][0]];
        REQUIRE(sim, slot[1] == (uint64_t)p);
        slot[0] = next_row(p > 0 ? slot[0] : salt_hash(seq->salt), token);
        slot[1]++;
        return slot[0];
    }
    uint64_t *const own = cell(sim, seq, g, p);
    /* Rows are written once: what is behind a sequence's end is zero. Rejected drafts are written over. */
    REQUIRE(sim, *own == 0 || sim->config.n_draft > 0);
    *own = next_row(p > 0 ? *cell(sim, seq, g, p - 1) : salt_hash(seq->salt), token);
    uint64_t acc = 0;
    for (int64_t q = context_start(sim, g, p); q <= p; q++) {
        const uint64_t row = *cell(sim, seq, g, q);
        REQUIRE(sim, row != 0);
        acc = fold(acc, row);
    }
    return acc;
}

static uint64_t compute_token(struct sim *sim, const struct sequence *seq, int64_t p, int32_t token) {
    uint64_t context = 0;
    for (int g = 0; g < sim->blocks.n_groups; g++)
        context = fold(context, compute_row(sim, seq, g, p, token));
    return context;
}

/* The same context from the tokens alone: rows[q] of the whole sequence, no pages. */
static uint64_t alone_context(const struct sim *sim, const uint64_t *rows, int64_t p) {
    uint64_t context = 0;
    for (int g = 0; g < sim->blocks.n_groups; g++) {
        uint64_t acc = 0;
        if (sim->groups[g].kind == CACHE_STATE) {
            acc = rows[p];
        } else {
            for (int64_t q = context_start(sim, g, p); q <= p; q++)
                acc = fold(acc, rows[q]);
        }
        context = fold(context, acc);
    }
    return context;
}

static bool is_end(const struct sequence *seq, int32_t id) {
    const bool may = sequence_n_generated(seq) >= seq->sampling.min_tokens;
    if (may && id == EOS && !seq->sampling.ignore_eos) return true;
    return may && seq->sampling.n_stop_ids > 0 && seq->sampling.stop_ids[0] == id;
}

/* Runs the request alone and compares: all of a finished answer, the beginning of an aborted one. */
static void compare_alone(struct sim *sim, const struct request *r) {
    const struct sequence *const got = r->seq;
    struct sequence *alone = NULL;
    REQUIRE(sim, sequence_create(&alone, &r->spec, NULL) == ERR_OK);
    uint64_t rows[LEN_MAX];
    uint64_t before = salt_hash(r->spec.salt);
    int64_t n_rows = 0;
    bool ended = alone->max_len == alone->n_prompt;
    while (!ended && alone->n_tokens < got->max_len) {
        for (; n_rows < alone->n_tokens; n_rows++)
            before = rows[n_rows] = next_row(before, alone->tokens[n_rows]);
        const int32_t id = sample(sim, alone, alone_context(sim, rows, n_rows - 1));
        REQUIRE(sim, id >= 0);
        sequence_append(alone, id);
        ended = is_end(alone, id);
        if (got->finish == XENON_FINISH_ABORT && alone->n_tokens >= got->n_tokens) break;
    }
    const bool partial = got->finish == XENON_FINISH_ABORT || got->finish == XENON_FINISH_ERROR;
    REQUIRE(sim, partial ? got->n_tokens <= alone->n_tokens : got->n_tokens == alone->n_tokens);
    REQUIRE(sim, memcmp(got->tokens, alone->tokens, (size_t)got->n_tokens * sizeof *got->tokens) == 0);
    if (!partial)
        REQUIRE(sim, got->finish ==
                         (ended && alone->max_len != alone->n_prompt ? XENON_FINISH_STOP : XENON_FINISH_LENGTH));
    if (!partial && r->sampling.prompt_logprobs >= 0) {
        for (int64_t p = 0; p < got->n_prompt - 1; p++)
            REQUIRE(sim, r->logprob_rows[p] == 1);
    }
    sequence_destroy(alone);
}

/* ---- Setting up -------------------------------------------------------------------------------- */

static void choose_groups(struct sim *sim) {
    static const struct {
        int n;
        enum cache_kind kinds[GROUPS_MAX];
    } shapes[] = {{1, {CACHE_PAGED}},
                  {2, {CACHE_PAGED, CACHE_WINDOW}},
                  {2, {CACHE_WINDOW, CACHE_PAGED}},
                  {1, {CACHE_WINDOW}},
                  {2, {CACHE_PAGED, CACHE_STATE}},
                  {3, {CACHE_PAGED, CACHE_WINDOW, CACHE_STATE}},
                  {1, {CACHE_STATE}},
                  {3, {CACHE_PAGED, CACHE_PAGED, CACHE_WINDOW}}};
    const int shape = between(sim, 0, 2 * (int)N_ELEMENTS(shapes) - 1);
    const int i = shape < (int)N_ELEMENTS(shapes) ? shape : 0;
    bool has_state = false;
    for (int g = 0; g < shapes[i].n; g++) {
        struct cache_group_spec *const group = &sim->groups[g];
        group->kind = shapes[i].kinds[g];
        group->window = between(sim, 2, 70);
        group->n_pages =
            group->kind == CACHE_STATE ? between(sim, 1, 10) : between(sim, 3, chance(sim, 70) ? 20 : 60);
        has_state |= group->kind == CACHE_STATE;
    }
    const int grid = has_state ? (chance(sim, 50) ? 64 : 32) : chance(sim, 80) ? 0 : 64;
    sim->blocks = (struct block_manager_config){
        .groups = sim->groups,
        .n_groups = shapes[i].n,
        .block_size = BLOCK,
        .max_model_len = between(sim, 40, chance(sim, 50) ? LEN_MAX / 2 : LEN_MAX),
        .prefix_caching = chance(sim, 90),
        .chunk_grid = grid,
        .checkpoint_interval = chance(sim, 50) ? between(sim, 1, 128) : 0,
    };
    sim->config.n_draft = has_state || chance(sim, 75) ? 0 : between(sim, 1, 4);
}

static void choose_config(struct sim *sim) {
    static const int32_t eos[] = {EOS};
    choose_groups(sim);
    sim->arrivals_ms = between(sim, 1, 600);
    const int least =
        sim->blocks.chunk_grid > 1 + sim->config.n_draft ? sim->blocks.chunk_grid : 1 + sim->config.n_draft;
    sim->config = (struct scheduler_config){
        .policy = chance(sim, 70) ? XENON_POLICY_MIXED : XENON_POLICY_PREFILL_FIRST,
        .max_num_seqs = between(sim, 1, 8),
        .max_num_batched_tokens = chance(sim, 30) ? least : between(sim, least, 160),
        .max_queue = between(sim, 2, 40),
        .max_model_len = sim->blocks.max_model_len,
        .chunk_grid = sim->blocks.chunk_grid,
        .n_draft = sim->config.n_draft,
        .aging_ns = between(sim, 1, 1000) * 1000000ll,
        .eos_ids = eos,
        .n_eos = 1,
    };
}

static void choose_sampling(struct sim *sim, struct request *r) {
    struct xenon_sampling *const p = &r->sampling;
    *p = (struct xenon_sampling){.temperature = chance(sim, 40) ? 0 : (float)between(sim, 1, 30) / 10,
                                 .top_p = 1,
                                 .repetition_penalty = 1,
                                 .seed = rng_next(&sim->rng),
                                 .has_seed = true,
                                 .max_tokens = chance(sim, 15) ? -1 : between(sim, 0, 60),
                                 .logprobs = -1,
                                 .prompt_logprobs = chance(sim, 10) ? 0 : -1,
                                 .ignore_eos = chance(sim, 40)};
    if (chance(sim, 30)) p->top_k = between(sim, 1, 16);
    if (chance(sim, 30)) p->top_p = (float)between(sim, 1, 100) / 100;
    if (chance(sim, 20)) p->min_p = (float)between(sim, 0, 20) / 100;
    if (chance(sim, 20)) p->repetition_penalty = (float)between(sim, 50, 200) / 100;
    if (chance(sim, 20)) p->frequency_penalty = (float)between(sim, -20, 20) / 10;
    if (chance(sim, 20)) p->presence_penalty = (float)between(sim, -20, 20) / 10;
    if (chance(sim, 15) && p->max_tokens > 0) p->min_tokens = between(sim, 0, p->max_tokens);
    if (chance(sim, 20)) {
        r->stop_id = between(sim, 0, VOCAB - 1);
        p->stop_ids = &r->stop_id;
        p->n_stop_ids = 1;
    }
    if (chance(sim, 10)) {
        r->bias = (struct xenon_bias){between(sim, 0, VOCAB - 1), (float)between(sim, -50, 50) / 10};
        p->bias = &r->bias;
        p->n_bias = 1;
    }
}

/* Prompts share beginnings: with an earlier one of any length, or with an earlier whole conversation's prompt. */
static void choose_request(struct sim *sim, int i) {
    static const char *const salts[] = {NULL, "", "a", "b"};
    struct request *const r = &sim->requests[i];
    const int longest = (int)sim->blocks.max_model_len;
    const int n = chance(sim, 60) ? between(sim, 1, longest / 2) : between(sim, 1, longest);
    for (int t = 0; t < n; t++)
        r->prompt[t] = between(sim, 0, VOCAB - 1);
    /* Few different blocks in any order: the same block behind different prefixes. */
    const bool few_blocks = chance(sim, 50);
    for (int t = 0, k = 0; few_blocks && t < n; t++) {
        if (t % BLOCK == 0) k = between(sim, 0, 2);
        r->prompt[t] = (t % BLOCK * 5 + k * (t % BLOCK)) % VOCAB;
    }
    if (i > 0 && chance(sim, 70)) {
        const struct request *const old = &sim->requests[between(sim, 0, i - 1)];
        const int shared = chance(sim, 40) ? (int)old->spec.n_prompt : between(sim, 0, (int)old->spec.n_prompt);
        memcpy(r->prompt, old->prompt, sizeof *r->prompt * (size_t)(shared < n ? shared : n));
    }
    choose_sampling(sim, r);
    r->follows = i > 0 && chance(sim, 25) ? between(sim, 0, i - 1) : -1;
    const int64_t arrival = 1 + between(sim, 0, sim->arrivals_ms) * 1000000ll;
    r->spec = (struct sequence_spec){
        .id = (uint64_t)i + 1,
        .prompt = r->prompt,
        .n_prompt = (size_t)n,
        .sampling = &r->sampling,
        .salt = salts[chance(sim, 80) ? 0 : between(sim, 0, 3)],
        .priority = chance(sim, 70) ? 0 : between(sim, -2, 2),
        .arrival_ns = arrival,
        .deadline_ns = chance(sim, 10) ? arrival + between(sim, 1, 1000) * 1000000ll : 0,
        .max_model_len = sim->blocks.max_model_len,
        .n_groups = sim->blocks.n_groups,
        .block_size = BLOCK,
        .user = r,
    };
    r->cancel_ns = chance(sim, 12) ? arrival + between(sim, 0, 1000) * 1000000ll : INT64_MAX;
}

/* ---- Running ----------------------------------------------------------------------------------- */

static void end_request(struct sim *sim, struct request *r) {
    r->ended = true;
    sim->n_ended++;
    sim->n_stale = 0;
}

static void collect_finished(struct sim *sim) {
    for (struct sequence *seq; (seq = scheduler_pop_finished(sim->s)) != NULL;) {
        struct request *const r = seq->user;
        REQUIRE(sim, r->seq == seq && seq->status == SEQUENCE_FINISHED && seq->finish != XENON_FINISH_NONE);
        for (int g = 0; g < sim->blocks.n_groups; g++)
            REQUIRE(sim, seq->n_pages[g] == 0);
        if (seq->finish == XENON_FINISH_ABORT) total.aborted++;
        compare_alone(sim, r);
        memcpy(r->said, seq->tokens, (size_t)seq->n_tokens * sizeof *r->said);
        r->n_said = seq->n_tokens;
        sequence_destroy(seq);
        r->seq = NULL;
        end_request(sim, r);
    }
}

/* A next turn: what was said so far, then this request's own prompt as far as there is room. */
static void continue_conversation(const struct sim *sim, struct request *r) {
    const struct request *const old = &sim->requests[r->follows];
    const int64_t room = sim->blocks.max_model_len - old->n_said, own = (int64_t)r->spec.n_prompt;
    const int64_t n_own = own < room ? own : room;
    if (old->n_said == 0 || n_own < 1) return;
    memmove(r->prompt + old->n_said, r->prompt, (size_t)n_own * sizeof *r->prompt);
    memcpy(r->prompt, old->said, (size_t)old->n_said * sizeof *r->prompt);
    r->spec.n_prompt = (size_t)(old->n_said + n_own);
    r->spec.salt = old->spec.salt;
}

static void submit_one(struct sim *sim, struct request *r) {
    struct err_msg msg = {""};
    struct scheduler_stats before, after;
    r->submitted = true;
    if (r->follows >= 0) continue_conversation(sim, r);
    enum err e = sequence_create(&r->seq, &r->spec, &msg);
    if (e == ERR_OK) {
        scheduler_stats(sim->s, &before);
        e = scheduler_add(sim->s, r->seq, &msg);
        scheduler_stats(sim->s, &after);
        REQUIRE(sim, after.n_waiting == before.n_waiting + (e == ERR_OK));
        REQUIRE(sim, e != ERR_BUSY || before.n_waiting >= sim->config.max_queue);
        REQUIRE(sim, e != ERR_OK || before.n_waiting < sim->config.max_queue);
        const int64_t rows = r->seq->max_len > r->seq->n_prompt ? r->seq->max_len - 1 : r->seq->n_prompt;
        REQUIRE(sim, (e == ERR_LIMIT) == !block_manager_fits(sim->bm, rows, NULL, NULL) || e == ERR_BUSY);
        if (e != ERR_OK) sequence_destroy(r->seq);
    } else {
        REQUIRE(sim, r->spec.n_prompt + (r->sampling.max_tokens != 0) > (size_t)sim->blocks.max_model_len);
        REQUIRE(sim, e == ERR_LIMIT);
    }
    if (e == ERR_OK) return;
    REQUIRE(sim, strlen(msg.text) > 0);
    total.refused++;
    r->seq = NULL;
    end_request(sim, r);
}

static void submit_and_cancel(struct sim *sim) {
    for (int i = 0; i < sim->n_requests; i++) {
        struct request *const r = &sim->requests[i];
        if (!r->submitted && r->spec.arrival_ns <= sim->now_ns) submit_one(sim, r);
        if (!r->seq || r->cancel_ns > sim->now_ns) continue;
        r->cancelled = true;
        scheduler_finish(sim->s, r->seq, XENON_FINISH_ABORT);
    }
}

static void do_ops(struct sim *sim, const struct sched_batch *batch) {
    for (int64_t i = 0; i < batch->n_ops; i++) {
        const struct block_op *const op = &batch->ops[i];
        REQUIRE(sim, op->page >= 0 && op->page < sim->groups[op->group].n_pages);
        uint64_t *const page = sim->rows[op->group][op->page];
        if (op->kind == BLOCK_OP_ZERO) {
            memset(page, 0, sizeof sim->rows[0][0]);
        } else {
            REQUIRE(sim, sim->groups[op->group].kind == CACHE_STATE);
            memcpy(page, sim->rows[op->group][op->from], sizeof sim->rows[0][0]);
        }
    }
}

static void check_item(struct sim *sim, const struct sched_batch *batch, int i) {
    const struct sched_item *const item = &batch->items[i];
    const struct sequence *const seq = item->seq;
    const int grid = sim->config.chunk_grid;
    const int64_t end = item->first + item->n_tokens - item->n_draft;
    REQUIRE(sim, item->is_decode == (i < batch->n_decodes));
    REQUIRE(sim, item->n_tokens >= 1 && item->n_draft <= sim->config.n_draft && item->first == seq->n_computed);
    REQUIRE(sim, end <= seq->n_tokens && seq->status == SEQUENCE_RUNNING);
    REQUIRE(sim, !item->is_decode || end == seq->n_tokens);
    REQUIRE(sim, item->samples == (end == seq->n_tokens && seq->sampling.max_tokens != 0));
    REQUIRE(sim, grid <= 1 || end % grid == 0 || end == seq->n_tokens || end == seq->n_prompt);
    REQUIRE(sim, item->first_logits >= 0 && item->first_logits <= item->n_tokens);
    REQUIRE(sim, !item->samples || item->first_logits <= item->n_tokens - item->n_draft - 1);
    for (int j = 0; j < i; j++)
        REQUIRE(sim, batch->items[j].seq != seq);
    /* Pages that are written belong to this sequence alone. */
    for (int g = 0; g < sim->blocks.n_groups; g++) {
        const bool is_state = sim->groups[g].kind == CACHE_STATE;
        const int64_t first = is_state ? 0 : item->first / BLOCK,
                      last = is_state ? 0 : (item->first + item->n_tokens - 1) / BLOCK;
        for (int64_t b = first; b <= last; b++) {
            REQUIRE(sim, b < seq->n_pages[g] && seq->pages[g][b] >= 0);
            for (int k = 0; k < sim->n_requests; k++) {
                const struct sequence *const other = sim->requests[k].seq;
                if (!other || other == seq) continue;
                for (int64_t c = other->first_page[g]; c < other->n_pages[g]; c++)
                    REQUIRE(sim, other->pages[g][c] != seq->pages[g][b]);
            }
        }
    }
}

/* Computes an item and samples: ids[] gets the tokens, accepted drafts first. */
static int compute_item(struct sim *sim, const struct sched_item *item, int32_t *ids) {
    struct sequence *const seq = item->seq;
    struct request *const r = seq->user;
    const int n_known = item->n_tokens - item->n_draft;
    int n_ids = 0;
    for (int j = 0; j < item->n_tokens; j++) {
        const int64_t p = item->first + j;
        const bool is_draft = j >= n_known;
        const int32_t token = is_draft ? seq->drafts[j - n_known] : seq->tokens[p];
        const uint64_t context = compute_token(sim, seq, p, token);
        if (j >= item->first_logits && p < seq->n_prompt - 1 && seq->pending_finish == XENON_FINISH_NONE)
            r->logprob_rows[p]++;
        if (!item->samples || j < n_known - 1 || n_ids < j - (n_known - 1)) continue;
        /* A draft counts while everything before it was accepted; then what its row gives is the next token. */
        if (is_draft && ids[n_ids - 1] != token) continue;
        struct sequence view = *seq;
        int32_t tokens[LEN_MAX + SEQUENCE_DRAFT_MAX + 1];
        memcpy(tokens, seq->tokens, (size_t)seq->n_tokens * sizeof *tokens);
        memcpy(tokens + seq->n_tokens, ids, (size_t)n_ids * sizeof *tokens);
        view.tokens = tokens;
        view.n_tokens += n_ids;
        ids[n_ids++] = sample(sim, &view, context);
        REQUIRE(sim, ids[n_ids - 1] >= 0);
    }
    return n_ids;
}

/* Drafts for the next step: random ones of a tiny alphabet, often right by chance. */
static void propose_drafts(struct sim *sim, struct sequence *seq) {
    seq->n_drafts = between(sim, 0, sim->config.n_draft);
    for (int i = 0; i < seq->n_drafts; i++)
        seq->drafts[i] = between(sim, 0, VOCAB / 8);
}

static void run_batch(struct sim *sim, const struct sched_batch *batch) {
    struct sched_result results[16];
    int32_t ids[16][SEQUENCE_DRAFT_MAX + 1];
    int64_t n_tokens = 0;
    REQUIRE(sim, batch->n_items <= sim->config.max_num_seqs && batch->n_items <= 16);
    for (int i = 0; i < batch->n_items; i++) {
        check_item(sim, batch, i);
        n_tokens += batch->items[i].n_tokens;
    }
    REQUIRE(sim, n_tokens == batch->n_tokens && n_tokens <= sim->config.max_num_batched_tokens);
    do_ops(sim, batch);
    struct sequence *seqs[16];
    for (int i = 0; i < batch->n_items; i++) {
        seqs[i] = batch->items[i].seq;
        results[i] = (struct sched_result){.ids = ids[i], .n_ids = compute_item(sim, &batch->items[i], ids[i])};
    }
    sim->now_ns += between(sim, 1, 20) * 1000000ll;
    /* News that come while the step runs: requests, and cancels of what is in it. */
    submit_and_cancel(sim);
    if (chance(sim, 1)) results[between(sim, 0, batch->n_items - 1)].failed = true;
    scheduler_commit(sim->s, sim->now_ns, results);
    for (int i = 0; i < batch->n_items; i++) {
        if (results[i].n_kept > 1) total.drafts_kept += results[i].n_kept - 1;
        if (seqs[i]->status == SEQUENCE_RUNNING && sim->config.n_draft > 0) propose_drafts(sim, seqs[i]);
    }
}

static void check_all(struct sim *sim) {
    struct err_msg msg = {""};
    struct scheduler_stats stats;
    if (!scheduler_check(sim->s, &msg)) fail_seed(sim, __LINE__, msg.text);
    scheduler_stats(sim->s, &stats);
    REQUIRE(sim, stats.n_running <= sim->config.max_num_seqs);
    REQUIRE(sim, stats.n_waiting <= sim->config.max_queue + sim->config.max_num_seqs);
    for (int i = 0; i < sim->n_requests; i++) {
        const struct request *const r = &sim->requests[i];
        REQUIRE(sim, !r->seq || !r->cancelled || r->seq->status == SEQUENCE_FINISHED);
    }
}

static void add_totals(struct sim *sim) {
    struct scheduler_stats stats;
    struct block_stats blocks;
    scheduler_stats(sim->s, &stats);
    block_manager_stats(sim->bm, &blocks);
    for (int g = 0; g < blocks.n_groups; g++)
        REQUIRE(sim, blocks.groups[g].n_used == 0);
    total.requests += sim->n_requests;
    total.steps += stats.steps;
    total.preemptions += stats.preemptions;
    total.chunks += stats.prefill_chunks;
    total.hits += blocks.hit_tokens;
    total.evictions += blocks.evictions;
    total.checkpoints += blocks.checkpoints;
}

static void run_seed(struct sim *sim, uint64_t seed) {
    memset(sim, 0, sizeof *sim);
    sim->seed = seed;
    sim->rng = rng_seeded(seed);
    choose_config(sim);
    memset(sim->rows, 0xa5, sizeof sim->rows); /* what a page holds before its first use must not matter */
    REQUIRE(sim, block_manager_create(&sim->bm, &sim->blocks, NULL) == ERR_OK);
    REQUIRE(sim, scheduler_create(&sim->s, &sim->config, sim->bm, NULL) == ERR_OK);
    sim->n_requests = between(sim, 1, REQUESTS_MAX);
    for (int i = 0; i < sim->n_requests; i++)
        choose_request(sim, i);
    while (sim->n_ended < sim->n_requests) {
        submit_and_cancel(sim);
        if (chance(sim, 1)) block_manager_clear_cache(sim->bm);
        struct sched_batch batch;
        const int64_t n_allocs = mem_n_allocs();
        scheduler_schedule(sim->s, sim->now_ns, &batch);
        REQUIRE(sim, mem_n_allocs() == n_allocs);
        /* Whatever is queued, something gets on. */
        REQUIRE(sim, (batch.n_items > 0) == scheduler_has_work(sim->s));
        if (batch.n_items > 0) {
            run_batch(sim, &batch);
        } else {
            sim->now_ns += 1000000;
        }
        sim->n_steps++;
        check_all(sim);
        collect_finished(sim);
        REQUIRE(sim, ++sim->n_stale < 4000);
    }
    add_totals(sim);
    scheduler_destroy(sim->s);
    block_manager_destroy(sim->bm);
}

static void engine_sim_test(void **state) {
    struct sim *const sim = mem_xalloc(sizeof *sim);
    struct kern kern;
    (void)state;
    kern_init(&kern, CPU_GENERIC);
    assert_int_equal(sample_reduce_create(&reducer, &kern, VOCAB, 1, 1, NULL), ERR_OK);
    for (uint64_t i = 0; i < n_seeds; i++)
        run_seed(sim, first_seed + i);
    sample_reduce_destroy(reducer);
    mem_free(sim);
    print_message(
        "%lld requests, %lld steps, %lld prompt chunks, %lld preemptions, %lld cached tokens, %lld evictions, "
        "%lld checkpoints, %lld drafts kept, %lld aborted, %lld refused\n",
        (long long)total.requests, (long long)total.steps, (long long)total.chunks, (long long)total.preemptions,
        (long long)total.hits, (long long)total.evictions, (long long)total.checkpoints, (long long)total.drafts_kept,
        (long long)total.aborted, (long long)total.refused);
    if (n_seeds < 1000) return;
    assert_true(total.preemptions > 0 && total.hits > 0 && total.evictions > 0 && total.checkpoints > 0);
    assert_true(total.drafts_kept > 0 && total.aborted > 0 && total.refused > 0);
}

int main(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t *const value = strcmp(argv[i], "--seeds") == 0  ? &n_seeds
                                : strcmp(argv[i], "--seed") == 0 ? &first_seed
                                                                 : NULL;
        if (value) *value = strtoull(argv[i + 1], NULL, 10);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(engine_sim_test)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
