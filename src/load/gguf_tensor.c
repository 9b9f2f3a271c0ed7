/* Tensor infos of a GGUF file: string name, u32 number of dimensions, u64 each dimension (innermost
 * first), u32 type, u64 offset into the data section. */
#include "base/mem.h"
#include "load/gguf_int.h"
#include "load/quote.h"

struct type_row {
    const char *name; /* NULL: no such type */
    int dtype;        /* enum dtype, -1: known to exist but not supported */
};

// clang-format off
static const struct type_row types[] = {
    [0]  = {"f32", DTYPE_F32},       [1]  = {"f16", DTYPE_F16},       [2]  = {"q4_0", DTYPE_Q4_0},
    [3]  = {"q4_1", DTYPE_Q4_1},     [4]  = {"q4_2", -1},             [5]  = {"q4_3", -1},
    [6]  = {"q5_0", DTYPE_Q5_0},     [7]  = {"q5_1", DTYPE_Q5_1},     [8]  = {"q8_0", DTYPE_Q8_0},
    [9]  = {"q8_1", -1},             [10] = {"q2_k", DTYPE_Q2_K},     [11] = {"q3_k", DTYPE_Q3_K},
    [12] = {"q4_k", DTYPE_Q4_K},     [13] = {"q5_k", DTYPE_Q5_K},     [14] = {"q6_k", DTYPE_Q6_K},
    [15] = {"q8_k", -1},             [16] = {"iq2_xxs", -1},          [17] = {"iq2_xs", -1},
    [18] = {"iq3_xxs", -1},          [19] = {"iq1_s", -1},            [20] = {"iq4_nl", DTYPE_IQ4_NL},
    [21] = {"iq3_s", -1},            [22] = {"iq2_s", -1},            [23] = {"iq4_xs", DTYPE_IQ4_XS},
    [24] = {"i8", DTYPE_I8},         [25] = {"i16", DTYPE_I16},       [26] = {"i32", DTYPE_I32},
    [27] = {"i64", DTYPE_I64},       [28] = {"f64", DTYPE_F64},       [29] = {"iq1_m", -1},
    [30] = {"bf16", DTYPE_BF16},     [31] = {"q4_0_4_4", -1},         [32] = {"q4_0_4_8", -1},
    [33] = {"q4_0_8_8", -1},         [34] = {"tq1_0", -1},            [35] = {"tq2_0", -1},
    [36] = {"iq4_nl_4_4", -1},       [37] = {"iq4_nl_4_8", -1},       [38] = {"iq4_nl_8_8", -1},
    [39] = {"mxfp4", DTYPE_MXFP4},   [40] = {"nvfp4", -1},            [41] = {"q1_0", -1},
    [42] = {"q2_0", -1},
};
// clang-format on

#define SUPPORTED "f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k..q6_k iq4_nl iq4_xs mxfp4"

/* One info as read, before its data is checked. */
struct info {
    struct quote name; /* for messages */
    size_t where;      /* byte of the file where the info begins */
    struct ckpt_tensor t;
    size_t name_len;
    uint64_t offset; /* into the data section */
};

static enum err read_dims(struct gguf_cursor *c, struct info *in) {
    uint32_t n = 0;
    TRY(gguf_take_u32(c, &n, "the number of dimensions of a tensor"));
    if (n > CKPT_DIMS_MAX)
        return err_set(c->msg, ERR_FORMAT, "%s: tensor \"%s\" at byte %zu has %u dimensions, at most %d are possible",
                       c->source, in->name.text, in->where, n, CKPT_DIMS_MAX);
    in->t.n_dims = (int)n;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t d = 0;
        TRY(gguf_take_u64(c, &d, "a dimension of a tensor"));
        if (d == 0 || d > INT64_MAX)
            return err_set(c->msg, ERR_FORMAT,
                           "%s: tensor \"%s\" at byte %zu has a dimension of %lld; the file is damaged", c->source,
                           in->name.text, in->where, (long long)d);
        in->t.shape[n - 1 - i] = (int64_t)d; /* the file lists the innermost first */
    }
    return ERR_OK;
}

