/* The listening socket.
 * Threads: any. Owns: nothing. */
#ifndef SERVE_LISTEN_H
#define SERVE_LISTEN_H

#include "base/err.h"

/* Binds host (name, IPv4 or IPv6 address) and port (0: any free one) and listens. *fd: non-blocking, the caller's;
 * *bound_port: the one in use. ERR_IO names the address, ERR_ARG a host that does not resolve. */
enum err listen_open(int *fd, int *bound_port, const char *host, int port, struct err_msg *msg) ATTR_NODISCARD;

#endif
