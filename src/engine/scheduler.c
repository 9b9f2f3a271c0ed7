#include "engine/scheduler.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* Prompts that may be half computed at a time: more would share the budget into crumbs and hold pages for long. */
enum { PARTIAL_MAX = 4, SHARE_MIN = 64, PROMPT_MIN = 16 };

static const int64_t aging_ns_default = 10000000000;

struct seq_list {
    struct sequence *head, *tail;
    int n;
};

struct scheduler {
    struct scheduler_config config;
    int32_t *eos_ids;
    struct block_manager *bm;
    struct seq_list waiting, running; /* in key order */
    struct seq_list finished;
    struct sched_item *items; /* [max_num_seqs] */
    int n_items, n_decodes;
    int64_t step_limit;   /* tokens of a step, below the configured budget */
    bool in_flight;       /* between schedule and commit */
    bool prompts_starved; /* decodes took the whole budget of the last step while prompt work waited */
    int64_t turn_key;     /* the decode served last when not all could be: the next step goes on behind it */
    uint64_t turn_id;
    /* Of the step that is being planned. */
    int64_t budget;
    bool no_admission; /* something was preempted or lacked pages */
    struct scheduler_stats stats;
};

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* ---- Lists ------------------------------------------------------------------------------------ */

static bool goes_before(const struct sequence *a, int64_t key, uint64_t id) {
    return a->order_key != key ? a->order_key < key : a->id < id;
}

static void list_insert_after(struct seq_list *list, struct sequence *at, struct sequence *seq) {
    seq->prev = at;
    seq->next = at ? at->next : list->head;
    *(at ? &at->next : &list->head) = seq;
    *(seq->next ? &seq->next->prev : &list->tail) = seq;
    list->n++;
}

/* New sequences mostly belong at the end, so the search starts there. */
static void list_insert_ordered(struct seq_list *list, struct sequence *seq) {
    struct sequence *at = list->tail;
    while (at && goes_before(seq, at->order_key, at->id))
        at = at->prev;
    list_insert_after(list, at, seq);
}

static void list_remove(struct seq_list *list, struct sequence *seq) {
    *(seq->prev ? &seq->prev->next : &list->head) = seq->next;
    *(seq->next ? &seq->next->prev : &list->tail) = seq->prev;
    seq->prev = seq->next = NULL;
    list->n--;
}

/* ---- Creation --------------------------------------------------------------------------------- */

static enum err check_config(const struct scheduler_config *c, struct err_msg *msg) {
    if (c->max_num_seqs < 1) return err_set(msg, ERR_ARG, "max_num_seqs is %d, must be at least 1", c->max_num_seqs);
    if (c->max_queue < 1) return err_set(msg, ERR_ARG, "max_queue is %d, must be at least 1", c->max_queue);
    if (c->n_draft < 0 || c->n_draft > SEQUENCE_DRAFT_MAX)
        return err_set(msg, ERR_ARG, "%d speculative tokens, must be in 0..%d", c->n_draft, SEQUENCE_DRAFT_MAX);
    if (c->chunk_grid < 0 || c->aging_ns < 0 || c->n_eos < 0)
        return err_set(msg, ERR_ARG, "chunk_grid, aging and the number of EOS ids must not be negative");
    if (c->max_num_batched_tokens < max_i64(c->chunk_grid, 1 + c->n_draft))
        return err_set(msg, ERR_ARG, "max_num_batched_tokens is %d, this model needs at least %lld",
                       c->max_num_batched_tokens, (long long)max_i64(c->chunk_grid, 1 + c->n_draft));
    return ERR_OK;
}

enum err scheduler_create(struct scheduler **out, const struct scheduler_config *config, struct block_manager *bm,
                          struct err_msg *msg) {
    *out = NULL;
    TRY(check_config(config, msg));
    struct scheduler *const s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(msg, ERR_NOMEM, "no memory for the scheduler");
    s->config = *config;
    s->bm = bm;
    s->step_limit = config->max_num_batched_tokens;
    if (s->config.aging_ns == 0) s->config.aging_ns = aging_ns_default;
    s->items = mem_calloc((size_t)config->max_num_seqs, sizeof *s->items);
    s->eos_ids = mem_calloc((size_t)config->n_eos + 1, sizeof *s->eos_ids);
    if (!s->items || !s->eos_ids) {
        scheduler_destroy(s);
        return err_set(msg, ERR_NOMEM, "no memory for the scheduler");
    }
    for (int i = 0; i < config->n_eos; i++)
        s->eos_ids[i] = config->eos_ids[i];
    s->config.eos_ids = s->eos_ids;
    *out = s;
    return ERR_OK;
}

