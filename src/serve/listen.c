#include "serve/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 4096 };

static int open_one(const struct addrinfo *a) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol), on = 1;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) return fd;
    const int e = errno;
    close(fd);
    errno = e;
    return -1;
}

static int port_of(int fd) {
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    char port[16] = "0";
    int n = 0;
    if (getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
        getnameinfo((const struct sockaddr *)&sa, len, NULL, 0, port, sizeof port, NI_NUMERICSERV) == 0)
        for (const char *p = port; *p; p++)
            n = n * 10 + (*p - '0');
    return n;
}

enum err listen_open(int *fd, int *bound_port, const char *host, int port, struct err_msg *msg) {
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    char text[16];
    snprintf(text, sizeof text, "%d", port);
    const int gai = getaddrinfo(host, text, &hints, &list);
    if (gai) return err_set(msg, ERR_ARG, "--host %s: %s", host, gai_strerror(gai));
    *fd = -1;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next)
        *fd = open_one(a);
    const int e = errno;
    freeaddrinfo(list);
    if (*fd < 0)
        return err_set(msg, ERR_IO, "cannot listen on %s port %d: %s%s", host, port, strerror(e),
                       e == EADDRINUSE ? "; choose another --port" : "");
    *bound_port = port_of(*fd);
    return ERR_OK;
}
