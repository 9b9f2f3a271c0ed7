#include "graph/dump.h"

static const char *rows_name(const struct tensor *t) { return t->rows == TENSOR_ROWS_TOKENS ? "T" : "R"; }

void dump_text(const struct plan *p, struct strbuf *out) {
    static const char *const marks[] = {"  ", "- ", "= "};
    strbuf_puts(out, "= all lanes meet before it, - only in steps of several rows; T tokens, R rows with logits\n");
    for (size_t i = 0; i < p->n_tape; i++) {
        const struct plan_entry *const e = &p->tape[i];
        const struct tensor *const t = e->call->t;
        strbuf_printf(out, "%s%4d %-14s %-10s", marks[e->before], t->id, t->name, t->op->name);
        if (e->phase > 0) {
            strbuf_printf(out, " (phase %d)\n", e->phase);
            continue;
        }
        strbuf_printf(out, " [%s, %lld]", rows_name(t), (long long)t->width);
        for (int s = 0; s < t->n_src; s++) strbuf_printf(out, "%s%s", s ? ", " : " <- ", t->src[s]->name);
        strbuf_puts(out, t->in_place ? " (in place)\n" : "\n");
    }
}

void dump_dot(const struct plan *p, struct strbuf *out) {
    strbuf_puts(out, "digraph xenon {\n  node [shape=box, fontname=\"sans\"];\n");
    for (size_t i = 0; i < p->n_tape; i++) {
        const struct plan_entry *const e = &p->tape[i];
        const struct tensor *const t = e->call->t;
        if (e->phase > 0) continue;
        strbuf_printf(out, "  n%d [label=\"%s\\n%s [%s, %lld]\"];\n", t->id, t->name, t->op->name, rows_name(t),
                      (long long)t->width);
        for (int s = 0; s < t->n_src; s++)
            strbuf_printf(out, "  n%d -> n%d%s;\n", t->src[s]->id, t->id,
                          e->before == PLAN_BARRIER_ALWAYS ? " [style=bold]" : "");
    }
    strbuf_puts(out, "}\n");
}