void scheduler_destroy(struct scheduler *s) {
    if (!s) return;
    CHECK(s->waiting.n == 0 && s->running.n == 0 && s->finished.n == 0);
    mem_free(s->items);
    mem_free(s->eos_ids);
    mem_free(s);
}

/* ---- Queueing --------------------------------------------------------------------------------- */

/* Rows of the cache that a sequence may reach: its last token is never computed, unless nothing is generated. */
static int64_t rows_max(const struct sequence *seq) {
    return max_i64(seq->max_len - 1, seq->n_prompt);
}

static enum err check_fits(const struct scheduler *s, struct sequence *seq, struct err_msg *msg) {
    int group = 0;
    int64_t need = 0;
    if (block_manager_fits(s->bm, rows_max(seq), &group, &need)) return ERR_OK;
    if (seq->sampling.max_tokens < 0) {
        const int64_t cut = min_i64(seq->max_len, block_manager_max_tokens(s->bm) + 1);
        if (cut > seq->n_prompt) {
            seq->max_len = cut;
            return ERR_OK;
        }
    }
    struct block_stats stats;
    block_manager_stats(s->bm, &stats);
    return err_set(
        msg, ERR_LIMIT,
        "a prompt of %lld tokens and an answer of up to %lld need %lld cache pages and there are %d: shorten "
        "them, or give the cache more memory",
        (long long)seq->n_prompt, (long long)(seq->max_len - seq->n_prompt), (long long)need,
        (int)stats.groups[group].n_pages);
}

static int64_t order_key(const struct scheduler *s, const struct sequence *seq) {
    int64_t bonus = 0, key = 0;
    if (__builtin_mul_overflow((int64_t)seq->priority, s->config.aging_ns, &bonus) ||
        __builtin_add_overflow(seq->arrival_ns, bonus, &key))
        return seq->priority < 0 ? INT64_MIN : INT64_MAX;
    return key;
}

enum err scheduler_add(struct scheduler *s, struct sequence *seq, struct err_msg *msg) {
    CHECK(seq->status == SEQUENCE_WAITING && !seq->salt_ref && !seq->prev && !seq->next);
    enum err e = ERR_OK;
    if (seq->max_len > s->config.max_model_len) seq->max_len = s->config.max_model_len;
    if (seq->n_prompt > seq->max_len || (seq->n_prompt == seq->max_len && seq->sampling.max_tokens != 0)) {
        e = err_set(msg, ERR_LIMIT, "the prompt has %lld tokens and the longest sequence is %lld, answer included",
                    (long long)seq->n_prompt, (long long)s->config.max_model_len);
    } else {
        e = check_fits(s, seq, msg);
    }
    if (e == ERR_OK && s->waiting.n >= s->config.max_queue)
        e = err_set(msg, ERR_BUSY, "%d requests are waiting already: try again later", s->waiting.n);
    if (e == ERR_OK && block_manager_attach(s->bm, seq) != ERR_OK)
        e = err_set(msg, ERR_NOMEM, "no memory for a request");
    if (e != ERR_OK) {
        s->stats.refused++;
        return e;
    }
    seq->order_key = order_key(s, seq);
    list_insert_ordered(&s->waiting, seq);
    return ERR_OK;
}

static void finish_now(struct scheduler *s, struct sequence *seq, enum xenon_finish reason) {
    list_remove(seq->status == SEQUENCE_WAITING ? &s->waiting : &s->running, seq);
    block_manager_detach(s->bm, seq);
    seq->status = SEQUENCE_FINISHED;
    seq->finish = reason;
    seq->in_step = false;
    list_insert_after(&s->finished, s->finished.tail, seq);
    s->stats.finished += reason == XENON_FINISH_STOP || reason == XENON_FINISH_LENGTH;
    s->stats.aborted += reason == XENON_FINISH_ABORT;
    s->stats.failed += reason == XENON_FINISH_ERROR;
}

void scheduler_finish(struct scheduler *s, struct sequence *seq, enum xenon_finish reason) {
    CHECK(reason != XENON_FINISH_NONE);
    if (seq->status == SEQUENCE_FINISHED) return;
    if (!seq->in_step) {
        finish_now(s, seq, reason);
    } else if (seq->pending_finish == XENON_FINISH_NONE) {
        seq->pending_finish = reason;
    }
}

