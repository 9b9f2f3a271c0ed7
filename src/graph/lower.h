/* Lowering: from the words of a model to what is executed. Puts a pack node before every linear; above level 0 the
 * linears that read the same input in the same layout share one. Threads: the builder. */
#ifndef GRAPH_LOWER_H
#define GRAPH_LOWER_H

#include "graph/build.h"

/* level: compilation level, 0 .. PLAN_LEVEL_MAX. Renumbers the nodes. */
enum err lower_graph(struct graph *g, int level, struct err_msg *msg) ATTR_NODISCARD;

#endif
