/* fields.h - reads the fields of a JSON object by a table: one row per field, one sentence per
 * mistake.
 *
 * null counts as absent everywhere. Fields that no row names are ignored, with one debug line.
 * Texts stay in the JSON tree, so the tree must outlive what was read. Thread: any. */
#ifndef REFRAIN_ROUTER_API_FIELDS_H
#define REFRAIN_ROUTER_API_FIELDS_H

#include <jansson.h>
#include <stddef.h>

#include "proto/base/arena.h"
#include "router/api/errors.h"

enum field_type {
    FIELD_DOUBLE = 0, /* double */
    FIELD_U32,        /* uint32_t: an integer (16.0 is one too) */
    FIELD_I64,        /* int64_t */
    FIELD_BOOL,       /* bool */
    FIELD_TEXT,       /* const char *: at most `max` bytes, no NUL */
    FIELD_VALUE,      /* const json_t *, whatever it is */
    FIELD_CUSTOM,     /* read() decides */
    FIELD_IGNORED,    /* known, and without effect here */
    FIELD_REFUSED,    /* known, and not supported: 400, unless it is false, 0, "" or empty */
};

struct field_reader {
    void *out; /* the struct that offsets point into */
    struct arena *arena;
    struct api_error *error;
    unsigned kind; /* a bit: rows for other kinds are not read */
};

struct field {
    const char *name; /* of a member of a member: the path; its key is what follows the last dot */
    enum field_type type;
    unsigned kinds; /* bits */
    size_t offset;
    double min, max; /* both allowed */
    bool above_min;  /* min itself is not */
    int (*read)(struct field_reader *reader, const struct field *field, const json_t *value);
    const char *why; /* REFUSED: the rest of "'name' is not supported..."; NULL: " yet" */
};

/* A body that is a JSON object; the caller lets go of *ret_object. 0, or -EINVAL and *error set. */
int fields_parse(const void *body, size_t bytes, json_t **ret_object, struct api_error *error);
/* The table ends with a row without a name. 0, or -EINVAL and *reader->error set. */
int fields_read(const struct field *table, const json_t *object, struct field_reader *reader);
/* Free the members that nobody reads: a request holds its body for minutes, and what is ignored may
 * be most of it. */
void fields_drop_ignored(const struct field *table, unsigned kind, json_t *object);
/* One value by its row; for read() functions that take several shapes. */
int fields_read_value(const struct field *field, const json_t *value, struct field_reader *reader);
/* "'name' must be `wanted`, not a number." -EINVAL. */
int fields_wrong_type(struct api_error *error, const char *name, const char *wanted,
                      const json_t *value);
/* "a list", "a number"...: for other sentences. */
const char *fields_type_name(const json_t *value);
/* Integers, and reals without a fraction. 0, or -EINVAL. */
int fields_integer(const json_t *value, int64_t *ret_value);

#endif
