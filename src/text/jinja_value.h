/* Values of the template language: those of JSON, tuples and other sequences, undefined with the reason why, and the
 * things that can be called. A value is copied by assignment; lists, dicts and the bytes of strings live in the
 * rendering's arena and never change once a template can see them (the reference sandbox forbids it), save namespaces.
 * Integers have 128 bits; the reference has no limit, and passing ours is an error, never a wrong number.
 * Threads: those of their rendering. */
#ifndef TEXT_JINJA_VALUE_H
#define TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "text/jinja_run.h"

enum jinja_type {
    JINJA_UNDEF,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STR,
    JINJA_LIST, /* every sequence: enum jinja_seq tells them apart */
    JINJA_DICT,
    JINJA_NS,     /* a namespace */
    JINJA_LOOP,   /* the variable loop */
    JINJA_MACRO,  /* also the caller of a call block */
    JINJA_FUNC,   /* a global function: kind is its number */
    JINJA_METHOD, /* a method with its object */
    JINJA_CYCLER,
    JINJA_JOINER,
};

enum jinja_seq {
    JINJA_SEQ_LIST,
    JINJA_SEQ_TUPLE,
    JINJA_SEQ_RANGE,
    JINJA_SEQ_KEYS, /* views of a dict */
    JINJA_SEQ_VALUES,
    JINJA_SEQ_ITEMS,
    JINJA_SEQ_GENERATOR, /* may be read once: pos is how far it has been */
};

/* Why a value is undefined; with owner (a type's name) and s (a name) it makes the message. */
enum jinja_undef {
    JINJA_UNDEF_NAME,   /* 's' is undefined */
    JINJA_UNDEF_ATTR,   /* 'owner' has no attribute 's' */
    JINJA_UNDEF_ITEM,   /* owner has no element s */
    JINJA_UNDEF_UNSAFE, /* access to attribute 's' of 'owner' object is unsafe. */
    JINJA_UNDEF_TEXT,   /* s itself */
};

struct jinja_value;
struct jinja_macro;
struct jinja_loop;

struct jinja_list {
    uint8_t kind; /* enum jinja_seq */
    bool group;   /* a tuple of groupby: its parts have the names grouper and list */
    size_t n, cap, pos;
    struct jinja_value *v;
    size_t *used; /* elements of v in use, when sums of lists share it; else NULL */
};

struct jinja_dict {
    size_t n, cap;
    struct jinja_pair *pairs; /* in order of insertion */
    uint32_t *index;          /* open addressing over pairs + 1; NULL while the dict is small */
    size_t n_index;           /* a power of two */
};

/* The end of the newest string of a growing buffer: text + more, again and again, costs no copy of text. */
struct jinja_tail {
    char *end, *limit;
};

struct jinja_value {
    uint8_t type; /* enum jinja_type */
    uint8_t kind; /* UNDEF: enum jinja_undef; STR: 1 for escaped markup; FUNC, METHOD: which */
    union {
        const char *owner;              /* UNDEF */
        struct jinja_tail *tail;        /* STR, or NULL */
        const struct jinja_value *self; /* METHOD */
    };
    union {
        bool b;
        __int128 i;
        double f;
        struct {
            const char *s; /* UTF-8, not NUL-terminated */
            size_t len;
        };
        struct jinja_list *list;
        struct jinja_dict *dict; /* DICT, NS */
        struct jinja_macro *macro;
        struct jinja_loop *loop;
        struct jinja_list *cycle; /* CYCLER: pos is the place; JOINER: v[0] the text, pos whether it was used */
    };
};

struct jinja_pair {
    struct jinja_value key, value;
};

static inline struct jinja_value jinja_none(void) {
    return (struct jinja_value){.type = JINJA_NONE};
}
static inline struct jinja_value jinja_bool(bool b) {
    return (struct jinja_value){.type = JINJA_BOOL, .b = b};
}
static inline struct jinja_value jinja_int(__int128 i) {
    return (struct jinja_value){.type = JINJA_INT, .i = i};
}
static inline struct jinja_value jinja_float(double f) {
    return (struct jinja_value){.type = JINJA_FLOAT, .f = f};
}

