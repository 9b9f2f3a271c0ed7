#include "text/jinja_sort.h"

/* Merges order[lo..mid) and order[mid..hi): the right one goes first only when it is really less. */
static enum err merge(struct jinja_run *r, const struct jinja_value *keys, size_t *order, size_t *spare,
                      const size_t at[3]) {
    size_t left = at[0], right = at[1], k = at[0];
    while (left < at[1] && right < at[2]) {
        bool less;
        TRY(jinja_value_less(r, &keys[order[right]], &keys[order[left]], "<", &less));
        spare[k++] = less ? order[right++] : order[left++];
    }
    while (left < at[1])
        spare[k++] = order[left++];
    while (right < at[2])
        spare[k++] = order[right++];
    memcpy(order + at[0], spare + at[0], (at[2] - at[0]) * sizeof *order);
    return ERR_OK;
}

static void turn_around(size_t *v, size_t n) {
    for (size_t i = 0; i < n / 2; i++) {
        const size_t x = v[i];
        v[i] = v[n - 1 - i];
        v[n - 1 - i] = x;
    }
}

enum err jinja_sort_order(struct jinja_run *r, const struct jinja_value *keys, size_t n, bool reverse, size_t **order) {
    size_t *const o = jinja_run_alloc(r, (n + 1) * 2 * sizeof *o);
    if (!o) return jinja_run_nomem(r);
    *order = o;
    /* Reversing before and after a stable sort keeps equal ones in order. */
    for (size_t i = 0; i < n; i++)
        o[i] = reverse ? n - 1 - i : i;
    for (size_t width = 1; width < n; width *= 2)
        for (size_t lo = 0; lo + width < n; lo += width * 2) {
            const size_t hi = lo + width * 2 < n ? lo + width * 2 : n;
            TRY(merge(r, keys, o, o + n, (const size_t[3]){lo, lo + width, hi}));
        }
    if (reverse) turn_around(o, n);
    return ERR_OK;
}