void scheduler_abort_all(struct scheduler *s) {
    while (s->running.head)
        finish_now(s, s->running.head, XENON_FINISH_ABORT);
    while (s->waiting.head)
        finish_now(s, s->waiting.head, XENON_FINISH_ABORT);
    s->in_flight = false;
    s->n_items = s->n_decodes = 0;
}

struct sequence *scheduler_pop_finished(struct scheduler *s) {
    struct sequence *const seq = s->finished.head;
    if (seq) list_remove(&s->finished, seq);
    return seq;
}

bool scheduler_has_work(const struct scheduler *s) {
    return s->waiting.n > 0 || s->running.n > 0;
}

static void end_late(struct scheduler *s, struct seq_list *list, int64_t now_ns) {
    for (struct sequence *seq = list->head, *next; seq; seq = next) {
        next = seq->next;
        if (seq->deadline_ns != 0 && now_ns >= seq->deadline_ns) finish_now(s, seq, XENON_FINISH_ABORT);
    }
}

int64_t scheduler_next_deadline(const struct scheduler *s) {
    int64_t first = 0;
    const struct seq_list *const lists[] = {&s->waiting, &s->running};
    for (int l = 0; l < 2; l++) {
        for (const struct sequence *seq = lists[l]->head; seq; seq = seq->next) {
            if (seq->deadline_ns != 0 && (first == 0 || seq->deadline_ns < first)) first = seq->deadline_ns;
        }
    }
    return first;
}

/* ---- Preemption ------------------------------------------------------------------------------- */

static void preempt(struct scheduler *s, struct sequence *seq) {
    block_manager_release(s->bm, seq);
    list_remove(&s->running, seq);
    seq->status = SEQUENCE_WAITING;
    seq->n_preempted++;
    seq->n_drafts = 0;
    list_insert_ordered(&s->waiting, seq);
    s->stats.preemptions++;
    s->no_admission = true;
}

/* Preempts the youngest sequence behind seq that is not part of the step. False: there is none. */
static bool preempt_younger(struct scheduler *s, const struct sequence *seq) {
    for (struct sequence *victim = s->running.tail; victim && victim != seq; victim = victim->prev) {
        if (victim->in_step) continue;
        preempt(s, victim);
        return true;
    }
    return false;
}

/* ---- Planning --------------------------------------------------------------------------------- */

static void push_item(struct scheduler *s, struct sequence *seq, int64_t n_tokens, int n_draft, bool is_decode) {
    CHECK(s->n_items < s->config.max_num_seqs);
    seq->in_step = true;
    s->items[s->n_items++] = (struct sched_item){
        .seq = seq, .first = seq->n_computed, .n_tokens = (int)n_tokens, .n_draft = n_draft, .is_decode = is_decode};
    s->n_decodes += is_decode;
    s->budget -= n_tokens;
}

static void decode_one(struct scheduler *s, struct sequence *seq) {
    const int64_t rows_left = rows_max(seq) - seq->n_computed;
    const int64_t n_draft = min_i64(min_i64(seq->n_drafts, s->config.n_draft), min_i64(s->budget, rows_left) - 1);
    const int64_t rows = min_i64(1 + s->config.n_draft, rows_left);
    while (!block_manager_allocate(s->bm, seq, rows)) {
        if (preempt_younger(s, seq)) continue;
        s->no_admission = true;
        return;
    }
    push_item(s, seq, 1 + n_draft, (int)n_draft, true);
}

/* Serves decodes from `from` up to `end` (NULL: the list's end) while the budget lasts. A served or skipped sequence
 * is never preempted by itself, so its link stays good. */
static void decode_range(struct scheduler *s, struct sequence *from, const struct sequence *end) {
    for (struct sequence *seq = from; seq && seq != end && s->budget > 0; seq = seq->next) {
        if (seq->in_step || sequence_is_prefill(seq)) continue;
        decode_one(s, seq);
        s->turn_key = seq->order_key;
        s->turn_id = seq->id;
    }
}

static int count_prefills(const struct scheduler *s) {
    int n = 0;
    for (const struct sequence *seq = s->running.head; seq; seq = seq->next)
        n += sequence_is_prefill(seq);
    return n;
}

