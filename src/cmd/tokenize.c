#include "cmd/tokenize.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/args.h"
#include "serve/json_write.h"
#include "text/tokenizer.h"

static const char usage[] = "xenon tokenize --model M [TEXT | -] [flags]";

struct tokenize_flags {
    const char *model, *ids;
    bool no_special, plain, json, ids_only;
};

#define FIELD(f) offsetof(struct tokenize_flags, f)

// clang-format off
static const struct arg_def defs[] = {
    {"model", "-m", ARG_STRING, FIELD(model), NULL, 0, 0, 0, "PATH", "GGUF file or Hugging Face folder", false},
    {"ids", NULL, ARG_FLAG, FIELD(ids_only), NULL, 0, 0, 0, NULL, "only the ids, in one line: 1,2,3", false},
    {"json", NULL, ARG_FLAG, FIELD(json), NULL, 0, 0, 0, NULL, "a JSON object per token", false},
    {"no-special", NULL, ARG_FLAG, FIELD(no_special), NULL, 0, 0, 0, NULL, "add no BOS or EOS", false},
    {"plain", NULL, ARG_FLAG, FIELD(plain), NULL, 0, 0, 0, NULL, "special tokens in the text are ordinary text", false},
    {"decode", NULL, ARG_STRING, FIELD(ids), NULL, 0, 0, 0, "IDS", "print the text of these ids instead: 1,2,3", false},
};
// clang-format on

static void print_token(const struct tokenizer *t, int32_t id, bool json) {
    struct strbuf piece = {0};
    size_t len = 0;
    const char *const bytes = tokenizer_bytes(t, id, &len);
    json_write_string(&piece, bytes ? bytes : "", len);
    if (json) {
        printf("{\"id\":%d,\"piece\":%s,\"special\":%s,\"bytes\":[", id, strbuf_cstr(&piece),
               tokenizer_is_special(t, id) ? "true" : "false");
        for (size_t i = 0; i < len; i++) printf("%s%d", i ? "," : "", (unsigned char)bytes[i]);
        puts("]}");
    } else {
        printf("%7d  %s%s\n", id, strbuf_cstr(&piece), tokenizer_is_special(t, id) ? "  (special)" : "");
    }
    strbuf_deinit(&piece);
}

static enum err encode(const struct tokenizer *t, const struct tokenize_flags *f, const char *text, size_t len,
                       struct err_msg *msg) {
    struct token_ids ids = {0};
    const unsigned flags =
        (f->no_special ? 0u : TOKENIZER_ADD_SPECIAL) | (f->plain ? 0u : TOKENIZER_PARSE_SPECIAL);
    const enum err e = tokenizer_encode(t, text, len, flags, &ids, msg);
    for (size_t i = 0; !e && i < ids.n; i++) {
        if (f->ids_only) printf("%s%d", i ? "," : "", ids.ids[i]);
        else print_token(t, ids.ids[i], f->json);
    }
    if (!e && f->ids_only) putchar('\n');
    if (!e && !f->json && !f->ids_only) fprintf(stderr, "%zu tokens, %zu bytes\n", ids.n, len);
    token_ids_deinit(&ids);
    return e;
}

static enum err decode(const struct tokenizer *t, const char *list, struct err_msg *msg) {
    struct token_ids ids = {0};
    struct strbuf text = {0};
    enum err e = ERR_OK;
    for (const char *at = list; !e && *at;) {
        char *end;
        errno = 0;
        const long id = strtol(at, &end, 10);
        if (end == at || errno || id < 0 || id > INT32_MAX)
            e = err_set(msg, ERR_ARG, "--decode: \"%.32s\" is no id; write 1,2,3", at);
        else if (!mem_grow(&ids.ids, &ids.cap, ids.n + 1, sizeof *ids.ids))
            e = err_set(msg, ERR_NOMEM, "memory ran out");
        else ids.ids[ids.n++] = (int32_t)id;
        if (!e) at = end + strspn(end, ", ");
    }
    if (!e) e = tokenizer_decode(t, ids.ids, ids.n, false, &text, msg);
    if (!e) puts(strbuf_cstr(&text));
    strbuf_deinit(&text);
    token_ids_deinit(&ids);
    return e;
}

static enum err run(const struct tokenize_flags *f, const char *text, struct err_msg *msg) {
    struct ckpt *c = NULL;
    struct tokenizer *t = NULL;
    struct strbuf all = {0};
    enum err e = ckpt_open_config(&c, f->model, msg);
    if (!e) e = tokenizer_open(&t, c, msg);
    if (!e && f->ids) e = decode(t, f->ids, msg);
    if (!e && !f->ids) {
        char part[4096];
        if (text && strcmp(text, "-") != 0) strbuf_puts(&all, text);
        else
            for (size_t n; (n = fread(part, 1, sizeof part, stdin)) > 0;) strbuf_append(&all, part, n);
        e = all.failed ? err_set(msg, ERR_NOMEM, "memory ran out")
                       : encode(t, f, strbuf_cstr(&all), all.len, msg);
    }
    strbuf_deinit(&all);
    tokenizer_close(t);
    ckpt_close(c);
    return e;
}

int tokenize_main(int argc, char **argv) {
    struct tokenize_flags f = {0};
    const struct arg_group groups[] = {{"tokenize", defs, N_ELEMENTS(defs), &f}};
    struct args a = {.groups = groups, .n_groups = 1, .n_positional_max = 1};
    struct err_msg msg;
    enum err e = args_parse(&a, argc, argv, &msg);
    if (!e && (a.help || a.help_all)) {
        args_print_help(&a, stdout, usage, a.help_all);
        return 0;
    }
    if (!e && !f.model) e = err_set(&msg, ERR_ARG, "--model is missing: a GGUF file or a Hugging Face folder");
    if (e) {
        fprintf(stderr, "xenon tokenize: %s\n", msg.text);
        return 2;
    }
    e = run(&f, a.n_positional > 0 ? a.positional[0] : NULL, &msg);
    if (e) fprintf(stderr, "xenon tokenize: %s\n", msg.text);
    return e || fflush(stdout) != 0 ? 1 : 0;
}
