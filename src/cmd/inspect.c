#include "cmd/inspect.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/engine_flags.h"
#include "engine/model_runner.h"
#include "graph/dump.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

static const char usage[] = "xenon inspect MODEL [--tensors] [--graph | --dot] [--memory] [--template] [flags]";

struct inspect_flags {
    bool tensors, graph, dot, memory, chat_source;
};

#define FIELD(f) offsetof(struct inspect_flags, f)

// clang-format off
static const struct arg_def defs[] = {
    {"tensors", NULL, ARG_FLAG, FIELD(tensors), NULL, 0, 0, 0, NULL, "every tensor with its shape and format", false},
    {"graph", NULL, ARG_FLAG, FIELD(graph), NULL, 0, 0, 0, NULL, "the planned graph, a line per operator", false},
    {"dot", NULL, ARG_FLAG, FIELD(dot), NULL, 0, 0, 0, NULL, "the same for Graphviz", false},
    {"memory", NULL, ARG_FLAG, FIELD(memory), NULL, 0, 0, 0, NULL, "only what weights, cache and activations take", false},
    {"template", NULL, ARG_FLAG, FIELD(chat_source), NULL, 0, 0, 0, NULL, "the chat template's source", false},
};
// clang-format on

static double mib(int64_t bytes) { return (double)bytes / (1 << 20); }

static void print_formats(const struct ckpt *c) {
    int64_t bytes[DTYPE_N] = {0}, count[DTYPE_N] = {0};
    for (int i = 0; i < ckpt_n_tensors(c); i++) {
        const struct ckpt_tensor *const t = ckpt_tensor_at(c, i);
        bytes[t->dtype] += (int64_t)t->bytes;
        count[t->dtype]++;
    }
    for (int i = 0; i < DTYPE_N; i++)
        if (count[i])
            printf("  %-8s %5lld tensors %10.1f MiB\n", dtype_info((enum dtype)i)->name, (long long)count[i],
                   mib(bytes[i]));
}

static void print_tensors(const struct ckpt *c) {
    for (int i = 0; i < ckpt_n_tensors(c); i++) {
        const struct ckpt_tensor *const t = ckpt_tensor_at(c, i);
        printf("  %-48s %-8s [", t->name, dtype_info(t->dtype)->name);
        for (int d = 0; d < t->n_dims; d++) printf("%s%lld", d ? ", " : "", (long long)t->shape[d]);
        puts("]");
    }
}

static void print_model(const struct model_runner *r) {
    static const char *const rope[] = {"plain", "linear", "llama3", "yarn"};
    const struct model_hparams *const h = &r->model.h;
    printf("architecture   %s, %.1f M parameters\n", r->model.def->name, (double)r->model.n_parameters * 1e-6);
    printf("layers         %lld of hidden size %lld, feed-forward %lld\n", (long long)h->n_layers, (long long)h->hidden,
           (long long)h->ffn);
    printf("attention      %lld query and %lld key-value heads of %lld%s%s\n", (long long)h->n_heads,
           (long long)h->n_kv_heads, (long long)h->head_dim, h->qk_norm ? ", norms on q and k" : "",
           h->qkv_bias && !r->model.gguf ? ", biases" : "");
    if (h->use_window)
        printf("window         %lld tokens from layer %lld on\n", (long long)h->window, (long long)h->window_from);
    printf("positions      %lld, rope theta %g, %s scaling\n", (long long)h->max_position, h->rope.theta,
           rope[h->rope.type]);
    printf("vocabulary     %lld%s\n", (long long)h->vocab,
           model_mat(&r->model, MODEL_HEAD, 0) ? "" : ", head tied to the embedding");
}

