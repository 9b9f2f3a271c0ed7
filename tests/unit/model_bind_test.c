/* Loading weights: what is bound is what the file holds, whatever the lanes and nodes; and the memory that loading
 * takes beside the packed weights is bounded. A model of 120 MB is made in a temporary folder and loaded by a child
 * process, because a process's peak memory never falls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/half.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "model/bind.h"
#include "ops/weight.h"
#include "quant/quant.h"
#include "sys/file.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
/* Sanitizers keep a shadow of all memory, which counts as memory of the process. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||               \
    __has_feature(thread_sanitizer)
enum { SHADOWED = 1 };
#else
enum { SHADOWED = 0 };
#endif

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 1024,"
    " \"intermediate_size\": 4096, \"num_hidden_layers\": 2, \"num_attention_heads\": 16, \"num_key_value_heads\": 4,"
    " \"head_dim\": 64, \"vocab_size\": 15997, \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
    " \"rope_theta\": 10000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false,"
    " \"torch_dtype\": \"bfloat16\"}";

static char dir[] = "/tmp/xenon_bind_XXXXXX";

static char *path_of(const char *name) {
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* ---- the file: every value a function of its place ---- */

/* A layer's row by its name in the file. */
static void row_name(char *out, size_t cap, const struct model_weight *w) {
    const char *const at = strstr(w->hf, "%d");
    if (at) snprintf(out, cap, "%.*s%d%s", (int)(at - w->hf), w->hf, w->layer, at + 2);
    else snprintf(out, cap, "%s", w->hf);
}

static uint16_t value_bits(const struct model_weight *w, int64_t i) {
    const uint64_t h = hash_mix((uint64_t)(w->slot * 64 + w->layer) * 0x9e3779b97f4a7c15u + (uint64_t)i);
    return half_to_bf16((float)(int32_t)(h >> 32) * 0x1p-34f);
}

static int64_t row_elems(const struct model_weight *w) {
    return w->n * (w->k ? w->k : 1);
}

static void write_tensor(FILE *f, const struct model_weight *w) {
    static uint16_t buf[4096];
    const int64_t n = row_elems(w);
    for (int64_t i = 0; i < n; i += 4096) {
        const int64_t m = n - i < 4096 ? n - i : 4096;
        for (int64_t j = 0; j < m; j++) buf[j] = value_bits(w, i + j);
        assert_int_equal(fwrite(buf, 2, (size_t)m, f), m);
    }
}

static void write_shard(const struct model *m) {
    struct strbuf head = {0};
    char name[128];
    int64_t at = 0;
    strbuf_putc(&head, '{');
    for (size_t i = 0; i < m->n_rows; i++) {
        const struct model_weight *const w = &m->rows[i];
        if (w->optional) continue;
        row_name(name, sizeof name, w);
        strbuf_printf(&head, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%lld", at ? "," : "", name, (long long)w->n);
        if (w->k) strbuf_printf(&head, ",%lld", (long long)w->k);
        strbuf_printf(&head, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + 2 * row_elems(w)));
        at += 2 * row_elems(w);
    }
    strbuf_putc(&head, '}');
    const uint64_t len = head.len;
    FILE *const f = fopen(path_of("model.safetensors"), "wb");
    assert_non_null(f);
    assert_true(fwrite(&len, 8, 1, f) == 1 && fwrite(strbuf_cstr(&head), head.len, 1, f) == 1);
    for (size_t i = 0; i < m->n_rows; i++)
        if (!m->rows[i].optional) write_tensor(f, &m->rows[i]);
    assert_int_equal(fclose(f), 0);
    strbuf_deinit(&head);
}

static int make_model(void **state) {
    struct err_msg msg;
    struct ckpt *c;
    struct model m;
    (void)state;
    assert_non_null(mkdtemp(dir));
    FILE *const f = fopen(path_of("config.json"), "w");
    assert_non_null(f);
    assert_true(fputs(config, f) >= 0 && fclose(f) == 0);
    assert_int_equal(ckpt_open_config(&c, dir, &msg), ERR_OK);
    assert_int_equal(model_open(&m, c, &msg), ERR_OK);
    write_shard(&m);
    model_deinit(&m);
    ckpt_close(c);
    return 0;
}

static int remove_model(void **state) {
    (void)state;
    unlink(path_of("config.json"));
    unlink(path_of("model.safetensors"));
    return rmdir(dir);
}

/* ---- loading ---- */

/* An engine's weights, as the runner binds them. */
struct loaded {
    struct kern kern;
    struct topology topology;
    struct pool *pool;
    struct ckpt *ckpt;
    struct model model;
    struct bound bound;
};

static void load(struct loaded *l, int lanes, int nodes, struct bind_options opt) {
    struct err_msg msg = {{0}};
    const struct topology_options topo = {.fake_nodes = nodes};
    const struct pool_options pool = {.n_lanes = lanes};
    kern_init(&l->kern, cpu_detect());
    opt.kern = &l->kern;
    opt.topology = &l->topology;
    if (topology_read(&l->topology, &topo, &msg) || pool_create(&l->pool, &l->topology, &pool, &msg) ||
        (opt.dummy ? ckpt_open_config(&l->ckpt, dir, &msg) : ckpt_open(&l->ckpt, dir, &msg)) ||
        model_open(&l->model, l->ckpt, &msg))
        fail_msg("%s", msg.text);
    opt.pool = l->pool;
    if (model_bind(&l->model, l->ckpt, &opt, &l->bound, &msg)) fail_msg("%s", msg.text);
}

