/* What a step looks like to the operators: which rows belong to which sequence, and where each layer's cache pages are.
 * Threads: filled by the engine thread before a step, read by all lanes during it. Owns: nothing. */
#ifndef TENSOR_PAGED_H
#define TENSOR_PAGED_H

#include <stddef.h>
#include <stdint.h>

enum { PAGED_TEAMS_MAX = 64, PAGED_GROUPS_MAX = 8 };

/* Consecutive rows of one sequence. */
struct step_seq {
    int row0, n_rows;
    int64_t pos0;                               /* absolute position of row0 */
    const int32_t *pages[PAGED_GROUPS_MAX];     /* page table per cache group; page p holds positions
                                                   p * block_size .. ; -1: behind the window */
};

struct step {
    uint64_t serial;           /* a different number for every step */
    int n_tokens;
    const int32_t *token_ids;  /* [n_tokens] */
    const int32_t *positions;  /* [n_tokens] */
    const int32_t *row_seq;    /* [n_tokens] index into seqs */
    int n_seqs;
    const struct step_seq *seqs;
    int n_logits;
    const int32_t *logit_rows; /* [n_logits] batch rows, ascending */
};

/* Where one layer's keys and values are. KV heads are spread over the teams; team t holds heads head0[t] ..
 * head0[t+1]-1. A page of team t starts at base[t] + page * page_stride[t]; in it come, per layer of the group and head
 * of the team, the K groups and then the V groups of kern/attn.h. */
struct paged_layer {
    int group;                 /* cache group: index into step_seq.pages */
    int layer_in_group;
    int n_kv, d, dv;
    int64_t window;            /* 0: all positions are seen */
    int block_size, groups_per_page;
    size_t k_group_bytes, v_group_bytes;
    int cache;                 /* enum attn_cache */
    int n_teams;
    int head0[PAGED_TEAMS_MAX + 1];
    char *base[PAGED_TEAMS_MAX];
    size_t page_stride[PAGED_TEAMS_MAX];
};

/* Bytes of one (layer, head) part of a page. */
static inline size_t paged_head_bytes(const struct paged_layer *l) {
    return (size_t)l->groups_per_page * (l->k_group_bytes + l->v_group_bytes);
}

/* Offset inside a page of team t of KV head h's K groups; V groups follow after groups_per_page * k_group_bytes. */
static inline size_t paged_head_offset(const struct paged_layer *l, int team, int h) {
    const int heads = l->head0[team + 1] - l->head0[team];
    return paged_head_bytes(l) * ((size_t)l->layer_in_group * (size_t)heads + (size_t)(h - l->head0[team]));
}

#endif
