#include "load/ckpt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "load/conf_int.h"
#include "load/gguf.h"
#include "load/jsonio.h"
#include "load/quote.h"
#include "load/safetensors.h"
#include "load/tensor_set.h"
#include "sys/file.h"

enum {
    PARTS_MAX = 99999,           /* what the five digits of a part's name can say */
    CONFIG_BYTES_MAX = 16 << 20, /* config.json */
    JSON_BYTES_MAX = 512 << 20,  /* tokenizer.json and other files of a folder; the largest known has 33 MB */
    PART_SUFFIX = 21,            /* strlen("-00001-of-00003.gguf") + NUL */
};

struct part {
    struct file_map map;
    struct gguf *gguf; /* NULL for safetensors */
    char *path;
};

struct ckpt {
    char *path;
    char *dir; /* the folder of config.json; NULL for GGUF */
    bool is_gguf;
    struct part *parts;
    size_t n_parts, cap;
    struct conf *conf;
    struct tensor_set set;
};

/* "dir/file" in fresh memory. */
static enum err join(char **out, const char *dir, const char *file, struct err_msg *msg) {
    const size_t n_dir = strlen(dir), n_file = strlen(file);
    const bool slash = n_dir && dir[n_dir - 1] != '/';
    char *const s = mem_alloc(n_dir + slash + n_file + 1);
    if (!s) return err_set(msg, ERR_NOMEM, "%s: no memory to open it", dir);
    memcpy(s, dir, n_dir);
    if (slash) s[n_dir] = '/';
    memcpy(s + n_dir + slash, file, n_file + 1);
    *out = s;
    return ERR_OK;
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

static bool ends_with(const char *s, const char *suffix) {
    const size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

/* Maps one more file. Takes path, also on failure. *out stays valid until the next call. */
static enum err add_part(struct ckpt *c, char *path, struct part **out, struct err_msg *msg) {
    if (!mem_grow(&c->parts, &c->cap, c->n_parts + 1, sizeof *c->parts)) {
        err_set(msg, ERR_NOMEM, "%s: no memory to open it", path);
        mem_free(path);
        return ERR_NOMEM;
    }
    struct part *const p = &c->parts[c->n_parts++];
    *p = (struct part){.path = path};
    *out = p;
    return file_map_open(&p->map, path, msg);
}

/* ---- GGUF ---- */

/* Reads an integer key of the split; 0 when it is absent. */
static enum err split_key(const struct part *p, const char *key, int64_t max, int64_t *out, struct err_msg *msg) {
    const struct gguf_value *const v = gguf_find(p->gguf, key, strlen(key));
    *out = 0;
    if (!v) return ERR_OK;
    if (v->is_array || !gguf_i64(v, 0, out) || *out < 0 || *out > max)
        return err_set(msg, ERR_FORMAT, "%s: key \"%s\" is no count up to %lld; the file is damaged", p->path, key,
                       (long long)max);
    return ERR_OK;
}

/* Opens a file and reads its header, with the tensors unless config_only. */
static enum err open_gguf_part(struct ckpt *c, char *path, bool config_only, struct err_msg *msg) {
    struct part *p = NULL;
    TRY(add_part(c, path, &p, msg));
    return gguf_parse(&p->gguf, config_only ? NULL : &c->set, p->map.data, p->map.size, p->path, msg);
}

/* The path of part i (from 0) of n, made from the path of any part. */
static enum err part_path(char **out, const char *path, int64_t i, int64_t n, struct err_msg *msg) {
    const size_t len = strlen(path), n_suffix = PART_SUFFIX - 1;
    char suffix[64];
    snprintf(suffix, sizeof suffix, "-of-%05lld.gguf", (long long)n);
    if (len <= n_suffix || !ends_with(path, suffix) || path[len - n_suffix] != '-')
        return err_set(
            msg, ERR_FORMAT,
            "%s: is one of %lld parts of a model, but its name does not end with -00001-of-%05lld.gguf; give the "
            "parts their names back",
            path, (long long)n, (long long)n);
    char *const s = mem_strdup(path);
    if (!s) return err_set(msg, ERR_NOMEM, "%s: no memory to open it", path);
    snprintf(suffix, sizeof suffix, "-%05lld-of-%05lld.gguf", (long long)i + 1, (long long)n);
    memcpy(s + len - n_suffix, suffix, n_suffix);
    *out = s;
    return ERR_OK;
}

static enum err check_part(const struct part *p, int64_t i, int64_t n, struct err_msg *msg) {
    int64_t no = 0, count = 0;
    TRY(split_key(p, "split.no", PARTS_MAX, &no, msg));
    TRY(split_key(p, "split.count", PARTS_MAX, &count, msg));
    if (no == i && count == n) return ERR_OK;
    return err_set(msg, ERR_FORMAT,
                   "%s: says that it is part %lld of %lld, not %lld of %lld; the parts do not belong together", p->path,
                   (long long)no + 1, (long long)count, (long long)i + 1, (long long)n);
}

/* The file named was one of n parts: opens them all from the first. */
static enum err open_split(struct ckpt *c, int64_t n, bool config_only, struct err_msg *msg) {
    int64_t total = 0, n_tensors = 0;
    for (int64_t i = 0; i < (config_only ? 1 : n); i++) {
        char *path = NULL;
        TRY(part_path(&path, c->path, i, n, msg));
        const enum err e = open_gguf_part(c, path, config_only, msg);
        if (e != ERR_OK) return err_prefix(msg, e, "part %lld of %lld", (long long)i + 1, (long long)n);
        TRY(check_part(&c->parts[i], i, n, msg));
        n_tensors += (int64_t)c->parts[i].gguf->n_tensors;
    }
    TRY(split_key(&c->parts[0], "split.tensors.count", INT64_MAX, &total, msg));
    if (total && !config_only && total != n_tensors)
        return err_set(msg, ERR_FORMAT,
                       "%s: the %lld parts have %lld tensors, but %lld are announced; download them again", c->path,
                       (long long)n, (long long)n_tensors, (long long)total);
    return ERR_OK;
}

static void close_parts(struct ckpt *c) {
    for (size_t i = 0; i < c->n_parts; i++) {
        gguf_close(c->parts[i].gguf);
        file_map_close(&c->parts[i].map);
        mem_free(c->parts[i].path);
    }
    mem_free(c->parts);
    c->parts = NULL;
    c->n_parts = c->cap = 0;
}

static enum err open_gguf(struct ckpt *c, bool config_only, struct err_msg *msg) {
    int64_t n = 0;
    c->is_gguf = true;
    char *const path = mem_strdup(c->path);
    if (!path) return err_set(msg, ERR_NOMEM, "%s: no memory to open it", c->path);
    TRY(open_gguf_part(c, path, config_only, msg));
    TRY(split_key(&c->parts[0], "split.count", PARTS_MAX, &n, msg));
    if (n > 1) { /* one part of several, not always the first: start again with all of them */
        tensor_set_deinit(&c->set);
        close_parts(c);
        TRY(open_split(c, n, config_only, msg));
    }
    return conf_open_gguf(&c->conf, c->parts[0].gguf, c->parts[0].path, msg);
}

/* ---- safetensors ---- */

static enum err open_shard(struct ckpt *c, const char *file, struct err_msg *msg) {
    char *path = NULL;
    struct part *p = NULL;
    TRY(join(&path, c->dir, file, msg));
    TRY(add_part(c, path, &p, msg));
    return safetensors_parse(&c->set, p->map.data, p->map.size, p->path, msg);
}

/* The part that a tensor's data lies in. Shards are tens, rarely hundreds. */
static const struct part *part_of(const struct ckpt *c, const struct ckpt_tensor *t) {
    const uintptr_t at = (uintptr_t)t->data;
    for (size_t i = 0; i < c->n_parts; i++) {
        const uintptr_t begin = (uintptr_t)c->parts[i].map.data;
        if (at >= begin && at - begin <= c->parts[i].map.size) return &c->parts[i];
    }
    return NULL;
}

/* A file name of an index: plain, so that it cannot lead out of the folder. */
static bool is_plain_name(const char *s, size_t len) {
    return len > 0 && len < 256 && strlen(s) == len && !strchr(s, '/') && s[0] != '.';
}

/* Opens every file that the weight map names, once. opened: file name -> number of its part. */
static enum err open_listed(struct ckpt *c, json_t *weights, struct map *opened, const char *index,
                            struct err_msg *msg) {
    for (void *i = json_object_iter(weights); i; i = json_object_iter_next(weights, i)) {
        const json_t *const v = json_object_iter_value(i);
        const char *const file = json_string_value(v);
        struct quote q;
        const char *const key = json_object_iter_key(i);
        if (!file || !is_plain_name(file, json_string_length(v)))
            return err_set(msg, ERR_FORMAT, "%s: the file of tensor \"%s\" is no plain file name", index,
                           quote_name(&q, key, strlen(key)));
        if (map_get(opened, file, strlen(file), NULL)) continue;
        if (!map_put(opened, file, strlen(file), (int64_t)c->n_parts))
            return err_set(msg, ERR_NOMEM, "%s: no memory to open its files", index);
        const enum err e = open_shard(c, file, msg);
        if (e != ERR_OK) return e == ERR_NOMEM ? e : err_prefix(msg, e, "named by model.safetensors.index.json");
    }
    return ERR_OK;
}

static enum err check_listed(const struct ckpt *c, json_t *weights, const struct map *opened, const char *index,
                             struct err_msg *msg) {
    for (void *i = json_object_iter(weights); i; i = json_object_iter_next(weights, i)) {
        const char *const key = json_object_iter_key(i), *const file = json_string_value(json_object_iter_value(i));
        const size_t len = json_object_iter_key_len(i);
        const struct ckpt_tensor *const t = tensor_set_find(&c->set, key, len);
        struct quote q, qf;
        int64_t part = 0;
        if (t && map_get(opened, file, strlen(file), &part) && part_of(c, t) == &c->parts[part]) continue;
        return err_set(msg, ERR_FORMAT,
                       "%s: tensor \"%s\" is not in %s, where the index puts it; download the folder again", index,
                       quote_name(&q, key, len), quote_name(&qf, file, strlen(file)));
    }
    return ERR_OK;
}

static enum err read_index(struct ckpt *c, const char *index, struct err_msg *msg) {
    char *text = NULL;
    size_t len = 0;
    json_t *root = NULL;
    struct map opened = {0};
    TRY(file_read_all(index, JSON_BYTES_MAX, &text, &len, msg));
    enum err e = jsonio_parse(&root, text, len, true, index, msg);
    mem_free(text);
    TRY(e);
    json_t *const weights = json_object_get(root, "weight_map");
    if (!json_is_object(weights)) e = err_set(msg, ERR_FORMAT, "%s: has no object \"weight_map\"", index);
    if (e == ERR_OK) e = open_listed(c, weights, &opened, index, msg);
    if (e == ERR_OK) e = check_listed(c, weights, &opened, index, msg);
    map_deinit(&opened);
    json_decref(root);
    return e;
}

/* Opens all shards when the folder has an index; *found says whether it has. */
static enum err open_index(struct ckpt *c, bool *found, struct err_msg *msg) {
    char *path = NULL;
    TRY(join(&path, c->dir, "model.safetensors.index.json", msg));
    *found = exists(path);
    const enum err e = *found ? read_index(c, path, msg) : ERR_OK;
    mem_free(path);
    return e;
}

/* model.safetensors, or the files of the index when there is no such file. */
static enum err open_weights(struct ckpt *c, struct err_msg *msg) {
    char *path = NULL;
    bool found = false;
    TRY(join(&path, c->dir, "model.safetensors", msg));
    const bool single = exists(path);
    mem_free(path);
    if (single) return open_shard(c, "model.safetensors", msg);
    TRY(open_index(c, &found, msg));
    if (found) return ERR_OK;
    return err_set(msg, ERR_IO,
                   "%s: has neither model.safetensors nor model.safetensors.index.json; other kinds of weights must be "
                   "converted to safetensors or GGUF",
                   c->dir);
}

/* config.json of the folder; with optional set a missing one is an empty configuration. */
static enum err open_config(struct ckpt *c, bool optional, struct err_msg *msg) {
    char *path = NULL, *text = NULL;
    size_t len = 0;
    TRY(join(&path, c->dir, "config.json", msg));
    enum err e = ERR_OK;
    if (exists(path)) {
        e = file_read_all(path, CONFIG_BYTES_MAX, &text, &len, msg);
        if (e == ERR_OK) e = conf_parse_json(&c->conf, text, len, path, msg);
    } else if (optional) {
        e = conf_parse_json(&c->conf, "{}", 2, path, msg);
    } else {
        e = err_set(msg, ERR_IO, "%s: has no config.json; name a Hugging Face model folder or a .gguf file", c->dir);
    }
    mem_free(text);
    mem_free(path);
    return e;
}

static enum err open_folder(struct ckpt *c, bool config_only, struct err_msg *msg) {
    c->dir = mem_strdup(c->path);
    if (!c->dir) return err_set(msg, ERR_NOMEM, "%s: no memory to open it", c->path);
    TRY(open_config(c, false, msg));
    return config_only ? ERR_OK : open_weights(c, msg);
}

/* A file named as a shard, beside an index, stands for the whole model; any other for itself. */
static enum err open_safetensors(struct ckpt *c, bool config_only, struct err_msg *msg) {
    const char *const slash = strrchr(c->path, '/');
    const char *const file = slash ? slash + 1 : c->path;
    bool found = false;
    c->dir = slash ? mem_strndup(c->path, (size_t)(slash - c->path) + 1) : mem_strdup(".");
    if (!c->dir) return err_set(msg, ERR_NOMEM, "%s: no memory to open it", c->path);
    TRY(open_config(c, true, msg));
    if (config_only) return ERR_OK;
    if (strstr(file, "-of-")) TRY(open_index(c, &found, msg));
    return found ? ERR_OK : open_shard(c, file, msg);
}

/* ---- both ---- */

static enum err open_any(struct ckpt *c, bool config_only, struct err_msg *msg) {
    struct stat st;
    if (stat(c->path, &st) != 0)
        return err_set(msg, ERR_IO, "%s: %s; name a model folder or a .gguf file", c->path, strerror(errno));
    if (S_ISDIR(st.st_mode)) return open_folder(c, config_only, msg);
    if (ends_with(c->path, ".safetensors")) return open_safetensors(c, config_only, msg);
    return open_gguf(c, config_only, msg);
}

static enum err open_path(struct ckpt **out, const char *path, bool config_only, struct err_msg *msg) {
    *out = NULL;
    struct ckpt *const c = mem_calloc(1, sizeof *c);
    if (!c) return err_set(msg, ERR_NOMEM, "%s: no memory to open it", path);
    c->path = mem_strdup(path);
    const enum err e =
        c->path ? open_any(c, config_only, msg) : err_set(msg, ERR_NOMEM, "%s: no memory to open it", path);
    if (e != ERR_OK) {
        ckpt_close(c);
        return e;
    }
    *out = c;
    return ERR_OK;
}

enum err ckpt_open(struct ckpt **out, const char *path, struct err_msg *msg) {
    return open_path(out, path, false, msg);
}

enum err ckpt_open_config(struct ckpt **out, const char *path, struct err_msg *msg) {
    return open_path(out, path, true, msg);
}

void ckpt_close(struct ckpt *c) {
    if (!c) return;
    conf_close(c->conf);
    tensor_set_deinit(&c->set);
    close_parts(c);
    mem_free(c->dir);
    mem_free(c->path);
    mem_free(c);
}

bool ckpt_is_gguf(const struct ckpt *c) { return c->is_gguf; }

const char *ckpt_path(const struct ckpt *c) { return c->path; }

int ckpt_n_tensors(const struct ckpt *c) { return (int)c->set.n; }

const struct ckpt_tensor *ckpt_tensor_at(const struct ckpt *c, int i) {
    CHECK(i >= 0 && (size_t)i < c->set.n);
    return &c->set.items[i];
}

const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name) {
    return tensor_set_find(&c->set, name, strlen(name));
}

const struct conf *ckpt_conf(const struct ckpt *c) { return c->conf; }

enum err ckpt_json(const struct ckpt *c, const char *file, struct conf **out, struct err_msg *msg) {
    char *text = NULL, *path = NULL;
    size_t len = 0;
    *out = NULL;
    TRY(ckpt_file(c, file, JSON_BYTES_MAX, &text, &len, msg));
    if (!text) return ERR_OK;
    enum err e = join(&path, c->dir, file, msg);
    if (e == ERR_OK) {
        e = conf_parse_json(out, text, len, path, msg);
        mem_free(path);
    }
    mem_free(text);
    return e;
}

enum err ckpt_file(const struct ckpt *c, const char *file, size_t limit, char **out, size_t *len, struct err_msg *msg) {
    char *path = NULL;
    *out = NULL;
    if (len) *len = 0;
    if (!c->dir) return ERR_OK;
    TRY(join(&path, c->dir, file, msg));
    const enum err e = exists(path) ? file_read_all(path, limit, out, len, msg) : ERR_OK;
    mem_free(path);
    return e;
}

static size_t place_in(const struct part *p, const struct ckpt_tensor *t, size_t offset) {
    return (size_t)((uintptr_t)t->data - (uintptr_t)p->map.data) + offset;
}

void ckpt_prefetch(const struct ckpt *c, const struct ckpt_tensor *t, size_t offset, size_t len) {
    const struct part *const p = part_of(c, t);
    if (p) file_map_prefetch(&p->map, place_in(p, t, offset), len);
}

void ckpt_release(const struct ckpt *c, const struct ckpt_tensor *t, size_t offset, size_t len) {
    const struct part *const p = part_of(c, t);
    if (p) file_map_release(&p->map, place_in(p, t, offset), len);
}

void ckpt_drop(const struct ckpt *c, const struct ckpt_tensor *t, size_t offset, size_t len) {
    const struct part *const p = part_of(c, t);
    if (p) file_map_drop(&p->map, place_in(p, t, offset), len);
}
