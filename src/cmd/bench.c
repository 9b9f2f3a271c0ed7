#include "cmd/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "cmd/bench_kernel.h"
#include "cmd/bench_load.h"
#include "cmd/bench_roofline.h"
#include "cmd/bench_serve.h"
#include "cmd/bench_step.h"

static const struct {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"step", "whole steps of a model: tokens/s, share of the machine, time per operator", bench_step_main},
    {"kernel", "the matrix kernels alone, every format", bench_kernel_main},
    {"load", "packing of every format against the copy speed; time and peak memory of loading a model", bench_load_main},
    {"roofline", "read and copy bandwidth and arithmetic rates of this machine", bench_roofline_main},
    {"serve", "a running server under the load of many clients", bench_serve_main},
};

static void print_usage(FILE *out) {
    fputs("usage: xenon bench step | kernel | load | roofline | serve [flags]; each has --help\n", out);
    for (size_t i = 0; i < N_ELEMENTS(commands); i++) fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
}

int bench_main(int argc, char **argv) {
    const char *const word = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < N_ELEMENTS(commands); i++)
        if (strcmp(commands[i].name, word) == 0) return commands[i].run(argc - 1, argv + 1);
    const bool help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "--help-all") == 0;
    print_usage(help ? stdout : stderr);
    return help ? 0 : 2;
}
