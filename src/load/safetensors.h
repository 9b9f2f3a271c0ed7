/* One safetensors file in memory:
 *
 *     u64 header bytes | JSON header, padded with spaces | data
 *
 * The header maps a name to {"dtype", "shape", "data_offsets": [begin, end)}, offsets into the data, and may have a
 * member "__metadata__" of strings, which is passed over.
 * Threads: any. Owns: nothing; tensors point into the bytes given. */
#ifndef LOAD_SAFETENSORS_H
#define LOAD_SAFETENSORS_H

#include <stddef.h>

#include "base/err.h"
#include "load/tensor_set.h"

/* Appends the tensors of the size bytes at data, which must outlive the set. Dimensions of zero are allowed (no bytes);
 * unsigned integers of 16 to 64 bits open as the signed type of that width: their readers use them as bits.
 * ERR_FORMAT, ERR_UNSUPPORTED (an element type), ERR_LIMIT, ERR_NOMEM; on failure *set may hold some tensors of this
 * file, so that the caller drops it whole. */
enum err safetensors_parse(struct tensor_set *set, const void *data, size_t size, const char *source,
                           struct err_msg *msg) ATTR_NODISCARD;

#endif