/* Decodes within `limit` tokens; when that is not enough for all, in turns. */
static void plan_decodes(struct scheduler *s, int64_t limit) {
    const int64_t kept = s->budget - limit;
    s->budget = limit;
    struct sequence *from = s->running.head;
    if ((int64_t)(s->running.n - count_prefills(s)) * (1 + s->config.n_draft) > limit) {
        while (from && (goes_before(from, s->turn_key, s->turn_id) || from->id == s->turn_id))
            from = from->next;
    }
    decode_range(s, from, NULL);
    decode_range(s, s->running.head, from);
    s->budget += kept;
}

/* Tokens of the next chunk: within `limit` and `room` rows, up to the next place where a state checkpoint is wanted,
 * on the grid unless it reaches the end of the prompt (or of all known tokens, in a recomputation). 0: none. */
static int64_t chunk_size(const struct scheduler *s, const struct sequence *seq, int64_t limit, int64_t room) {
    const int64_t first = seq->n_computed, grid = max_i64(s->config.chunk_grid, 1);
    const int64_t end = grid > 1 && first < seq->n_prompt ? seq->n_prompt : seq->n_tokens;
    int64_t stop = min_i64(end, first + min_i64(limit, room));
    stop = min_i64(stop, block_manager_next_checkpoint(s->bm, seq, first));
    if (stop < end) stop = stop / grid * grid;
    return max_i64(stop - first, 0);
}

/* Plans a chunk of at most `limit` tokens. False: pages lack, or the budget does not reach the grid. */
static bool prefill_one(struct scheduler *s, struct sequence *seq, int64_t limit) {
    if (chunk_size(s, seq, limit, INT32_MAX) == 0) return false;
    for (;;) {
        const int64_t room = min_i64(block_manager_room(s->bm, seq), INT32_MAX);
        const int64_t n = chunk_size(s, seq, limit, room);
        if (n > 0 && block_manager_allocate(s->bm, seq, n)) {
            push_item(s, seq, n, 0, false);
            return true;
        }
        if (preempt_younger(s, seq)) continue;
        s->no_admission = true;
        return false;
    }
}

/* What a prompt may take now, so that others get on too: an even share of the budget, on the grid. */
static int64_t fair_share(const struct scheduler *s, int n_prompts) {
    const int64_t unit = max_i64(s->config.chunk_grid, SHARE_MIN);
    const int64_t share = (s->budget + n_prompts - 1) / n_prompts;
    return min_i64(s->budget, (share + unit - 1) / unit * unit);
}

/* Pages that running sequences are going to need: those of prompts under way, and one for each sequence to grow. */
static int64_t pages_promised(const struct scheduler *s) {
    int64_t n = s->running.n;
    for (const struct sequence *seq = s->running.head; seq; seq = seq->next) {
        if (sequence_is_prefill(seq)) n += block_manager_outstanding(s->bm, seq);
    }
    return n;
}

/* Lets the head of the waiting list in. NULL: not now. */
static struct sequence *admit_next(struct scheduler *s) {
    struct sequence *const seq = s->waiting.head;
    if (!seq || s->no_admission || s->running.n >= s->config.max_num_seqs) return NULL;
    if (s->budget < max_i64(s->config.chunk_grid, 1)) return NULL;
    int n_partial = 0;
    for (int i = 0; i < s->n_items; i++) {
        const struct sched_item *const item = &s->items[i];
        n_partial += !item->is_decode && item->first + item->n_tokens < item->seq->n_tokens;
    }
    if (n_partial >= PARTIAL_MAX) return NULL;
    /* Logprobs of the prompt need every one of its rows. */
    const bool all_rows = seq->sampling.prompt_logprobs >= 0 && seq->n_prompt_logprobs < seq->n_prompt - 1;
    if (!block_manager_admit(s->bm, seq, !all_rows, pages_promised(s))) {
        s->no_admission = true;
        return NULL;
    }
    list_remove(&s->waiting, seq);
    seq->status = SEQUENCE_RUNNING;
    list_insert_ordered(&s->running, seq);
    return seq;
}

/* Gives what is left of the budget to chunks that could be longer, oldest first. */
static void extend_chunks(struct scheduler *s) {
    for (int i = 0; i < s->n_items && s->budget > 0; i++) {
        struct sched_item *const item = &s->items[i];
        if (item->is_decode) continue;
        const int64_t room = min_i64(block_manager_room(s->bm, item->seq), INT32_MAX);
        const int64_t n = chunk_size(s, item->seq, item->n_tokens + s->budget, room);
        if (n <= item->n_tokens || !block_manager_allocate(s->bm, item->seq, n)) continue;
        s->budget -= n - item->n_tokens;
        item->n_tokens = (int)n;
    }
}

