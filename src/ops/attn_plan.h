/* The work of an attention operator in one step: which rows meet which slices of context. Made once per step and cache
 * group by the engine thread, shared by the group's layers.
 *
 * A sequence's rows are cut in tiles. A tile either walks its slices in order (whole), or, when there is too little
 * work for the lanes, each slice is its own item and a second phase merges them in the same order: the same bits either
 * way.
 *
 * Threads: attn_plan_make by the engine thread; read by lanes. */
#ifndef OPS_ATTN_PLAN_H
#define OPS_ATTN_PLAN_H

#include <stdint.h>

#include "ops/params.h"

struct attn_plan;

/* For steps of up to max_tokens rows and n_heads query heads over n_kv heads. NULL: no memory. */
struct attn_plan *attn_plan_create(int max_tokens, int n_heads, const struct paged_layer *cache);
void attn_plan_destroy(struct attn_plan *p);

#endif
