/* Random numbers. rng_at is counter-based: the value is a function of (seed, counter) alone, so the
 * noise of a token does not depend on what else was drawn. struct rng is a small sequential
 * generator (xoshiro256**, Blackman and Vigna 2018) for tests and simulation.
 * Threads: rng_at any; a struct rng has one owner. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

#include "base/hash.h"

/* Uniform in [0, 1), 53 bits, from two keyed splitmix64 rounds. */
static inline double rng_at(uint64_t seed, uint64_t counter) {
    const uint64_t a = hash_mix(seed + 0x9e3779b97f4a7c15u);
    const uint64_t b = hash_mix(a ^ hash_mix(counter + 0xd1b54a32d192ed03u));
    return (double)(b >> 11) * 0x1p-53;
}

struct rng {
    uint64_t s[4];
};

static inline struct rng rng_seeded(uint64_t seed) {
    struct rng r;
    for (int i = 0; i < 4; i++) r.s[i] = hash_mix(seed += 0x9e3779b97f4a7c15u);
    return r;
}

static inline uint64_t rng_next(struct rng *r) {
    uint64_t *const s = r->s;
    const uint64_t x = s[1] * 5, out = ((x << 7) | (x >> 57)) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = (s[3] << 45) | (s[3] >> 19);
    return out;
}

/* Uniform in [0, n), n >= 1; the bias of 2^-32 does not matter to its users. */
static inline uint32_t rng_below(struct rng *r, uint32_t n) {
    return (uint32_t)(((rng_next(r) >> 32) * n) >> 32);
}

/* Uniform in [-1, 1). */
static inline float rng_f32(struct rng *r) {
    return (float)((double)(int64_t)rng_next(r) * 0x1p-63);
}

#endif
