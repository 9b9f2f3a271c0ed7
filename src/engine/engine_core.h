/* The loop that owns the engine: drain submissions and cancellations, schedule, run, sample, commit, publish. One
 * thread, which is also lane 0 of the pool. Clients reach it through a submission list and the flags of their requests;
 * it reaches them through what it publishes in their handles. Threads: engine_core_start by the owner; the functions
 * that name a lock by any thread. Owns: runner, scheduler, block manager. */
#ifndef ENGINE_ENGINE_CORE_H
#define ENGINE_ENGINE_CORE_H

#include <pthread.h>

#include "engine/batch_sampler.h"
#include "engine/block_manager.h"
#include "engine/model_runner.h"
#include "engine/request.h"
#include "engine/scheduler.h"

enum engine_state { ENGINE_LOADING, ENGINE_RUNNING, ENGINE_STOPPED };

struct engine_core {
    const struct xenon_options *opt; /* while loading */
    const struct ckpt *ckpt;         /* while loading */
    const int32_t *eos_ids;
    int n_eos;
    void (*notify)(void *user);
    void *user;
    struct xenon *x;

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t work;             /* somebody wants something of the engine */
    pthread_cond_t news;             /* the engine has published something */
    /* Under the lock. */
    struct xenon_handle *submitted, **submitted_tail;
    int n_submitted;
    bool stop;
    enum engine_state state;
    enum err open_err;
    struct err_msg open_msg;
    struct xenon_stats stats;
    uint64_t news_serial;            /* counts publications; waiters watch it */
    _Atomic bool any_wanted;         /* some request's wanted_finish is set */

    /* Engine thread. */
    struct model_runner runner;
    struct block_manager *blocks;
    struct scheduler *scheduler;
    struct batch_sampler sampler;
    struct sched_batch batch;        /* the step being computed */
    struct xenon_handle *active;     /* requests that are not finished */
    int64_t max_fit;                 /* longest sequence that fits the cache */
    int max_queue, budget;
    int64_t step_tokens;             /* tokens of a step that lasts as long as it should; 0: the user's budget */
    double prefill_rate;             /* tokens/s */
    int64_t steps;
    double step_seconds;
};

/* Starts the thread and waits until the model is loaded or has failed. */
enum err engine_core_start(struct engine_core *e, struct err_msg *msg) ATTR_NODISCARD;

/* Ends all requests with ABORT and joins the thread. */
void engine_core_stop(struct engine_core *e);

/* Queues a request. ERR_BUSY: too many wait; ERR_DEAD: the engine has stopped. Takes the lock. */
enum err engine_core_submit(struct engine_core *e, struct xenon_handle *h, struct err_msg *msg) ATTR_NODISCARD;

/* Asks the engine to end a request; any thread. */
void engine_core_want_finish(struct engine_core *e, struct xenon_handle *h, enum xenon_finish reason);

/* Waits until news_serial differs from `seen` or the deadline (CLOCK_MONOTONIC ns; negative: never) passes; returns the
 * new serial. Takes the lock. */
uint64_t engine_core_wait_news(struct engine_core *e, uint64_t seen, int64_t deadline_ns);

#endif
