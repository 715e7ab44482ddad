/* fields.c - type and range of every field of a request, by table. */
#define LOG_MODULE "api"
#include "router/api/fields.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"
#include "proto/base/log.h"
#include "proto/base/number.h"

#define BODY_VALUES_MAX ((size_t)1 << 20) /* a million token ids; 0.1 s to parse */
#define INTEGER_EXACT 9007199254740992.0  /* 2^53: reals past it have lost digits */

const char *fields_type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

int fields_integer(const json_t *value, int64_t *ret_value)
{
    if (json_is_integer(value)) {
        *ret_value = json_integer_value(value);
        return 0;
    }
    double real = json_is_real(value) ? json_real_value(value) : NAN;
    if (!(fabs(real) <= INTEGER_EXACT) || real != floor(real))
        return -EINVAL;
    *ret_value = (int64_t)real;
    return 0;
}

int fields_wrong_type(struct api_error *error, const char *name, const char *wanted,
                      const json_t *value)
{
    return api_error_bad(error, name, "'%s' must be %s, not %s.", name, wanted,
                         fields_type_name(value));
}

static int out_of_range(const struct field *field, double value, struct api_error *error)
{
    char got[NUMBER_TEXT_MAX], min[NUMBER_TEXT_MAX], max[NUMBER_TEXT_MAX];
    number_format(value, got);
    number_format(field->min, min);
    number_format(field->max, max);
    return api_error_bad(error, field->name, "'%s' is %s; it must be %s %s and at most %s.",
                         field->name, got, field->above_min ? "above" : "at least", min, max);
}

static int read_double(const struct field *field, const json_t *value, struct field_reader *reader)
{
    double number = json_number_value(value);
    if (!json_is_number(value))
        return fields_wrong_type(reader->error, field->name, "a number", value);
    if (!isfinite(number) || number < field->min || number > field->max ||
        (field->above_min && number <= field->min))
        return out_of_range(field, number, reader->error);
    *(double *)(void *)((char *)reader->out + field->offset) = number;
    return 0;
}

static int read_integer(const struct field *field, const json_t *value, struct field_reader *reader)
{
    char *at = (char *)reader->out + field->offset;
    int64_t number = 0;

    if (!json_is_number(value))
        return fields_wrong_type(reader->error, field->name, "an integer", value);
    if (fields_integer(value, &number) < 0) {
        double real = json_number_value(value);
        if (fabs(real) > INTEGER_EXACT)
            return out_of_range(field, real, reader->error);
        return fields_wrong_type(reader->error, field->name, "an integer", value);
    }
    if ((double)number < field->min || (double)number > field->max)
        return out_of_range(field, (double)number, reader->error);
    if (field->type == FIELD_U32)
        *(uint32_t *)(void *)at = (uint32_t)number;
    else
        *(int64_t *)(void *)at = number;
    return 0;
}

static int read_text(const struct field *field, const json_t *value, struct field_reader *reader)
{
    const char *text = json_string_value(value);
    if (!text)
        return fields_wrong_type(reader->error, field->name, "a string", value);
    size_t bytes = json_string_length(value);
    if ((double)bytes > field->max)
        return api_error_bad(reader->error, field->name, "'%s' has %zu bytes; at most %.0f fit.",
                             field->name, bytes, field->max);
    if (memchr(text, '\0', bytes))
        return api_error_bad(reader->error, field->name, "'%s' must not hold a NUL.", field->name);
    *(const char **)(void *)((char *)reader->out + field->offset) = text;
    return 0;
}

static bool is_nothing(const json_t *value)
{
    return json_is_false(value) || (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

int fields_read_value(const struct field *field, const json_t *value, struct field_reader *reader)
{
    switch (field->type) {
    case FIELD_DOUBLE:
        return read_double(field, value, reader);
    case FIELD_U32:
    case FIELD_I64:
        return read_integer(field, value, reader);
    case FIELD_BOOL:
        if (!json_is_boolean(value))
            return fields_wrong_type(reader->error, field->name, "true or false", value);
        *(bool *)(void *)((char *)reader->out + field->offset) = json_is_true(value);
        return 0;
    case FIELD_TEXT:
        return read_text(field, value, reader);
    case FIELD_VALUE:
        *(const json_t **)(void *)((char *)reader->out + field->offset) = value;
        return 0;
    case FIELD_CUSTOM:
        return field->read(reader, field, value);
    case FIELD_REFUSED:
        if (is_nothing(value))
            return 0;
        return api_error_set(reader->error, 400, "unsupported_parameter", field->name,
                             "'%s' is not supported%s.", field->name,
                             field->why ? field->why : " yet");
    case FIELD_IGNORED:
        break;
    }
    return 0;
}

static const char *key_of(const struct field *field)
{
    const char *dot = strrchr(field->name, '.');
    return dot ? dot + 1 : field->name;
}

/* Names come from the client: a log line takes only what looks like one. */
static void log_unknown(const struct field *table, const json_t *object)
{
    char names[128] = "";
    size_t used = 0, count = 0;
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        const struct field *field = table;
        while (field->name && strcmp(key_of(field), key) != 0)
            field++;
        if (field->name)
            continue;
        count++;
        size_t bytes =
            strspn(key, "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
        if (bytes == 0 || key[bytes] != '\0' || bytes > 40 || used + bytes + 2 > sizeof(names))
            continue;
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", used ? "," : "", key);
    }
    if (count > 0)
        log_debug("fields_ignored", "count=%zu names=%s", count, names);
}

int fields_parse(const void *body, size_t bytes, json_t **ret_object, struct api_error *error)
{
    json_t *object = NULL;
    struct errmsg err;

    if (json_parse_values(body, bytes, BODY_VALUES_MAX, &object, &err) < 0)
        return api_error_set(error, 400, "invalid_json", NULL, "The body is refused: %s.",
                             err.text);
    if (!json_is_object(object)) {
        (void)api_error_set(error, 400, "invalid_json", NULL,
                            "The body must be a JSON object, not %s.", fields_type_name(object));
        json_decref(object);
        return -EINVAL;
    }
    *ret_object = object;
    return 0;
}

int fields_read(const struct field *table, const json_t *object, struct field_reader *reader)
{
    ASSERT(json_is_object(object));
    for (const struct field *field = table; field->name; field++) {
        const json_t *value = json_object_get(object, key_of(field));
        if (!value || json_is_null(value) || !(field->kinds & reader->kind))
            continue;
        int r = fields_read_value(field, value, reader);
        if (r < 0)
            return r;
    }
    if (log_enabled(LOG_DEBUG, LOG_MODULE))
        log_unknown(table, object);
    return 0;
}

/* By the table's rows, not by the members: these may be a million. */
void fields_drop_ignored(const struct field *table, unsigned kind, json_t *object)
{
    json_t *kept = json_object();

    for (const struct field *field = table; field->name; field++) {
        json_t *value = json_object_get(object, key_of(field));
        if (value && (field->kinds & kind) && field->type != FIELD_IGNORED &&
            field->type != FIELD_REFUSED)
            (void)json_object_set(kept, key_of(field), value);
    }
    (void)json_object_clear(object);
    (void)json_object_update(object, kept);
    json_decref(kept);
}
