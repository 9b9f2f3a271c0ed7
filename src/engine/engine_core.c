#include "engine/engine_core.h"

#include <errno.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sys/thread.h"

enum { DEFAULT_MAX_QUEUE = 4096, STEP_MS = 250, BUDGET_MIN = 64 };

/* ---- Opening, in the engine thread ---- */

/* Tokens that the machine computes in STEP_MS at this rate. */
static int64_t tokens_for_step(double tokens_per_s) {
    const double tokens = tokens_per_s * STEP_MS / 1000.0;
    return tokens < BUDGET_MIN ? BUDGET_MIN : tokens > INT32_MAX ? INT32_MAX : (int64_t)tokens / 16 * 16;
}

/* The largest step: what the user said, else what the machine computes in STEP_MS or a full batch of decodes needs. */
static int token_budget(struct engine_core *e, const struct xenon_options *opt) {
    const int most = e->runner.max_num_batched_tokens;
    e->prefill_rate = model_runner_measure_prefill(&e->runner);
    if (opt->max_num_batched_tokens > 0) return most;
    e->step_tokens = tokens_for_step(e->prefill_rate);
    const int64_t n = e->step_tokens > e->runner.max_num_seqs ? e->step_tokens : e->runner.max_num_seqs;
    return n < most ? (int)n : most;
}

/* Steps with prompt tokens cost more the longer the context: the next ones follow what this one took, down at once and
 * up in quarters. A budget that the user set stays. Which tokens share a step changes no result. */
static void adapt_step(struct engine_core *e, int64_t step_ns) {
    const int64_t n_prompt = e->batch.n_tokens - e->batch.n_decodes;
    if (e->step_tokens == 0 || n_prompt < BUDGET_MIN / 2 || step_ns <= 0) return;
    const int64_t wanted = tokens_for_step((double)e->batch.n_tokens * 1e9 / (double)step_ns);
    if (wanted < e->step_tokens) e->step_tokens = wanted;
    else if (wanted > e->step_tokens) e->step_tokens += (wanted - e->step_tokens + 3) / 4;
    if (e->step_tokens > e->budget) e->step_tokens = e->budget;
    scheduler_limit_step(e->scheduler, e->step_tokens);
}

static enum err open_scheduler(struct engine_core *e, const struct xenon_options *opt, struct err_msg *msg) {
    const struct model_runner *const r = &e->runner;
    const struct block_manager_config blocks = {.groups = r->kv.groups,
                                                .n_groups = r->kv.n_groups,
                                                .block_size = r->block_size,
                                                .max_model_len = r->max_model_len,
                                                .prefix_caching = !opt->disable_prefix_caching};
    TRY(block_manager_create(&e->blocks, &blocks, msg));
    e->max_fit = block_manager_max_tokens(e->blocks);
    e->max_queue = opt->max_queue > 0 ? opt->max_queue : DEFAULT_MAX_QUEUE;
    const struct scheduler_config config = {.policy = opt->policy,
                                            .max_num_seqs = r->max_num_seqs,
                                            .max_num_batched_tokens = e->budget,
                                            .max_queue = e->max_queue + r->max_num_seqs, /* preempted ones wait too */
                                            .max_model_len = r->max_model_len,
                                            .eos_ids = e->eos_ids,
                                            .n_eos = e->n_eos};
    TRY(scheduler_create(&e->scheduler, &config, e->blocks, msg));
    if (e->step_tokens > 0) scheduler_limit_step(e->scheduler, e->step_tokens);
    return batch_sampler_create(&e->sampler, &r->kern, r->pool, r->model.h.vocab, r->max_num_batched_tokens,
                                r->max_num_seqs, msg);
}

static enum err open_all(struct engine_core *e, struct err_msg *msg) {
    TRY(model_runner_open(&e->runner, e->ckpt, e->opt, msg));
    e->budget = token_budget(e, e->opt);
    TRY(open_scheduler(e, e->opt, msg));
    e->sampler.eos_ids = e->eos_ids;
    e->sampler.n_eos = e->n_eos;
    return ERR_OK;
}

