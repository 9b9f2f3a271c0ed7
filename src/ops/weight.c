#include "ops/weight.h"

#include "base/check.h"
#include "base/mem.h"
#include "par/shard.h"

static const struct {
    enum dtype dtype;
    enum gemm_format format;
} formats[] = {
    {DTYPE_F32, GEMM_F32},       {DTYPE_F16, GEMM_F16},       {DTYPE_BF16, GEMM_BF16},
    {DTYPE_Q8_0, GEMM_Q8_0},     {DTYPE_Q4_0, GEMM_Q4_0},     {DTYPE_Q4_1, GEMM_Q4_1},
    {DTYPE_Q5_0, GEMM_Q5_0},     {DTYPE_Q5_1, GEMM_Q5_1},     {DTYPE_Q2_K, GEMM_Q2_K},
    {DTYPE_Q3_K, GEMM_Q3_K},     {DTYPE_Q4_K, GEMM_Q4_K},     {DTYPE_Q5_K, GEMM_Q5_K},
    {DTYPE_Q6_K, GEMM_Q6_K},     {DTYPE_IQ4_NL, GEMM_IQ4_NL}, {DTYPE_IQ4_XS, GEMM_IQ4_XS},
    {DTYPE_MXFP4, GEMM_MXFP4},
};

bool weight_format(enum dtype t, enum gemm_format *out) {
    for (size_t i = 0; i < N_ELEMENTS(formats); i++)
        if (formats[i].dtype == t) {
            *out = formats[i].format;
            return true;
        }
    return false;
}

enum err weight_init(struct weight *w, const char *name, int64_t n, int64_t k, enum dtype t, const struct kern *kern,
                     const int *team_size, int n_teams, struct err_msg *msg) {
    CHECK(n_teams >= 1 && n_teams <= PAGED_TEAMS_MAX);
    *w = (struct weight){.name = name, .n = n, .k = k, .n_teams = n_teams};
    const struct dtype_info *const info = dtype_info(t);
    if (n < 1 || k < 1 || n > INT32_MAX || k > INT32_MAX)
        return err_set(msg, ERR_FORMAT, "tensor %s: shape [%lld, %lld] is empty or too large", name, (long long)n,
                       (long long)k);
    if (!weight_format(t, &w->format) || !kern->gemm[w->format].isa)
        return err_set(msg, ERR_UNSUPPORTED,
                       "tensor %s: no kernel for type %s; convert the file, or use --dtype float32", name, info->name);
    if (k % info->block_elems)
        return err_set(msg, ERR_FORMAT, "tensor %s: rows of %lld are no multiple of the %d elements of a %s block", name,
                       (long long)k, info->block_elems, info->name);
    w->kern = &kern->gemm[w->format];
    w->panel_bytes = w->kern->panel_bytes(k);
    w->n_panels = (n + w->kern->panel - 1) / w->kern->panel;
    for (int i = 0; i <= n_teams; i++) w->panel0[i] = shard_first(w->n_panels, team_size, n_teams, i);
    return ERR_OK;
}

size_t weight_team_bytes(const struct weight *w, int t) {
    size_t bytes;
    CHECK(mem_mul_ok((size_t)(w->panel0[t + 1] - w->panel0[t]), w->panel_bytes, &bytes));
    return bytes;
}

void weight_pack_panel(const struct weight *w, int64_t p, const void *rows, size_t row_bytes) {
    const int64_t first = p * w->kern->panel;
    const int64_t left = w->n - first;
    w->kern->pack(weight_panel(w, p), rows, row_bytes, (int)(left < w->kern->panel ? left : w->kern->panel), w->k);
}

void weight_row(const struct weight *w, int64_t i, float *out) {
    ASSERT(i >= 0 && i < w->n);
    w->kern->unpack_row(out, weight_panel(w, i / w->kern->panel), (int)(i % w->kern->panel), w->k);
}
