#include "graph/ledger.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "graph/plan.h"

_Static_assert(sizeof(struct ledger_lane) == 2 * CACHE_LINE, "lanes do not share lines");

enum err ledger_create(struct ledger *k, const struct plan *p, int n_lanes, size_t cap_events, struct err_msg *msg) {
    *k = (struct ledger){.plan = p, .n_lanes = n_lanes, .cap_events = cap_events};
    k->bytes = mem_calloc(p->n_tape, sizeof *k->bytes);
    k->lanes = mem_alloc_aligned(2 * CACHE_LINE, (size_t)n_lanes * sizeof *k->lanes);
    bool ok = k->bytes && k->lanes;
    if (k->lanes) memset(k->lanes, 0, (size_t)n_lanes * sizeof *k->lanes);
    for (int i = 0; ok && i < n_lanes; i++) {
        k->lanes[i].cells = mem_alloc_aligned(2 * CACHE_LINE, p->n_tape * sizeof *k->lanes[i].cells);
        if (cap_events) k->lanes[i].events = mem_calloc(cap_events, sizeof *k->lanes[i].events);
        ok = k->lanes[i].cells && (!cap_events || k->lanes[i].events);
    }
    if (ok) {
        ledger_reset(k);
        return ERR_OK;
    }
    ledger_destroy(k);
    return err_set(msg, ERR_NOMEM, "ledger: memory ran out");
}

void ledger_destroy(struct ledger *k) {
    for (int i = 0; k->lanes && i < k->n_lanes; i++) {
        mem_free(k->lanes[i].cells);
        mem_free(k->lanes[i].events);
    }
    mem_free(k->lanes);
    mem_free(k->bytes);
    *k = (struct ledger){0};
}

void ledger_reset(struct ledger *k) {
    for (int i = 0; i < k->n_lanes; i++) {
        struct ledger_lane *const l = &k->lanes[i];
        memset(l->cells, 0, k->plan->n_tape * sizeof *l->cells);
        l->n_events = 0;
        l->late_ns = l->n_barriers = 0;
    }
    memset(k->bytes, 0, k->plan->n_tape * sizeof *k->bytes);
    k->n_steps = k->prepare_ns = k->step_ns = 0;
}

void ledger_begin_step(struct ledger *k, const struct step *s) {
    for (size_t i = 0; i < k->plan->n_tape; i++)
        if (k->plan->tape[i].phase == 0) k->bytes[i] += ledger_call_bytes(k->plan->tape[i].call->t, s);
}

void ledger_end_step(struct ledger *k, int64_t start_ns, int64_t lanes_ns, int64_t now_ns) {
    for (int i = 0; i < k->n_lanes; i++) {
        struct ledger_lane *const l = &k->lanes[i];
        l->late_ns += l->start_ns - lanes_ns;
        l->cells[k->plan->n_tape - 1].wait_ns += now_ns - l->end_ns;
    }
    k->prepare_ns += lanes_ns - start_ns;
    k->step_ns += now_ns - start_ns;
    k->n_steps++;
}

/* ---- Bytes ---- */

/* Bytes of a row of the matrix in its file. */
static int64_t row_bytes(const struct weight *w) {
    for (int t = 0; t < DTYPE_N; t++) {
        enum gemm_format f;
        size_t bytes;
        if (weight_format((enum dtype)t, &f) && f == w->format && dtype_row_bytes((enum dtype)t, w->k, &bytes))
            return (int64_t)bytes;
    }
    return 0;
}

static int64_t cache_bytes(const struct paged_layer *c, const struct step *s) {
    const int64_t per_token = (int64_t)(c->k_group_bytes + c->v_group_bytes) / ATTN_GROUP * c->n_kv;
    int64_t n = 0;
    for (int i = 0; i < s->n_seqs; i++) {
        const int64_t end = s->seqs[i].pos0 + s->seqs[i].n_rows, seen = c->window + s->seqs[i].n_rows - 1;
        n += c->window && seen < end ? seen : end;
    }
    return n * per_token;
}

int64_t ledger_call_bytes(const struct tensor *t, const struct step *s) {
    const int n = op_n_rows(t, s);
    if (n == 0) return 0;
    if (t->op == &op_linear) {
        const struct weight *const w = ((const struct linear_params *)t->params)->w;
        return w->n * row_bytes(w);
    }
    if (t->op == &op_embed) return n * row_bytes(((const struct linear_params *)t->params)->w);
    if (t->op == &op_attn) return cache_bytes(((const struct attn_params *)t->params)->cache, s);
    return 0;
}

/* ---- Reports ---- */

/* "model.layers.3.self_attn.q_proj.weight" -> "self_attn.q_proj": what stands behind the layer's number, without ".weight". */
static void short_name(const char *name, char *out, size_t cap) {
    const char *from = name;
    for (const char *p = name; *p; p++) {
        if (*p != '.' || !isdigit((unsigned char)p[1])) continue;
        const char *q = p + 1;
        while (isdigit((unsigned char)*q)) q++;
        if (*q == '.') from = q + 1;
    }
    const char *const end = strstr(from, ".weight");
    size_t n = end ? (size_t)(end - from) : strlen(from);
    if (n > cap - 1) n = cap - 1;
    memcpy(out, from, n);
    out[n] = '\0';
}

void ledger_label(const struct tensor *t, char out[LEDGER_LABEL_MAX]) {
    size_t n = strlen(t->op->name);
    memcpy(out, t->op->name, n + 1);
    if (t->op != &op_linear) return;
    out[n++] = ' ';
    short_name(((const struct linear_params *)t->params)->w->name, out + n, LEDGER_LABEL_MAX - n);
}

static void add_entry(const struct ledger *k, size_t entry, struct ledger_row *row) {
    const double per_step = 1.0 / (double)k->n_steps;
    double longest = 0;
    for (int i = 0; i < k->n_lanes; i++) {
        const struct ledger_cell *const c = &k->lanes[i].cells[entry];
        row->run_ns += (double)c->run_ns * per_step / k->n_lanes;
        row->wait_ns += (double)c->wait_ns * per_step / k->n_lanes;
        if ((double)c->run_ns > longest) longest = (double)c->run_ns;
    }
    row->run_max_ns += longest * per_step;
    row->bytes += (double)k->bytes[entry] * per_step;
    row->n_calls += k->plan->tape[entry].phase == 0;
}

static int by_time(const void *a, const void *b) {
    const struct ledger_row *const x = a, *const y = b;
    const double tx = x->run_ns + x->wait_ns, ty = y->run_ns + y->wait_ns;
    return (tx < ty) - (tx > ty);
}

size_t ledger_rows(const struct ledger *k, struct ledger_row *rows, size_t cap) {
    size_t n = 0;
    if (k->n_steps == 0) return 0;
    for (size_t e = 0; e < k->plan->n_tape; e++) {
        char label[LEDGER_LABEL_MAX];
        size_t i = 0;
        ledger_label(k->plan->tape[e].call->t, label);
        while (i < n && strcmp(rows[i].label, label) != 0) i++;
        if (i == n && n == cap) continue;
        if (i == n) {
            rows[n] = (struct ledger_row){0};
            memcpy(rows[n++].label, label, sizeof label);
        }
        add_entry(k, e, &rows[i]);
    }
    qsort(rows, n, sizeof *rows, by_time);
    return n;
}
