#include "base/env.h"

#include <stdlib.h>

const char *env_get(const char *name, const char *fallback) {
    const char *const v = getenv(name);
    return v && *v ? v : fallback;
}