static void print_memory(const struct model_runner *r) {
    const struct plan *const p = &r->plan;
    int64_t page = 0;
    for (int g = 0; g < r->kv.n_groups; g++)
        for (int t = 0; t < r->kv.n_regions; t++) page += (int64_t)r->kv.page_bytes[g][t];
    printf("weights        %.1f MiB packed (%.1f MiB in the file)\n", mib(r->weights.packed_bytes),
           mib(r->weights.source_bytes));
    printf("KV cache       %lld bytes per token; %d pages of %d tokens would be reserved: %.1f MiB\n",
           (long long)(page / r->block_size), r->kv.groups[0].n_pages, r->block_size, mib(r->kv.bytes));
    printf("activations    %.1f MiB for steps of up to %d tokens; without sharing by lifetime %.1f MiB\n",
           mib((int64_t)p->bytes_planned), r->max_num_batched_tokens, mib((int64_t)p->bytes_apart));
    printf("lane scratch   %.1f KiB for each of %d lanes\n", (double)p->bytes_scratch / 1024, pool_n_lanes(r->pool));
}

static void print_text(const struct ckpt *c, bool source) {
    struct tokenizer *tok = NULL;
    struct chat_template *chat = NULL;
    struct err_msg msg;
    if (tokenizer_open(&tok, c, &msg)) printf("tokenizer      none: %s\n", msg.text);
    else {
        int n = 0;
        const int32_t *const eos = tokenizer_eos_ids(tok, &n);
        printf("tokenizer      %s, %d ids, ends with", tokenizer_kind(tok), tokenizer_size(tok));
        for (int i = 0; i < n; i++) printf(" %d", eos[i]);
        printf("%s\n", tokenizer_adds_bos(tok) ? ", puts BOS in front" : "");
    }
    if (chat_template_open(&chat, c, &msg)) printf("chat template  broken: %s\n", msg.text);
    else printf("chat template  %s\n", chat ? "yes" : "none");
    if (source && chat) puts(chat_template_source(chat));
    chat_template_close(chat);
    tokenizer_close(tok);
}

static void print_graph(const struct model_runner *r, bool dot) {
    struct strbuf b = {0};
    if (dot) dump_dot(&r->plan, &b);
    else dump_text(&r->plan, &b);
    fputs(strbuf_cstr(&b), stdout);
    strbuf_deinit(&b);
}

static enum err inspect(const struct inspect_flags *f, const struct xenon_options *opt, struct err_msg *msg) {
    struct ckpt *c = NULL;
    struct model_runner r;
    enum err e = ckpt_open(&c, opt->model, msg);
    if (!e) e = model_runner_describe(&r, c, opt, msg);
    if (e) {
        ckpt_close(c);
        return e;
    }
    if (f->graph || f->dot) {
        print_graph(&r, f->dot);
    } else if (f->memory) {
        print_memory(&r);
    } else {
        printf("file           %s (%s)\n", ckpt_path(c), ckpt_is_gguf(c) ? "GGUF" : "Hugging Face");
        print_model(&r);
        print_formats(c);
        print_memory(&r);
        print_text(c, f->chat_source);
        if (f->tensors) print_tensors(c);
    }
    model_runner_close(&r);
    ckpt_close(c);
    return ERR_OK;
}

int inspect_main(int argc, char **argv) {
    struct xenon_options opt = {0};
    struct inspect_flags f = {0};
    const struct arg_group groups[] = {{"inspect", defs, N_ELEMENTS(defs), &f}, engine_flags_group(&opt)};
    struct args a = {.groups = groups, .n_groups = N_ELEMENTS(groups), .n_positional_max = 1};
    struct err_msg msg;
    enum err e = args_parse(&a, argc, argv, &msg);
    if (!e && (a.help || a.help_all)) {
        args_print_help(&a, stdout, usage, a.help_all);
        return 0;
    }
    if (!e) e = engine_flags_finish(&opt, &a, &msg);
    if (e) {
        fprintf(stderr, "xenon inspect: %s\n", msg.text);
        return 2;
    }
    e = inspect(&f, &opt, &msg);
    if (e) fprintf(stderr, "xenon inspect: %s\n", msg.text);
    return e ? 1 : 0;
}
