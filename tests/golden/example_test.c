/* docs/example.c compiles with nothing but the public header, and the program, which make puts beside the tests, does
 * what it says. */
#include "api_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/load_golden.h"

/* Path of docs/example in the build that this program is part of: two folders up. */
static void example_path(char *out, size_t size) {
    char self[1024];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    for (int up = 0; up < 3; up++) {
        char *const slash = strrchr(self, '/');
        assert_non_null(slash);
        *slash = '\0';
    }
    snprintf(out, size, "%s/docs/example", self);
}

/* Runs the example; its output, and its exit status. */
static int run_example(const char *model, const char *question, char *out, size_t size) {
    char path[1100], command[2400];
    example_path(path, sizeof path);
    if (access(path, X_OK) != 0) {
        print_message("no example at %s: make builds it\n", path);
        skip();
    }
    snprintf(command, sizeof command, "'%s' '%s' '%s' 2>&1", path, model, question);
    FILE *const p = popen(command, "r");
    assert_non_null(p);
    const size_t n = fread(out, 1, size - 1, p);
    out[n] = '\0';
    const int status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The header needs nothing before it and no C newer than C11, and C++ takes it as well. */
static void test_header(void **state) {
    (void)state;
    if (access("include/xenon.h", R_OK) != 0) skip();
    assert_int_equal(system("cc -std=c11 -Wall -Wextra -Werror -pedantic -Iinclude -fsyntax-only docs/example.c"), 0);
    assert_int_equal(
        system(
            "c++ --version >/dev/null 2>&1 || exit 0; c++ -Wall -Wextra -Werror -fsyntax-only -x c++ include/xenon.h"),
        0);
}

static void test_tiny(void **state) {
    (void)state;
    char out[8192];
    struct golden_path path;
    golden_need("models/qwen3/model.gguf");
    assert_int_equal(run_example(golden_path(&path, "models/qwen3/model.gguf"), "What is it?", out, sizeof out), 0);
    assert_non_null(strstr(out, " prompt tokens, "));
    assert_non_null(strstr(out, ", ended by "));
}

static void test_real(void **state) {
    (void)state;
    char out[8192];
    if (api_client_is_slow()) skip();
    assert_int_equal(
        run_example(api_client_smollm2(), "What is the capital of France? Answer in one word.", out, sizeof out), 0);
    print_message("%s", out);
    assert_non_null(strstr(out, "Paris"));
    assert_non_null(strstr(out, "ended by stop"));
}

static void test_no_model(void **state) {
    (void)state;
    char out[8192];
    assert_int_equal(run_example("/nowhere/model.gguf", "What is it?", out, sizeof out), 1);
    assert_non_null(strstr(out, "/nowhere/model.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_tiny),
        cmocka_unit_test(test_real),
        cmocka_unit_test(test_no_model),
    };
    return cmocka_run_group_tests_name("example", tests, NULL, NULL);
}