static void close_all(struct engine_core *e) {
    batch_sampler_destroy(&e->sampler);
    scheduler_destroy(e->scheduler);
    block_manager_destroy(e->blocks);
    model_runner_close(&e->runner);
}

/* ---- One turn of the loop ---- */

/* The client sees everything written before. */
static void publish_finish(struct engine_core *e, struct xenon_handle *h, enum xenon_finish f) {
    if (h->prev) h->prev->next = h->next;
    else e->active = h->next;
    if (h->next) h->next->prev = h->prev;
    atomic_store_explicit(&h->finish, (int)f, memory_order_release); /* pairs with xenon_poll */
    request_unref(h);
}

static void drain_wanted(struct engine_core *e) {
    if (!atomic_exchange_explicit(&e->any_wanted, false, memory_order_acquire)) return;
    for (struct xenon_handle *h = e->active; h; h = h->next) {
        const int wanted = atomic_load_explicit(&h->wanted_finish, memory_order_acquire);
        if (wanted == XENON_FINISH_NONE || h->told) continue;
        h->told = true;
        scheduler_finish(e->scheduler, h->seq, (enum xenon_finish)wanted);
    }
}

/* Tokens and logprobs of the step become readable. */
static void publish_step(const struct sched_batch *batch, const struct sched_result *results, int64_t now) {
    for (int i = 0; i < batch->n_items; i++) {
        struct sequence *const seq = batch->items[i].seq;
        struct xenon_handle *const h = seq->user;
        atomic_store_explicit(&h->n_cached, seq->n_cached, memory_order_relaxed);
        if (seq->sampling.prompt_logprobs >= 0 && seq->n_prompt_logprobs >= seq->n_prompt - 1)
            atomic_store_explicit(&h->prompt_ready, true, memory_order_release);
        if (!batch->items[i].samples || results[i].n_kept == 0) continue;
        if (atomic_load_explicit(&h->first_token_ns, memory_order_relaxed) == 0)
            atomic_store_explicit(&h->first_token_ns, now, memory_order_relaxed);
        atomic_store_explicit(&h->last_token_ns, now, memory_order_relaxed);
        atomic_store_explicit(&h->published, sequence_n_generated(seq),
                              memory_order_release); /* pairs with xenon_poll */
    }
}

static int drain_finished(struct engine_core *e) {
    int n = 0;
    for (struct sequence *seq; (seq = scheduler_pop_finished(e->scheduler)); n++) {
        struct xenon_handle *const h = seq->user;
        if (seq->finish == XENON_FINISH_ERROR)
            err_set(&h->error, ERR_FORMAT,
                    "the model gave logits that are not finite; its weights or the request's parameters are out of range");
        publish_finish(e, h, seq->finish);
    }
    return n;
}

static void update_stats(struct engine_core *e) {
    struct scheduler_stats s;
    struct block_stats b;
    scheduler_stats(e->scheduler, &s);
    block_manager_stats(e->blocks, &b);
    struct xenon_stats *const out = &e->stats;
    *out = (struct xenon_stats){.n_running = s.n_running,
                                .n_waiting = s.n_waiting,
                                .prompt_tokens = s.prompt_tokens,
                                .generation_tokens = s.generation_tokens,
                                .requests_finished = s.finished,
                                .requests_aborted = s.aborted,
                                .requests_refused = out->requests_refused,
                                .prefix_queries = b.query_tokens,
                                .prefix_hits = b.hit_tokens,
                                .evictions = b.evictions,
                                .preemptions = s.preemptions,
                                .steps = e->steps,
                                .prefill_chunks = s.prefill_chunks,
                                .step_seconds = e->step_seconds};
    for (int g = 0; g < b.n_groups; g++) {
        out->kv_blocks_total += b.groups[g].n_pages;
        out->kv_blocks_used += b.groups[g].n_used;
    }
}

