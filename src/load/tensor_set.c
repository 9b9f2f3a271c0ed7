#include "load/tensor_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "load/quote.h"

static enum err check_name(const char *name, size_t len, const char *source, struct err_msg *msg) {
    struct quote q;
    if (len == 0) return err_set(msg, ERR_FORMAT, "%s: a tensor has an empty name; the file is damaged", source);
    if (len > TENSOR_SET_NAME_MAX)
        return err_set(msg, ERR_FORMAT, "%s: tensor name \"%s\" has %zu bytes, at most %d are allowed", source,
                       quote_name(&q, name, len), len, TENSOR_SET_NAME_MAX);
    if (memchr(name, '\0', len))
        return err_set(msg, ERR_FORMAT, "%s: tensor name \"%s\" contains a NUL byte; the file is damaged", source,
                       quote_name(&q, name, len));
    return ERR_OK;
}

enum err tensor_set_add(struct tensor_set *s, const struct ckpt_tensor *t, size_t len, const char *source,
                        struct err_msg *msg) {
    struct quote q;
    TRY(check_name(t->name, len, source, msg));
    if (map_get(&s->by_name, t->name, len, NULL))
        return err_set(msg, ERR_FORMAT, "%s: tensor \"%s\" occurs twice; the checkpoint is damaged", source,
                       quote_name(&q, t->name, len));
    if (s->n >= TENSOR_SET_N_MAX)
        return err_set(msg, ERR_LIMIT, "%s: more than %d tensors in one checkpoint", source, TENSOR_SET_N_MAX);
    if (!mem_grow(&s->items, &s->cap, s->n + 1, sizeof *s->items))
        return err_set(msg, ERR_NOMEM, "%s: no memory for the list of tensors", source);
    char *const name = mem_strndup(t->name, len);
    if (!name || !map_put(&s->by_name, name, len, (int64_t)s->n)) {
        mem_free(name);
        return err_set(msg, ERR_NOMEM, "%s: no memory for the list of tensors", source);
    }
    s->items[s->n] = *t;
    s->items[s->n++].name = name;
    return ERR_OK;
}

static int by_address(const void *a, const void *b) {
    const struct ckpt_tensor *const x = *(const struct ckpt_tensor *const *)a;
    const struct ckpt_tensor *const y = *(const struct ckpt_tensor *const *)b;
    const uintptr_t px = (uintptr_t)x->data, py = (uintptr_t)y->data;
    return (px > py) - (px < py);
}

enum err tensor_set_check_overlap(const struct tensor_set *s, size_t first, const void *base, const char *source,
                                  struct err_msg *msg) {
    if (s->n <= first) return ERR_OK;
    const struct ckpt_tensor **const order = mem_calloc(s->n - first, sizeof *order);
    if (!order) return err_set(msg, ERR_NOMEM, "%s: no memory for the list of tensors", source);
    size_t n = 0;
    for (size_t i = first; i < s->n; i++)
        if (s->items[i].bytes) order[n++] = &s->items[i];
    qsort(order, n, sizeof *order, by_address);
    enum err e = ERR_OK;
    for (size_t i = 1; i < n && e == ERR_OK; i++) {
        const struct ckpt_tensor *const a = order[i - 1], *const b = order[i];
        struct quote qa, qb;
        if ((uintptr_t)b->data - (uintptr_t)a->data < a->bytes)
            e = err_set(msg, ERR_FORMAT, "%s: tensors \"%s\" and \"%s\" overlap at byte %zu; the file is damaged",
                        source, quote_name(&qa, a->name, strlen(a->name)), quote_name(&qb, b->name, strlen(b->name)),
                        (size_t)((uintptr_t)b->data - (uintptr_t)base));
    }
    mem_free(order);
    return e;
}

const struct ckpt_tensor *tensor_set_find(const struct tensor_set *s, const char *name, size_t len) {
    int64_t i;
    return map_get(&s->by_name, name, len, &i) ? &s->items[i] : NULL;
}

void tensor_set_deinit(struct tensor_set *s) {
    for (size_t i = 0; i < s->n; i++) {
        /* The names are our copies: casting the const away is what frees them. */
        union {
            const char *in;
            char *out;
        } name = {.in = s->items[i].name};
        mem_free(name.out);
    }
    mem_free(s->items);
    map_deinit(&s->by_name);
    *s = (struct tensor_set){0};
}
