#include "ops/sample_keys.h"

#include <math.h>

#include "base/hash.h"

/* Below SMALL keys sorting is cheaper than one more partition. */
enum { SMALL = 24, CHUNK = ELEM_SUM_BLOCK };

static void sort_small(uint64_t *keys, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const uint64_t key = keys[i];
        int64_t at = i;
        for (; at > 0 && keys[at - 1] > key; at--) keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

static uint64_t median(uint64_t a, uint64_t b, uint64_t c) {
    const uint64_t lo = a < b ? a : b, hi = a < b ? b : a;
    return c < lo ? lo : c > hi ? hi : c;
}

/* Moves the keys up to a pivot in front and returns how many there are: neither none nor all of n > 3, since the pivot
 * is a median of three different ones. Their places are hashed, so that no arrangement of a row makes every pivot
 * bad. Without branches: they would be taken at random. */
static int64_t partition(uint64_t *keys, int64_t n) {
    const uint64_t h = hash_mix(keys[0] ^ (uint64_t)n);
    const int64_t third = n / 3;
    const uint64_t pivot = median(keys[(int64_t)(h % (uint64_t)third)],
                                  keys[third + (int64_t)((h >> 20) % (uint64_t)third)],
                                  keys[2 * third + (int64_t)((h >> 40) % (uint64_t)third)]);
    int64_t front = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = keys[i];
        keys[i] = keys[front];
        keys[front] = key;
        front += key <= pivot;
    }
    return front;
}

void sample_keys_first(uint64_t *keys, int64_t n, int64_t k) {
    if (k == 0) return;
    while (n > SMALL) {
        const int64_t front = partition(keys, n);
        if (k <= front) {
            n = front;
        } else {
            keys += front;
            n -= front;
            k -= front;
        }
    }
    sort_small(keys, n);
}

uint64_t sample_keys_kth(uint64_t *keys, int64_t n, int64_t k) {
    sample_keys_first(keys, n, k);
    return keys[k - 1];
}

void sample_keys_sort(uint64_t *keys, int64_t n) {
    while (n > SMALL) {
        const int64_t front = partition(keys, n);
        if (front <= n - front) {
            sample_keys_sort(keys, front);
            keys += front;
            n -= front;
        } else {
            sample_keys_sort(keys + front, n - front);
            n = front;
        }
    }
    sort_small(keys, n);
}

/* Sum of at most CHUNK weights. */
static double chunk_mass(const struct sample_weight *w, const uint64_t *keys, int64_t n) {
    float x[CHUNK];
    double sum;
    const struct elem_weights all = {w->max, w->scale, -INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i++) x[i] = elem_key_value(keys[i]);
    return w->kern->sum_exp(x, n, &all, &sum);
}

double sample_keys_mass(const struct sample_weight *w, const uint64_t *keys, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i += CHUNK) sum += chunk_mass(w, keys + i, n - i < CHUNK ? n - i : CHUNK);
    return sum;
}

int64_t sample_keys_cut(const struct sample_weight *w, uint64_t *keys, int64_t n, double target, double *mass) {
    int64_t from = 0, to = n;
    double sum = 0; /* of the keys before `from` */
    while (to - from > SMALL) {
        const int64_t front = partition(keys + from, to - from);
        const double s = sample_keys_mass(w, keys + from, front);
        if (sum + s >= target) {
            to = from + front;
        } else {
            sum += s;
            from += front;
        }
    }
    sort_small(keys + from, to - from);
    while (from < to) {
        sum += chunk_mass(w, keys + from++, 1);
        if (sum >= target) break;
    }
    *mass = sum;
    return from;
}

/* The first of n keys at which sum exceeds target, the last one with a weight if none does. */
static int64_t draw_one(const struct sample_weight *w, const uint64_t *keys, int64_t n, double sum, double target) {
    int64_t last = 0;
    for (int64_t i = 0; i < n; i++) {
        const double one = chunk_mass(w, keys + i, 1);
        sum += one;
        if (one > 0) last = i;
        if (one > 0 && sum > target) break;
    }
    return last;
}

int64_t sample_keys_draw(const struct sample_weight *w, const uint64_t *keys, int64_t n, double target) {
    double sum = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
        const double s = chunk_mass(w, keys + i, n - i < CHUNK ? n - i : CHUNK);
        if (s > 0) at = i;
        if (sum + s > target) break;
        if (i + CHUNK < n) sum += s;
    }
    return at + draw_one(w, keys + at, n - at < CHUNK ? n - at : CHUNK, sum, target);
}
