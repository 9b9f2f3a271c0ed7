/* The template language and the calling of chat templates: features, limits, errors, white space, short memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "text/chat_template.h"
#include "text/jinja_eval.h"
#include "text/jinja_json.h"
#include "text/jinja_parse.h"

static struct err_msg msg;

/* Renders with a context of JSON under the limits; the text goes to *text. */
static enum err render(const char *source, size_t len, const char *context, const struct jinja_limits *limits,
                       struct strbuf *text) {
    struct jinja_template *t = NULL;
    struct jinja_run r;
    struct jinja_value v;
    msg.text[0] = '\0';
    jinja_run_init(&r, limits, &msg);
    r.now_unix_s = 1796042096; /* 2026-11-30 12:34:56 UTC */
    enum err e = jinja_parse(&t, source, len, &msg);
    if (e == ERR_OK) e = jinja_json_parse(&r, "context", context, strlen(context), &v);
    if (e == ERR_OK) e = jinja_eval_render(&r, t, &v);
    if (e == ERR_OK) strbuf_append(text, strbuf_cstr(&r.out), r.out.len);
    jinja_run_deinit(&r);
    jinja_parse_free(t);
    return e;
}

static void check_at(const char *source, const char *context, const char *want, int line) {
    struct strbuf text = {0};
    const enum err e = render(source, strlen(source), context, NULL, &text);
    if (e != ERR_OK || strcmp(strbuf_cstr(&text), want) != 0)
        fail_msg("line %d: %s: got \"%s\" %s, want \"%s\"", line, source, strbuf_cstr(&text), msg.text, want);
    strbuf_deinit(&text);
}

static void check_error_at(const char *source, enum err want, const char *words, int line) {
    struct strbuf text = {0};
    const enum err e = render(source, strlen(source), "{}", NULL, &text);
    if (e != want || !strstr(msg.text, words))
        fail_msg("line %d: %s: got %s \"%s\"%s, want \"%s\"", line, source, err_name(e), msg.text, strbuf_cstr(&text),
                 words);
    strbuf_deinit(&text);
}

#define CHECK_TEXT(source, want)          check_at(source, "{}", want, __LINE__)
#define CHECK_WITH(source, context, want) check_at(source, context, want, __LINE__)
#define CHECK_ERROR(source, e, words)     check_error_at(source, e, words, __LINE__)

static void test_whitespace(void **state) {
    (void)state;
    CHECK_TEXT("a\n  {% if true %}\n b\n  {% endif %}\nc\n", "a\n b\nc");
    CHECK_TEXT("a \n {{- 1 -}} \n b", "a1b");
    CHECK_TEXT("x {%- if true -%} y {%- endif +%}\nz", "xy\nz");
    CHECK_TEXT("  {%+ if true %}a{% endif %}", "  a");
    CHECK_TEXT("a\r\n{# c #}\r\nb\rc", "a\nb\nc");
    CHECK_TEXT("{% raw -%}  {{ x }} {%- endraw %}|", "{{ x }}|");
    CHECK_TEXT("a {#- c -#} b", "ab");
    CHECK_TEXT("{{ 1 }}\n\n", "1\n");
    CHECK_TEXT("{ { } } {", "{ { } } {");
}

