#include "cmd/chat.h"

#include <editline/readline.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "base/mem.h"
#include "cmd/engine_flags.h"
#include "cmd/progress.h"
#include "serve/json_write.h"

static const char usage[] = "xenon chat --model M [--system TEXT] [flags]";

static const char help[] = "/system TEXT  set the instructions and start again    /reset  forget the conversation\n"
                           "/quit         leave (or Ctrl-D)                       Ctrl-C  stop the answer\n";

struct chat_flags {
    const char *system;
    int max_tokens, top_k;
    double temperature, top_p, min_p;
};

#define FIELD(f) offsetof(struct chat_flags, f)

// clang-format off
static const struct arg_def defs[] = {
    {"system", NULL, ARG_STRING, FIELD(system), NULL, 0, 0, 0, "TEXT", "instructions before the conversation", false},
    {"max-tokens", "-n", ARG_INT, FIELD(max_tokens), NULL, 1, 1e9, 0, "N", "longest answer (as many as fit)", false},
    {"temperature", NULL, ARG_DOUBLE, FIELD(temperature), NULL, 0, 100, 0, "X", "0: the likeliest token (the model's own, else 0.7)", false},
    {"top-p", NULL, ARG_DOUBLE, FIELD(top_p), NULL, 0, 1, 0, "X", "nucleus (the model's own, else 1)", false},
    {"top-k", NULL, ARG_INT, FIELD(top_k), NULL, 0, 1e9, 0, "N", "only the N likeliest (all)", false},
    {"min-p", NULL, ARG_DOUBLE, FIELD(min_p), NULL, 0, 1, 0, "X", "least share of the likeliest (0)", false},
};
// clang-format on

struct chat {
    const struct chat_flags *f;
    struct xenon *x;
    bool tty;
    struct strbuf messages; /* [{...},{...}  without the closing bracket */
    char history[512];      /* file, "" for none */
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    interrupted = 1;
}

static void add_message(struct chat *c, const char *role, const char *text, size_t len) {
    strbuf_puts(&c->messages, c->messages.len ? "," : "[");
    strbuf_printf(&c->messages, "{\"role\":\"%s\",\"content\":", role);
    json_write_string(&c->messages, text, len);
    strbuf_puts(&c->messages, "}");
}

static void reset(struct chat *c, const char *system) {
    strbuf_clear(&c->messages);
    if (system && *system) add_message(c, "system", system, strlen(system));
}

static void sampling_of(const struct chat *c, struct xenon_sampling *s) {
    const struct xenon_info *const i = xenon_info(c->x);
    const struct chat_flags *const f = c->f;
    xenon_sampling_default(s);
    s->temperature = (float)(!isnan(f->temperature)          ? f->temperature
                             : !isnan(i->default_temperature) ? i->default_temperature
                                                              : 0.7);
    s->top_p = (float)(!isnan(f->top_p) ? f->top_p : !isnan(i->default_top_p) ? i->default_top_p : 1.0);
    s->top_k = f->top_k >= 0 ? f->top_k : (int32_t)i->default_top_k;
    s->min_p = (float)f->min_p;
    s->max_tokens = f->max_tokens;
}

/* Renders and tokenizes the conversation so far. */
static int prompt_ids(struct chat *c, int32_t **ids, size_t *n, struct xenon_error *err) {
    struct strbuf all = {0};
    char *text = NULL;
    size_t len = 0;
    strbuf_append(&all, strbuf_cstr(&c->messages), c->messages.len);
    strbuf_puts(&all, "]");
    const struct xenon_chat chat = {.messages = strbuf_cstr(&all), .add_generation_prompt = true};
    int rc = xenon_render_chat(c->x, &chat, &text, &len, err);
    if (!rc) rc = xenon_tokenize(c->x, text, len, false, true, ids, n, err);
    xenon_free(text);
    strbuf_deinit(&all);
    return rc;
}

/* Prints the answer as it comes and keeps it in *answer. */
static int stream(struct xenon_handle *h, struct strbuf *answer, struct xenon_error *err) {
    for (;;) {
        struct xenon_output o;
        xenon_wait(h, 100);
        if (interrupted) xenon_cancel(h);
        if (!xenon_poll(h, &o)) continue;
        fwrite(o.text, 1, o.text_len, stdout);
        fflush(stdout);
        strbuf_append(answer, o.text, o.text_len);
        if (o.finish == XENON_FINISH_ERROR) {
            snprintf(err->text, sizeof err->text, "%s", o.error);
            return XENON_EFORMAT;
        }
        if (o.finish == XENON_FINISH_LENGTH) fputs("\n[cut at the longest length]", stdout);
        if (o.finish != XENON_FINISH_NONE) return XENON_OK;
    }
}

