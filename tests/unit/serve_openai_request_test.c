/* Bodies to requests: types, ranges, null, defaults, refusals. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/mem.h"
#include "serve/openai_request.h"

static const char *const models[] = {"org/model", "alias"};
static const struct openai_limits limits = {.vocab_size = 1000,
                                            .max_model_len = 4096,
                                            .models = models,
                                            .n_models = 2,
                                            .has_chat_template = true,
                                            .default_temperature = (double)NAN,
                                            .default_top_p = (double)NAN,
                                            .default_repetition_penalty = (double)NAN,
                                            .default_top_k = -1};

#define CHAT(fields)       "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" fields "}"
#define COMPLETION(fields) "{\"prompt\":\"hi\"" fields "}"

static bool parse(struct openai_request *r, const char *body, struct openai_error *e) {
    return strstr(body, "\"messages\"") ? openai_request_parse_chat(r, &limits, body, strlen(body), e)
                                        : openai_request_parse_completion(r, &limits, body, strlen(body), e);
}

static struct openai_request accepted(const char *body) {
    struct openai_request r;
    struct openai_error e;
    if (!parse(&r, body, &e)) fail_msg("%s refused: %s", body, e.message);
    return r;
}

static void refused(const char *body, int status, const char *param) {
    struct openai_request r;
    struct openai_error e;
    if (parse(&r, body, &e)) fail_msg("%s accepted", body);
    if (e.status != status || strcmp(e.param, param) != 0)
        fail_msg("%s: %d '%s' %s", body, e.status, e.param, e.message);
    assert_null(r.root);
    assert_true(e.message[0] != '\0');
}

static void test_defaults(void **state) {
    (void)state;
    struct openai_request r = accepted(CHAT(""));
    assert_true(r.chat && !r.stream && !r.include_usage && !r.echo);
    assert_int_equal(r.n, 1);
    assert_int_equal(r.sampling.max_tokens, -1);
    assert_true(r.sampling.temperature == 1.0f && r.sampling.top_p == 1.0f && r.sampling.min_p == 0.0f);
    assert_int_equal(r.sampling.logprobs, -1);
    assert_int_equal(r.sampling.prompt_logprobs, -1);
    assert_false(r.sampling.has_seed);
    assert_true(r.chat_input.add_generation_prompt);
    assert_string_equal(r.model, "org/model");
    assert_string_equal(r.chat_input.messages, "[{\"role\":\"user\",\"content\":\"hi\"}]");
    assert_null(r.chat_input.tools);
    openai_request_deinit(&r);
    r = accepted(COMPLETION(""));
    assert_int_equal(r.sampling.max_tokens, 16);
    assert_true(r.add_special);
    assert_string_equal(r.prompts[0].text, "hi");
    openai_request_deinit(&r);
}

static void test_values(void **state) {
    (void)state;
    struct openai_request r = accepted(CHAT(
        ",\"model\":\"alias\",\"temperature\":0,\"top_p\":0.5,\"top_k\":40,\"min_p\":0.1,"
        "\"presence_penalty\":-2,\"frequency_penalty\":2,"
        "\"repetition_penalty\":1.1,\"seed\":-9223372036854775808,\"stop\":[\"a\",\"b\"],\"stop_token_ids\":[1,"
        "999],\"ignore_eos\":true,"
        "\"min_tokens\":3,\"max_tokens\":10,\"max_completion_tokens\":20,\"n\":128,\"logit_bias\":{\"5\":-100,"
        "\"999\":2.5},"
        "\"logprobs\":true,\"top_logprobs\":20,\"stream\":true,\"stream_options\":{\"include_usage\":true},"
        "\"cache_salt\":\"s\","
        "\"priority\":-3,\"skip_special_tokens\":false,\"include_stop_str_in_output\":true"));
    const struct xenon_sampling *const s = &r.sampling;
    assert_string_equal(r.model, "alias");
    assert_true(s->temperature == 0.0f && s->top_p == 0.5f && s->min_p == 0.1f && s->repetition_penalty == 1.1f);
    assert_int_equal(s->top_k, 40);
    assert_true(s->has_seed && s->seed == (uint64_t)INT64_MIN);
    assert_int_equal(s->n_stop, 2);
    assert_string_equal(s->stop[1], "b");
    assert_int_equal(s->n_stop_ids, 2);
    assert_int_equal(s->stop_ids[1], 999);
    assert_int_equal(s->max_tokens, 20);
    assert_int_equal(s->min_tokens, 3);
    assert_int_equal(s->n_bias, 2);
    assert_true(s->bias[0].id == 5 && s->bias[0].bias == -100.0f && s->bias[1].id == 999 && s->bias[1].bias == 2.5f);
    assert_int_equal(s->logprobs, 20);
    assert_true(r.stream && r.include_usage && !r.continuous_usage && s->ignore_eos);
    assert_true(!s->skip_special_tokens && s->include_stop_str_in_output);
    assert_int_equal(r.n, 128);
    assert_int_equal(r.priority, -3);
    assert_string_equal(r.cache_salt, "s");
    openai_request_deinit(&r);
}

static void test_nulls_are_absent(void **state) {
    (void)state;
    static const char *const names[] = {"model",           "temperature",    "top_p",          "top_k",
                                        "min_p",           "seed",           "stop",           "n",
                                        "max_tokens",      "stream",         "stream_options", "logit_bias",
                                        "response_format", "tools",          "tool_choice",    "logprobs",
                                        "top_logprobs",    "stop_token_ids", "suffix",         "echo",
                                        "priority",        "cache_salt",     "best_of",        "chat_template_kwargs",
                                        "documents",       "modalities",     "min_tokens"};
    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        char body[256];
        snprintf(body, sizeof body, CHAT(",\"%s\":null"), names[i]);
        struct openai_request r = accepted(body);
        assert_int_equal(r.n, 1);
        openai_request_deinit(&r);
        snprintf(body, sizeof body, COMPLETION(",\"%s\":null"), names[i]);
        r = accepted(body);
        openai_request_deinit(&r);
    }
    refused("{\"messages\":null}", 400, "messages");
    refused("{\"prompt\":null}", 400, "prompt");
}

static void test_model_defaults(void **state) {
    (void)state;
    struct openai_limits lim = limits;
    struct openai_request r;
    struct openai_error e;
    lim.default_temperature = 0.6;
    lim.default_top_p = 0.95;
    lim.default_top_k = 20;
    lim.default_repetition_penalty = 1.05;
    assert_true(openai_request_parse_chat(&r, &lim, CHAT(""), strlen(CHAT("")), &e));
    assert_true(r.sampling.temperature == 0.6f && r.sampling.top_p == 0.95f && r.sampling.repetition_penalty == 1.05f);
    assert_int_equal(r.sampling.top_k, 20);
    openai_request_deinit(&r);
    assert_true(openai_request_parse_chat(&r, &lim, CHAT(",\"temperature\":1,\"top_k\":-1"),
                                          strlen(CHAT(",\"temperature\":1,\"top_k\":-1")), &e));
    assert_true(r.sampling.temperature == 1.0f);
    assert_int_equal(r.sampling.top_k, -1);
    openai_request_deinit(&r);
}

static void test_wrong_fields(void **state) {
    (void)state;
    static const struct {
        const char *field, *value;
    } cases[] = {
        {"temperature", "\"1\""},
        {"temperature", "2.01"},
        {"temperature", "true"},
        {"top_p", "-0.1"},
        {"top_p", "[]"},
        {"n", "0"},
        {"n", "129"},
        {"n", "1.5"},
        {"max_tokens", "-1"},
        {"max_tokens", "\"5\""},
        {"max_tokens", "4294967296"},
        {"seed", "1.5"},
        {"stop", "5"},
        {"stop", "[\"\"]"},
        {"stop", "\"a\\u0000b\""},
        {"stop_token_ids", "[1000]"},
        {"stop_token_ids", "[-1]"},
        {"logit_bias", "[1]"},
        {"logit_bias", "{\"x\":1}"},
        {"logit_bias", "{\"1000\":1}"},
        {"logit_bias", "{\"1\":101}"},
        {"logit_bias", "{\"\":1}"},
        {"logit_bias", "{\"99999999999999999999\":1}"},
        {"stream", "1"},
        {"stream_options", "{\"include_usage\":true}"},
        {"min_tokens", "-1"},
        {"top_k", "-2"},
        {"min_p", "1.1"},
        {"presence_penalty", "2.1"},
        {"frequency_penalty", "-2.1"},
        {"repetition_penalty", "0"},
        {"model", "5"},
        {"model", "[\"a\"]"},
        {"response_format", "{\"type\":\"json_object\"}"},
        {"guided_json", "{\"a\":1}"},
        {"best_of", "2"},
        {"cache_salt", "5"},
        {"priority", "\"1\""},
        {"ignore_eos", "0"},
        {"suffix", "\"x\""},
    };
    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        char body[256];
        snprintf(body, sizeof body, CHAT(",\"%s\":%s"), cases[i].field, cases[i].value);
        refused(body, 400, cases[i].field);
        snprintf(body, sizeof body, COMPLETION(",\"%s\":%s"), cases[i].field, cases[i].value);
        refused(body, 400, cases[i].field);
    }
    refused(CHAT(",\"model\":\"other\""), 404, "model");
    refused(CHAT(",\"max_tokens\":0"), 400, "max_tokens");
    refused(CHAT(",\"top_logprobs\":2"), 400, "top_logprobs");
    refused(CHAT(",\"logprobs\":2"), 400, "logprobs");
    refused(CHAT(",\"min_tokens\":5,\"max_tokens\":4"), 400, "min_tokens");
    refused(CHAT(",\"continue_final_message\":true,\"add_generation_prompt\":true"), 400, "continue_final_message");
    refused(COMPLETION(",\"logprobs\":true"), 400, "logprobs");
    refused(COMPLETION(",\"logprobs\":21"), 400, "logprobs");
}

static void test_prompts(void **state) {
    (void)state;
    struct openai_request r = accepted("{\"prompt\":[[1,2],[3]],\"n\":2}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompts[0].n_ids, 2);
    assert_int_equal(r.prompts[1].ids[0], 3);
    openai_request_deinit(&r);
    r = accepted("{\"prompt\":[\"a\",\"b\\u0000c\"]}");
    assert_int_equal(r.n_prompts, 2);
    assert_int_equal(r.prompts[1].text_len, 3);
    openai_request_deinit(&r);
    r = accepted("{\"prompt\":[7,8,9],\"echo\":true,\"logprobs\":1,\"max_tokens\":0}");
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.sampling.prompt_logprobs, 1);
    assert_int_equal(r.sampling.max_tokens, 0);
    openai_request_deinit(&r);
    static const char *const wrong[] = {"5",           "[]",     "[[]]", "[1.5]", "[\"a\",1]", "[1,\"a\"]",
                                        "[[1],\"a\"]", "[1000]", "[-1]", "{}",    "[null]",    "[[1,null]]"};
    for (size_t i = 0; i < N_ELEMENTS(wrong); i++) {
        char body[64];
        snprintf(body, sizeof body, "{\"prompt\":%s}", wrong[i]);
        refused(body, 400, "prompt");
    }
}

static void test_messages(void **state) {
    (void)state;
    struct openai_request r = accepted(
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\","
        "\"text\":\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
        "\"function\":{\"name\":\"f\","
        "\"arguments\":\"{\\\"x\\\":1}\"}},{\"function\":{\"name\":\"g\",\"arguments\":\"no json\"}}]}],"
        "\"reasoning_effort\":\"low\","
        "\"chat_template_kwargs\":{\"k\":[1]}}");
    assert_non_null(strstr(r.messages, "\"content\":\"a\\nb\""));
    assert_non_null(strstr(r.messages, "\"arguments\":{\"x\":1}"));
    assert_non_null(strstr(r.messages, "\"arguments\":\"no json\""));
    assert_non_null(strstr(r.messages, "\"role\":\"assistant\",\"content\":\"\""));
    assert_string_equal(r.kwargs, "{\"k\":[1],\"reasoning_effort\":\"low\"}");
    openai_request_deinit(&r);
    refused("{\"messages\":[]}", 400, "messages");
    refused("{\"messages\":\"hi\"}", 400, "messages");
    refused("{\"messages\":[5]}", 400, "messages[0]");
    refused("{\"messages\":[{\"role\":\"user\",\"content\":\"\"},{\"role\":\"x\"}]}", 400, "messages[1].role");
    refused("{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0].content");
    refused("{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
            "messages[0].content[0]");
    refused("{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", 400, "messages[0].tool_calls[0]");
}

static void test_tools(void **state) {
    (void)state;
#define TOOL "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"
    struct openai_request r = accepted(CHAT(",\"tools\":[" TOOL "],\"tool_choice\":\"auto\""));
    assert_string_equal(r.chat_input.tools, "[" TOOL "]");
    openai_request_deinit(&r);
    r = accepted(CHAT(",\"tools\":[" TOOL "],\"tool_choice\":\"none\""));
    assert_null(r.chat_input.tools);
    openai_request_deinit(&r);
    r = accepted(CHAT(",\"tools\":[],\"tool_choice\":\"none\""));
    assert_null(r.chat_input.tools);
    openai_request_deinit(&r);
    refused(CHAT(",\"tool_choice\":\"auto\""), 400, "tool_choice");
    refused(CHAT(",\"tools\":[" TOOL "],\"tool_choice\":\"required\""), 400, "tool_choice");
    refused(CHAT(",\"tools\":[" TOOL "],\"tool_choice\":5"), 400, "tool_choice");
    refused(CHAT(",\"tools\":[{}]"), 400, "tools[0]");
}

static void test_json(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        "{",
                                        "[]",
                                        "null",
                                        "{} {}",
                                        "{\"prompt\":\"\xff\xfe\"}",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"a\":1e999}",
                                        "{\"a\":99999999999999999999}",
                                        "{\"a\":\"\\ud800\"}"};
    for (size_t i = 0; i < N_ELEMENTS(wrong); i++)
        refused(wrong[i], 400, "");
    char deep[4096];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    refused(deep, 400, "");
}

/* Every allocation of ours fails once: an error, nothing leaked. */
static void test_no_memory(void **state) {
    (void)state;
    static const char *const bodies[] = {
        CHAT(",\"stop\":[\"a\"],\"stop_token_ids\":[1],\"logit_bias\":{\"1\":1},\"tools\":[" TOOL
             "],\"chat_template_kwargs\":{\"a\":1}"),
        "{\"prompt\":[[1,2],[3,4]],\"stop\":\"x\"}",
        "{\"prompt\":[\"a\",\"b\"]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}]}",
    };
    for (size_t i = 0; i < N_ELEMENTS(bodies); i++) {
        for (int k = 1;; k++) {
            struct openai_request r;
            struct openai_error e;
            const int64_t live = mem_live_blocks();
            mem_fault_after(k);
            const bool ok = parse(&r, bodies[i], &e);
            mem_fault_after(0);
            if (ok) openai_request_deinit(&r);
            assert_int_equal(mem_live_blocks(), live);
            if (ok) break;
            assert_int_equal(e.status, 503);
            assert_true(k < 100);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_nulls_are_absent),
        cmocka_unit_test(test_model_defaults),
        cmocka_unit_test(test_wrong_fields),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
