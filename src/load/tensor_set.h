/* The tensors of a checkpoint while it is opened, and the checks that every file format needs: names
 * are there, unique and printable in a message, and no two tensors of a file share bytes.
 * Threads: one owner while it fills; any readers after. Owns: the items, the names, the index. */
#ifndef LOAD_TENSOR_SET_H
#define LOAD_TENSOR_SET_H

#include "base/map.h"
#include "load/ckpt.h"

enum {
    TENSOR_SET_NAME_MAX = 1024, /* bytes of a name */
    TENSOR_SET_N_MAX = 1 << 22, /* tensors of a checkpoint; the largest public ones have about 2^17 */
};

struct tensor_set {
    struct ckpt_tensor *items;
    size_t n, cap;
    struct map by_name; /* name -> index into items; the keys are the items' names */
};

/* Appends a copy of *t whose name is the len bytes at t->name (no NUL needed; they are copied).
 * ERR_FORMAT: empty, too long or with a NUL inside, or the name is there already; ERR_LIMIT;
 * ERR_NOMEM. source names the file for messages. */
enum err tensor_set_add(struct tensor_set *s, const struct ckpt_tensor *t, size_t len, const char *source,
                        struct err_msg *msg) ATTR_NODISCARD;

/* ERR_FORMAT when two of the items first .. n-1 (those of one file, which begins at base) overlap. */
enum err tensor_set_check_overlap(const struct tensor_set *s, size_t first, const void *base, const char *source,
                                  struct err_msg *msg) ATTR_NODISCARD;

/* NULL when there is no such tensor. */
const struct ckpt_tensor *tensor_set_find(const struct tensor_set *s, const char *name, size_t len);

void tensor_set_deinit(struct tensor_set *s);

#endif
