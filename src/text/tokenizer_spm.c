/* SentencePiece's tokenizer.model: a protobuf ModelProto, of which the pieces, the trainer's and the normalizer's
 * settings are read. Every length is checked against the bytes that are left; unknown fields are skipped. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_int.h"

struct reader {
    const unsigned char *p, *end;
};

/* A field: number, wire type, and its value as varint or as a stretch of bytes (fixed32: four of them). */
struct field {
    uint64_t number;
    int wire;
    uint64_t value;
    const unsigned char *bytes;
    size_t len;
};

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

static bool read_varint(struct reader *r, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && r->p < r->end; shift += 7) {
        const unsigned char b = *r->p++;
        *out |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) return true;
    }
    return false;
}

/* False: the bytes are damaged. */
static bool read_field(struct reader *r, struct field *f) {
    uint64_t key;
    if (!read_varint(r, &key)) return false;
    *f = (struct field){.number = key >> 3, .wire = (int)(key & 7)};
    uint64_t n = 0;
    switch (f->wire) {
    case WIRE_VARINT: return read_varint(r, &f->value);
    case WIRE_FIXED64: n = 8; break;
    case WIRE_FIXED32: n = 4; break;
    case WIRE_BYTES:
        if (!read_varint(r, &n)) return false;
        break;
    default: return false;
    }
    if (n > (uint64_t)(r->end - r->p)) return false;
    f->bytes = r->p;
    f->len = (size_t)n;
    r->p += n;
    return true;
}

static enum err damaged(struct err_msg *msg, const char *what) {
    return err_set(msg, ERR_FORMAT, "tokenizer.model: %s is damaged; it is no SentencePiece model", what);
}

enum model_type { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

struct model {
    struct tokenizer *t;
    double *scores;
    size_t cap_scores;
    uint64_t type;
    bool byte_fallback;
    int32_t bos, eos;
    struct normalizer_step step;
};

static enum err add_piece(struct model *m, const struct field *in, struct err_msg *msg) {
    struct reader r = {in->bytes, in->bytes + in->len};
    const char *text = "";
    size_t len = 0;
    float score = 0;
    uint64_t type = TOKEN_NORMAL;
    while (r.p < r.end) {
        struct field f;
        if (!read_field(&r, &f)) return damaged(msg, "a piece");
        if (f.number == 1 && f.wire == WIRE_BYTES) {
            text = (const char *)f.bytes;
            len = f.len;
        } else if (f.number == 2 && f.wire == WIRE_FIXED32) memcpy(&score, f.bytes, 4);
        else if (f.number == 3 && f.wire == WIRE_VARINT) type = f.value;
    }
    if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
        return err_set(msg, ERR_FORMAT, "tokenizer.model: piece %d has the unknown type %llu", m->t->vocab.n,
                       (unsigned long long)type);
    const int32_t id = m->t->vocab.n;
    if (!mem_grow(&m->scores, &m->cap_scores, (size_t)id + 1, sizeof *m->scores))
        return err_set(msg, ERR_NOMEM, "tokenizer: out of memory for the vocabulary");
    m->scores[id] = (double)score;
    return vocab_add(&m->t->vocab, id, text, len, (enum token_type)type, msg);
}

static enum err read_trainer(struct model *m, const struct field *in, struct err_msg *msg) {
    struct reader r = {in->bytes, in->bytes + in->len};
    while (r.p < r.end) {
        struct field f;
        if (!read_field(&r, &f)) return damaged(msg, "trainer_spec");
        if (f.wire != WIRE_VARINT) continue;
        switch (f.number) {
        case 3: m->type = f.value; break;
        case 24: m->step.spm.suffix = f.value; break;
        case 35: m->byte_fallback = f.value; break;
        case 41: m->bos = (int32_t)f.value; break;
        case 42: m->eos = (int32_t)f.value; break;
        default: break;
        }
    }
    return ERR_OK;
}

static enum err read_normalizer(struct model *m, const struct field *in, struct err_msg *msg) {
    struct reader r = {in->bytes, in->bytes + in->len};
    while (r.p < r.end) {
        struct field f;
        if (!read_field(&r, &f)) return damaged(msg, "normalizer_spec");
        if (f.number == 2 && f.wire == WIRE_BYTES && f.len) {
            charsmap_deinit(&m->step.map);
            TRY(charsmap_open(&m->step.map, f.bytes, f.len, msg));
        }
        if (f.wire != WIRE_VARINT) continue;
        if (f.number == 3) m->step.spm.add_dummy_prefix = f.value;
        if (f.number == 4) m->step.spm.remove_extra_whitespaces = f.value;
        if (f.number == 5) m->step.spm.escape_whitespaces = f.value;
    }
    return ERR_OK;
}

static enum err read_model(struct model *m, const void *bytes, size_t len, struct err_msg *msg) {
    struct reader r = {bytes, (const unsigned char *)bytes + len};
    while (r.p < r.end) {
        struct field f;
        if (!read_field(&r, &f)) return damaged(msg, "the file");
        if (f.wire != WIRE_BYTES) continue;
        if (f.number == 1) TRY(add_piece(m, &f, msg));
        if (f.number == 2) TRY(read_trainer(m, &f, msg));
        if (f.number == 3) TRY(read_normalizer(m, &f, msg));
    }
    if (!m->t->vocab.n) return damaged(msg, "the list of pieces");
    if (m->type != MODEL_UNIGRAM && m->type != MODEL_BPE)
        return err_set(msg, ERR_UNSUPPORTED, "tokenizer.model: model_type %llu is not supported (1 Unigram and 2 BPE are)",
                       (unsigned long long)m->type);
    return ERR_OK;
}

/* Byte tokens only count when the model says so. */
static void drop_bytes(struct tokenizer *t) {
    for (int32_t id = 0; id < t->vocab.n; id++)
        if (t->vocab.entries[id].type == TOKEN_BYTE) t->vocab.entries[id].type = TOKEN_UNUSED;
}

enum err tokenizer_spm_load(struct tokenizer *t, const void *bytes, size_t len, struct err_msg *msg) {
    struct model m = {.t = t, .type = MODEL_UNIGRAM, .bos = 1, .eos = 2};
    m.step.spm =
        (struct normalizer_spm){.add_dummy_prefix = true, .remove_extra_whitespaces = true, .escape_whitespaces = true};
    enum err e = read_model(&m, bytes, len, msg);
    t->use_unigram = m.type == MODEL_UNIGRAM;
    t->kind = t->use_unigram ? "unigram" : "spm";
    if (e == ERR_OK) {
        if (!m.byte_fallback) drop_bytes(t);
        e = tokenizer_build_spm(t, m.scores, m.step, msg);
    } else charsmap_deinit(&m.step.map);
    mem_free(m.scores);
    TRY(e);
    if (vocab_type(&t->vocab, m.bos) == TOKEN_CONTROL) t->bos = m.bos;
    if (vocab_type(&t->vocab, m.eos) == TOKEN_CONTROL) t->eos = m.eos;
    if (t->bos >= 0) t->prefix[t->n_prefix++] = t->bos;
    return ERR_OK;
}
