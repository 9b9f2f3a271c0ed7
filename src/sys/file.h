/* Files read whole: a read-only map for weights, and a bounded read into memory for small files.
 * The invariant of a map: data[0 .. size) is the file as it was when opened. A file that somebody shortens while
 * it is mapped raises SIGBUS on access, as with every mapping; replacing it by rename is safe.
 * Threads: a map may be read by any thread; open and close by its owner; drop and prefetch by any thread.
 * Owns: the mapping and the descriptor. */
#ifndef SYS_FILE_H
#define SYS_FILE_H

#include <stddef.h>

#include "base/err.h"

struct file_map {
    const char *data; /* NULL when not open */
    size_t size;      /* bytes, >= 1 when open */
    int fd;           /* kept for the advice calls; meaningful while data is not NULL */
};

/* Maps the whole file; nothing is read yet. ERR_IO: missing, no right, or not a regular file (directories, devices,
 * pipes); ERR_FORMAT: empty; ERR_NOMEM: no address space left. *m is zeroed on failure, so that file_map_close is
 * always allowed. */
enum err file_map_open(struct file_map *m, const char *path, struct err_msg *msg) ATTR_NODISCARD;

/* Unmaps and zeroes; a zeroed map is fine. */
void file_map_close(struct file_map *m);

/* Tells the system that [offset, offset + len) will not be read again soon: whole pages inside the range leave this
 * process and the page cache. They may still be read, at the price of a new disk read. Ranges beyond the end are cut.
 * Advice only: never fails. */
void file_map_drop(const struct file_map *m, size_t offset, size_t len);

/* Takes bytes [offset, offset + len) out of this process, whole pages around them too; they stay in the system's page
 * cache, so whoever reads them again pays a fault. */
void file_map_release(const struct file_map *m, size_t offset, size_t len);

/* Asks the system to start reading [offset, offset + len); returns at once. Advice only: never fails. */
void file_map_prefetch(const struct file_map *m, size_t offset, size_t len);

/* Reads the whole file (also files of /proc and /sys, whose size is not known beforehand) into a fresh buffer with a
 * NUL behind the bytes; *len may be 0. The caller frees *out with mem_free. len may be NULL.
 * ERR_IO: missing, unreadable, a directory; ERR_LIMIT: more than limit bytes; ERR_NOMEM. *out is NULL on failure. */
enum err file_read_all(const char *path, size_t limit, char **out, size_t *len, struct err_msg *msg) ATTR_NODISCARD;

#endif