static int answer_turn(struct chat *c, struct xenon_error *err) {
    struct xenon_request req = {0};
    struct xenon_handle *h = NULL;
    struct strbuf answer = {0};
    int32_t *ids = NULL;
    int rc = prompt_ids(c, &ids, &req.n_prompt, err);
    req.prompt = ids;
    sampling_of(c, &req.sampling);
    interrupted = 0;
    if (!rc) rc = xenon_submit(c->x, &req, &h, err);
    if (!rc) rc = stream(h, &answer, err);
    xenon_release(h);
    xenon_free(ids);
    if (!rc) {
        add_message(c, "assistant", strbuf_cstr(&answer), answer.len);
        fputs(interrupted ? "\n[stopped]\n" : "\n", stdout);
    }
    strbuf_deinit(&answer);
    return rc;
}

/* Handles a line that begins with a slash. False: leave. */
static bool command(struct chat *c, const char *line) {
    if (strcmp(line, "/quit") == 0 || strcmp(line, "/exit") == 0) return false;
    if (strcmp(line, "/reset") == 0) reset(c, c->f->system);
    else if (strncmp(line, "/system", 7) == 0 && (line[7] == ' ' || !line[7]))
        reset(c, line + 7 + strspn(line + 7, " "));
    else fputs(help, stdout);
    return true;
}

static bool turn(struct chat *c, const char *line) {
    struct xenon_error err;
    if (*line == '/') return command(c, line);
    if (!*line) return true;
    const size_t before = c->messages.len;
    add_message(c, "user", line, strlen(line));
    if (answer_turn(c, &err)) {
        strbuf_truncate(&c->messages, before);
        fprintf(stderr, "xenon chat: %s%s\n", err.text, before ? " (/reset starts again)" : "");
    }
    return true;
}

/* The next line without its end; NULL at the end of the input. The caller frees it. */
static char *read_line(const struct chat *c) {
    if (c->tty) return readline("> ");
    char *line = NULL;
    size_t cap = 0;
    const ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        mem_free_foreign(line);
        return NULL;
    }
    line[strcspn(line, "\n")] = '\0';
    return line;
}

static void open_history(struct chat *c) {
    const char *const home = env_get("HOME", NULL), *const state = env_get("XDG_STATE_HOME", NULL);
    char dir[400];
    if (!home && !state) return;
    snprintf(dir, sizeof dir, "%s%s", state ? state : home, state ? "/xenon" : "/.local/state/xenon");
    for (char *p = dir + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(dir, 0700);
        *p = '/';
    }
    mkdir(dir, 0700);
    snprintf(c->history, sizeof c->history, "%s/chat_history", dir);
    using_history();
    stifle_history(1000);
    read_history(c->history);
}

static void converse(struct chat *c) {
    struct sigaction sa = {.sa_handler = on_interrupt};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    if (c->tty) {
        open_history(c);
        fputs(help, stdout);
    }
    reset(c, c->f->system);
    for (;;) {
        interrupted = 0;
        char *const line = read_line(c);
        if (!line && c->tty && interrupted) { /* Ctrl-C at the prompt drops the line, not the program */
            clearerr(stdin);
            putchar('\n');
            continue;
        }
        if (!line) break;
        const bool go_on = turn(c, line);
        if (c->tty && *line) add_history(line);
        mem_free_foreign(line);
        if (!go_on) break;
    }
    if (c->history[0]) write_history(c->history);
    strbuf_deinit(&c->messages);
}

int chat_main(int argc, char **argv) {
    struct xenon_options opt = {0};
    struct chat_flags f = {.max_tokens = -1, .temperature = (double)NAN, .top_p = (double)NAN, .top_k = -1};
    const struct arg_group groups[] = {{"chat", defs, N_ELEMENTS(defs), &f}, engine_flags_group(&opt)};
    struct args a = {.groups = groups, .n_groups = N_ELEMENTS(groups), .n_positional_max = 1};
    struct err_msg msg;
    enum err e = args_parse(&a, argc, argv, &msg);
    if (!e && (a.help || a.help_all)) {
        args_print_help(&a, stdout, usage, a.help_all);
        return 0;
    }
    if (!e) e = engine_flags_finish(&opt, &a, &msg);
    if (e) {
        fprintf(stderr, "xenon chat: %s\n", msg.text);
        return 2;
    }
    struct progress bar;
    struct xenon_error err;
    struct chat c = {.f = &f, .tty = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    progress_init(&bar, !c.tty);
    opt.progress = progress_callback;
    opt.user = &bar;
    const int rc = xenon_open(&c.x, &opt, &err);
    progress_end(&bar);
    if (!rc && !xenon_info(c.x)->has_chat_template)
        snprintf(err.text, sizeof err.text, "this model has no chat template; give one with --chat-template FILE");
    if (rc || !xenon_info(c.x)->has_chat_template) {
        fprintf(stderr, "xenon chat: %s\n", err.text);
        xenon_close(c.x);
        return 1;
    }
    converse(&c);
    xenon_close(c.x);
    return 0;
}
