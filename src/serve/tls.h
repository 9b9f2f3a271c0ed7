/* The TLS context from PEM files.
 * Threads: any. Owns: nothing. */
#ifndef SERVE_TLS_H
#define SERVE_TLS_H

#include <openssl/ssl.h>

#include "base/err.h"

/* TLS 1.2 or newer. *out is freed with SSL_CTX_free. key NULL: it is in the certificate's file. */
enum err tls_create(SSL_CTX **out, const char *cert, const char *key, struct err_msg *msg) ATTR_NODISCARD;

#endif
