/* grammar_fields.c - one setter, and the three ways to it. */
#include "router/api/grammar_fields.h"

#include <errno.h>
#include <string.h>

#define STRUCTURED "structured_outputs."

static const struct {
    const char *guided, *structured;
    enum grammar_kind kind;
} kinds[] = {
    {"guided_json", STRUCTURED "json", GRAMMAR_JSON_SCHEMA},
    {"guided_regex", STRUCTURED "regex", GRAMMAR_REGEX},
    {"guided_choice", STRUCTURED "choice", GRAMMAR_CHOICE},
    {"guided_grammar", STRUCTURED "grammar", GRAMMAR_EBNF},
    {"json_schema", NULL, GRAMMAR_JSON_SCHEMA}, /* llama.cpp's and SGLang's */
    {"grammar", NULL, GRAMMAR_EBNF},            /* llama.cpp's */
    {"regex", NULL, GRAMMAR_REGEX},             /* SGLang's, as the next one */
    {"ebnf", NULL, GRAMMAR_EBNF},
    {NULL, STRUCTURED "json_object", GRAMMAR_JSON_OBJECT},
    {NULL, STRUCTURED "structural_tag", GRAMMAR_TAGS},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static int set_grammar(struct field_reader *reader, const char *param, enum grammar_kind kind,
                       const char *text, size_t bytes)
{
    struct api_request *request = reader->out;

    if (request->grammar.kind != GRAMMAR_NONE)
        return api_error_bad(reader->error, param,
                             "'%s' and '%s' exclude each other: an answer has one grammar.",
                             request->grammar_param, param);
    if (bytes > GRAMMAR_TEXT_MAX)
        return api_error_bad(reader->error, param, "'%s' has %zu bytes; at most %u fit.", param,
                             bytes, GRAMMAR_TEXT_MAX);
    request->grammar = (struct grammar_spec){kind, text, bytes};
    request->grammar_param = param;
    return 0;
}

/* The value as JSON text in the request's memory. */
static int set_json(struct field_reader *reader, const char *param, enum grammar_kind kind,
                    const json_t *value)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY;
    size_t bytes = json_dumpb(value, NULL, 0, flags);
    char *text = bytes <= GRAMMAR_TEXT_MAX ? arena_alloc(reader->arena, bytes + 1) : NULL;

    if (bytes <= GRAMMAR_TEXT_MAX && !text)
        return api_error_set(reader->error, 413, "request_too_large", param,
                             "'%s' needs more memory than a request may have.", param);
    if (text)
        (void)json_dumpb(value, text, bytes, flags);
    return set_grammar(reader, param, kind, text, bytes);
}

/* name: of the value itself, which may be a member of `param`. */
static int set_any(struct field_reader *reader, const char *param, const char *name,
                   enum grammar_kind kind, const json_t *value)
{
    const char *text = json_string_value(value);

    switch (kind) {
    case GRAMMAR_JSON_SCHEMA:
        if (!text && !json_is_object(value) && !json_is_boolean(value))
            return fields_wrong_type(reader->error, name,
                                     "a schema: an object, or its JSON as a string", value);
        break;
    case GRAMMAR_TAGS:
        if (!text && !json_is_object(value))
            return fields_wrong_type(reader->error, name, "an object, or its JSON as a string",
                                     value);
        break;
    case GRAMMAR_CHOICE:
        if (!json_is_array(value))
            return fields_wrong_type(reader->error, name, "a list of strings", value);
        return set_json(reader, param, kind, value);
    case GRAMMAR_JSON_OBJECT:
        if (!json_is_boolean(value))
            return fields_wrong_type(reader->error, name, "true or false", value);
        return json_is_true(value) ? set_grammar(reader, param, kind, "", 0) : 0;
    default:
        if (!text)
            return fields_wrong_type(reader->error, name, "a string", value);
    }
    return text ? set_grammar(reader, param, kind, text, json_string_length(value))
                : set_json(reader, param, kind, value);
}

int grammar_fields_read_guided(struct field_reader *reader, const struct field *field,
                               const json_t *value)
{
    if (json_is_string(value) && json_string_length(value) == 0)
        return 0; /* what clients of llama.cpp send for none */
    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i].guided && strcmp(kinds[i].guided, field->name) == 0)
            return set_any(reader, field->name, field->name, kinds[i].kind, value);
    }
    return 0;
}

int grammar_fields_read_structured(struct field_reader *reader, const struct field *field,
                                   const json_t *value)
{
    const struct api_request *request = reader->out;
    bool other = request->grammar.kind != GRAMMAR_NONE; /* another field's */
    int r = 0;

    if (!json_is_object(value))
        return fields_wrong_type(reader->error, field->name, "an object", value);
    for (size_t i = 0; i < KINDS && r == 0; i++) {
        if (!kinds[i].structured)
            continue;
        const json_t *one = json_object_get(value, kinds[i].structured + strlen(STRUCTURED));
        if (!one || json_is_null(one) || json_is_false(one))
            continue;
        if (!other && request->grammar.kind != GRAMMAR_NONE)
            return api_error_bad(reader->error, field->name,
                                 "'structured_outputs' must hold one of json, regex, choice, "
                                 "grammar, json_object and structural_tag.");
        r = set_any(reader, field->name, kinds[i].structured, kinds[i].kind, one);
    }
    return r;
}

static int read_json_schema(struct field_reader *reader, const char *param, const json_t *value)
{
    const json_t *holder = json_object_get(value, "json_schema");
    const json_t *schema = json_object_get(holder, "schema");

    if (!json_is_object(holder))
        return api_error_bad(reader->error, "response_format.json_schema",
                             "'response_format' of type json_schema needs an object "
                             "'json_schema' with a 'schema'.");
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return api_error_bad(reader->error, "response_format.json_schema.schema",
                             "'response_format.json_schema.schema' must be an object.");
    return set_json(reader, param, GRAMMAR_JSON_SCHEMA, schema);
}

int grammar_fields_read_response_format(struct field_reader *reader, const struct field *field,
                                        const json_t *value)
{
    const char *type = json_string_value(json_object_get(value, "type"));

    if (!type)
        return api_error_bad(reader->error, field->name,
                             "'response_format' must be an object with a string 'type'.");
    if (strcmp(type, "text") == 0)
        return 0;
    if (strcmp(type, "json_object") == 0) {
        const json_t *schema = json_object_get(value, "schema"); /* llama.cpp's */
        return json_is_object(schema)
                   ? set_json(reader, field->name, GRAMMAR_JSON_SCHEMA, schema)
                   : set_grammar(reader, field->name, GRAMMAR_JSON_OBJECT, "", 0);
    }
    if (strcmp(type, "json_schema") == 0)
        return read_json_schema(reader, field->name, value);
    if (strcmp(type, "structural_tag") == 0)
        return set_json(reader, field->name, GRAMMAR_TAGS, value);
    if (strcmp(type, "grammar") == 0)
        return api_error_set(reader->error, 400, "unsupported_parameter", "response_format.type",
                             "'response_format' of type '%s' is not supported.", type);
    return api_error_bad(reader->error, "response_format.type",
                         "'response_format.type' must be text, json_object, json_schema or "
                         "structural_tag.");
}

int grammar_fields_refuse(const struct api_request *request, const struct errmsg *err,
                          struct api_error *error)
{
    return api_error_bad(error, request->grammar_param, "'%s' is refused: %s.",
                         request->grammar_param, err->text);
}
