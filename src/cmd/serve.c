#include "cmd/serve.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "cmd/args.h"
#include "cmd/engine_flags.h"
#include "cmd/progress.h"
#include "serve/server.h"

struct serve_flags {
    const char *host, *cors_origin, *ssl_certfile, *ssl_keyfile;
    int port, log_level, max_connections, keepalive_s, idle_s, write_s, drain_s, text_threads;
    int64_t max_body;
    struct arg_list names, api_keys;
    bool progress;
};

#define FIELD(f) offsetof(struct serve_flags, f)

// clang-format off
static const struct arg_def defs[] = {
    {"host", NULL, ARG_STRING, FIELD(host), NULL, 0, 0, 0, "ADDRESS", "to listen on (127.0.0.1; 0.0.0.0: all)", false},
    {"port", "-p", ARG_INT, FIELD(port), NULL, 0, 65535, 0, "N", "to listen on (8000; 0: any free one)", false},
    {"served-model-name", NULL, ARG_LIST, FIELD(names), NULL, 0, 0, 0, "NAME...", "names clients may use (the model's own)", false},
    {"api-key", NULL, ARG_LIST, FIELD(api_keys), NULL, 0, 0, 0, "KEY...", "required from clients (or XENON_API_KEY)", false},
    {"ssl-certfile", NULL, ARG_STRING, FIELD(ssl_certfile), NULL, 0, 0, 0, "PEM", "serve HTTPS", true},
    {"ssl-keyfile", NULL, ARG_STRING, FIELD(ssl_keyfile), NULL, 0, 0, 0, "PEM", "key of --ssl-certfile", true},
    {"cors-origin", NULL, ARG_STRING, FIELD(cors_origin), NULL, 0, 0, 0, "ORIGIN", "allowed web origin (*; empty: none)", true},
    {"max-connections", NULL, ARG_INT, FIELD(max_connections), NULL, 1, 1e6, 0, "N", "open connections (4096)", true},
    {"max-body-size", NULL, ARG_SIZE, FIELD(max_body), NULL, 1024, 1e11, 0, "SIZE", "largest request body (32MiB)", true},
    {"keepalive-interval", NULL, ARG_INT, FIELD(keepalive_s), NULL, 1, 3600, 0, "SECONDS", "comment on a silent stream (15)", true},
    {"idle-timeout", NULL, ARG_INT, FIELD(idle_s), NULL, 1, 86400, 0, "SECONDS", "of connections without a request (75)", true},
    {"write-timeout", NULL, ARG_INT, FIELD(write_s), NULL, 1, 86400, 0, "SECONDS", "of clients that stop reading (60)", true},
    {"shutdown-timeout", NULL, ARG_INT, FIELD(drain_s), NULL, 1, 86400, 0, "SECONDS", "for running requests after SIGTERM (30)", true},
    {"text-threads", NULL, ARG_INT, FIELD(text_threads), NULL, 1, 16, 0, "N", "for templates and tokenization (2)", true},
    {"log-level", NULL, ARG_ENUM, FIELD(log_level), "debug|info|warn|error", 0, 0, 0, "LEVEL", "debug, info, warn or error (info)", true},
    {"progress", NULL, ARG_FLAG, FIELD(progress), NULL, 0, 0, 0, NULL, "show how loading goes on", true},
};
// clang-format on

struct serving {
    struct server *server;
    struct progress progress;
};

static void on_progress(void *user, const char *what, int64_t done, int64_t total) {
    progress_show(&((struct serving *)user)->progress, what, done, total);
}

static void on_notify(void *user) {
    server_notify(((struct serving *)user)->server);
}

/* A signal while loading, or a second one while draining: nothing is worth waiting for. */
static void on_exit_now(void *user, int sig) {
    (void)user;
    _exit(sig ? 128 + sig : 0);
}

