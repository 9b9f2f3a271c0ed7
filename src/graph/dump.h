/* A graph and its plan as text and as dot, for people.
 * Threads: any, on a finished plan. */
#ifndef GRAPH_DUMP_H
#define GRAPH_DUMP_H

#include "base/strbuf.h"
#include "graph/plan.h"

/* One line per node: name, operator, rows x width, sources, barriers before it. */
void dump_text(const struct plan *p, struct strbuf *out);

/* Graphviz: boxes are nodes, a bold arrow crosses a barrier. */
void dump_dot(const struct plan *p, struct strbuf *out);

#endif
