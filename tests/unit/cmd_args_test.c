/* Flags: spellings, values, ranges, messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/args.c" /* src/cmd is not part of the library that tests link */

struct target {
    const char *text, *choice;
    int n, word, level;
    int64_t size, count;
    uint64_t seed;
    double ratio;
    bool on, off;
    struct arg_list list;
};

#define FIELD(f) offsetof(struct target, f)

static const struct arg_def defs[] = {
    {"some-text", "-s", ARG_STRING, FIELD(text), NULL, 0, 0, 0, "TEXT", "help", false},
    {"choice", NULL, ARG_CHOICE, FIELD(choice), "auto|float32", 0, 0, 0, NULL, "help", false},
    {"word", NULL, ARG_ENUM, FIELD(word), "mixed|prefill-first", 0, 0, 0, NULL, "help", false},
    {"number", "-n", ARG_INT, FIELD(n), NULL, 1, 100, 0, "N", "help", false},
    {"level", NULL, ARG_INT, FIELD(level), NULL, 0, 3, 1, "N", "help", true},
    {"size", NULL, ARG_SIZE, FIELD(size), NULL, 0, 0, 0, "SIZE", "help", true},
    {"count", NULL, ARG_COUNT, FIELD(count), NULL, 1, 1e9, 0, "N", "help", true},
    {"seed", NULL, ARG_UINT64, FIELD(seed), NULL, 0, 0, 0, "N", "help", true},
    {"ratio", NULL, ARG_DOUBLE, FIELD(ratio), NULL, -2, 2, 0, "X", "help", true},
    {"turn-on", NULL, ARG_FLAG, FIELD(on), NULL, 0, 0, 0, NULL, "help", true},
    {"enable-it", NULL, ARG_FLAG_NOT, FIELD(off), NULL, 0, 0, 0, NULL, "help", true},
    {"list", NULL, ARG_LIST, FIELD(list), NULL, 0, 0, 0, "X...", "help", true},
};

static struct target t;
static struct err_msg msg;
static struct args a;

/* Parses the words of a line, split at spaces. */
static enum err parse(const char *line) {
    static char words[512];
    static struct arg_group group;
    char *argv[64];
    int argc = 0;
    snprintf(words, sizeof words, "xenon %s", line);
    for (char *p = words; *p;) {
        argv[argc++] = p;
        p += strcspn(p, " ");
        if (*p) *p++ = '\0';
    }
    t = (struct target){0};
    group = (struct arg_group){"group", defs, N_ELEMENTS(defs), &t};
    a = (struct args){.groups = &group, .n_groups = 1, .n_positional_max = 2};
    return args_parse(&a, argc, argv, &msg);
}

static void test_spellings(void **state) {
    (void)state;
    assert_int_equal(parse("--some-text a --number=7 --choice auto one -- --two"), ERR_OK);
    assert_string_equal(t.text, "a");
    assert_string_equal(t.choice, "auto");
    assert_int_equal(t.n, 7);
    assert_int_equal(a.n_positional, 2);
    assert_string_equal(a.positional[1], "--two");
    assert_int_equal(parse("--some_text=a=b -n 8 --word prefill_first --turn_on --no-enable-it --list x y --list=z"),
                     ERR_OK);
    assert_string_equal(t.text, "a=b");
    assert_true(t.n == 8 && t.word == 1 && t.on && t.off);
    assert_int_equal(t.list.n, 3);
    assert_int_equal(parse("--turn-on --no_turn_on --enable_it"), ERR_OK);
    assert_true(!t.on && !t.off);
    assert_int_equal(parse("-s - --help --nonsense"), ERR_OK);
    assert_true(a.help && !a.help_all);
}

static void test_values(void **state) {
    (void)state;
    assert_int_equal(parse("--size 4GiB --count 32k --seed 18446744073709551615 --ratio -1.5 --level 3"), ERR_OK);
    assert_true(t.size == 4ll << 30 && t.count == 32768 && t.seed == UINT64_MAX && t.ratio == -1.5 && t.level == 4);
    assert_int_equal(parse("--size 1.5g --level 0"), ERR_OK);
    assert_true(t.size == 3ll << 29 && t.level == 1);
    assert_int_equal(parse("--size 512MB"), ERR_OK);
    assert_true(t.size == 512ll << 20);
    assert_int_equal(parse("--size 100"), ERR_OK);
    assert_true(t.size == 100);
}

static void test_wrong(void **state) {
    (void)state;
    static const char *const lines[] = {"--nonsense",       "-x",
                                        "--number",         "--number x",
                                        "--number 0",       "--number 101",
                                        "--number 1.5",     "--number 99999999999999999999",
                                        "--choice float16", "--word x",
                                        "--size 4x",        "--size -1",
                                        "--size 0x10",      "--size 99999999999t",
                                        "--size inf",       "--count 0",
                                        "--seed -1",        "--seed 1x",
                                        "--ratio 3",        "--ratio nan",
                                        "--turn-on=1",      "--no-number 1",
                                        "--no-turn-on=x",   "a b c"};
    for (size_t i = 0; i < N_ELEMENTS(lines); i++) {
        msg.text[0] = '\0';
        if (parse(lines[i]) != ERR_ARG) fail_msg("%s accepted", lines[i]);
        assert_true(msg.text[0] && !strchr(msg.text, '\n'));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spellings), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_wrong)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