static void announce(struct engine_core *e) {
    pthread_mutex_lock(&e->lock);
    update_stats(e);
    e->news_serial++;
    pthread_cond_broadcast(&e->news);
    pthread_mutex_unlock(&e->lock);
    if (e->notify) e->notify(e->user);
}

static void drain_submissions(struct engine_core *e, struct xenon_handle *list) {
    int n_refused = 0;
    for (struct xenon_handle *h = list, *next; h; h = next) {
        next = h->next;
        h->prev = NULL;
        h->next = e->active;
        if (e->active) e->active->prev = h;
        e->active = h;
        const enum err rc = scheduler_add(e->scheduler, h->seq, &h->error);
        if (rc) publish_finish(e, h, XENON_FINISH_ERROR);
        n_refused += rc != ERR_OK;
        /* Cancelled before it was among the active ones: an earlier turn may have taken the flag without seeing it. */
        if (!rc && atomic_load_explicit(&h->wanted_finish, memory_order_acquire) != XENON_FINISH_NONE)
            atomic_store_explicit(&e->any_wanted, true, memory_order_relaxed);
    }
    if (n_refused > 0) announce(e);
}

/* Whether every sequence of the running step has been asked to end. */
static bool step_unwanted(void *user) {
    const struct engine_core *const e = user;
    if (!atomic_load_explicit(&e->any_wanted, memory_order_acquire)) return false;
    for (int i = 0; i < e->batch.n_items; i++) {
        const struct xenon_handle *const h = e->batch.items[i].seq->user;
        if (atomic_load_explicit(&h->wanted_finish, memory_order_acquire) == XENON_FINISH_NONE) return false;
    }
    return true;
}

/* True when a step was run. */
static bool run_step(struct engine_core *e) {
    struct sched_batch *const batch = &e->batch;
    const struct exec_watch watch = {step_unwanted, e};
    const int64_t start = clock_ns();
    scheduler_schedule(e->scheduler, start, batch);
    if (batch->n_items == 0) {
        if (drain_finished(e) > 0) announce(e);
        return false;
    }
    float *const logits = model_runner_step(&e->runner, batch, &watch);
    if (!logits) drain_wanted(e); /* every sequence ends at the commit, which then keeps nothing of the step */
    struct sched_result *const results =
        logits ? batch_sampler_run(&e->sampler, batch, logits) : batch_sampler_nothing(&e->sampler, batch);
    const int64_t now = clock_ns();
    scheduler_commit(e->scheduler, now, results);
    publish_step(batch, results, now);
    drain_finished(e);
    e->steps++;
    e->step_seconds += (double)(now - start) * 1e-9;
    if (logits) adapt_step(e, now - start);
    announce(e);
    return true;
}

static void timespec_at(struct timespec *t, int64_t ns) {
    t->tv_sec = (time_t)(ns / 1000000000);
    t->tv_nsec = (long)(ns % 1000000000);
}

/* Waits for something to do; a deadline or work that could not be scheduled wakes it as well. False: stop. */
static bool wait_for_work(struct engine_core *e, bool ran, struct xenon_handle **list) {
    pthread_mutex_lock(&e->lock);
    if (!ran && !e->stop && !e->submitted && !atomic_load_explicit(&e->any_wanted, memory_order_relaxed)) {
        pool_idle(e->runner.pool);
        int64_t until = scheduler_next_deadline(e->scheduler);
        if (scheduler_has_work(e->scheduler)) until = clock_ns() + 1000000;
        struct timespec t;
        timespec_at(&t, until);
        if (until > 0) pthread_cond_timedwait(&e->work, &e->lock, &t);
        else pthread_cond_wait(&e->work, &e->lock);
    }
    e->stats.n_waiting += e->n_submitted; /* until the next announcement counts them */
    *list = e->submitted;
    e->submitted = NULL;
    e->submitted_tail = &e->submitted;
    e->n_submitted = 0;
    const bool go_on = !e->stop;
    pthread_mutex_unlock(&e->lock);
    return go_on;
}

