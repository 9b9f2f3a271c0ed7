#include "serve/jobs.h"

#include <pthread.h>

#include "base/mem.h"
#include "sys/thread.h"

enum { THREADS_MAX = 16 };

struct queue {
    struct job *first, **last;
};

struct jobs {
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct queue waiting, finished;
    int n_waiting, n_pending, max_queue;
    bool stop;
    void (*wake)(void *user);
    void *user;
    int n_threads;
    pthread_t threads[THREADS_MAX];
};

static void queue_init(struct queue *q) {
    q->first = NULL;
    q->last = &q->first;
}

static void queue_push(struct queue *q, struct job *j) {
    j->next = NULL;
    *q->last = j;
    q->last = &j->next;
}

static struct job *queue_pop(struct queue *q) {
    struct job *const j = q->first;
    if (!j) return NULL;
    q->first = j->next;
    if (!q->first) q->last = &q->first;
    return j;
}

static void *worker(void *arg) {
    struct jobs *const p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && !p->waiting.first)
            pthread_cond_wait(&p->more, &p->lock);
        if (p->stop) break;
        struct job *const j = queue_pop(&p->waiting);
        p->n_waiting--;
        pthread_mutex_unlock(&p->lock);
        j->run(j);
        pthread_mutex_lock(&p->lock);
        queue_push(&p->finished, j);
        pthread_mutex_unlock(&p->lock);
        p->wake(p->user);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct jobs *jobs_create(int n_threads, int max_queue, void (*wake)(void *user), void *user) {
    struct jobs *const p = mem_calloc(1, sizeof *p);
    if (!p) return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    queue_init(&p->waiting);
    queue_init(&p->finished);
    p->max_queue = max_queue;
    p->wake = wake;
    p->user = user;
    while (p->n_threads < n_threads && p->n_threads < THREADS_MAX) {
        if (thread_start(&p->threads[p->n_threads], "xenon-text", worker, p, NULL) != ERR_OK) break;
        p->n_threads++;
    }
    if (p->n_threads > 0) return p;
    jobs_destroy(p);
    return NULL;
}

void jobs_destroy(struct jobs *p) {
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++)
        thread_join(p->threads[i]);
    for (struct job *j; (j = queue_pop(&p->waiting));) {
        j->skipped = true;
        queue_push(&p->finished, j);
    }
    jobs_reap(p);
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

bool jobs_submit(struct jobs *p, struct job *j) {
    pthread_mutex_lock(&p->lock);
    const bool room = p->n_waiting < p->max_queue;
    if (room) {
        queue_push(&p->waiting, j);
        p->n_waiting++;
        p->n_pending++;
        pthread_cond_signal(&p->more);
    }
    pthread_mutex_unlock(&p->lock);
    return room;
}

bool jobs_cancel(struct jobs *p, struct job *j) {
    pthread_mutex_lock(&p->lock);
    struct job **at = &p->waiting.first;
    while (*at && *at != j)
        at = &(*at)->next;
    const bool found = *at != NULL;
    if (found) {
        *at = j->next;
        if (p->waiting.last == &j->next) p->waiting.last = at;
        p->n_waiting--;
        p->n_pending--;
    }
    pthread_mutex_unlock(&p->lock);
    return found;
}

void jobs_reap(struct jobs *p) {
    for (;;) {
        pthread_mutex_lock(&p->lock);
        struct job *const j = queue_pop(&p->finished);
        if (j) p->n_pending--;
        pthread_mutex_unlock(&p->lock);
        if (!j) return;
        j->done(j);
    }
}

int jobs_n_pending(struct jobs *p) {
    pthread_mutex_lock(&p->lock);
    const int n = p->n_pending;
    pthread_mutex_unlock(&p->lock);
    return n;
}
