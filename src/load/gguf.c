#include "load/gguf.h"

#include "base/mem.h"
#include "load/gguf_int.h"
#include "load/quote.h"

enum {
    KEY_MAX = 65535,        /* bytes; the format's own limit */
    N_VALUES_MAX = 1 << 20, /* keys of a file; real ones have fewer than 100 */
    ARRAY_DEPTH_MAX = 4,    /* arrays in arrays */
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 24,
    N_BLOCKS_MAX = 512,
    VALUE_BYTES_MIN = 8 + 4 + 1,    /* an empty key (refused later, by its own message), a type, a value of one byte */
    INFO_BYTES_MIN = 8 + 4 + 4 + 8, /* an empty name, no dimensions, a type, an offset */
};

/* Bytes of a fixed-size type, 0 for strings and arrays. */
static const uint8_t type_bytes[GGUF_N_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

enum err gguf_take(struct gguf_cursor *c, size_t n, const uint8_t **p, const char *what) {
    if (n > c->size - c->pos)
        return err_set(c->msg, ERR_FORMAT,
                       "%s: ends at byte %zu inside %s, which begins at byte %zu; the file is damaged or cut short, "
                       "download it again",
                       c->source, c->size, what, c->pos);
    *p = c->data + c->pos;
    c->pos += n;
    return ERR_OK;
}

enum err gguf_take_u32(struct gguf_cursor *c, uint32_t *out, const char *what) {
    const uint8_t *p = NULL;
    TRY(gguf_take(c, sizeof *out, &p, what));
    memcpy(out, p, sizeof *out);
    return ERR_OK;
}

enum err gguf_take_u64(struct gguf_cursor *c, uint64_t *out, const char *what) {
    const uint8_t *p = NULL;
    TRY(gguf_take(c, sizeof *out, &p, what));
    memcpy(out, p, sizeof *out);
    return ERR_OK;
}

enum err gguf_take_string(struct gguf_cursor *c, const char **out, size_t *len, const char *what) {
    uint64_t n = 0;
    TRY(gguf_take_u64(c, &n, what));
    if (n > c->size - c->pos)
        return err_set(c->msg, ERR_FORMAT,
                       "%s: %s at byte %zu claims %llu bytes, but only %zu are left; the file is damaged or cut short",
                       c->source, what, c->pos - 8, (unsigned long long)n, c->size - c->pos);
    *out = (const char *)c->data + c->pos;
    *len = (size_t)n;
    c->pos += (size_t)n;
    return ERR_OK;
}

/* Refuses n elements of at least min bytes each when the rest of the file cannot hold them. */
static enum err check_count(const struct gguf_cursor *c, uint64_t n, size_t min, const char *what) {
    if (n <= (c->size - c->pos) / min) return ERR_OK;
    return err_set(
        c->msg, ERR_FORMAT,
        "%s: claims %llu %s before byte %zu, more than its %zu bytes can hold; the file is damaged or cut short",
        c->source, (unsigned long long)n, what, c->pos, c->size);
}

static enum err check_type(const struct gguf_cursor *c, uint32_t type, const char *key) {
    if (type < GGUF_N_TYPES) return ERR_OK;
    return err_set(c->msg, ERR_FORMAT, "%s: key \"%s\" has value type %u before byte %zu; types 0 to 12 exist",
                   c->source, key, type, c->pos);
}

/* Passes over the elements of an array that holds arrays. */
static enum err skip_nested(struct gguf_cursor *c, uint64_t n, int depth, const char *key) {
    if (depth > ARRAY_DEPTH_MAX)
        return err_set(c->msg, ERR_LIMIT, "%s: key \"%s\" nests arrays deeper than %d at byte %zu", c->source, key,
                       ARRAY_DEPTH_MAX, c->pos);
    TRY(check_count(c, n, 12, "arrays in an array"));
    for (uint64_t i = 0; i < n; i++) {
        uint32_t type = 0;
        uint64_t count = 0;
        const uint8_t *skipped = NULL;
        TRY(gguf_take_u32(c, &type, "an array type"));
        TRY(check_type(c, type, key));
        TRY(gguf_take_u64(c, &count, "an array length"));
        if (type == GGUF_ARRAY) {
            TRY(skip_nested(c, count, depth + 1, key));
        } else if (type == GGUF_STRING) {
            const char *s = NULL;
            size_t len = 0;
            TRY(check_count(c, count, 8, "strings in an array"));
            for (uint64_t j = 0; j < count; j++) TRY(gguf_take_string(c, &s, &len, "a string"));
        } else {
            TRY(check_count(c, count, type_bytes[type], "array elements"));
            TRY(gguf_take(c, (size_t)count * type_bytes[type], &skipped, "an array"));
        }
    }
    return ERR_OK;
}

/* Two passes: the first checks and sums the lengths, the second copies into one block. */
static enum err read_strings(struct gguf_cursor *c, struct gguf_value *v, const char *key) {
    TRY(check_count(c, v->n, 8, "strings in an array"));
    const size_t n = (size_t)v->n, begin = c->pos;
    const char *s = NULL;
    size_t len = 0;
    for (size_t i = 0; i < n; i++) TRY(gguf_take_string(c, &s, &len, "a string"));
    /* n lengths of 8 bytes were just read, so neither sum can overflow. */
    v->text = mem_alloc(c->pos - begin - n * 8 + n);
    v->starts = mem_calloc(n + 1, sizeof *v->starts);
    if (!v->text || !v->starts)
        return err_set(c->msg, ERR_NOMEM, "%s: no memory for the %zu strings of \"%s\"", c->source, n, key);
    c->pos = begin;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        TRY(gguf_take_string(c, &s, &len, "a string"));
        v->starts[i] = at;
        memcpy(v->text + at, s, len);
        v->text[at + len] = '\0';
        at += len + 1;
    }
    v->starts[n] = at;
    return ERR_OK;
}