static enum err read_type(struct gguf_cursor *c, struct info *in) {
    uint32_t id = 0;
    TRY(gguf_take_u32(c, &id, "the type of a tensor"));
    if (id >= N_ELEMENTS(types) || !types[id].name)
        return err_set(c->msg, ERR_UNSUPPORTED,
                       "%s: tensor \"%s\" at byte %zu has the unknown type %u; supported are " SUPPORTED, c->source,
                       in->name.text, in->where, id);
    if (types[id].dtype < 0)
        return err_set(c->msg, ERR_UNSUPPORTED,
                       "%s: tensor \"%s\" has type %s, which is not supported; use a file with " SUPPORTED, c->source,
                       in->name.text, types[id].name);
    in->t.dtype = (enum dtype)types[id].dtype;
    return ERR_OK;
}

/* Bytes of the whole tensor: rows of whole blocks. */
static enum err count_bytes(const struct gguf_cursor *c, struct info *in) {
    const struct ckpt_tensor *const t = &in->t;
    const struct dtype_info *const d = dtype_info(t->dtype);
    const int64_t row = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    size_t bytes = 0;
    if (row % d->block_elems)
        return err_set(c->msg, ERR_FORMAT,
                       "%s: tensor \"%s\" at byte %zu has rows of %lld elements, no multiple of the %d of a %s block",
                       c->source, in->name.text, in->where, (long long)row, d->block_elems, d->name);
    bool ok = dtype_row_bytes(t->dtype, row, &bytes);
    for (int i = 0; i + 1 < t->n_dims && ok; i++) ok = mem_mul_ok(bytes, (size_t)t->shape[i], &bytes);
    if (!ok || bytes > PTRDIFF_MAX)
        return err_set(c->msg, ERR_FORMAT,
                       "%s: tensor \"%s\" at byte %zu is larger than the address space; the file is "
                       "damaged",
                       c->source, in->name.text, in->where);
    in->t.bytes = bytes;
    return ERR_OK;
}

static enum err read_info(struct gguf_cursor *c, struct info *in) {
    *in = (struct info){.where = c->pos};
    TRY(gguf_take_string(c, &in->t.name, &in->name_len, "the name of a tensor"));
    quote_name(&in->name, in->t.name, in->name_len);
    TRY(read_dims(c, in));
    TRY(read_type(c, in));
    TRY(gguf_take_u64(c, &in->offset, "the offset of a tensor"));
    return count_bytes(c, in);
}

/* Turns the offset into a pointer. begin: of the data section, at most the size of the file. */
static enum err place(const struct gguf_cursor *c, struct info *in, size_t begin, size_t alignment) {
    if (in->offset % alignment)
        return err_set(c->msg, ERR_FORMAT,
                       "%s: tensor \"%s\" at byte %zu has offset %llu, no multiple of the alignment %zu", c->source,
                       in->name.text, in->where, (unsigned long long)in->offset, alignment);
    const size_t left = c->size - begin;
    if (in->offset > left || in->t.bytes > left - (size_t)in->offset)
        return err_set(
            c->msg, ERR_FORMAT,
            "%s: tensor \"%s\" needs %zu bytes at data offset %llu, but the file ends after %zu; it is damaged or "
            "cut short, download it again",
            c->source, in->name.text, in->t.bytes, (unsigned long long)in->offset, left);
    in->t.data = c->data + begin + (size_t)in->offset;
    return ERR_OK;
}

/* The data section begins behind the infos, so they are walked twice: once to find it. */
static enum err find_data(struct gguf_cursor c, uint64_t n, size_t alignment, size_t *begin) {
    struct info in;
    for (uint64_t i = 0; i < n; i++) TRY(read_info(&c, &in));
    if (!mem_add_ok(c.pos, alignment - 1, begin))
        return err_set(c.msg, ERR_FORMAT, "%s: is larger than the address space", c.source);
    *begin &= ~(alignment - 1);
    if (*begin > c.size)
        return err_set(c.msg, ERR_FORMAT,
                       "%s: ends at byte %zu, before the data of its %llu tensors; download it again", c.source, c.size,
                       (unsigned long long)n);
    return ERR_OK;
}

enum err gguf_tensor_read(struct gguf_cursor *c, uint64_t n_tensors, size_t alignment, struct tensor_set *set) {
    if (n_tensors == 0) return ERR_OK; /* a vocabulary alone: may end without padding */
    const size_t first = set->n;
    size_t begin = 0;
    TRY(find_data(*c, n_tensors, alignment, &begin));
    for (uint64_t i = 0; i < n_tensors; i++) {
        struct info in;
        TRY(read_info(c, &in));
        TRY(place(c, &in, begin, alignment));
        TRY(tensor_set_add(set, &in.t, in.name_len, c->source, c->msg));
    }
    return tensor_set_check_overlap(set, first, c->data, c->source, c->msg);
}
