/* Asks a model one question and prints the answer as it comes. Everything is in include/xenon.h.
 *
 *     make build/gcc-release/docs/example
 *     build/gcc-release/docs/example MODEL "Why is the sky blue?"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xenon.h"

static int complain(const char *what, const struct xenon_error *err) {
    fprintf(stderr, "%s: %s\n", what, err->text);
    return 1;
}

/* The question as a conversation of one message, put into the model's own words. Ids: xenon_free. */
static int make_prompt(const struct xenon *x, const char *question, int32_t **ids, size_t *n, struct xenon_error *err) {
    char messages[4096];
    char *text;
    size_t len;
    if (!xenon_info(x)->has_chat_template)
        return xenon_tokenize(x, question, strlen(question), true, false, ids, n, err);
    /* A real program writes JSON with a library; here, quotes and backslashes are not expected. */
    snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", question);
    const struct xenon_chat chat = {.messages = messages, .add_generation_prompt = true};
    int rc = xenon_render_chat(x, &chat, &text, &len, err);
    if (rc) return rc;
    rc = xenon_tokenize(x, text, len, false, true, ids, n, err);
    xenon_free(text);
    return rc;
}

/* Submits the prompt and prints what comes until the end. */
static int stream_answer(struct xenon *x, const int32_t *ids, size_t n, struct xenon_error *err) {
    struct xenon_request req = {.prompt = ids, .n_prompt = n};
    struct xenon_output out = {0};
    struct xenon_handle *h;
    xenon_sampling_default(&req.sampling);
    req.sampling.temperature = 0; /* the likeliest token every time */
    req.sampling.max_tokens = 64;
    const int rc = xenon_submit(x, &req, &h, err);
    if (rc) return rc;
    while (out.finish == XENON_FINISH_NONE) {
        xenon_wait(h, -1); /* until there is news */
        if (!xenon_poll(h, &out)) continue;
        fwrite(out.text, 1, out.text_len, stdout);
        fflush(stdout);
    }
    const double seconds = (double)(out.last_token_ns - out.first_token_ns) * 1e-9;
    printf("\n[%zu prompt tokens, %zu tokens, %.1f per second, ended by %s]\n", out.n_prompt, out.n_generated,
           seconds > 0 ? (double)(out.n_generated - 1) / seconds : 0.0, xenon_finish_name(out.finish));
    xenon_release(h);
    return XENON_OK;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: example MODEL QUESTION\n");
        return EXIT_FAILURE;
    }
    const struct xenon_options opt = {.model = argv[1], .max_model_len = 512, .max_num_seqs = 1};
    struct xenon_error err;
    struct xenon *x;
    int32_t *ids = NULL;
    size_t n;
    if (xenon_open(&x, &opt, &err)) return complain(argv[1], &err);
    int rc = make_prompt(x, argv[2], &ids, &n, &err);
    if (!rc) rc = stream_answer(x, ids, n, &err);
    if (rc) complain("request", &err);
    xenon_free(ids);
    xenon_close(x);
    return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