static enum err read_value(struct gguf_cursor *c, struct gguf_value *v, const char *key) {
    uint32_t type = 0;
    TRY(gguf_take_u32(c, &type, "a value type"));
    TRY(check_type(c, type, key));
    v->n = 1;
    if (type == GGUF_ARRAY) {
        v->is_array = true;
        TRY(gguf_take_u32(c, &type, "an array type"));
        TRY(check_type(c, type, key));
        TRY(gguf_take_u64(c, &v->n, "an array length"));
    }
    v->type = (enum gguf_type)type;
    if (type == GGUF_ARRAY) return skip_nested(c, v->n, 1, key);
    if (type == GGUF_STRING) return read_strings(c, v, key);
    TRY(check_count(c, v->n, type_bytes[type], "array elements"));
    return gguf_take(c, (size_t)v->n * type_bytes[type], &v->data, "a value");
}

static enum err check_key(const struct gguf_cursor *c, const struct gguf *g, const char *key, size_t len) {
    struct quote q;
    if (len == 0)
        return err_set(c->msg, ERR_FORMAT, "%s: the key before byte %zu is empty; the file is damaged", c->source,
                       c->pos);
    if (len > KEY_MAX || memchr(key, '\0', len))
        return err_set(c->msg, ERR_FORMAT, "%s: key \"%s\" before byte %zu is too long or contains a NUL byte",
                       c->source, quote_name(&q, key, len), c->pos);
    if (gguf_find(g, key, len))
        return err_set(c->msg, ERR_FORMAT, "%s: key \"%s\" occurs twice, again before byte %zu; the file is damaged",
                       c->source, quote_name(&q, key, len), c->pos);
    return ERR_OK;
}

