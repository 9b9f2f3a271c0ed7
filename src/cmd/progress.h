/* The loading bar on stderr: redrawn in place on a terminal, a plain line at every tenth elsewhere.
 * Threads: one at a time. Owns: nothing. */
#ifndef CMD_PROGRESS_H
#define CMD_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool quiet;       /* print nothing */
    bool tty;
    bool items;       /* totals count things, not bytes */
    bool drawn;       /* an unfinished bar stands on the terminal */
    int64_t start_ns; /* of the present stage */
    int64_t shown_ns;
    int shown_tenth;
    char what[64];    /* present stage */
};

void progress_init(struct progress *p, bool quiet);

/* 0 <= done <= total bytes (or things) of stage `what`; a new name starts a new bar. */
void progress_show(struct progress *p, const char *what, int64_t done, int64_t total);

/* Ends the line of an unfinished bar, so that other output starts on a fresh one. */
void progress_end(struct progress *p);

/* progress_show in the shape of xenon_options.progress; user is a struct progress. */
void progress_callback(void *user, const char *what, int64_t done, int64_t total);

#endif
