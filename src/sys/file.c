/* Read-only maps and bounded reads of whole files. */
#include "sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

static const char *kind_name(mode_t mode) {
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

/* Opens a regular file and fills *st. O_NONBLOCK keeps a pipe without a writer from blocking us before we can
 * refuse it; it means nothing for regular files. */
static enum err open_regular(int *out, const char *path, struct stat *st, struct err_msg *msg) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return err_set(msg, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, st) != 0) {
        err_set(msg, ERR_IO, "%s: cannot read its size: %s", path, strerror(errno));
        close(fd);
        return ERR_IO;
    }
    if (!S_ISREG(st->st_mode)) {
        close(fd);
        return err_set(msg, ERR_IO, "%s: is %s, not a file", path, kind_name(st->st_mode));
    }
    *out = fd;
    return ERR_OK;
}

enum err file_map_open(struct file_map *m, const char *path, struct err_msg *msg) {
    struct stat st;
    int fd = -1;
    memset(m, 0, sizeof *m);
    TRY(open_regular(&fd, path, &st, msg));
    if (st.st_size <= 0) {
        close(fd);
        return err_set(msg, ERR_FORMAT, "%s: the file is empty; was its download interrupted?", path);
    }
    if ((uintmax_t)st.st_size > (uintmax_t)PTRDIFF_MAX) {
        close(fd);
        return err_set(msg, ERR_LIMIT, "%s: %jd bytes do not fit the address space", path, (intmax_t)st.st_size);
    }
    void *const p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        const int why = errno;
        close(fd);
        return err_set(msg, why == ENOMEM ? ERR_NOMEM : ERR_IO, "%s: cannot map %jd bytes: %s", path,
                       (intmax_t)st.st_size, strerror(why));
    }
    m->data = p;
    m->size = (size_t)st.st_size;
    m->fd = fd;
    return ERR_OK;
}

/* munmap and madvise take void *, although neither writes. */
static void *address_of(const struct file_map *m, size_t offset) { return (void *)((uintptr_t)m->data + offset); }

void file_map_close(struct file_map *m) {
    if (m->data) {
        munmap(address_of(m, 0), m->size);
        close(m->fd);
    }
    memset(m, 0, sizeof *m);
}

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void file_map_drop(const struct file_map *m, size_t offset, size_t len) {
    if (!m->data || offset >= m->size) return;
    if (len > m->size - offset) len = m->size - offset;
    const size_t page = page_size();
    /* Only whole pages: a neighbour may still be reading the rest. The last page of the file ends with the file. */
    const size_t begin = (offset + page - 1) / page * page;
    const size_t end = offset + len == m->size ? m->size : (offset + len) / page * page;
    if (begin >= end) return;
    /* The page cache keeps pages that a process maps, so ours go first. */
    (void)madvise(address_of(m, begin), end - begin, MADV_DONTNEED);
    (void)posix_fadvise(m->fd, (off_t)begin, (off_t)(end - begin), POSIX_FADV_DONTNEED);
}

void file_map_release(const struct file_map *m, size_t offset, size_t len) {
    if (!m->data || offset >= m->size) return;
    if (len > m->size - offset) len = m->size - offset;
    const size_t page = page_size(), begin = offset / page * page;
    (void)madvise(address_of(m, begin), (offset + len + page - 1) / page * page - begin, MADV_DONTNEED);
}

void file_map_prefetch(const struct file_map *m, size_t offset, size_t len) {
    if (!m->data || offset >= m->size) return;
    if (len > m->size - offset) len = m->size - offset;
    const size_t begin = offset / page_size() * page_size();
    (void)madvise(address_of(m, begin), offset + len - begin, MADV_WILLNEED);
}

/* Reads fd to its end into *out, growing as needed: sizes reported by the system may be 0 or stale. */
static enum err read_to_end(int fd, const char *path, size_t limit, size_t hint, char **out, size_t *len,
                            struct err_msg *msg) {
    char *buf = NULL;
    size_t cap = 0, n = 0;
    enum err e = ERR_OK;
    for (;;) {
        const size_t need = n ? n + 1 + 4096 : hint + 2;
        if (cap < n + 2 && !mem_grow(&buf, &cap, need, 1)) {
            e = err_set(msg, ERR_NOMEM, "%s: no memory to read %zu bytes", path, need);
            break;
        }
        const ssize_t got = read(fd, buf + n, cap - n - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            e = err_set(msg, ERR_IO, "%s: cannot read: %s", path, strerror(errno));
            break;
        }
        if (got == 0) break;
        n += (size_t)got;
        if (n > limit) {
            e = err_set(msg, ERR_LIMIT, "%s: larger than the %zu bytes allowed here", path, limit);
            break;
        }
    }
    if (e != ERR_OK) {
        mem_free(buf);
        return e;
    }
    buf[n] = '\0';
    *out = buf;
    if (len) *len = n;
    return ERR_OK;
}

enum err file_read_all(const char *path, size_t limit, char **out, size_t *len, struct err_msg *msg) {
    struct stat st;
    int fd = -1;
    *out = NULL;
    if (len) *len = 0;
    TRY(open_regular(&fd, path, &st, msg));
    if (st.st_size > 0 && (uintmax_t)st.st_size > limit) {
        close(fd);
        return err_set(msg, ERR_LIMIT, "%s: %jd bytes, more than the %zu allowed here", path, (intmax_t)st.st_size,
                       limit);
    }
    const enum err e = read_to_end(fd, path, limit, st.st_size > 0 ? (size_t)st.st_size : 4000, out, len, msg);
    close(fd);
    return e;
}