/* The name clients use by default: the last part of the model's path. */
static const char *base_name(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static enum err fill_server(struct server_options *o, const struct serve_flags *f, const struct xenon_options *x,
                            struct err_msg *msg) {
    *o = (struct server_options){.host = f->host,
                                 .port = f->port,
                                 .cors_origin = f->cors_origin,
                                 .ssl_certfile = f->ssl_certfile,
                                 .ssl_keyfile = f->ssl_keyfile,
                                 .disable_prefix_caching = x->disable_prefix_caching,
                                 .max_connections = f->max_connections,
                                 .max_body = f->max_body,
                                 .keepalive_s = f->keepalive_s,
                                 .idle_s = f->idle_s,
                                 .write_s = f->write_s,
                                 .drain_s = f->drain_s,
                                 .text_threads = f->text_threads,
                                 .on_exit = on_exit_now};
    const char *const key = env_get("XENON_API_KEY", NULL);
    for (int i = 0; i < f->names.n; i++)
        o->served_model_names[o->n_served_model_names++] = f->names.items[i];
    if (f->names.n == 0) o->served_model_names[o->n_served_model_names++] = base_name(x->model);
    for (int i = 0; i < f->api_keys.n; i++)
        o->api_keys[o->n_api_keys++] = f->api_keys.items[i];
    if (f->api_keys.n == 0 && key) o->api_keys[o->n_api_keys++] = key;
    for (int i = 0; i < o->n_api_keys; i++)
        if (!*o->api_keys[i]) return err_set(msg, ERR_ARG, "--api-key: an empty key");
    if (f->ssl_keyfile && !f->ssl_certfile) return err_set(msg, ERR_ARG, "--ssl-keyfile needs --ssl-certfile");
    return ERR_OK;
}

/* Opens the engine, serves until told to stop. */
static int run(struct serving *sv, struct xenon_options *x, const struct server_options *so) {
    struct err_msg msg = {{0}};
    struct xenon_error xe = {{0}};
    struct xenon *engine = NULL;
    if (server_create(&sv->server, so, &msg) != ERR_OK) {
        fprintf(stderr, "xenon serve: %s\n", msg.text);
        return 1;
    }
    x->progress = on_progress;
    x->notify = on_notify;
    x->user = sv;
    log_info("serve", "loading %s; port %d answers /health meanwhile", x->model, server_port(sv->server));
    const int code = xenon_open(&engine, x, &xe);
    progress_end(&sv->progress);
    if (code) {
        fprintf(stderr, "xenon serve: %s\n", xe.text);
        server_destroy(sv->server);
        return 1;
    }
    server_set_engine(sv->server, engine);
    const bool v6 = so->host && strchr(so->host, ':');
    log_info("serve", "ready: %s on http%s://%s%s%s:%d", so->served_model_names[0], so->ssl_certfile ? "s" : "",
             v6 ? "[" : "", so->host ? so->host : "127.0.0.1", v6 ? "]" : "", server_port(sv->server));
    server_run(sv->server);
    xenon_close(engine);
    server_destroy(sv->server);
    log_info("serve", "stopped");
    return 0;
}

/* Started with standard files closed, the next file or connection would take their numbers, and log lines would go to a
 * client. */
static void hold_standard_files(void) {
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO) close(fd);
}

int serve_main(int argc, char **argv) {
    struct xenon_options x = {0};
    struct serve_flags f = {.port = 8000, .log_level = LOG_INFO, .progress = true};
    const struct arg_group groups[] = {{"server", defs, N_ELEMENTS(defs), &f}, engine_flags_group(&x)};
    struct args a = {.groups = groups, .n_groups = N_ELEMENTS(groups), .n_positional_max = 1};
    struct server_options so;
    struct serving sv = {0};
    struct err_msg msg = {{0}};
    hold_standard_files();
    enum err e = args_parse(&a, argc, argv, &msg);
    if (e == ERR_OK && a.help) {
        args_print_help(&a, stdout, "xenon serve [--model] MODEL [flags]", a.help_all);
        return 0;
    }
    if (e == ERR_OK) e = engine_flags_finish(&x, &a, &msg);
    if (e == ERR_OK) e = fill_server(&so, &f, &x, &msg);
    if (e != ERR_OK) {
        fprintf(stderr, "xenon serve: %s\n", msg.text);
        return 2;
    }
    log_set_level((enum log_level)f.log_level);
    progress_init(&sv.progress, !f.progress);
    return run(&sv, &x, &so);
}
