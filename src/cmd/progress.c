#include "cmd/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR_WIDTH = 30 };

static const int64_t REDRAW_NS = 100 * 1000 * 1000;

void progress_init(struct progress *p, bool quiet) {
    *p = (struct progress){.quiet = quiet, .tty = isatty(STDERR_FILENO) == 1};
}

void progress_end(struct progress *p) {
    if (p->drawn) fputc('\n', stderr);
    p->drawn = false;
}

static void print_total(const struct progress *p, int64_t total) {
    if (p->items) fprintf(stderr, "%lld", (long long)total);
    else fprintf(stderr, "%.2f GiB", (double)total / (1 << 30));
}

/* ", 512 MB/s": what has come so far over the time it took. */
static void print_rate(const struct progress *p, int64_t done, int64_t now) {
    const double seconds = (double)(now - p->start_ns) * 1e-9;
    if (!p->items && seconds > 0 && done > 0) fprintf(stderr, ", %.0f MB/s", (double)done / seconds * 1e-6);
}

static void draw_bar(struct progress *p, double part, int64_t total, int64_t now) {
    char bar[BAR_WIDTH + 1];
    const int full = (int)(part * BAR_WIDTH);
    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < full ? '#' : '-';
    bar[BAR_WIDTH] = '\0';
    const double seconds = (double)(now - p->start_ns) * 1e-9;
    const double left = part > 0.01 ? seconds / part - seconds : 0;
    fprintf(stderr, "\r%-16.16s [%s] %3d%% of ", p->what, bar, (int)(part * 100));
    print_total(p, total);
    print_rate(p, (int64_t)(part * (double)total), now);
    fprintf(stderr, ", %.0f s left \033[K", left);
    p->drawn = true;
}

void progress_show(struct progress *p, const char *what, int64_t done, int64_t total) {
    const int64_t now = clock_ns();
    if (p->quiet) return;
    if (strncmp(p->what, what, sizeof p->what - 1) != 0) {
        progress_end(p);
        snprintf(p->what, sizeof p->what, "%s", what);
        p->start_ns = now;
        p->shown_ns = 0;
        p->shown_tenth = -1;
    }
    const double part = total > 0 ? (double)done / (double)total : 1;
    const bool last = done >= total;
    if (p->tty) {
        if (!last && now - p->shown_ns < REDRAW_NS) return;
        if (last && !p->drawn && p->shown_tenth == 10) return;
        draw_bar(p, part, total, now);
        p->shown_ns = now;
        if (last) p->shown_tenth = 10;
        if (last) progress_end(p);
        return;
    }
    const int tenth = (int)(part * 10);
    if (tenth <= p->shown_tenth) return;
    p->shown_tenth = tenth;
    fprintf(stderr, "%s: %d%% of ", p->what, tenth * 10);
    print_total(p, total);
    print_rate(p, done, now);
    fprintf(stderr, ", %.1f s\n", (double)(now - p->start_ns) * 1e-9);
}

void progress_callback(void *user, const char *what, int64_t done, int64_t total) {
    progress_show(user, what, done, total);
}