/* Borrows the bytes: literals, or memory that outlives the value. */
static inline struct jinja_value jinja_str(const char *s, size_t len) {
    struct jinja_value v = {.type = JINJA_STR};
    v.s = s;
    v.len = len;
    return v;
}
static inline struct jinja_value jinja_cstr(const char *s) {
    return jinja_str(s, strlen(s));
}

static inline struct jinja_value jinja_undef(enum jinja_undef why, const char *owner, const char *name, size_t len) {
    struct jinja_value v = {.type = JINJA_UNDEF, .kind = (uint8_t)why, .owner = owner};
    v.s = name;
    v.len = len;
    return v;
}

static inline bool jinja_is(const struct jinja_value *v, enum jinja_type type) {
    return v->type == type;
}
static inline bool jinja_is_number(const struct jinja_value *v) {
    return v->type == JINJA_BOOL || v->type == JINJA_INT || v->type == JINJA_FLOAT;
}
static inline bool jinja_is_int(const struct jinja_value *v) {
    return v->type == JINJA_BOOL || v->type == JINJA_INT;
}
static inline __int128 jinja_as_int(const struct jinja_value *v) {
    return v->type == JINJA_BOOL ? v->b : v->i;
}
static inline double jinja_as_f64(const struct jinja_value *v) {
    return v->type == JINJA_FLOAT ? v->f : (double)jinja_as_int(v);
}
static inline bool jinja_is_text(const struct jinja_value *v, const char *s) {
    return v->type == JINJA_STR && v->len == strlen(s) && memcmp(v->s, s, v->len) == 0;
}

/* The type's name in messages: "int", "NoneType", "dict_items"; of an undefined value "Undefined". */
const char *jinja_value_type_name(const struct jinja_value *v);

/* A copy of the bytes in the arena. */
enum err jinja_value_str(struct jinja_run *r, const char *s, size_t len, struct jinja_value *out) ATTR_NODISCARD;

/* a followed by the bytes; grows a in place when it is the newest of its buffer. */
enum err jinja_value_concat(struct jinja_run *r, const struct jinja_value *a, const char *s, size_t len,
                            struct jinja_value *out) ATTR_NODISCARD;

/* An empty sequence with room for cap elements. */
enum err jinja_value_list(struct jinja_run *r, enum jinja_seq kind, size_t cap, struct jinja_value *out) ATTR_NODISCARD;
enum err jinja_value_push(struct jinja_run *r, struct jinja_list *l, const struct jinja_value *v) ATTR_NODISCARD;

/* A sequence of two. */
enum err jinja_value_pair(struct jinja_run *r, enum jinja_seq kind, const struct jinja_value *a,
                          const struct jinja_value *b, struct jinja_value *out) ATTR_NODISCARD;

bool jinja_value_truth(const struct jinja_value *v);

/* a == b as the reference has it: 1 == 1.0 == true, lists element by element, dicts in any order. */
enum err jinja_value_equal(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                           bool *out) ATTR_NODISCARD;

/* a < b, for numbers, strings (by code point), lists and tuples; op is the sign that the message shows. */
enum err jinja_value_less(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b, const char *op,
                          bool *out) ATTR_NODISCARD;

/* The elements of anything that can be iterated, as a borrowed or new array: characters, keys, elements, nothing for
 * an undefined value. A generator is used up. */
enum err jinja_value_iterate(struct jinja_run *r, const struct jinja_value *v, struct jinja_value **items,
                             size_t *n) ATTR_NODISCARD;

/* The same as a list value that the caller may fill further. */
enum err jinja_value_to_list(struct jinja_run *r, const struct jinja_value *v, enum jinja_seq kind,
                             struct jinja_value *out) ATTR_NODISCARD;

/* len(v); an error for what has none. */
enum err jinja_value_length(struct jinja_run *r, const struct jinja_value *v, int64_t *out) ATTR_NODISCARD;

/* Fails with the message that v carries. */
enum err jinja_value_fail_undef(struct jinja_run *r, const struct jinja_value *v) ATTR_COLD;

#endif
