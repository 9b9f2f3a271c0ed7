/* 64-bit hashing: xxh64 of the library, plus a mixer for integers.
 * Threads: any. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *bytes, size_t len, uint64_t seed);

/* splitmix64's finaliser (Steele, Lea, Flood 2014): a bijection that spreads every input bit. */
static inline uint64_t hash_mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
