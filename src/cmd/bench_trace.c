#include "cmd/bench_trace.h"

#include <errno.h>
#include <string.h>

#include "base/strbuf.h"
#include "graph/plan.h"
#include "serve/json_write.h"

enum { WAIT_MIN_NS = 300 }; /* shorter gaps are the clock */

enum err bench_trace_open(struct bench_trace *t, const char *path, struct err_msg *msg) {
    *t = (struct bench_trace){.path = path};
    t->out = fopen(path, "w");
    if (!t->out) return err_set(msg, ERR_IO, "--trace %s: %s", path, strerror(errno));
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", t->out);
    return ERR_OK;
}

static void put_event(struct bench_trace *t, const char *name, int lane, double start_us, double dur_us,
                      const char *args) {
    struct strbuf b = {0};
    strbuf_puts(&b, t->any ? ",\n{\"name\":" : "{\"name\":");
    json_write_cstr(&b, name);
    strbuf_printf(&b, ",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f%s}", t->n_cases, lane, start_us,
                  dur_us, args);
    fputs(strbuf_cstr(&b), t->out);
    strbuf_deinit(&b);
    t->any = true;
}

static void put_process(struct bench_trace *t, const char *name) {
    struct strbuf b = {0};
    strbuf_puts(&b, t->any ? ",\n" : "");
    strbuf_printf(&b, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":", t->n_cases);
    json_write_cstr(&b, name);
    strbuf_puts(&b, "}}");
    fputs(strbuf_cstr(&b), t->out);
    strbuf_deinit(&b);
    t->any = true;
}

static void put_lane(struct bench_trace *t, const struct ledger *k, int lane, int64_t zero) {
    const struct ledger_lane *const l = &k->lanes[lane];
    for (size_t i = 0; i < l->n_events; i++) {
        const struct ledger_event *const e = &l->events[i];
        const struct plan_entry *const entry = &k->plan->tape[e->entry];
        char label[LEDGER_LABEL_MAX], args[128];
        if (i > 0 && l->events[i - 1].step == e->step) {
            const int64_t end = l->events[i - 1].start_ns + l->events[i - 1].run_ns;
            if (e->start_ns - end >= WAIT_MIN_NS)
                put_event(t, "wait", lane, (double)(end - zero) * 1e-3, (double)(e->start_ns - end) * 1e-3, "");
        }
        ledger_label(entry->call->t, label);
        snprintf(args, sizeof args, ",\"args\":{\"node\":%d,\"phase\":%d,\"step\":%d}", entry->call->t->id,
                 entry->phase, e->step);
        put_event(t, label, lane, (double)(e->start_ns - zero) * 1e-3, (double)e->run_ns * 1e-3, args);
    }
}

void bench_trace_add(struct bench_trace *t, const struct ledger *k, const char *name) {
    if (!t->out || k->n_lanes == 0 || k->lanes[0].n_events == 0) return;
    const int64_t zero = k->lanes[0].events[0].start_ns;
    put_process(t, name);
    for (int i = 0; i < k->n_lanes; i++) put_lane(t, k, i, zero);
    t->n_cases++;
}

enum err bench_trace_close(struct bench_trace *t, struct err_msg *msg) {
    if (!t->out) return ERR_OK;
    fputs("\n]}\n", t->out);
    const bool bad = ferror(t->out) != 0;
    const bool ok = fclose(t->out) == 0 && !bad;
    t->out = NULL;
    return ok ? ERR_OK : err_set(msg, ERR_IO, "--trace %s: cannot write (disk full?)", t->path);
}
