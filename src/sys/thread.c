#include "sys/thread.h"

#include <signal.h>
#include <string.h>

enum err thread_start(pthread_t *out, const char *name, void *(*fn)(void *), void *arg, struct err_msg *msg) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int rc = pthread_create(out, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc)
        return err_set(msg, ERR_NOMEM, "cannot start thread %s: %s; raise the limit of processes", name, strerror(rc));
    pthread_setname_np(*out, name);
    return ERR_OK;
}

void thread_join(pthread_t t) { pthread_join(t, NULL); }
