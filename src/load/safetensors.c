#include "load/safetensors.h"

#include <string.h>

#include "base/mem.h"
#include "load/jsonio.h"
#include "load/quote.h"

enum { HEADER_MAX = 100 * 1000 * 1000 }; /* bytes; the format's own limit */

struct reader {
    const char *data; /* the data section */
    size_t size;      /* its bytes */
    const char *source;
    struct err_msg *msg;
    struct tensor_set *set;
};

struct type_row {
    const char *name;
    enum dtype dtype;
};

// clang-format off
static const struct type_row types[] = {
    {"F32", DTYPE_F32}, {"F16", DTYPE_F16}, {"BF16", DTYPE_BF16}, {"F64", DTYPE_F64},
    {"I8", DTYPE_I8},   {"U8", DTYPE_U8},   {"BOOL", DTYPE_BOOL},
    {"I16", DTYPE_I16}, {"U16", DTYPE_I16}, {"I32", DTYPE_I32},   {"U32", DTYPE_I32},
    {"I64", DTYPE_I64}, {"U64", DTYPE_I64},
    {"F8_E4M3", DTYPE_F8_E4M3}, {"F8_E5M2", DTYPE_F8_E5M2}, {"F8_E8M0", DTYPE_F8_E8M0},
};
// clang-format on

static enum err read_type(const struct reader *r, const char *name, const json_t *v, enum dtype *out) {
    const char *const type = json_string_value(v);
    struct quote q;
    if (!type)
        return err_set(r->msg, ERR_FORMAT, "%s: tensor \"%s\" has no \"dtype\"; the file is damaged", r->source, name);
    for (size_t i = 0; i < N_ELEMENTS(types); i++)
        if (strcmp(types[i].name, type) == 0) {
            *out = types[i].dtype;
            return ERR_OK;
        }
    return err_set(
        r->msg, ERR_UNSUPPORTED,
        "%s: tensor \"%s\" has dtype %s, which is not supported; supported are F32 F16 BF16 F64 F8_E4M3 F8_E5M2 "
        "F8_E8M0 BOOL and integers",
        r->source, name, quote_name(&q, type, strlen(type)));
}

/* Fills the shape and the bytes that it needs. */
static enum err read_shape(const struct reader *r, const char *name, const json_t *v, struct ckpt_tensor *t) {
    if (!json_is_array(v))
        return err_set(r->msg, ERR_FORMAT, "%s: tensor \"%s\" has no \"shape\"; the file is damaged", r->source, name);
    const size_t n = json_array_size(v);
    if (n > CKPT_DIMS_MAX)
        return err_set(r->msg, ERR_UNSUPPORTED, "%s: tensor \"%s\" has %zu dimensions, at most %d are supported",
                       r->source, name, n, CKPT_DIMS_MAX);
    t->n_dims = (int)n;
    t->bytes = (size_t)dtype_info(t->dtype)->block_bytes;
    for (size_t i = 0; i < n; i++) {
        const json_t *const d = json_array_get(v, i);
        const json_int_t x = json_integer_value(d);
        if (!json_is_integer(d) || x < 0)
            return err_set(r->msg, ERR_FORMAT, "%s: dimension %zu of tensor \"%s\" is no count; the file is damaged",
                           r->source, i, name);
        if (!mem_mul_ok(t->bytes, (size_t)x, &t->bytes))
            return err_set(r->msg, ERR_FORMAT,
                           "%s: tensor \"%s\" is larger than the address space; the file is damaged", r->source, name);
        t->shape[i] = x;
    }
    return ERR_OK;
}

