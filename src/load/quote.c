#include "load/quote.h"

#include <string.h>

const char *quote_name(struct quote *q, const char *bytes, size_t len) {
    static const char dots[] = "...";
    const size_t room = sizeof q->text - sizeof dots;
    const size_t n = len > room ? room : len;
    for (size_t i = 0; i < n; i++) q->text[i] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? bytes[i] : '?';
    if (len > room)
        memcpy(q->text + n, dots, sizeof dots);
    else
        q->text[n] = '\0';
    return q->text;
}

static int begins(const void *data, size_t size, const char *what) {
    const size_t n = strlen(what);
    return size >= n && memcmp(data, what, n) == 0;
}

enum err quote_check_stranger(const void *data, size_t size, const char *source, struct err_msg *msg) {
    if (begins(data, size, "version https://git-lfs"))
        return err_set(msg, ERR_FORMAT,
                       "%s: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder", source);
    if (begins(data, size, "<!DOCTYPE") || begins(data, size, "<!doctype") || begins(data, size, "<html"))
        return err_set(msg, ERR_FORMAT, "%s: is a web page, not a model; download the file itself", source);
    return ERR_OK;
}
