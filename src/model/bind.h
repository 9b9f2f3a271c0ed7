/* From a checkpoint's tensors to packed weights on the nodes that read them. Every matrix is split over the teams; the
 * lanes of a team pack their share straight from the mapped file into their node's region, and the file's pages are
 * dropped behind. Nothing else holds a copy. Threads: model_bind by the engine's opening thread (lane 0 of the pool).
 */
#ifndef MODEL_BIND_H
#define MODEL_BIND_H

#include "model/model.h"
#include "sys/region.h"
#include "sys/team.h"
#include "sys/topology.h"

struct bind_options {
    const struct kern *kern;
    struct pool *pool;
    const struct topology *topology;
    bool float32;          /* every format dequantized to f32 */
    bool dummy;            /* random weights of the declared shapes; the checkpoint needs no tensors */
    bool dry;              /* shapes, kernels and sizes only: no memory, no packing */
    bool convert;          /* matrices whose rows fit its block become `quantize` */
    enum dtype quantize;
    void (*progress)(void *user, const char *what, int64_t done, int64_t total); /* may be NULL */
    void *user;
};

/* What model_bind made. */
struct bound {
    struct region regions[PAGED_TEAMS_MAX]; /* one per team */
    int n_regions;
    int64_t packed_bytes, source_bytes;
    double seconds; /* of packing */
};

/* Fills m's weight tables. Errors: a missing tensor, a wrong shape, a type without kernel, no memory. */
enum err model_bind(struct model *m, const struct ckpt *c, const struct bind_options *opt, struct bound *out,
                    struct err_msg *msg) ATTR_NODISCARD;
void bound_deinit(struct bound *b);

#endif