static void plan_prompts(struct scheduler *s) {
    int n_left = count_prefills(s);
    const bool may_admit = s->waiting.n > 0 && s->running.n < s->config.max_num_seqs && n_left < PARTIAL_MAX;
    n_left += may_admit;
    for (struct sequence *seq = s->running.head; seq && s->budget > 0; seq = seq->next) {
        if (seq->in_step || !sequence_is_prefill(seq)) continue;
        prefill_one(s, seq, fair_share(s, n_left > 0 ? n_left : 1));
        n_left--;
    }
    while (s->budget > 0) {
        struct sequence *const seq = admit_next(s);
        if (!seq) break;
        prefill_one(s, seq, s->budget);
    }
    extend_chunks(s);
}

/* Which rows give logits: the one that reaches the end of the known tokens with its drafts, and the rows of a prompt
 * whose logprobs are asked for and not given out yet. */
static void mark_logits(struct sched_item *item) {
    const struct sequence *const seq = item->seq;
    const int n_known = item->n_tokens - item->n_draft;
    item->samples = item->first + n_known == seq->n_tokens && seq->sampling.max_tokens != 0;
    item->first_logits = item->samples ? n_known - 1 : item->n_tokens;
    if (seq->sampling.prompt_logprobs < 0 || seq->n_prompt_logprobs >= seq->n_prompt - 1) return;
    const int64_t from = max_i64(seq->n_prompt_logprobs - item->first, 0);
    item->first_logits = (int)min_i64(item->first_logits, from);
}

static void plan_mixed(struct scheduler *s) {
    const int64_t all = s->budget, grid = max_i64(s->config.chunk_grid, 1);
    const int64_t kept = s->prompts_starved ? min_i64(all, max_i64(all / 4, grid)) : 0;
    plan_decodes(s, all - kept);
    const int n_decodes = s->n_items;
    plan_prompts(s);
    const bool prompts_wait = count_prefills(s) > 0 || (s->waiting.n > 0 && s->running.n < s->config.max_num_seqs);
    s->prompts_starved = prompts_wait && s->n_items == n_decodes && s->budget < grid;
    if (s->n_items == 0) plan_decodes(s, all);
}

void scheduler_limit_step(struct scheduler *s, int64_t n_tokens) {
    s->step_limit = max_i64(n_tokens, 1);
}

void scheduler_schedule(struct scheduler *s, int64_t now_ns, struct sched_batch *out) {
    CHECK(!s->in_flight);
    end_late(s, &s->waiting, now_ns);
    end_late(s, &s->running, now_ns);
    s->n_items = s->n_decodes = 0;
    const int64_t decodes = (int64_t)s->running.n * (1 + s->config.n_draft);
    s->budget = min_i64(s->config.max_num_batched_tokens,
                        max_i64(s->step_limit, decodes + max_i64(s->config.chunk_grid, PROMPT_MIN)));
    s->no_admission = false;
    if (s->config.policy == XENON_POLICY_PREFILL_FIRST) {
        plan_prompts(s);
        if (s->n_items == 0) plan_decodes(s, s->budget);
    } else {
        plan_mixed(s);
    }
    CHECK(s->budget >= 0);
    *out = (struct sched_batch){.items = s->items, .n_items = s->n_items, .n_decodes = s->n_decodes};
    for (int i = 0; i < s->n_items; i++) {
        mark_logits(&s->items[i]);
        out->n_tokens += s->items[i].n_tokens;
    }
    out->ops = block_manager_ops(s->bm, &out->n_ops);
    s->in_flight = s->n_items > 0;
}

/* ---- Commit ----------------------------------------------------------------------------------- */

static bool has_id(const int32_t *ids, size_t n, int32_t id) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] == id) return true;
    }
    return false;
}

/* Appends a token and says whether it ends the sequence. */
static enum xenon_finish append(const struct scheduler *s, struct sequence *seq, int32_t id) {
    const struct sampling_params *const p = &seq->sampling;
    sequence_append(seq, id);
    if (sequence_n_generated(seq) >= p->min_tokens) {
        const bool is_eos = has_id(s->eos_ids, (size_t)s->config.n_eos, id);
        if (is_eos && !p->ignore_eos) return XENON_FINISH_STOP;
        if (has_id(p->stop_ids, p->n_stop_ids, id)) {
            seq->stop_id = id;
            return XENON_FINISH_STOP;
        }
    }
    return seq->n_tokens >= seq->max_len ? XENON_FINISH_LENGTH : XENON_FINISH_NONE;
}

