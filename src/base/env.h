/* Environment variables: the only caller of getenv.
 * Threads: read before threads start, or for variables that nobody sets. */
#ifndef BASE_ENV_H
#define BASE_ENV_H

/* The value, or fallback when unset or empty. */
const char *env_get(const char *name, const char *fallback);

#endif
