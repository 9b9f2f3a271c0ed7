/* Prompts of `xenon bench serve`: a function of the seed and the number of the request. */
#include <string.h>

#include "base/attr.h"
#include "cmd/bench_serve_load.h"

static const char *const words[] = {
    "time",   "year",   "people", "way",    "day",    "man",    "thing",  "woman",  "life",   "child",  "world",  "school",
    "state",  "family", "student", "group", "country", "problem", "hand", "part",   "place",  "case",   "week",   "company",
    "system", "program", "question", "work", "government", "number", "night", "point", "home", "water", "room",   "mother",
    "area",   "money",  "story",  "fact",   "month",  "lot",    "right",  "study",  "book",   "eye",    "job",    "word",
    "business", "issue", "side",  "kind",   "head",   "house",  "service", "friend", "father", "power", "hour",   "game",
    "line",   "end",    "member", "law",    "car",    "city",   "community", "name", "president", "team", "minute", "idea",
    "body",   "information", "back", "parent", "face", "others", "level", "office", "door",   "health", "person", "art",
    "war",    "history", "party", "result", "change", "morning", "reason", "research", "girl", "guy",   "moment", "air",
    "teacher", "force", "education", "river", "stone", "garden", "winter", "letter", "number", "music", "market", "island",
};

void bench_serve_prompt_words(struct strbuf *b, uint64_t seed, int n) {
    struct rng r = rng_seeded(seed);
    for (int i = 0; i < n; i++) {
        if (i > 0) strbuf_putc(b, ' ');
        strbuf_puts(b, words[rng_below(&r, N_ELEMENTS(words))]);
    }
}

static void write_ids(const struct bench_serve_load *l, uint64_t seed, int n, struct strbuf *b, bool comma) {
    struct rng r = rng_seeded(seed);
    for (int i = 0; i < n; i++)
        strbuf_printf(b, "%s%d", i > 0 || comma ? "," : "", l->pool[rng_below(&r, (uint32_t)l->n_pool)]);
}

/* A length within the ratio of `n`, at least 1. */
static int spread(struct rng *r, int n, double ratio) {
    const int reach = (int)((double)n * ratio), low = n - reach > 1 ? n - reach : 1;
    return low + (int)rng_below(r, (uint32_t)(n + reach - low + 1));
}

void bench_serve_prompt_write(const struct bench_serve_load *l, int i, struct strbuf *b, int *max_tokens) {
    const struct bench_serve_options *const o = &l->opt;
    const uint64_t shared = hash_mix(o->dataset_seed ^ 0x5eed), own = hash_mix(hash_mix(o->dataset_seed) + (uint64_t)i);
    struct rng r = rng_seeded(own ^ 0x1e47);
    const int n = spread(&r, o->input_len, o->range_ratio);
    *max_tokens = spread(&r, o->output_len, o->range_ratio);
    if (l->pool) {
        strbuf_putc(b, '[');
        write_ids(l, shared, o->shared_prefix_len, b, false);
        write_ids(l, own, n, b, o->shared_prefix_len > 0);
        strbuf_putc(b, ']');
        return;
    }
    strbuf_putc(b, '"'); /* the words need no escapes */
    bench_serve_prompt_words(b, shared, o->shared_prefix_len);
    if (o->shared_prefix_len > 0) strbuf_putc(b, ' ');
    bench_serve_prompt_words(b, own, n);
    strbuf_putc(b, '"');
}
