/* A checkpoint opened for reading: a Hugging Face folder (config.json, one or more .safetensors) or
 * a GGUF file (v2, v3; split files by naming any part), seen as one set of named tensors plus one
 * key/value view of its configuration. Nothing is copied: tensor data points into read-only maps of
 * the files, checked against the files' sizes when opened.
 * Threads: immutable once open; any thread may read. Owns: the maps and everything handed out. */
#ifndef LOAD_CKPT_H
#define LOAD_CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/dtype.h"

enum { CKPT_DIMS_MAX = 4 };

struct ckpt_tensor {
    const char *name;
    enum dtype dtype;
    int n_dims;
    int64_t shape[CKPT_DIMS_MAX]; /* outermost first (row-major): a linear weight is [out, in], also
                                     for GGUF, whose files list the dimensions innermost first */
    const void *data; /* GGUF: 8-byte aligned; safetensors: any address, as the file has it */
    size_t bytes;
};

struct ckpt; /* opaque */
struct conf; /* load/conf.h */

/* path: a folder, a .gguf file, or a .safetensors file inside a folder. */
enum err ckpt_open(struct ckpt **out, const char *path, struct err_msg *msg) ATTR_NODISCARD;

/* As ckpt_open, but without weights: the folder needs only config.json (and tokenizer files). For
 * `--load-format dummy`. */
enum err ckpt_open_config(struct ckpt **out, const char *path, struct err_msg *msg) ATTR_NODISCARD;

void ckpt_close(struct ckpt *c);

bool ckpt_is_gguf(const struct ckpt *c);

/* The path as it was given. */
const char *ckpt_path(const struct ckpt *c);

int ckpt_n_tensors(const struct ckpt *c);
const struct ckpt_tensor *ckpt_tensor_at(const struct ckpt *c, int i);

/* NULL when there is no such tensor. */
const struct ckpt_tensor *ckpt_find(const struct ckpt *c, const char *name);

/* config.json, or the metadata of the GGUF file. Borrowed. */
const struct conf *ckpt_conf(const struct ckpt *c);

/* A JSON file of the folder by name ("tokenizer.json", "tokenizer_config.json",
 * "generation_config.json", "special_tokens_map.json"), parsed on every call. *out is NULL, and the
 * result ERR_OK, when a GGUF file or a folder has no such file. The caller closes it with conf_close. */
enum err ckpt_json(const struct ckpt *c, const char *file, struct conf **out,
                   struct err_msg *msg) ATTR_NODISCARD;

/* A text file of the folder, whole, NUL-terminated (binary bytes allowed); *out NULL when missing.
 * The caller frees *out with mem_free. Files over limit bytes are ERR_LIMIT. */
enum err ckpt_file(const struct ckpt *c, const char *file, size_t limit, char **out, size_t *len,
                   struct err_msg *msg) ATTR_NODISCARD;

/* Advice to the kernel about the file pages behind bytes [offset, offset + len) of a tensor's data; never fails.
 * prefetch: they will be read soon, start now.
 * release: this process is done with them; they leave it, and stay in the page cache while there is room.
 * drop: nobody needs them again; whole pages leave the page cache as well, the rest of the tensor's file is untouched.
 */
void ckpt_prefetch(const struct ckpt *c, const struct ckpt_tensor *t, size_t offset, size_t len);
void ckpt_release(const struct ckpt *c, const struct ckpt_tensor *t, size_t offset, size_t len);
void ckpt_drop(const struct ckpt *c, const struct ckpt_tensor *t, size_t offset, size_t len);

#endif
