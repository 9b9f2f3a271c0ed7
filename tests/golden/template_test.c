/* Chat templates of real models and the language cases, against the reference's renderings
 * (XENON_GOLDEN/templates/README.md). Prints the counts of each template. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/env.h"
#include "base/mem.h"
#include "text/chat_template.h"
#include "text/jinja_eval.h"
#include "text/jinja_json.h"
#include "text/jinja_parse.h"

static const char *golden(const char *name) {
    static char path[1024];
    snprintf(path, sizeof path, "%s/templates/%s", env_get("XENON_GOLDEN", "../shared/golden"), name);
    return path;
}

/* The whole file, or NULL when it is not there. */
static char *read_file(const char *path, size_t *len) {
    FILE *const f = fopen(path, "rb");
    if (!f) return NULL;
    struct strbuf b = {0};
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        strbuf_append(&b, chunk, n);
    fclose(f);
    *len = b.len;
    return strbuf_take(&b);
}

/* 2026-11-30 12:34:56, a Monday; the tests run in UTC. */
enum { NOW = 1796042096 };

static char *dump(json_t *j) {
    return j && !json_is_null(j) ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
}

static const char *text_of(json_t *j, const char *key) {
    return json_string_value(json_object_get(j, key));
}

/* How a case came out. */
struct outcome {
    enum err e;
    struct err_msg msg;
    struct strbuf text;
};

static void render_case(const struct chat_template *t, json_t *j, struct outcome *o) {
    char *const messages = dump(json_object_get(j, "messages")), *const tools = dump(json_object_get(j, "tools")),
                *const extra = dump(json_object_get(j, "extra"));
    const struct chat_template_input in = {
        .messages = messages,
        .tools = tools,
        .kwargs = extra,
        .add_generation_prompt = json_is_true(json_object_get(j, "add_generation_prompt")),
        .continue_final_message = json_is_true(json_object_get(j, "continue_final_message")),
        .now_unix_s = NOW,
    };
    o->e = chat_template_render(t, &in, &o->text, &o->msg);
    mem_free(messages);
    mem_free(tools);
    mem_free(extra);
}

static void show(const char *what, const char *s, size_t len) {
    fprintf(stderr, "  %s: ", what);
    fwrite(s, 1, len > 3000 ? 3000 : len, stderr);
    fputc('\n', stderr);
}

/* True when the outcome is the expected one; says what differs otherwise. */
static bool same(json_t *j, const char *name, const struct outcome *o) {
    json_t *const want = json_object_get(j, "expected"), *const error = json_object_get(j, "error");
    bool ok;
    if (want) {
        ok = o->e == ERR_OK && o->text.len == json_string_length(want) &&
             (o->text.len == 0 || memcmp(o->text.data, json_string_value(want), o->text.len) == 0);
    } else {
        const char *const kind = text_of(error, "kind"), *const message = text_of(error, "message");
        ok = o->e != ERR_OK && (strcmp(kind, "TemplateError") != 0 || strcmp(o->msg.text, message) == 0);
        if (ok && strcmp(kind, "TemplateError") != 0 && !strstr(o->msg.text, message) && env_get("VERBOSE", NULL))
            fprintf(stderr, "note: %s: %s / %s\n", name, o->msg.text, message);
    }
    if (ok) return true;
    fprintf(stderr, "differs: %s: %s\n", name, o->e == ERR_OK ? "" : o->msg.text);
    if (want)
        show("want", json_string_value(want), json_string_length(want));
    else
        fprintf(stderr, "  want error: %s\n", text_of(error, "message"));
    if (o->e == ERR_OK) show("got ", strbuf_cstr(&o->text), o->text.len);
    return false;
}

struct tally {
    char file[256];
    struct chat_template *t;
    int n, good;
};

static void finish(struct tally *t) {
    if (t->n) printf("  %-60s %3d of %3d\n", t->file, t->good, t->n);
    chat_template_close(t->t);
    *t = (struct tally){0};
}

static void begin(struct tally *t, const char *file) {
    struct err_msg msg = {.text = ""};
    size_t len = 0;
    finish(t);
    snprintf(t->file, sizeof t->file, "%s", file);
    char *const source = read_file(golden(file), &len);
    assert_non_null(source);
    if (chat_template_parse(&t->t, NULL, source, len, &msg) != ERR_OK) fprintf(stderr, "%s: %s\n", file, msg.text);
    mem_free(source);
}

/* Calls fn for every line of a jsonl file; -1: no such file. */
static int each_line(const char *path, void (*fn)(json_t *, void *), void *ctx) {
    size_t len = 0;
    char *const text = read_file(path, &len);
    if (!text) return -1;
    int n = 0;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        json_t *const j = json_loadb(line, (size_t)(end - line), JSON_ALLOW_NUL, NULL);
        assert_non_null(j);
        fn(j, ctx);
        json_decref(j);
        n++;
    }
    mem_free(text);
    return n;
}

struct totals {
    struct tally now;
    int n, good;
};

static void one_case(json_t *j, void *ctx) {
    struct totals *const all = ctx;
    const char *const file = text_of(j, "template_file");
    char name[512];
    struct outcome o = {.e = ERR_OK};
    if (strcmp(file, all->now.file) != 0) begin(&all->now, file);
    snprintf(name, sizeof name, "%s: %s", file, text_of(j, "note"));
    if (all->now.t) render_case(all->now.t, j, &o);
    const bool ok = all->now.t && same(j, name, &o);
    strbuf_deinit(&o.text);
    all->now.n++;
    all->now.good += ok;
    all->n++;
    all->good += ok;
}

static void test_real_templates(void **state) {
    struct totals all = {0};
    (void)state;
    if (each_line(golden("cases.jsonl"), one_case, &all) < 0) {
        print_message("no %s: skipped\n", golden("cases.jsonl"));
        skip();
    }
    finish(&all.now);
    printf("templates: %d of %d cases\n", all.good, all.n);
    assert_int_equal(all.good, all.n);
    assert_true(all.n > 0);
}

/* A language case: its context is all that the template sees. */
static void one_language_case(json_t *j, void *ctx) {
    struct totals *const all = ctx;
    struct outcome o = {.e = ERR_OK};
    struct jinja_template *t = NULL;
    struct jinja_run r;
    struct jinja_value context;
    char *const json = dump(json_object_get(j, "context"));
    json_t *const source = json_object_get(j, "template");
    jinja_run_init(&r, NULL, &o.msg);
    r.now_unix_s = NOW;
    o.e = jinja_parse(&t, json_string_value(source), json_string_length(source), &o.msg);
    if (o.e == ERR_OK) o.e = jinja_json_parse(&r, "context", json, strlen(json), &context);
    if (o.e == ERR_OK) o.e = jinja_eval_render(&r, t, &context);
    o.text = r.out;
    all->n++;
    all->good += same(j, text_of(j, "name"), &o);
    jinja_run_deinit(&r);
    jinja_parse_free(t);
    mem_free(json);
}

static void test_language(void **state) {
    struct totals all = {0};
    (void)state;
    if (each_line(golden("language.jsonl"), one_language_case, &all) < 0) {
        print_message("no %s: skipped\n", golden("language.jsonl"));
        skip();
    }
    printf("language: %d of %d cases\n", all.good, all.n);
    assert_int_equal(all.good, all.n);
    assert_true(all.n > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_language),
        cmocka_unit_test(test_real_templates),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    json_set_alloc_funcs(mem_alloc, mem_free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