static void set_state(struct engine_core *e, enum engine_state state) {
    pthread_mutex_lock(&e->lock);
    e->state = state;
    e->news_serial++;
    pthread_cond_broadcast(&e->news);
    pthread_mutex_unlock(&e->lock);
    if (e->notify && state == ENGINE_STOPPED) e->notify(e->user);
}

static void *engine_main(void *arg) {
    struct engine_core *const e = arg;
    struct xenon_handle *list;
    bool ran = false;
    e->open_err = open_all(e, &e->open_msg);
    if (!e->open_err) {
        update_stats(e);
        set_state(e, ENGINE_RUNNING);
        for (;;) {
            const bool go_on = wait_for_work(e, ran, &list);
            drain_submissions(e, list);
            if (!go_on) break;
            drain_wanted(e);
            ran = run_step(e);
        }
        scheduler_abort_all(e->scheduler);
        drain_finished(e);
    }
    close_all(e);
    set_state(e, ENGINE_STOPPED);
    return NULL;
}

/* ---- The owner's side ---- */

enum err engine_core_start(struct engine_core *e, struct err_msg *msg) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, &attr);
    pthread_cond_init(&e->news, &attr);
    pthread_condattr_destroy(&attr);
    e->submitted_tail = &e->submitted;
    e->state = ENGINE_LOADING;
    enum err rc = thread_start(&e->thread, "xenon-engine", engine_main, e, msg);
    e->has_thread = rc == ERR_OK;
    if (!rc) {
        pthread_mutex_lock(&e->lock);
        while (e->state == ENGINE_LOADING) pthread_cond_wait(&e->news, &e->lock);
        rc = e->open_err;
        pthread_mutex_unlock(&e->lock);
        if (rc && msg) *msg = e->open_msg;
    }
    if (rc) engine_core_stop(e);
    return rc;
}

void engine_core_stop(struct engine_core *e) {
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (e->has_thread) thread_join(e->thread);
    e->has_thread = false;
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->news);
    pthread_mutex_destroy(&e->lock);
}

enum err engine_core_submit(struct engine_core *e, struct xenon_handle *h, struct err_msg *msg) {
    enum err rc = ERR_OK;
    pthread_mutex_lock(&e->lock);
    if (e->state != ENGINE_RUNNING || e->stop) {
        rc = err_set(msg, ERR_DEAD, "the engine has stopped");
    } else if (e->stats.n_waiting + e->n_submitted >= e->max_queue) {
        e->stats.requests_refused++;
        rc = err_set(msg, ERR_BUSY, "%d requests are waiting already; try again later", e->max_queue);
    } else {
        h->next = NULL;
        *e->submitted_tail = h;
        e->submitted_tail = &h->next;
        e->n_submitted++;
        pthread_cond_signal(&e->work);
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

void engine_core_want_finish(struct engine_core *e, struct xenon_handle *h, enum xenon_finish reason) {
    int none = XENON_FINISH_NONE;
    if (!atomic_compare_exchange_strong_explicit(&h->wanted_finish, &none, (int)reason, memory_order_release,
                                                 memory_order_relaxed))
        return;
    atomic_store_explicit(&e->any_wanted, true, memory_order_release); /* pairs with drain_wanted */
    pthread_mutex_lock(&e->lock);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

uint64_t engine_core_wait_news(struct engine_core *e, uint64_t seen, int64_t deadline_ns) {
    pthread_mutex_lock(&e->lock);
    while (e->news_serial == seen && e->state == ENGINE_RUNNING) {
        struct timespec t;
        timespec_at(&t, deadline_ns);
        if (deadline_ns < 0) pthread_cond_wait(&e->news, &e->lock);
        else if (pthread_cond_timedwait(&e->news, &e->lock, &t) == ETIMEDOUT) break;
    }
    const uint64_t serial = e->news_serial;
    pthread_mutex_unlock(&e->lock);
    return serial;
}
