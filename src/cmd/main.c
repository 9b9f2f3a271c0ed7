/* xenon: one program, one word says what to do. */
#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "cmd/bench.h"
#include "cmd/chat.h"
#include "cmd/generate.h"
#include "cmd/inspect.h"
#include "cmd/serve.h"
#include "cmd/tokenize.h"
#include "cmd/topo.h"
#include "xenon.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    {"serve", serve_main, "an OpenAI-compatible server with one model"},
    {"generate", generate_main, "answers to prompts from the command line or a file"},
    {"chat", chat_main, "a conversation in the terminal"},
    {"tokenize", tokenize_main, "ids and pieces of a text"},
    {"inspect", inspect_main, "what is in a model: shapes, formats, memory, graph"},
    {"topo", topo_main, "the machine as the engine sees it"},
    {"bench", bench_main, "speed of steps and kernels beside the machine's limits"},
};

static void print_help(FILE *out) {
    fprintf(out, "xenon %s: large language models on many-core CPUs\n\nusage: xenon COMMAND [flags]\n\n", XENON_VERSION);
    for (size_t i = 0; i < N_ELEMENTS(commands); i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
    fprintf(out, "\nxenon COMMAND --help explains the flags.\n");
}

int main(int argc, char **argv) {
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    for (size_t i = 0; i < N_ELEMENTS(commands); i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("xenon %s\n", XENON_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    fprintf(stderr, "xenon: unknown command \"%s\"; xenon --help lists them\n", argv[1]);
    return 2;
}