static void test_values(void **state) {
    (void)state;
    CHECK_TEXT("{{ 10 ** 30 }} {{ 7 // -2 }} {{ -7 % 3 }} {{ 1e16 }} {{ 1 / 3 }}",
               "1000000000000000000000000000000 -4 2 1e+16 0.3333333333333333");
    CHECK_TEXT("{{ 5e-324 }} {{ 0.1 + 0.2 }} {{ 1e22 }} {{ 100.0 }}", "5e-324 0.30000000000000004 1e+22 100.0");
    CHECK_TEXT("{{ [1, 'it\\'s', none] }} {{ (1,) }} {{ {'a': 2.0} }}", "[1, \"it's\", None] (1,) {'a': 2.0}");
    CHECK_TEXT("{{ 1 == true }} {{ {1: 'a', true: 'b'} }}", "True {1: 'b'}");
    CHECK_WITH("{{ s[1] }}{{ s[-1] }}{{ s[::-1] }}{{ s | length }}", "{\"s\": \"h\\u00e9\\u65e5\"}", "é日日éh3");
    CHECK_WITH("{{ d.items is defined }}{{ d['items'] }}{{ d.q is defined }}", "{\"d\": {\"items\": 5}}", "True5False");
    CHECK_TEXT("{{ 'straße'.upper() }} {{ 'ΑΣ'.lower() }} {{ \"it's\".title() }}", "STRASSE ας It'S");
    CHECK_TEXT("{{ ('<b>' | e) + '<i>' }} {{ '<b>' | safe }}", "&lt;b&gt;&lt;i&gt; <b>");
    CHECK_TEXT("{{ '{:>{}}|{:,}'.format('x', 4, 12345) }} {{ '%-4d|%05.1f' % (3, 2.25) }}", "   x|12,345 3   |002.2");
    CHECK_TEXT("{% set s = 'a' %}{% set t = s ~ 'b' %}{% set u = s ~ 'c' %}{% set v = t ~ 'd' %}{{ s ~ t ~ u ~ v }}",
               "aabacabd");
    CHECK_TEXT("{% set a = [1] + [2] %}{% set b = a + [3] %}{% set c = a + [4] %}{{ a }}{{ b }}{{ c }}",
               "[1, 2][1, 2, 3][1, 2, 4]");
}

