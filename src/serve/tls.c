#include "serve/tls.h"

#include <openssl/err.h>

static enum err refuse(SSL_CTX *ctx, struct err_msg *msg, const char *what, const char *path) {
    char why[200];
    ERR_error_string_n(ERR_peek_last_error(), why, sizeof why);
    ERR_clear_error();
    SSL_CTX_free(ctx);
    return err_set(msg, ERR_IO, "%s %s: %s", what, path, why);
}

enum err tls_create(SSL_CTX **out, const char *cert, const char *key, struct err_msg *msg) {
    SSL_CTX *const ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx) return err_set(msg, ERR_NOMEM, "TLS: no memory");
    if (!key) key = cert;
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1) return refuse(ctx, msg, "--ssl-certfile", cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1) return refuse(ctx, msg, "--ssl-keyfile", key);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return refuse(ctx, msg, "--ssl-keyfile does not fit the certificate:", key);
    *out = ctx;
    return ERR_OK;
}
