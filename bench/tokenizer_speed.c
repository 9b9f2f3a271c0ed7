/* Speed of tokenizers: `tokenizer_speed FILE... [--text FILE]`, FILE being vocab.gguf, a tokenizer.json, a
 * tokenizer.model or a checkpoint folder. Prints one line per file and text: MB/s of the best of five runs, tokens,
 * milliseconds to open. Without --text the texts are made here: mixed languages and code, then 1 MB of one letter, of
 * spaces, of emoji. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "text/tokenizer_int.h"

enum { TEXT_BYTES = 1000000, RUNS = 5, FILE_BYTES_MAX = 256 << 20 };

static const char *const words[] = {
    "the", "of", "tokenizer", "running", "int32_t", "for (int i = 0; i < n; i++) {\n", "return x;\n}\n\n", "Überraschung", "straße",
    "español", "mañana", "naïve", "быстрая", "лиса", "перепрыгнула", "日本語のテキスト", "东京是日本的首都。", "모든 사람은", "العربية", "עברית",
    "हिन्दी", "ภาษาไทย", "👩‍👩‍👧", "🚀", "1234567", "3.14159", "don't", "I'll", "https://example.org/a?b=c", "\n\n", "    ", "\t", "{\"key\": [1, 2]}",
    "considerable", "measurement", "of the machine's", "memory bandwidth", "NASA", "CamelCaseName", "snake_case_name", "--", "...", "!?",
};

static void fill_mixed(struct strbuf *out) {
    struct rng r = rng_seeded(7);
    while (out->len < TEXT_BYTES) {
        strbuf_puts(out, words[rng_below(&r, sizeof words / sizeof *words)]);
        if (rng_below(&r, 8)) strbuf_putc(out, ' ');
    }
}

static void fill_repeated(struct strbuf *out, const char *unit) {
    while (out->len < TEXT_BYTES) strbuf_puts(out, unit);
}

static char *read_file(const char *path, size_t *len) {
    FILE *const f = fopen(path, "rb");
    struct strbuf b = {0};
    char chunk[65536];
    for (size_t n; f && (n = fread(chunk, 1, sizeof chunk, f)) > 0 && b.len < FILE_BYTES_MAX;)
        strbuf_append(&b, chunk, n);
    if (f) fclose(f);
    *len = b.len;
    return strbuf_take(&b);
}

static bool ends_with(const char *s, const char *suffix) {
    const size_t n = strlen(s), k = strlen(suffix);
    return n >= k && strcmp(s + n - k, suffix) == 0;
}

static enum err open_bare(struct tokenizer *t, const char *path, struct err_msg *msg) {
    size_t len = 0;
    char *const bytes = read_file(path, &len);
    enum err e;
    if (!bytes || !len) e = err_set(msg, ERR_IO, "%s: cannot be read", path);
    else if (ends_with(path, ".json")) {
        json_t *const root = json_loadb(bytes, len, JSON_ALLOW_NUL, NULL);
        e = tokenizer_hf_load(t, root, msg);
        json_decref(root);
    } else
        e = tokenizer_tiktoken_is(bytes, len) ? tokenizer_tiktoken_load(t, bytes, len, NULL, NULL, msg)
                                              : tokenizer_spm_load(t, bytes, len, msg);
    mem_free(bytes);
    return e;
}

static struct tokenizer *open_any(const char *path) {
    struct err_msg msg = {""};
    struct tokenizer *t = NULL;
    enum err e;
    if (ends_with(path, ".json") || ends_with(path, ".model") || ends_with(path, ".tiktoken")) {
        t = mem_calloc(1, sizeof *t);
        e = t ? open_bare(t, path, &msg) : ERR_NOMEM;
    } else {
        struct ckpt *c = NULL;
        e = ckpt_open_config(&c, path, &msg);
        if (e == ERR_OK) e = tokenizer_open(&t, c, &msg);
        ckpt_close(c);
    }
    if (e == ERR_OK) return t;
    fprintf(stderr, "%s: %s\n", path, msg.text);
    tokenizer_close(t);
    return NULL;
}

static void measure(const struct tokenizer *t, const char *path, const char *name, const char *text, size_t len,
                    double open_ms) {
    int64_t best = INT64_MAX;
    struct token_ids ids = {0};
    for (int run = 0; run < RUNS; run++) {
        struct err_msg msg = {""};
        ids.n = 0;
        const int64_t start = clock_ns();
        if (tokenizer_encode(t, text, len, 0, &ids, &msg) != ERR_OK) {
            fprintf(stderr, "%s: %s\n", path, msg.text);
            break;
        }
        const int64_t took = clock_ns() - start;
        if (took < best) best = took;
    }
    printf("%s %s %.1f MB/s %zu tokens, opened in %.0f ms\n", path, name, (double)len * 1e3 / (double)best, ids.n,
           open_ms);
    token_ids_deinit(&ids);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"mixed", "letter", "spaces", "emoji"};
    struct strbuf texts[4] = {{0}, {0}, {0}, {0}};
    size_t file_len = 0;
    char *file = NULL;
    fill_mixed(&texts[0]);
    fill_repeated(&texts[1], "a");
    fill_repeated(&texts[2], " ");
    fill_repeated(&texts[3], "😀");
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--text") == 0) file = read_file(argv[i + 1], &file_len);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--text") == 0) {
            i++;
            continue;
        }
        const int64_t start = clock_ns();
        struct tokenizer *const t = open_any(argv[i]);
        const double open_ms = (double)(clock_ns() - start) / 1e6;
        if (!t) return 1;
        if (file) measure(t, argv[i], "file", file, file_len, open_ms);
        for (int k = 0; k < 4 && !file; k++) measure(t, argv[i], names[k], texts[k].data, texts[k].len, open_ms);
        tokenizer_close(t);
    }
    for (int k = 0; k < 4; k++) strbuf_deinit(&texts[k]);
    mem_free(file);
    return 0;
}