static enum err read_pair(struct gguf_cursor *c, struct gguf *g) {
    const char *key = NULL;
    size_t len = 0;
    struct quote q;
    TRY(gguf_take_string(c, &key, &len, "a key"));
    TRY(check_key(c, g, key, len));
    if (!mem_grow(&g->values, &g->cap, g->n_values + 1, sizeof *g->values))
        return err_set(c->msg, ERR_NOMEM, "%s: no memory for its metadata", c->source);
    struct gguf_value *const v = &g->values[g->n_values];
    *v = (struct gguf_value){.key = mem_strndup(key, len), .key_len = len};
    g->n_values++; /* from here gguf_close frees what v owns */
    if (!v->key || !map_put(&g->by_key, v->key, len, (int64_t)g->n_values - 1))
        return err_set(c->msg, ERR_NOMEM, "%s: no memory for its metadata", c->source);
    return read_value(c, v, quote_name(&q, key, len));
}

static enum err check_version(const struct gguf_cursor *c, uint32_t version) {
    if (version == 2 || version == 3) return ERR_OK;
    if (version == 0x02000000u || version == 0x03000000u)
        return err_set(c->msg, ERR_UNSUPPORTED, "%s: is a big-endian GGUF file; convert it to little-endian",
                       c->source);
    return err_set(c->msg, ERR_UNSUPPORTED, "%s: GGUF version %u at byte 4; versions 2 and 3 are supported", c->source,
                   version);
}

static enum err read_header(struct gguf_cursor *c, struct gguf *g) {
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    uint64_t n_values = 0;
    if (c->size < 4 || memcmp(c->data, "GGUF", 4) != 0) {
        TRY(quote_check_stranger(c->data, c->size, c->source, c->msg));
        return err_set(c->msg, ERR_FORMAT, "%s: is no GGUF file: it does not begin with \"GGUF\"", c->source);
    }
    TRY(gguf_take(c, 4, &magic, "the magic"));
    TRY(gguf_take_u32(c, &version, "the version"));
    TRY(check_version(c, version));
    TRY(gguf_take_u64(c, &g->n_tensors, "the number of tensors"));
    TRY(gguf_take_u64(c, &n_values, "the number of keys"));
    TRY(check_count(c, n_values, VALUE_BYTES_MIN, "keys"));
    TRY(check_count(c, g->n_tensors, INFO_BYTES_MIN, "tensors"));
    if (n_values > N_VALUES_MAX)
        return err_set(c->msg, ERR_LIMIT, "%s: has %llu keys, at most %d are allowed", c->source,
                       (unsigned long long)n_values, N_VALUES_MAX);
    for (uint64_t i = 0; i < n_values; i++) TRY(read_pair(c, g));
    return ERR_OK;
}

static const struct gguf_value *find_z(const struct gguf *g, const char *key) { return gguf_find(g, key, strlen(key)); }

static enum err read_alignment(const struct gguf_cursor *c, const struct gguf *g, size_t *out) {
    const struct gguf_value *const v = find_z(g, "general.alignment");
    int64_t a = ALIGNMENT_DEFAULT;
    if (v && (v->is_array || v->type == GGUF_BOOL || !gguf_i64(v, 0, &a)))
        return err_set(c->msg, ERR_FORMAT, "%s: key \"general.alignment\" is not an integer", c->source);
    if (a < 8 || a > ALIGNMENT_MAX || (a & (a - 1)))
        return err_set(c->msg, ERR_FORMAT,
                       "%s: key \"general.alignment\" is %lld; it must be a power of two from 8 to %d", c->source,
                       (long long)a, ALIGNMENT_MAX);
    *out = (size_t)a;
    return ERR_OK;
}

/* Readers size tables by the number of blocks; this is the one number of a model that is checked here. */
static enum err check_blocks(const struct gguf_cursor *c, const struct gguf *g) {
    static const char suffix[] = ".block_count";
    for (size_t i = 0; i < g->n_values; i++) {
        const struct gguf_value *const v = &g->values[i];
        const size_t n = sizeof suffix - 1;
        if (v->key_len <= n || memcmp(v->key + v->key_len - n, suffix, n) != 0) continue;
        struct quote q;
        int64_t blocks;
        if (v->is_array || !gguf_i64(v, 0, &blocks) || blocks < 0)
            return err_set(c->msg, ERR_FORMAT, "%s: key \"%s\" is not a count", c->source,
                           quote_name(&q, v->key, v->key_len));
        if (blocks > N_BLOCKS_MAX)
            return err_set(c->msg, ERR_LIMIT, "%s: key \"%s\" is %lld; models of up to %d blocks are supported",
                           c->source, quote_name(&q, v->key, v->key_len), (long long)blocks, N_BLOCKS_MAX);
    }
    return ERR_OK;
}

