/* Weights as operators see them: matrices packed in panels that live on the node whose lanes read them, and small f32
 * vectors. model/bind fills them once; they are immutable afterwards.
 * Threads: weight_pack_panels by any lane on disjoint panels; readers any. Owns: nothing, regions do. */
#ifndef OPS_WEIGHT_H
#define OPS_WEIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "kern/kern.h"
#include "tensor/dtype.h"
#include "tensor/paged.h"

/* Panels panel0[t] .. panel0[t+1]-1 belong to team t and start at base[t]. */
struct weight {
    const char *name;             /* borrowed, for messages */
    int64_t n, k;                 /* outputs, inputs */
    enum gemm_format format;
    const struct gemm_kern *kern;
    size_t panel_bytes;
    int64_t n_panels;
    int n_teams;
    int64_t panel0[PAGED_TEAMS_MAX + 1];
    char *base[PAGED_TEAMS_MAX];
};

/* The kernel format of a stored type. False: there is none. */
bool weight_format(enum dtype t, enum gemm_format *out);

/* Fills everything but base: shape, kernel, the split of the panels over n_teams in proportion to team_size[].
 * ERR_UNSUPPORTED when the type has no kernel or K does not fit its block. */
enum err weight_init(struct weight *w, const char *name, int64_t n, int64_t k, enum dtype t, const struct kern *kern,
                     const int *team_size, int n_teams, struct err_msg *msg) ATTR_NODISCARD;

/* Bytes that team t's panels need (a multiple of 64). */
size_t weight_team_bytes(const struct weight *w, int t);

/* Packs panel p from the matrix's first row of source bytes. row_bytes: distance of source rows. */
void weight_pack_panel(const struct weight *w, int64_t p, const void *rows, size_t row_bytes);

/* Where panel p is. */
static inline void *weight_panel(const struct weight *w, int64_t p) {
    int t = 0;
    while (p >= w->panel0[t + 1]) t++;
    return w->base[t] + (size_t)(p - w->panel0[t]) * w->panel_bytes;
}

/* Decodes row i into out[k]. */
void weight_row(const struct weight *w, int64_t i, float *out);

#endif
