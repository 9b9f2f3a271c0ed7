#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/strbuf.h"

static bool name_in(const char *const *names, const char *name) {
    for (; *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

static enum err unknown_family(const char *name, const struct conf *c, struct err_msg *msg) {
    struct strbuf known = {0};
    for (const struct model_def *const *d = model_registry; *d; d++)
        strbuf_printf(&known, "%s%s", d == model_registry ? "" : ", ", (*d)->name);
    err_set(msg, ERR_UNSUPPORTED, "%s: architecture \"%.64s\" is not supported; known families: %s", conf_source(c), name,
            strbuf_cstr(&known));
    strbuf_deinit(&known);
    return ERR_UNSUPPORTED;
}

static enum err find_family(struct model *m, const struct conf *c, struct err_msg *msg) {
    const char *name = NULL;
    const bool found = m->gguf ? conf_str(c, "general.architecture", &name, NULL)
                               : conf_arr_str(c, "architectures", 0, &name, NULL);
    if (!found)
        return err_set(msg, ERR_FORMAT, "%s: names no architecture; is this a model?", conf_source(c));
    for (const struct model_def *const *d = model_registry; *d; d++)
        if (name_in(m->gguf ? (*d)->gguf_names : (*d)->hf_names, name)) {
            m->def = *d;
            return ERR_OK;
        }
    return unknown_family(name, c, msg);
}

static void store(struct model_hparams *h, const struct model_conf_row *r, int64_t i, double f, bool b) {
    char *const at = (char *)h + r->offset;
    if (r->type == MODEL_CONF_I64) memcpy(at, &i, sizeof i);
    else if (r->type == MODEL_CONF_F64) memcpy(at, &f, sizeof f);
    else memcpy(at, &b, sizeof b);
}

static enum err read_row(struct model *m, const struct conf *c, const struct model_conf_row *r, struct err_msg *msg) {
    const char *const key = m->gguf ? r->gguf : r->hf;
    int64_t i = (int64_t)r->fallback;
    double f = r->fallback;
    bool b = r->fallback != 0;
    if (key && conf_type(c, key) != CONF_NONE) {
        const bool ok = r->type == MODEL_CONF_I64   ? conf_i64(c, key, &i)
                        : r->type == MODEL_CONF_F64 ? conf_f64(c, key, &f)
                                                    : conf_bool(c, key, &b);
        if (!ok) return err_set(msg, ERR_FORMAT, "%s: \"%s\" has the wrong type", conf_source(c), key);
        if (!isfinite(f)) return err_set(msg, ERR_FORMAT, "%s: \"%s\" is not finite", conf_source(c), key);
    } else if (key && r->required) {
        return err_set(msg, ERR_FORMAT, "%s: \"%s\" is missing", conf_source(c), key);
    }
    store(&m->h, r, i, f, b);
    return ERR_OK;
}

/* A GGUF file need not say how large its vocabulary is: the embedding does. */
static void vocab_from_tensor(struct model *m, const struct ckpt *c) {
    const struct ckpt_tensor *const t = ckpt_find(c, "token_embd.weight");
    if (m->h.vocab == 0 && t && t->n_dims == 2) m->h.vocab = t->shape[0];
}

static enum err check_shape(const struct model *m, const struct conf *c, struct err_msg *msg) {
    const struct model_hparams *const h = &m->h;
    const struct {
        const char *what;
        int64_t value, max;
    } rows[] = {
        {"layers", h->n_layers, MODEL_LAYERS_MAX}, {"hidden size", h->hidden, 1 << 20},
        {"vocabulary", h->vocab, 1 << 24},         {"feed-forward size", h->ffn, 1 << 24},
        {"attention heads", h->n_heads, 1 << 14},  {"key-value heads", h->n_kv_heads, 1 << 14},
        {"head size", h->head_dim, 1 << 14},       {"context length", h->max_position, INT32_MAX},
    };
    for (size_t i = 0; i < N_ELEMENTS(rows); i++)
        if (rows[i].value < 1 || rows[i].value > rows[i].max)
            return err_set(msg, ERR_FORMAT, "%s: %s is %lld; 1 to %lld is possible", conf_source(c), rows[i].what,
                           (long long)rows[i].value, (long long)rows[i].max);
    if (h->n_heads % h->n_kv_heads)
        return err_set(msg, ERR_FORMAT, "%s: %lld attention heads are no multiple of %lld key-value heads", conf_source(c),
                       (long long)h->n_heads, (long long)h->n_kv_heads);
    return ERR_OK;
}

/* Layers with equal windows share a cache group. */
static enum err group_caches(struct model *m, struct err_msg *msg) {
    m->layers = arena_alloc(&m->arena, (size_t)m->h.n_layers * sizeof *m->layers);
    if (!m->layers) return err_set(msg, ERR_NOMEM, "model: memory ran out");
    for (int l = 0; l < m->h.n_layers; l++) {
        const int64_t window = model_window(m, l);
        int g = 0;
        while (g < m->n_caches && m->caches[g].window != window) g++;
        if (g == MODEL_CACHE_GROUPS_MAX)
            return err_set(msg, ERR_UNSUPPORTED, "model: more than %d different attention windows", g);
        if (g == m->n_caches) m->caches[m->n_caches++] = (struct model_cache){.window = window};
        struct paged_layer *const p = &m->layers[l];
        p->group = g;
        p->layer_in_group = m->caches[g].n_layers++;
        p->n_kv = (int)m->h.n_kv_heads;
        p->d = p->dv = (int)m->h.head_dim;
        p->window = window;
    }
    return ERR_OK;
}

static enum err open_all(struct model *m, const struct ckpt *ckpt, struct err_msg *msg) {
    const struct conf *const c = ckpt_conf(ckpt);
    TRY(find_family(m, c, msg));
    for (const struct model_conf_row *r = m->def->conf; r->offset != SIZE_MAX; r++) TRY(read_row(m, c, r, msg));
    if (m->gguf) vocab_from_tensor(m, ckpt);
    if (m->h.n_kv_heads == 0) m->h.n_kv_heads = m->h.n_heads;
    if (m->h.head_dim == 0 && m->h.n_heads > 0) m->h.head_dim = m->h.hidden / m->h.n_heads;
    TRY(check_shape(m, c, msg));
    TRY(m->def->derive(m, c, msg));
    TRY(group_caches(m, msg));
    return m->def->weights(m, msg);
}

enum err model_open(struct model *m, const struct ckpt *c, struct err_msg *msg) {
    *m = (struct model){.gguf = ckpt_is_gguf(c)};
    const enum err e = open_all(m, c, msg);
    if (e) model_deinit(m);
    return e;
}

void model_deinit(struct model *m) {
    mem_free(m->rows);
    arena_deinit(&m->arena);
    *m = (struct model){0};
}

enum err model_declare(struct model *m, const struct model_weight *w, struct err_msg *msg) {
    const size_t n = (size_t)m->h.n_layers;
    if (!mem_grow(&m->rows, &m->cap_rows, m->n_rows + 1, sizeof *m->rows))
        return err_set(msg, ERR_NOMEM, "model: memory ran out");
    m->rows[m->n_rows++] = *w;
    if (w->k && !m->mats[w->slot]) m->mats[w->slot] = arena_alloc(&m->arena, n * sizeof *m->mats[0]);
    if (!w->k && !m->vecs[w->slot]) m->vecs[w->slot] = arena_alloc(&m->arena, n * sizeof *m->vecs[0]);
    if (w->k ? !m->mats[w->slot] : !m->vecs[w->slot]) return err_set(msg, ERR_NOMEM, "model: memory ran out");
    return ERR_OK;
}

int64_t model_window(const struct model *m, int layer) {
    return m->h.use_window && layer >= m->h.window_from ? m->h.window : 0;
}