static void commit_item(struct scheduler *s, const struct sched_item *item, struct sched_result *r, int64_t now_ns) {
    struct sequence *const seq = item->seq;
    seq->in_step = false;
    r->n_kept = 0;
    if (seq->pending_finish != XENON_FINISH_NONE || r->failed) {
        /* Its rows may be half written (a cancelled prefill stops between layers) or bad: they are not published. */
        finish_now(s, seq, seq->pending_finish != XENON_FINISH_NONE ? seq->pending_finish : XENON_FINISH_ERROR);
        return;
    }
    enum xenon_finish end = XENON_FINISH_NONE;
    seq->n_computed += item->n_tokens - item->n_draft;
    seq->n_drafts = 0;
    if (item->samples) {
        CHECK(r->n_ids >= 1 && r->n_ids <= 1 + item->n_draft);
        if (seq->first_token_ns == 0) seq->first_token_ns = now_ns;
        seq->last_token_ns = now_ns;
        while (r->n_kept < r->n_ids && end == XENON_FINISH_NONE)
            end = append(s, seq, r->ids[r->n_kept++]);
        /* Rows of accepted drafts are good; of what was kept, the last token has one only if it was a draft. */
        seq->n_computed = min_i64(seq->n_computed + r->n_ids - 1, seq->n_tokens);
    } else if (seq->n_computed == seq->n_tokens) {
        end = XENON_FINISH_LENGTH; /* max_tokens 0: only the prompt was wanted */
    }
    if (seq->sampling.prompt_logprobs >= 0)
        seq->n_prompt_logprobs = max_i64(seq->n_prompt_logprobs, min_i64(seq->n_computed, seq->n_prompt - 1));
    if (!item->is_decode) {
        s->stats.prefill_chunks++;
        s->stats.prompt_tokens += item->n_tokens;
    }
    s->stats.generation_tokens += r->n_kept;
    block_manager_publish(s->bm, seq);
    if (end != XENON_FINISH_NONE) finish_now(s, seq, end);
}

void scheduler_commit(struct scheduler *s, int64_t now_ns, struct sched_result *results) {
    CHECK(s->in_flight);
    s->in_flight = false;
    s->stats.steps++;
    block_manager_clear_ops(s->bm);
    for (int i = 0; i < s->n_items; i++)
        commit_item(s, &s->items[i], &results[i], now_ns);
    s->n_items = s->n_decodes = 0;
}

/* ---- Statistics and checking ------------------------------------------------------------------ */

void scheduler_stats(const struct scheduler *s, struct scheduler_stats *out) {
    *out = s->stats;
    out->n_waiting = s->waiting.n;
    out->n_running = s->running.n;
}

static bool check_list(const struct seq_list *list, enum sequence_status status, const char *name,
                       struct err_msg *msg) {
    int n = 0;
    const struct sequence *last = NULL;
    for (const struct sequence *seq = list->head; seq && n <= list->n; last = seq, seq = seq->next, n++) {
        const bool in_order = !last || status == SEQUENCE_FINISHED || goes_before(last, seq->order_key, seq->id);
        const bool computed = seq->n_computed < seq->n_tokens || status == SEQUENCE_FINISHED;
        if (seq->prev == last && seq->status == status && in_order && computed) continue;
        err_set(msg, ERR_ARG, "sequence %llu is out of place on the %s list", (unsigned long long)seq->id, name);
        return false;
    }
    if (n == list->n && list->tail == last) return true;
    err_set(msg, ERR_ARG, "the %s list has %d sequences, says %d", name, n, list->n);
    return false;
}

bool scheduler_check(const struct scheduler *s, struct err_msg *msg) {
    if (!check_list(&s->waiting, SEQUENCE_WAITING, "waiting", msg)) return false;
    if (!check_list(&s->running, SEQUENCE_RUNNING, "running", msg)) return false;
    if (!check_list(&s->finished, SEQUENCE_FINISHED, "finished", msg)) return false;
    const int n = s->waiting.n + s->running.n;
    const struct sequence **const seqs = mem_calloc((size_t)n + 1, sizeof *seqs);
    if (!seqs) return false;
    int i = 0;
    for (const struct sequence *seq = s->waiting.head; seq; seq = seq->next)
        seqs[i++] = seq;
    for (const struct sequence *seq = s->running.head; seq; seq = seq->next)
        seqs[i++] = seq;
    const bool ok = block_manager_check(s->bm, seqs, n, msg);
    mem_free(seqs);
    return ok;
}