static void unload(struct loaded *l) {
    bound_deinit(&l->bound);
    model_deinit(&l->model);
    ckpt_close(l->ckpt);
    pool_destroy(l->pool);
    topology_deinit(&l->topology);
}

static const struct weight *weight_of(const struct loaded *l, const struct model_weight *w) {
    return &l->model.mats[w->slot][w->layer];
}

/* Some rows of every matrix, first and last among them, against the file, by way of the type they are packed in. */
static void check_rows(const struct loaded *l, enum dtype type) {
    static float want[4096], have[4096];
    static char coded[4096 * 4];
    for (size_t i = 0; i < l->model.n_rows; i++) {
        const struct model_weight *const w = &l->model.rows[i];
        if (w->optional || !w->k) continue;
        for (int64_t r = 0; r < w->n; r = r + 611 < w->n || r == w->n - 1 ? r + 611 : w->n - 1) {
            for (int64_t j = 0; j < w->k; j++) want[j] = half_from_bf16(value_bits(w, r * w->k + j));
            quant_encode_row(type, coded, want, w->k);
            quant_decode_row(type, want, coded, w->k);
            weight_row(weight_of(l, w), r, have);
            assert_memory_equal(have, want, (size_t)w->k * sizeof *have);
        }
    }
}

static void test_values(void **state) {
    (void)state;
    for (int nodes = 0; nodes <= 2; nodes += 2) {
        struct loaded l;
        load(&l, 2, nodes, (struct bind_options){0});
        check_rows(&l, DTYPE_BF16);
        unload(&l);
        load(&l, 3, nodes, (struct bind_options){.convert = true, .quantize = DTYPE_Q4_0});
        check_rows(&l, DTYPE_Q4_0);
        unload(&l);
    }
}

/* Random weights: the same ones for any lanes, different rows, and the spread of a trained layer. */
static void test_dummy(void **state) {
    static float a[4096], b[4096];
    struct loaded one, two;
    const struct bind_options opt = {.dummy = true, .convert = true, .quantize = DTYPE_Q8_0};
    (void)state;
    load(&one, 1, 0, opt);
    load(&two, 2, 2, opt);
    for (size_t i = 0; i < one.model.n_rows; i++) {
        const struct model_weight *const w = &one.model.rows[i];
        if (w->optional || !w->k) continue;
        double sum = 0, squares = 0;
        for (int64_t r = 0; r < w->n; r += 97) {
            weight_row(weight_of(&one, w), r, a);
            weight_row(weight_of(&two, w), r, b);
            assert_memory_equal(a, b, (size_t)w->k * sizeof *a);
            for (int64_t j = 0; j < w->k; j++) sum += (double)a[j], squares += (double)a[j] * (double)a[j];
            if (r > 0) continue;
            weight_row(weight_of(&one, w), 1, b);
            assert_memory_not_equal(a, b, (size_t)w->k * sizeof *a);
        }
        const double n = (double)((w->n + 96) / 97) * (double)w->k;
        assert_true(squares / n * (double)w->k > 0.8 && squares / n * (double)w->k < 1.2);
        assert_true(sum / n < 0.1 * 1.7 / 32 && sum / n > -0.1 * 1.7 / 32);
    }
    unload(&one);
    unload(&two);
}

/* ---- memory ---- */

/* The process's peak, pages of mapped files included. */
static int64_t peak_bytes(void) {
    char *text = NULL;
    assert_int_equal(file_read_all("/proc/self/status", 1 << 20, &text, NULL, NULL), ERR_OK);
    const char *const at = strstr(text, "VmHWM:");
    const int64_t kib = at ? strtoll(at + 6, NULL, 10) : 0;
    mem_free(text);
    return kib << 10;
}

/* In a child: loads and says how much it took. */
static void load_and_tell(int fd, struct bind_options opt) {
    static struct loaded l;
    load(&l, 2, 0, opt);
    const int64_t numbers[] = {peak_bytes(), l.bound.packed_bytes, l.bound.source_bytes};
    _exit(write(fd, numbers, sizeof numbers) == (ssize_t)sizeof numbers ? 0 : 1);
}

static void check_peak(struct bind_options opt) {
    int64_t numbers[3] = {0};
    int fd[2], status = 1;
    if (SHADOWED) skip();
    assert_int_equal(pipe(fd), 0);
    const pid_t child = fork();
    if (child == 0) load_and_tell(fd[1], opt);
    close(fd[1]);
    const ssize_t n = read(fd[0], numbers, sizeof numbers);
    close(fd[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(n, sizeof numbers);
    const int64_t limit = numbers[1] + numbers[1] / 20 + (64 << 20);
    print_message("packed %lld MiB of %lld MiB: peak %lld MiB, limit %lld MiB\n", (long long)numbers[1] >> 20,
                  (long long)numbers[2] >> 20, (long long)numbers[0] >> 20, (long long)limit >> 20);
    assert_true(numbers[2] > 100 << 20); /* more than the limit leaves beside the weights */
    assert_in_range(numbers[0], numbers[1], limit);
}

static void test_peak_of_packing(void **state) {
    (void)state;
    check_peak((struct bind_options){0});
}

static void test_peak_of_converting(void **state) {
    (void)state;
    check_peak((struct bind_options){.convert = true, .quantize = DTYPE_Q4_0});
}

int main(void) {
    /* The children first: they inherit what this process has by then. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peak_of_packing),
        cmocka_unit_test(test_peak_of_converting),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_dummy),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
