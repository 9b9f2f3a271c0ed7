#include "cmd/engine_flags.h"

#include <string.h>

#define FIELD(f) offsetof(struct xenon_options, f)

// clang-format off
static const struct arg_def defs[] = {
    {"model", "-m", ARG_STRING, FIELD(model), NULL, 0, 0, 0, "PATH", "GGUF file or Hugging Face folder", false},
    {"max-model-len", NULL, ARG_COUNT, FIELD(max_model_len), NULL, 1, 1e9, 0, "N", "longest prompt plus answer, in tokens", false},
    {"max-num-seqs", NULL, ARG_INT, FIELD(max_num_seqs), NULL, 1, 65536, 0, "N", "sequences in one step (256)", false},
    {"max-num-batched-tokens", NULL, ARG_INT, FIELD(max_num_batched_tokens), NULL, 1, 1e6, 0, "N", "tokens in one step", false},
    {"max-queue", NULL, ARG_INT, FIELD(max_queue), NULL, 1, 1e7, 0, "N", "waiting requests before 429 (4096)", true},
    {"dtype", NULL, ARG_CHOICE, FIELD(dtype), "auto|float32", 0, 0, 0, NULL, "float32: exact, slow", false},
    {"quantize", NULL, ARG_STRING, FIELD(quantize), NULL, 0, 0, 0, "FORMAT", "convert weights while loading: q8_0, q4_0, ...", false},
    {"kv-cache-dtype", NULL, ARG_CHOICE, FIELD(kv_cache_dtype), "auto|f32|bf16|int8|fp8", 0, 0, 0, "TYPE", "auto, f32, bf16, int8 or fp8", false},
    {"kv-cache-memory", NULL, ARG_SIZE, FIELD(kv_cache_memory), NULL, 1, 4e18, 0, "SIZE", "bytes of KV cache: 4GiB", false},
    {"num-kv-blocks", NULL, ARG_INT64, FIELD(num_kv_blocks), NULL, 1, 1e12, 0, "N", "pages of KV cache; overrides --kv-cache-memory", true},
    {"block-size", NULL, ARG_INT, FIELD(block_size), NULL, 1, 1024, 0, "N", "tokens in a page (16)", true},
    {"enable-prefix-caching", NULL, ARG_FLAG_NOT, FIELD(disable_prefix_caching), NULL, 0, 0, 0, NULL, "reuse pages of equal prompts (on)", true},
    {"scheduler-policy", NULL, ARG_ENUM, FIELD(policy), "mixed|prefill-first", 0, 0, 0, NULL, "how prompts and answers share a step", true},
    {"threads", "-t", ARG_INT, FIELD(threads), NULL, 1, 4096, 0, "N", "lanes (usable physical cores)", false},
    {"level", NULL, ARG_INT, FIELD(level), NULL, 0, 1, 1, "0-1", "compilation level (1)", true},
    {"load-format", NULL, ARG_CHOICE, FIELD(load_format), "auto|dummy", 0, 0, 0, NULL, "dummy: random weights of the config's shapes", true},
    {"chat-template", NULL, ARG_STRING, FIELD(chat_template), NULL, 0, 0, 0, "FILE", "instead of the model's own (file or text)", true},
    {"seed", NULL, ARG_UINT64, FIELD(seed), NULL, 0, 0, 0, "N", "for requests that bring none (from the clock)", true},
    {"fake-nodes", NULL, ARG_INT, FIELD(fake_nodes), NULL, 1, 64, 0, "N", "split the machine into N logical NUMA nodes", true},
    {"pin", NULL, ARG_FLAG_NOT, FIELD(no_pin), NULL, 0, 0, 0, NULL, "bind every lane to its core (on)", true},
};
// clang-format on

struct arg_group engine_flags_group(struct xenon_options *opt) {
    return (struct arg_group){"model and engine", defs, N_ELEMENTS(defs), opt};
}

enum err engine_flags_finish(struct xenon_options *opt, const struct args *a, struct err_msg *msg) {
    if (a->n_positional > 0) {
        if (opt->model && strcmp(opt->model, a->positional[0]) != 0)
            return err_set(msg, ERR_ARG, "two models given: %s and %s", opt->model, a->positional[0]);
        opt->model = a->positional[0];
    }
    if (!opt->model || !*opt->model)
        return err_set(msg, ERR_ARG, "--model is missing: a GGUF file or a Hugging Face folder");
    return ERR_OK;
}
