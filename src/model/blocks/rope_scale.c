/* Rotary frequencies and their scaling rules (models.md 0.3; Llama 3.1 model card for llama3, Peng et al. 2023 for
 * YaRN). */
#include "model/blocks/block.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void read_f64(const struct conf *c, const char *object, const char *key, double *out) {
    char path[96];
    snprintf(path, sizeof path, "%s.%s", object, key);
    conf_f64(c, path, out);
}

static enum err rope_type(struct model_rope *r, const char *type, struct err_msg *msg) {
    static const struct {
        const char *name;
        enum model_rope_type type;
    } types[] = {{"default", MODEL_ROPE_DEFAULT}, {"none", MODEL_ROPE_DEFAULT}, {"linear", MODEL_ROPE_LINEAR},
                 {"llama3", MODEL_ROPE_LLAMA3},   {"yarn", MODEL_ROPE_YARN}};
    for (size_t i = 0; i < N_ELEMENTS(types); i++)
        if (strcmp(type, types[i].name) == 0) {
            r->type = types[i].type;
            return ERR_OK;
        }
    return err_set(msg, ERR_UNSUPPORTED, "rope scaling \"%.32s\": unknown; default, linear, llama3 and yarn are supported",
                   type);
}

/* One object of config.json: rope_scaling, or rope_parameters that also carries theta. */
static enum err read_hf(struct model_rope *r, const struct conf *c, const char *object, struct err_msg *msg) {
    char path[96];
    const char *type = "default";
    double original = (double)r->original_max, partial = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s.%s", object, i ? "rope_type" : "type");
        conf_str(c, path, &type, NULL);
    }
    read_f64(c, object, "rope_theta", &r->theta);
    read_f64(c, object, "factor", &r->factor);
    read_f64(c, object, "low_freq_factor", &r->low_freq_factor);
    read_f64(c, object, "high_freq_factor", &r->high_freq_factor);
    read_f64(c, object, "beta_fast", &r->beta_fast);
    read_f64(c, object, "beta_slow", &r->beta_slow);
    read_f64(c, object, "attention_factor", &r->attention_factor);
    read_f64(c, object, "mscale", &r->mscale);
    read_f64(c, object, "mscale_all_dim", &r->mscale_all_dim);
    read_f64(c, object, "original_max_position_embeddings", &original);
    read_f64(c, object, "partial_rotary_factor", &partial);
    if (partial > 0 && partial < 1) r->r = (int64_t)((double)r->r * partial);
    r->original_max = original > 0 && original < 1e15 ? (int64_t)original : 0;
    snprintf(path, sizeof path, "%s.truncate", object);
    conf_bool(c, path, &r->truncate);
    return rope_type(r, type, msg);
}

static enum err read_gguf(struct model_rope *r, const struct conf *c, struct err_msg *msg) {
    const char *type = "default";
    conf_str(c, "{arch}.rope.scaling.type", &type, NULL);
    conf_f64(c, "{arch}.rope.scaling.factor", &r->factor);
    conf_i64(c, "{arch}.rope.scaling.original_context_length", &r->original_max);
    conf_f64(c, "{arch}.rope.scaling.attn_factor", &r->attention_factor);
    conf_f64(c, "{arch}.rope.scaling.yarn_beta_fast", &r->beta_fast);
    conf_f64(c, "{arch}.rope.scaling.yarn_beta_slow", &r->beta_slow);
    return rope_type(r, type, msg);
}

enum err block_rope_conf(struct model *m, const struct conf *c, struct err_msg *msg) {
    struct model_rope *const r = &m->h.rope;
    r->factor = 1.0;
    r->low_freq_factor = 1.0;
    r->high_freq_factor = 4.0;
    r->beta_fast = 32.0;
    r->beta_slow = 1.0;
    r->truncate = true;
    if (r->r <= 0) r->r = m->h.head_dim;
    if (m->gguf) TRY(read_gguf(r, c, msg));
    if (!m->gguf && conf_type(c, "rope_scaling") == CONF_OBJECT) TRY(read_hf(r, c, "rope_scaling", msg));
    if (!m->gguf && conf_type(c, "rope_parameters") == CONF_OBJECT) TRY(read_hf(r, c, "rope_parameters", msg));
    if (r->original_max <= 0) r->original_max = m->h.max_position;
    if (r->r < 2 || r->r % 2 || r->r > m->h.head_dim)
        return err_set(msg, ERR_FORMAT, "%s: %lld rotary elements do not fit a head of %lld", conf_source(c),
                       (long long)r->r, (long long)m->h.head_dim);
    if (!(r->theta > 0) || !(r->factor > 0))
        return err_set(msg, ERR_FORMAT, "%s: rope theta and factor must be positive", conf_source(c));
    return ERR_OK;
}

static double llama3_freq(const struct model_rope *r, double f) {
    const double wavelength = 2.0 * M_PI / f, o = (double)r->original_max;
    if (wavelength < o / r->high_freq_factor) return f;
    if (wavelength > o / r->low_freq_factor) return f / r->factor;
    const double s = (o / wavelength - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1.0 - s) * f / r->factor + s * f;
}

/* The dimension whose wavelength makes n turns over the original context. */
static double yarn_dim(const struct model_rope *r, double n) {
    return (double)r->r * log((double)r->original_max / (2.0 * M_PI * n)) / (2.0 * log(r->theta));
}

static double yarn_freq(const struct model_rope *r, double f, int64_t i) {
    double low = yarn_dim(r, r->beta_fast), high = yarn_dim(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, (double)(r->r - 1));
    if (low == high) high += 0.001;
    const double ramp = fmin(fmax(((double)i - low) / (high - low), 0.0), 1.0);
    return f * (1.0 - ramp) + f / r->factor * ramp;
}

static double yarn_mscale(const struct model_rope *r, double m) {
    return r->factor > 1.0 ? 0.1 * m * log(r->factor) + 1.0 : 1.0;
}

static float yarn_factor(const struct model_rope *r) {
    if (r->attention_factor > 0) return (float)r->attention_factor;
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return (float)(yarn_mscale(r, r->mscale) / yarn_mscale(r, r->mscale_all_dim));
    return (float)yarn_mscale(r, 1.0);
}

float block_rope_freqs(const struct model_rope *rope, const float *divisor, float *freq) {
    for (int64_t i = 0; i < rope->r / 2; i++) {
        double f = pow(rope->theta, -2.0 * (double)i / (double)rope->r);
        if (rope->type == MODEL_ROPE_LINEAR) f /= rope->factor;
        if (rope->type == MODEL_ROPE_LLAMA3) f = llama3_freq(rope, f);
        if (rope->type == MODEL_ROPE_YARN) f = yarn_freq(rope, f, i);
        if (divisor) f /= (double)divisor[i];
        freq[i] = (float)f;
    }
    return rope->type == MODEL_ROPE_YARN ? yarn_factor(rope) : 1.0f;
}
