/* A few worker threads for work that would hold up the event loop: parsing large bodies, templates, tokenization.
 * Threads: jobs_submit, jobs_cancel and jobs_reap from the loop; run() on a worker; done() from jobs_reap on the loop.
 * Owns: the threads. A job belongs to the pool from submit until its done() is called. */
#ifndef SERVE_JOBS_H
#define SERVE_JOBS_H

#include <stdbool.h>

#include "base/attr.h"

struct jobs;

struct job {
    struct job *next;
    void (*run)(struct job *j);  /* on a worker */
    void (*done)(struct job *j); /* on the loop; frees the job */
    bool skipped;                /* the pool was destroyed before run() */
};

/* wake(user) is called from workers after a job and must make the loop call jobs_reap. NULL: no memory or no thread. */
struct jobs *jobs_create(int n_threads, int max_queue, void (*wake)(void *user), void *user) ATTR_NODISCARD;

/* Joins the workers; done() is called for every job that is left. NULL is fine. */
void jobs_destroy(struct jobs *p);

/* False: the queue is full, the job is still the caller's. */
bool jobs_submit(struct jobs *p, struct job *j) ATTR_NODISCARD;

/* Takes back a job that no worker has begun, so that it is the caller's again. False: it runs or has run, and done()
 * is going to be called. */
bool jobs_cancel(struct jobs *p, struct job *j) ATTR_NODISCARD;

/* Calls done() of every finished job. */
void jobs_reap(struct jobs *p);

/* Jobs that are waiting or running. */
int jobs_n_pending(struct jobs *p);

#endif