/* Turns the offsets into a pointer and compares them with the shape. */
static enum err place(const struct reader *r, const char *name, const json_t *v, struct ckpt_tensor *t) {
    const json_t *const begin = json_array_get(v, 0), *const end = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return err_set(r->msg, ERR_FORMAT,
                       "%s: tensor \"%s\" has no \"data_offsets\" [begin, end]; the file is damaged", r->source, name);
    const json_int_t a = json_integer_value(begin), b = json_integer_value(end);
    if (a < 0 || b < a)
        return err_set(r->msg, ERR_FORMAT, "%s: tensor \"%s\" has data_offsets [%lld, %lld]; the file is damaged",
                       r->source, name, (long long)a, (long long)b);
    if ((uint64_t)b > r->size)
        return err_set(
            r->msg, ERR_FORMAT,
            "%s: tensor \"%s\" ends at data offset %lld, but the file has %zu bytes of data; it is damaged or cut "
            "short, download it again",
            r->source, name, (long long)b, r->size);
    if ((uint64_t)(b - a) != t->bytes)
        return err_set(r->msg, ERR_FORMAT,
                       "%s: tensor \"%s\" has %lld bytes at data offset %lld, but its shape and dtype need "
                       "%zu; the file is damaged",
                       r->source, name, (long long)(b - a), (long long)a, t->bytes);
    t->data = r->data + (size_t)a;
    return ERR_OK;
}

static enum err read_tensor(const struct reader *r, const char *key, size_t len, const json_t *v) {
    struct quote q;
    struct ckpt_tensor t = {.name = key};
    const char *const name = quote_name(&q, key, len);
    if (!json_is_object(v))
        return err_set(r->msg, ERR_FORMAT, "%s: the header entry of tensor \"%s\" is no object", r->source, name);
    TRY(read_type(r, name, json_object_get(v, "dtype"), &t.dtype));
    TRY(read_shape(r, name, json_object_get(v, "shape"), &t));
    TRY(place(r, name, json_object_get(v, "data_offsets"), &t));
    return tensor_set_add(r->set, &t, len, r->source, r->msg);
}

static enum err read_header(const struct reader *r, json_t *root) {
    if (!json_is_object(root)) return err_set(r->msg, ERR_FORMAT, "%s: its header is no JSON object", r->source);
    for (void *i = json_object_iter(root); i; i = json_object_iter_next(root, i)) {
        const char *const key = json_object_iter_key(i);
        if (strcmp(key, "__metadata__") == 0) continue;
        TRY(read_tensor(r, key, json_object_iter_key_len(i), json_object_iter_value(i)));
    }
    return ERR_OK;
}

/* The bytes of the JSON header into *out. */
static enum err header_bytes(const void *data, size_t size, const char *source, size_t *out, struct err_msg *msg) {
    uint64_t n = 0;
    TRY(quote_check_stranger(data, size, source, msg));
    if (size < sizeof n)
        return err_set(msg, ERR_FORMAT, "%s: has only %zu bytes, no safetensors file; download it again", source, size);
    memcpy(&n, data, sizeof n); /* little-endian, as both our machines are */
    if (n > HEADER_MAX)
        return err_set(msg, ERR_FORMAT,
                       "%s: is no safetensors file: its first 8 bytes claim a header of %llu bytes, at most "
                       "%d are allowed",
                       source, (unsigned long long)n, HEADER_MAX);
    if (n > size - sizeof n)
        return err_set(msg, ERR_FORMAT,
                       "%s: its header of %llu bytes is longer than the file (%zu bytes); it is damaged or "
                       "cut short, download it again",
                       source, (unsigned long long)n, size);
    *out = (size_t)n;
    return ERR_OK;
}

enum err safetensors_parse(struct tensor_set *set, const void *data, size_t size, const char *source,
                           struct err_msg *msg) {
    size_t n = 0;
    json_t *root = NULL;
    TRY(header_bytes(data, size, source, &n, msg));
    const char *const text = (const char *)data + sizeof(uint64_t);
    TRY(jsonio_parse(&root, text, n, true, source, msg));
    const struct reader r = {
        .data = text + n, .size = size - sizeof(uint64_t) - n, .source = source, .msg = msg, .set = set};
    const size_t first = set->n;
    enum err e = read_header(&r, root);
    json_decref(root);
    if (e == ERR_OK) e = tensor_set_check_overlap(set, first, data, source, msg);
    return e;
}
