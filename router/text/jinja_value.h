/* jinja_value.h - the values of the template language, and where their text came from.
 *
 * A value is 16 bytes, passed by pointer, copied freely. What it points to lives in the arena of
 * the render (or of the template, for constants) and does not change, with three exceptions: a
 * rope may be flattened in place, an iterator remembers that it was used up, and namespaces,
 * cyclers and joiners are there to be changed.
 *
 * Provenance: `source`/`message` say which field of the request a value came from (enum
 * span_source; 0 = the template). A string has its own marks, see struct jinja_str; the marks in
 * struct value are for everything else, so that a printed number is marked too. Thread: one. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_VALUE_H
#define REFRAIN_ROUTER_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/text/chat_template.h"

struct jinja_eval; /* jinja_eval.h: memory, errors and limits of one render */
struct jinja_callable;
struct jinja_macro;
struct jinja_loop;

enum value_type {
    VALUE_UNDEFINED = 0,
    VALUE_MISSING, /* an argument not given, a name not set: never seen by a template */
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_LIST,
    VALUE_TUPLE,
    VALUE_DICT,
    VALUE_VIEW,     /* dict.keys(), values(), items() */
    VALUE_ITERATOR, /* what map, select, reverse... give: good for one pass */
    VALUE_RANGE,
    VALUE_NAMESPACE,
    VALUE_MACRO,
    VALUE_FUNCTION, /* range, namespace, raise_exception... */
    VALUE_METHOD,   /* 'text'.upper, not called yet */
    VALUE_LOOP,
    VALUE_CYCLER,
    VALUE_JOINER,
};

struct jinja_origin {
    uint8_t source; /* enum span_source, 0: the template */
    int32_t message;
};

struct value {
    uint8_t type;
    uint8_t source; /* origin of anything but a string */
    int32_t message;
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct jinja_str *string;
        struct jinja_list *list; /* list, tuple, view, iterator, cycler */
        struct jinja_dict *dict; /* dict, namespace */
        struct jinja_range *range;
        struct jinja_undefined *undefined; /* may be NULL */
        struct jinja_macro *macro;
        const struct jinja_callable *function;
        struct jinja_method *method;
        struct jinja_loop *loop;
        struct jinja_joiner *joiner;
    };
};

/* Bytes plus marks. runs == NULL: all bytes have one origin, source/message. Otherwise runs are the
 * marked parts, rising, and what lies between is the template's.
 * data == NULL: a rope, left then right; jinja_str_data() flattens it. */
struct jinja_str {
    const char *data;
    uint32_t bytes;
    uint32_t chars; /* UINT32_MAX: not counted yet */
    uint8_t source;
    bool markup; /* Markup: '+' escapes what is added */
    int32_t message;
    uint32_t runs_count;
    uint32_t depth; /* of the rope, 0: flat */
    const struct text_span *runs;
    struct jinja_str *left, *right;
};

enum list_kind { LIST_PLAIN = 0, LIST_KEYS, LIST_VALUES, LIST_ITEMS, LIST_GROUP };

struct jinja_list {
    struct value *values;
    uint32_t count;
    uint8_t kind;
    uint32_t at; /* iterator: used up to here; cycler: position */
};

struct dict_entry {
    struct value key, value;
    uint64_t hash;
};

struct jinja_dict {
    struct dict_entry *entries; /* in order of insertion */
    uint32_t count, capacity;
    uint32_t *index; /* hash table of entry numbers + 1, NULL for small dicts */
    uint32_t index_size;
};

struct jinja_range {
    int64_t start, step;
    uint32_t count;
};

struct jinja_method {
    struct value self;
    const struct jinja_callable *callable;
};

struct jinja_joiner {
    struct value separator;
    bool used;
};

/* Why a value is undefined: the sentence is made when somebody needs it. */
struct jinja_undefined {
    const char *hint;             /* whole sentence, or NULL */
    const char *object;           /* "dict object", or NULL: a plain name */
    const struct jinja_str *name; /* NULL: element `index` */
    int64_t index;
    bool unsafe; /* the sandbox hides it */
};

