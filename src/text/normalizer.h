/* Normalizers: what happens to a stretch of text before it is cut into pieces. A pipeline of steps.
 * Threads: immutable once built; the buffers belong to the caller. */
#ifndef TEXT_NORMALIZER_H
#define TEXT_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/strbuf.h"
#include "text/charsmap.h"
#include "text/regex.h"
#include "text/trie.h"

enum normalizer_kind {
    NORMALIZER_NFC,
    NORMALIZER_NFD,
    NORMALIZER_NFKC,
    NORMALIZER_NFKD,
    NORMALIZER_LOWERCASE,
    NORMALIZER_STRIP_ACCENTS, /* category M goes */
    NORMALIZER_STRIP,         /* White_Space at the ends goes */
    NORMALIZER_REPLACE,       /* every `from` (or match of `regex`) becomes `to` */
    NORMALIZER_PREPEND,       /* `to` in front of a text that is not empty */
    NORMALIZER_CHARSMAP,
    NORMALIZER_SPM, /* the whole of SentencePiece's normalizer, see spm */
};

/* SentencePiece's NormalizerSpec. */
struct normalizer_spm {
    bool add_dummy_prefix;
    bool remove_extra_whitespaces;
    bool escape_whitespaces; /* space -> U+2581 */
    bool suffix;             /* treat_whitespace_as_suffix: the dummy goes behind */
};

struct normalizer_step {
    enum normalizer_kind kind;
    bool left, right; /* strip */
    struct regex *regex;
    char *from, *to;
    size_t from_len, to_len;
    struct charsmap map;
    struct normalizer_spm spm;
    const struct trie *keep; /* SPM: user-defined pieces, which the map leaves alone; borrowed */
};

enum { NORMALIZER_STEPS_MAX = 16 };

struct normalizer {
    struct normalizer_step steps[NORMALIZER_STEPS_MAX];
    int n_steps;
};

/* Appends a step and takes over what it owns (also on failure). */
enum err normalizer_add(struct normalizer *n, struct normalizer_step step, struct err_msg *msg) ATTR_NODISCARD;

/* text [len, valid UTF-8] -> *out [*out_len], which is the text itself when no step changed it, else one of bufs.
 * False: no memory. */
bool normalizer_apply(const struct normalizer *n, const char *text, size_t len, struct strbuf bufs[2], const char **out,
                      size_t *out_len) ATTR_NODISCARD;

void normalizer_deinit(struct normalizer *n);

/* Whether an NFC composition never changes cp nor joins it to what stands before it; never true wrongly, sometimes
 * false needlessly. */
bool normalizer_is_nfc_stable(uint32_t cp);

#endif
