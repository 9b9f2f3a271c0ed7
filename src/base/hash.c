#include "base/hash.h"

#include <xxhash.h>

uint64_t hash_bytes(const void *bytes, size_t len, uint64_t seed) {
    return XXH64(bytes, len, seed);
}