/* A growing array in the arena. */
struct jinja_vec {
    struct value *values;
    uint32_t count, capacity;
};

static inline struct value jinja_missing(void)
{
    return (struct value){.type = VALUE_MISSING};
}

static inline struct value jinja_none(void)
{
    return (struct value){.type = VALUE_NONE};
}

static inline struct value jinja_bool(bool boolean)
{
    return (struct value){.type = VALUE_BOOL, .boolean = boolean};
}

static inline struct value jinja_int(int64_t integer)
{
    return (struct value){.type = VALUE_INT, .integer = integer};
}

static inline struct value jinja_float(double number)
{
    return (struct value){.type = VALUE_FLOAT, .number = number};
}

static inline struct value jinja_string(struct jinja_str *string)
{
    return (struct value){.type = VALUE_STRING, .string = string};
}

static inline struct jinja_origin jinja_value_origin(const struct value *value)
{
    return (struct jinja_origin){value->source, value->message};
}

static inline bool jinja_is_number(const struct value *value)
{
    return value->type == VALUE_INT || value->type == VALUE_BOOL || value->type == VALUE_FLOAT;
}

static inline bool jinja_is_integer(const struct value *value) /* bool counts, as in Python */
{
    return value->type == VALUE_INT || value->type == VALUE_BOOL;
}

static inline int64_t jinja_as_int(const struct value *value)
{
    return value->type == VALUE_BOOL ? value->boolean : value->integer;
}

static inline double jinja_as_double(const struct value *value)
{
    return value->type == VALUE_FLOAT ? value->number : (double)jinja_as_int(value);
}

const char *jinja_type_name(const struct value *value); /* Python's: 'str', 'NoneType', ... */
bool jinja_truth(const struct value *value);
/* 0 and the number of items; -EINVAL: no len(). */
int jinja_length(struct jinja_eval *ev, const struct value *value, uint32_t *ret_count);
/* The items to loop over, in *ret (not to be changed). -EINVAL: not iterable. Uses up iterators. */
int jinja_iterate(struct jinja_eval *ev, const struct value *value, struct jinja_vec *ret);

int jinja_vec_push(struct jinja_eval *ev, struct jinja_vec *vec, const struct value *value);
/* A list, tuple, view or iterator over `values`, which it takes over. */
int jinja_make_list(struct jinja_eval *ev, enum value_type type, struct value *values,
                    uint32_t count, struct value *ret);
int jinja_make_undefined(struct jinja_eval *ev, const char *object, const struct jinja_str *name,
                         int64_t index, struct value *ret);

/* Equality as Python's ==: 1 == 1.0 == true. 0 or an error (too deep). */
int jinja_equal(struct jinja_eval *ev, const struct value *a, const struct value *b, bool *ret);
/* Order as Python's <: *ret_order is -1, 0, 1, or 2 for NaN. -EINVAL: not comparable; `op` names
 * the operator in the message. */
int jinja_compare(struct jinja_eval *ev, const struct value *a, const struct value *b,
                  const char *op, int *ret_order);

struct jinja_dict *jinja_dict_new(struct jinja_eval *ev, uint32_t capacity); /* NULL: error set */
/* 0; -EINVAL: the key is not hashable. */
int jinja_dict_set(struct jinja_eval *ev, struct jinja_dict *dict, const struct value *key,
                   const struct value *value);
/* 0 and the value, or NULL for none; -EINVAL: the key is not hashable. */
int jinja_dict_get(struct jinja_eval *ev, const struct jinja_dict *dict, const struct value *key,
                   const struct value **ret_value);
const struct value *jinja_dict_get_str(const struct jinja_dict *dict, const char *key,
                                       uint32_t bytes); /* NULL: absent */
uint64_t jinja_hash_bytes(const char *data, size_t bytes);
/* False: not hashable (lists, dicts...). */
bool jinja_hashable(const struct value *value, int depth);

#endif
