#include "tensor/dtype.h"

#include <strings.h>

#include "base/check.h"
#include "base/mem.h"

// clang-format off
static const struct dtype_info infos[DTYPE_N] = {
    [DTYPE_F32]     = {"f32", 1, 4},
    [DTYPE_F16]     = {"f16", 1, 2},
    [DTYPE_BF16]    = {"bf16", 1, 2},
    [DTYPE_F64]     = {"f64", 1, 8},
    [DTYPE_I8]      = {"i8", 1, 1},
    [DTYPE_U8]      = {"u8", 1, 1},
    [DTYPE_I16]     = {"i16", 1, 2},
    [DTYPE_I32]     = {"i32", 1, 4},
    [DTYPE_I64]     = {"i64", 1, 8},
    [DTYPE_BOOL]    = {"bool", 1, 1},
    [DTYPE_F8_E4M3] = {"f8_e4m3", 1, 1},
    [DTYPE_F8_E5M2] = {"f8_e5m2", 1, 1},
    [DTYPE_F8_E8M0] = {"f8_e8m0", 1, 1},
    [DTYPE_Q4_0]    = {"q4_0", 32, 18},
    [DTYPE_Q4_1]    = {"q4_1", 32, 20},
    [DTYPE_Q5_0]    = {"q5_0", 32, 22},
    [DTYPE_Q5_1]    = {"q5_1", 32, 24},
    [DTYPE_Q8_0]    = {"q8_0", 32, 34},
    [DTYPE_Q2_K]    = {"q2_k", 256, 84},
    [DTYPE_Q3_K]    = {"q3_k", 256, 110},
    [DTYPE_Q4_K]    = {"q4_k", 256, 144},
    [DTYPE_Q5_K]    = {"q5_k", 256, 176},
    [DTYPE_Q6_K]    = {"q6_k", 256, 210},
    [DTYPE_IQ4_NL]  = {"iq4_nl", 32, 18},
    [DTYPE_IQ4_XS]  = {"iq4_xs", 256, 136},
    [DTYPE_MXFP4]   = {"mxfp4", 32, 17},
};
// clang-format on

const struct dtype_info *dtype_info(enum dtype t) {
    CHECK((unsigned)t < DTYPE_N);
    return &infos[t];
}

bool dtype_by_name(const char *name, enum dtype *out) {
    for (int i = 0; i < DTYPE_N; i++)
        if (strcasecmp(name, infos[i].name) == 0) {
            *out = (enum dtype)i;
            return true;
        }
    return false;
}

bool dtype_row_bytes(enum dtype t, int64_t n, size_t *bytes) {
    const struct dtype_info *const d = dtype_info(t);
    if (n < 0 || n % d->block_elems) return false;
    return mem_mul_ok((size_t)(n / d->block_elems), (size_t)d->block_bytes, bytes);
}
