/* Request heads and chunked bodies: what is read, what is refused, and that pieces make no difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "serve/http_parse.h"

static char text[16384];

static int parse(struct http_head *h, const char *head) {
    const char *why = NULL;
    const size_t n = strlen(head);
    assert_true(n < sizeof text);
    memcpy(text, head, n);
    assert_int_equal(http_parse_find_head(head, n), n);
    const int status = http_parse_head(h, text, n, &why);
    assert_true(status == 0 || why);
    return status;
}

static void test_good_head(void **state) {
    (void)state;
    struct http_head h;
    assert_int_equal(
        parse(&h, "POST /a%20b/c?x=1&y=%20 HTTP/1.1\r\nHost: h:80\r\nContent-Length: 12\r\nX-Two:  a, b \t\r\n\r\n"),
        0);
    assert_int_equal(h.method, HTTP_POST);
    assert_string_equal(h.path, "/a b/c");
    assert_string_equal(h.query, "x=1&y=%20");
    assert_true(h.keep_alive && h.has_length && !h.chunked && !h.http10 && h.content_length == 12);
    assert_string_equal(http_parse_field(&h, "x-two"), "a, b");
    assert_null(http_parse_field(&h, "x-three"));
    assert_int_equal(parse(&h, "GET / HTTP/1.0\r\n\r\n"), 0);
    assert_true(h.http10 && !h.keep_alive);
    assert_int_equal(
        parse(&h, "GET https://host:1/p HTTP/1.1\r\nHost: x\r\nConnection: Close\r\nExpect: 100-Continue\r\n\r\n"), 0);
    assert_string_equal(h.path, "/p");
    assert_true(!h.keep_alive && h.expect_continue);
    assert_int_equal(parse(&h, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_int_equal(parse(&h, "BREW /pot HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_int_equal(h.method, HTTP_OTHER_METHOD);
}

static void test_bad_heads(void **state) {
    (void)state;
    static const struct {
        const char *head;
        int status;
    } cases[] = {
        {"GET / HTTP/1.1\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400},
        {"GET /\r\n\r\n", 400},
        {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
        {"GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET /% HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET http://h HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\n x\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n: a\r\nHost: a\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\n\r\n", 411},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"\n\n", 400},
        {"\r\n\r\n", 400},
        {"x\n\n", 400},
    };
    struct http_head h;
    for (size_t i = 0; i < N_ELEMENTS(cases); i++)
        if (parse(&h, cases[i].head) != cases[i].status) fail_msg("case %zu", i);
}

/* Decodes in pieces of `step` bytes; returns the decoder's last answer. */
static int decode(const char *body, size_t step, char *out, size_t *n_out, size_t *used) {
    struct http_chunked c = {0};
    const size_t n = strlen(body);
    int r = 0;
    *n_out = *used = 0;
    while (r == 0 && *used < n) {
        const size_t m = n - *used < step ? n - *used : step;
        size_t consumed, payload;
        char piece[512];
        memcpy(piece, body + *used, m);
        r = http_parse_chunked(&c, piece, m, &consumed, &payload);
        memcpy(out + *n_out, piece, payload);
        *n_out += payload;
        *used += consumed;
    }
    return r;
}

static void test_chunked(void **state) {
    (void)state;
    static const char body[] = "5\r\nhello\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\nnext";
    for (size_t step = 1; step < sizeof body; step++) {
        char out[64];
        size_t n, used;
        assert_int_equal(decode(body, step, out, &n, &used), 1);
        assert_int_equal(n, 15);
        assert_memory_equal(out, "hello0123456789", 15);
        assert_int_equal(used, sizeof body - 1 - 4);
    }
    static const char *const bad[] = {
        "\r\n",   "g\r\n",        "5\nhello", "5\r\nhello!\r\n", "-1\r\n", "ffffffffffffffff1\r\n",
        ";x\r\n", "0\r\nx\n\r\n", "1\r\na\rb"};
    for (size_t i = 0; i < N_ELEMENTS(bad); i++) {
        for (size_t step = 1; step < 8; step++) {
            char out[64];
            size_t n, used;
            if (decode(bad[i], step, out, &n, &used) != -1) fail_msg("case %zu step %zu", i, step);
        }
    }
    assert_int_equal(http_parse_find_head("GET / HTTP/1.1\r\nHost: a\r\n", 25), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good_head), cmocka_unit_test(test_bad_heads),
                                       cmocka_unit_test(test_chunked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
