/* Between conf.c and ckpt.c.
 * Threads: as conf.h. */
#ifndef LOAD_CONF_INT_H
#define LOAD_CONF_INT_H

#include "load/conf.h"
#include "load/gguf.h"

/* A view of the metadata of *g, which must outlive it. source is copied. The caller closes it with conf_close. */
enum err conf_open_gguf(struct conf **out, const struct gguf *g, const char *source,
                        struct err_msg *msg) ATTR_NODISCARD;

#endif