static enum err parse(struct gguf_cursor *c, struct gguf *g, struct tensor_set *set) {
    size_t alignment = 0;
    TRY(read_header(c, g));
    TRY(read_alignment(c, g, &alignment));
    TRY(check_blocks(c, g));
    if (!set) return ERR_OK;
    return gguf_tensor_read(c, g->n_tensors, alignment, set);
}

enum err gguf_parse(struct gguf **out, struct tensor_set *set, const void *data, size_t size, const char *source,
                    struct err_msg *msg) {
    *out = NULL;
    struct gguf *const g = mem_calloc(1, sizeof *g);
    if (!g) return err_set(msg, ERR_NOMEM, "%s: no memory to open it", source);
    struct gguf_cursor c = {.data = data, .size = size, .source = source, .msg = msg};
    const enum err e = parse(&c, g, set);
    if (e != ERR_OK) {
        gguf_close(g);
        return e;
    }
    *out = g;
    return ERR_OK;
}

void gguf_close(struct gguf *g) {
    if (!g) return;
    for (size_t i = 0; i < g->n_values; i++) {
        mem_free(g->values[i].key);
        mem_free(g->values[i].text);
        mem_free(g->values[i].starts);
    }
    mem_free(g->values);
    map_deinit(&g->by_key);
    mem_free(g);
}

const struct gguf_value *gguf_find(const struct gguf *g, const char *key, size_t len) {
    int64_t i;
    return map_get(&g->by_key, key, len, &i) ? &g->values[i] : NULL;
}

bool gguf_i64(const struct gguf_value *v, uint64_t i, int64_t *out) {
    if (i >= v->n || !v->data) return false;
    const int bytes = type_bytes[v->type];
    uint64_t u = 0;
    memcpy(&u, v->data + i * (uint64_t)bytes, (size_t)bytes);
    switch (v->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32: *out = (int64_t)u; return true;
    case GGUF_BOOL: *out = u != 0; return true;
    case GGUF_I8: *out = (int8_t)u; return true;
    case GGUF_I16: *out = (int16_t)u; return true;
    case GGUF_I32: *out = (int32_t)u; return true;
    case GGUF_I64: *out = (int64_t)u; return true;
    case GGUF_U64:
        if (u > INT64_MAX) return false;
        *out = (int64_t)u;
        return true;
    default: return false;
    }
}

bool gguf_f64(const struct gguf_value *v, uint64_t i, double *out) {
    int64_t whole;
    if (i >= v->n || !v->data || v->type == GGUF_BOOL) return false;
    if (v->type == GGUF_F32) {
        float x;
        memcpy(&x, v->data + i * sizeof x, sizeof x);
        *out = (double)x;
        return true;
    }
    if (v->type == GGUF_F64 || v->type == GGUF_U64) {
        uint64_t u;
        memcpy(&u, v->data + i * sizeof u, sizeof u);
        if (v->type == GGUF_U64)
            *out = (double)u;
        else
            memcpy(out, &u, sizeof u);
        return true;
    }
    if (!gguf_i64(v, i, &whole)) return false;
    *out = (double)whole;
    return true;
}

bool gguf_str(const struct gguf_value *v, uint64_t i, const char **out, size_t *len) {
    if (i >= v->n || !v->starts) return false;
    *out = v->text + v->starts[i];
    if (len) *len = v->starts[i + 1] - v->starts[i] - 1;
    return true;
}