static void test_scopes(void **state) {
    (void)state;
    CHECK_TEXT("{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}", "15151");
    CHECK_TEXT("{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "12");
    CHECK_TEXT("{% macro f() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ f() }}", "2");
    CHECK_TEXT("{% macro f(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}",
               "12(3,){'k': 4}");
    CHECK_TEXT("{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(x) f() %}{{ x }}{% endcall %}", "<1>");
    CHECK_TEXT(
        "{% set ns = namespace(f=false) %}{% for x in [1, 2] if not ns.f %}{{ x }}{% set ns.f = true %}{% endfor %}",
        "1");
    CHECK_TEXT("{% for x in [1, 2, 3] if x > 1 %}{{ loop.index }}{{ loop.length }}{{ loop.last }}{% endfor %}",
               "12False22True");
    CHECK_TEXT("{% for x in [[1], 2] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "12");
    CHECK_TEXT("{% if false %}{{ 1 | nofilter }}{% endif %}ok", "ok");
    CHECK_TEXT("{{ strftime_now('%d %b %Y') }}", "30 Nov 2026");
}

static void test_json(void **state) {
    (void)state;
    CHECK_WITH("{{ x | tojson }}", "{\"x\": {\"b\": [1, 2.0, null, true], \"a\": \"\\u00e9\\u2028<\\u0000\"}}",
               "{\"b\": [1, 2.0, null, true], \"a\": \"é\xe2\x80\xa8<\\u0000\"}");
    CHECK_TEXT("{{ {'a': [1, {}]} | tojson(indent=2) }}", "{\n  \"a\": [\n    1,\n    {}\n  ]\n}");
    CHECK_TEXT("{{ 'é👩' | tojson(ensure_ascii=true) }}", "\"\\u00e9\\ud83d\\udc69\"");
}

static void test_errors(void **state) {
    (void)state;
    CHECK_ERROR("{{ raise_exception('no ' ~ 1) }}", ERR_ARG, "no 1");
    CHECK_ERROR("{{ nope.x }}", ERR_ARG, "'nope' is undefined");
    CHECK_ERROR("\n\n{{ {}.a.b }}", ERR_ARG, "line 3: 'dict object' has no attribute 'a'");
    CHECK_ERROR("{{ [].append(1) }}", ERR_ARG, "access to attribute 'append' of 'list' object is unsafe.");
    CHECK_ERROR("{{ 'a' + 1 }}", ERR_ARG, "can only concatenate str (not \"int\") to str");
    CHECK_ERROR("{{ 1 // 0 }}", ERR_ARG, "integer division or modulo by zero");
    CHECK_ERROR("{% if true %}x", ERR_FORMAT, "Unexpected end of template");
    CHECK_ERROR("{% for x in [1] %}{% endif %}", ERR_FORMAT, "Encountered unknown tag 'endif'");
    CHECK_ERROR("{{ 1 | nofilter }}", ERR_FORMAT, "No filter named 'nofilter'");
    CHECK_ERROR("a\n{{ 'x }}", ERR_FORMAT, "line 2: unexpected char");
    CHECK_ERROR("{{ (1] }}", ERR_FORMAT, "unexpected ']', expected ')'");
    CHECK_ERROR("{# c", ERR_FORMAT, "Missing end of comment tag");
    CHECK_ERROR("{% break %}", ERR_FORMAT, "outside loop");
    CHECK_ERROR("{% include 'x' %}", ERR_ARG, "no loader");
    CHECK_ERROR("\xff", ERR_FORMAT, "UTF-8");
    CHECK_ERROR("{{ '\xed\xa0\x80' }}", ERR_FORMAT, "UTF-8");
}

static void test_limits(void **state) {
    (void)state;
    CHECK_ERROR("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ERR_LIMIT, "nested deeper");
    CHECK_ERROR("{% set r = range(9999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}", ERR_LIMIT,
                "steps");
    CHECK_ERROR(
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        ERR_LIMIT, "passes");
    CHECK_ERROR("{{ 'x' * 10 ** 12 }}", ERR_LIMIT, "line 1");
    CHECK_ERROR("{{ 10 ** 100 }}", ERR_LIMIT, "127 bits");
    CHECK_ERROR("{{ range(100001) }}", ERR_ARG, "Range too big");
    CHECK_ERROR("{{ 'a'.center(10 ** 12) }}", ERR_LIMIT, "passes");
    CHECK_ERROR("{{ '%1000000d' % 1 }}", ERR_LIMIT, "too large");
    CHECK_ERROR(
        "{% set ns = namespace(t=()) %}{% for i in range(2000) %}{% set ns.t = (ns.t,) %}{% endfor %}{{ ns.t }}",
        ERR_LIMIT, "nested deeper");
    struct strbuf deep = {0}, text = {0};
    for (int i = 0; i < 100000; i++)
        strbuf_putc(&deep, '(');
    char *source = NULL;
    assert_true(asprintf(&source, "{{ %s", strbuf_cstr(&deep)) > 0);
    assert_int_equal(render(source, strlen(source), "{}", NULL, &text), ERR_LIMIT);
    free(source);
    strbuf_clear(&deep);
    for (int i = 0; i < 1000; i++)
        strbuf_puts(&deep, "{% if 1 %}");
    assert_int_equal(render(deep.data, deep.len, "{}", NULL, &text), ERR_LIMIT);
    strbuf_clear(&deep);
    for (int i = 0; i < 5000; i++)
        strbuf_puts(&deep, "not ");
    assert_true(asprintf(&source, "{{ %s 1 }}", strbuf_cstr(&deep)) > 0);
    assert_int_equal(render(source, strlen(source), "{}", NULL, &text), ERR_LIMIT);
    free(source);
    const struct jinja_limits small = {.arena_bytes = 1 << 20};
    static const char hungry[] = "{% for i in range(9999) %}{% set x = [i, i, i, i, i, i, i, i, i] %}{% endfor %}";
    assert_int_equal(render(hungry, sizeof hungry - 1, "{}", &small, &text), ERR_LIMIT);
    strbuf_deinit(&deep);
    strbuf_deinit(&text);
}

/* ---- chat templates ---- */

static const char chat[] =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim if m.role == 'user' else m.content }}"
    "{% if m.reasoning_content %}[{{ m.reasoning_content }}]{% endif %}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments.a }}{% endfor %}{% endfor %}"
    "{% if tools %}T{{ tools | length }}{% endif %}{{ extra }}{% if add_generation_prompt %}<assistant>{% endif %}";

static enum err render_chat(const char *source, const struct chat_template_input *in, struct strbuf *text) {
    struct chat_template *t = NULL;
    msg.text[0] = '\0';
    strbuf_clear(text);
    const enum err e = chat_template_parse(&t, NULL, source, strlen(source), &msg);
    if (e != ERR_OK) return e;
    const enum err rendered = chat_template_render(t, in, text, &msg);
    chat_template_close(t);
    return rendered;
}

static void test_chat(void **state) {
    struct strbuf text = {0};
    struct chat_template_input in = {
        .messages = "[{\"role\": \"user\", \"content\": \" hi \"}]",
        .tools = "[{\"type\": \"function\"}]",
        .kwargs = "{\"bos_token\": \"<s>\", \"extra\": 5}",
        .add_generation_prompt = true,
    };
    (void)state;
    assert_int_equal(render_chat(chat, &in, &text), ERR_OK);
    assert_string_equal(text.data, "<s><user>hiT15<assistant>");
    in = (struct chat_template_input){.messages =
                                          "[{\"role\": \"assistant\", \"content\": \"x\", \"reasoning\": \"why\"}]"};
    assert_int_equal(render_chat(chat, &in, &text), ERR_OK);
    assert_string_equal(text.data, "<assistant>x[why]");
    in.messages = "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\","
                  " \"arguments\": \"{\\\"a\\\": 7}\"}}]}]";
    assert_int_equal(render_chat(chat, &in, &text), ERR_OK);
    assert_string_equal(text.data, "<assistant>");
    in.parse_arguments = true;
    assert_int_equal(render_chat(chat, &in, &text), ERR_OK);
    assert_string_equal(text.data, "<assistant>7");
    strbuf_deinit(&text);
}

static void test_continue(void **state) {
    struct strbuf text = {0};
    struct chat_template_input in = {
        .messages = "[{\"role\": \"assistant\", \"content\": \"Once upon a \"}]",
        .continue_final_message = true,
    };
    (void)state;
    assert_int_equal(render_chat(chat, &in, &text), ERR_OK);
    assert_string_equal(text.data, "<assistant>Once upon a ");
    in.messages = "[{\"role\": \"user\", \"content\": \"Once upon a \"}]"; /* this role is trimmed */
    assert_int_equal(render_chat(chat, &in, &text), ERR_OK);
    assert_string_equal(text.data, "<user>Once upon a");
    in.messages = "[]";
    assert_int_equal(render_chat(chat, &in, &text), ERR_ARG);
    in.messages = "[{\"role\": \"user\"}]";
    assert_int_equal(render_chat(chat, &in, &text), ERR_ARG);
    in.messages = "[{\"role\": \"user\", \"content\": \"x\"}]";
    assert_int_equal(render_chat("nothing", &in, &text), ERR_ARG);
    assert_non_null(strstr(msg.text, "does not appear in the chat"));
    strbuf_deinit(&text);
}

static void test_bad_input(void **state) {
    static const char *const messages[] = {
        "", "[", "{}", "[1]", "7", "[{\"role\": \"\xff\"}]", "[{\"a\": \"\\ud800\"}]"};
    struct strbuf text = {0};
    struct chat_template_input in = {.messages = NULL};
    (void)state;
    assert_int_equal(render_chat(chat, &in, &text), ERR_ARG);
    for (size_t i = 0; i < N_ELEMENTS(messages); i++) {
        in.messages = messages[i];
        assert_int_equal(render_chat(chat, &in, &text), ERR_ARG);
        assert_int_equal(text.len, 0);
        assert_non_null(strstr(msg.text, "messages"));
    }
    in.messages = "[]";
    in.tools = "{}";
    assert_int_equal(render_chat(chat, &in, &text), ERR_ARG);
    in.tools = NULL;
    in.kwargs = "[]";
    assert_int_equal(render_chat(chat, &in, &text), ERR_ARG);
    strbuf_deinit(&text);
}

/* ---- where templates come from ---- */

static char folder[] = "/tmp/xenon-template-XXXXXX";

static void write_file(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void remove_file(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    (void)remove(path);
}

/* The rendering of the folder's template, or "none". */
static const char *from_folder(const char *name, const char *tools) {
    static char text[256];
    struct ckpt *c = NULL;
    struct chat_template *t = NULL;
    struct strbuf out = {0};
    assert_int_equal(ckpt_open_config(&c, folder, &msg), ERR_OK);
    enum err e = name ? chat_template_open_named(&t, c, name, &msg) : chat_template_open(&t, c, &msg);
    if (e == ERR_OK && t) {
        const struct chat_template_input in = {.messages = "[]", .tools = tools};
        e = chat_template_render(t, &in, &out, &msg);
    }
    snprintf(text, sizeof text, "%s", e != ERR_OK ? err_name(e) : t ? strbuf_cstr(&out) : "none");
    strbuf_deinit(&out);
    chat_template_close(t);
    ckpt_close(c);
    return text;
}

static void test_sources(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    write_file("config.json", "{\"model_type\": \"llama\"}");
    assert_string_equal(from_folder(NULL, NULL), "none");
    write_file("tokenizer_config.json",
               "{\"chat_template\": \"one{{ bos_token }}{{ eos_token }}\", \"bos_token\": \"<s>\","
               " \"eos_token\": {\"content\": \"</s>\"}}");
    assert_string_equal(from_folder(NULL, NULL), "one<s></s>");
    write_file("chat_template.jinja", "two{{ bos_token }}");
    assert_string_equal(from_folder(NULL, NULL), "two<s>");
    remove_file("chat_template.jinja");
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"d\"},"
                                        " {\"name\": \"tool_use\", \"template\": \"t\"}]}");
    assert_string_equal(from_folder(NULL, NULL), "d");
    assert_string_equal(from_folder(NULL, "[{}]"), "t");
    assert_string_equal(from_folder("tool_use", NULL), "t");
    assert_string_equal(from_folder("default", NULL), "d");
    assert_string_equal(from_folder("chatml", NULL), "");
    assert_string_equal(from_folder("nope", NULL), "arg");
    write_file("chat_template.jinja", "{{ broken");
    assert_string_equal(from_folder(NULL, NULL), "format");
    remove_file("chat_template.jinja");
    remove_file("tokenizer_config.json");
    remove_file("config.json");
    (void)rmdir(folder);
}

/* ---- short memory ---- */

static const char rich[] =
    "{% macro f(x, d=0) %}{% for k, v in x | dictsort %}{{ k ~ '=' ~ v }}{{ varargs }}{% endfor %}{% endmacro %}"
    "{% set ns = namespace(s='', l=[]) %}{% for m in messages %}{% set ns.s = ns.s ~ m.role %}"
    "{% set ns.l = ns.l + [m.role.upper()] %}{{ loop.last }}{% endfor %}{{ ns.s }}{{ ns.l | sort | join('-') }}"
    "{{ f({'b': 1, 'a': 2}, 1, 2) }}{{ messages | tojson(indent=2, sort_keys=true) }}{{ '{:>5}'.format(1.5) }}"
    "{{ messages | map(attribute='role') | unique | list }}{{ 'a b' | title }}{{ '%s' % 'x' }}"
    "{% set b | upper %}x{{ {'k': [1, 2]} }}{% endset %}{{ b }}{{ 'a,b'.split(',') }}{{ 'x' | e }}";

/* Every allocation fails once; each time the answer is ERR_NOMEM and nothing stays behind. */
static void test_short_memory(void **state) {
    const struct chat_template_input in = {
        .messages =
            "[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\":"
            " [{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}]",
        .tools = "[]",
        .kwargs = "{\"x\": [1, 2]}",
        .continue_final_message = false,
        .parse_arguments = true,
    };
    (void)state;
    struct strbuf text = {0};
    assert_int_equal(render_chat(rich, &in, &text), ERR_OK); /* one-time allocations of libraries */
    strbuf_deinit(&text);
    const int64_t before = mem_live_blocks(), allocs = mem_n_allocs();
    assert_int_equal(render_chat(rich, &in, &text), ERR_OK);
    const int64_t n = mem_n_allocs() - allocs;
    strbuf_deinit(&text);
    assert_true(n > 10);
    for (int64_t i = 1; i <= n; i++) {
        mem_fault_after(i);
        const enum err e = render_chat(rich, &in, &text);
        mem_fault_after(0);
        assert_int_equal(e, ERR_NOMEM);
        assert_true(strlen(msg.text) > 0);
        strbuf_deinit(&text);
        assert_int_equal(mem_live_blocks(), before);
    }
    print_message("%d allocations failed one by one\n", (int)n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whitespace), cmocka_unit_test(test_values),       cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_json),       cmocka_unit_test(test_errors),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_chat),       cmocka_unit_test(test_continue),     cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_sources),    cmocka_unit_test(test_short_memory),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
