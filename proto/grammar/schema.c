/* schema.c - the walk.
 *
 *   $ref alone      a call of the rule of that reference; bodies are made from a queue, so that
 *                   recursive schemas are rules that call themselves
 *   $ref, allOf, oneOf with other words: merged first (schema_merge.c)
 *   anyOf           alternatives; what stands beside it is merged into each
 *   const, enum     the values as written compactly
 *   types           alternatives, a file per type
 *
 * Cost: visits are counted, so that schemas which multiply when merged end at a limit. */
#include "proto/grammar/schema.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "proto/grammar/front.h"

/* ---- path and failure ---- */

void schema_fail(struct schema *schema, const char *format, ...)
{
    char text[ERRMSG_MAX];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)graph_fail(schema->graph, -EINVAL, "schema at '%s': %s", schema->path, text);
}

size_t schema_enter(struct schema *schema, const char *part, const char *name)
{
    size_t bytes = strlen(schema->path);

    (void)snprintf(schema->path + bytes, sizeof(schema->path) - bytes, "/%s%s%s", part,
                   name ? "/" : "", name ? name : "");
    return bytes;
}

void schema_leave(struct schema *schema, size_t path_bytes)
{
    schema->path[path_bytes] = '\0';
}

/* ---- references ---- */

static void emit_reference(struct schema *schema, const char *reference, uint32_t from, uint32_t to)
{
    uintptr_t known = (uintptr_t)map_get_text(schema->refs, reference);

    if (!known) {
        uint32_t rule = graph_rule(schema->graph, reference, strlen(reference));
        known = (uintptr_t)rule + 1;
        if (map_set_text(schema->refs, reference, (void *)known) < 0)
            schema_fail(schema, "more than %u references", SCHEMA_VISITS_MAX);
        (void)json_array_append_new(schema->pending, json_string(reference));
    }
    if (!schema->graph->failed)
        graph_add_call(schema->graph, from, (uint32_t)(known - 1), to);
}

static void emit_pending(struct schema *schema)
{
    struct graph *graph = schema->graph;

    for (size_t i = 0; i < json_array_size(schema->pending) && !graph->failed; i++) {
        const char *reference = json_string_value(json_array_get(schema->pending, i));
        uint32_t rule = (uint32_t)((uintptr_t)map_get_text(schema->refs, reference) - 1);
        const json_t *target = schema_resolve(schema, reference);
        (void)snprintf(schema->path, sizeof(schema->path), "%s", reference);
        if (target)
            schema_emit(schema, target, graph_rule_start(graph, rule), graph_rule_end(graph, rule));
    }
}

/* ---- enum and const ---- */

static const char *type_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return "string";
    case JSON_INTEGER:
        return "integer";
    case JSON_REAL:
        return "number";
    case JSON_NULL:
        return "null";
    default:
        return "boolean";
    }
}

static bool names_type(const json_t *type, const char *name)
{
    const char *one = json_string_value(type);
    size_t count = one ? 1 : json_array_size(type);

    for (size_t i = 0; i < count; i++) {
        const char *entry = one ? one : json_string_value(json_array_get(type, i));
        if (entry && (strcmp(entry, name) == 0 ||
                      (strcmp(entry, "number") == 0 && strcmp(name, "integer") == 0)))
            return true;
    }
    return false;
}

static const char *const type_names[] = {"object", "array",   "string", "integer",
                                         "number", "boolean", "null"};
#define TYPES (sizeof(type_names) / sizeof(type_names[0]))

static bool check_type(struct schema *schema, const json_t *type)
{
    size_t count = json_is_string(type) ? 1 : json_array_size(type);

    if (count > TYPES) {
        schema_fail(schema, "'type' is a list of %zu; there are %zu types", count, TYPES);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_is_string(type) ? type : json_array_get(type, i);
        const char *name = json_string_value(entry);
        bool known = false;
        for (size_t t = 0; name && t < TYPES; t++)
            known = known || strcmp(type_names[t], name) == 0;
        if (!known) {
            schema_fail(schema,
                        "'type' %s%s%s is none of object, array, string, integer, number, "
                        "boolean, null",
                        name ? "'" : "", name ? name : "", name ? "'" : "");
            return false;
        }
    }
    if (count == 0)
        schema_fail(schema, "'type' must be a string or a list of strings");
    return count > 0;
}

/* Other words would have to be checked against each value: nobody writes them there. */
static bool check_enum_words(struct schema *schema, const json_t *node)
{
    const char *word;
    json_t *value;

    json_object_foreach((json_t *)node, word, value)
    {
        if (schema_word_is_note(word) || strcmp(word, "type") == 0 || strcmp(word, "enum") == 0 ||
            strcmp(word, "const") == 0 || strcmp(word, "nullable") == 0)
            continue;
        schema_fail(schema, "'%s' together with 'enum' or 'const' is not supported", word);
    }
    return !schema->graph->failed;
}

static void emit_words(struct schema *schema, const json_t *node, const json_t *values,
                       uint32_t from, uint32_t to)
{
    size_t count = json_array_size(values), used = 0;
    struct graph_word *words = mem_calloc(count + 1, sizeof(*words));
    const json_t *type = json_object_get(node, "type");
    const json_t *constant = json_object_get(node, "const");

    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(values, i);
        struct buffer text;
        if ((type && !names_type(type, type_of(value))) ||
            (constant && !json_equal(value, constant)))
            continue;
        buffer_init(&text, GRAMMAR_TEXT_MAX);
        json_append_value(&text, value);
        words[used].text = buffer_take(&text, &words[used].bytes);
        used++;
    }
    if (used == 0)
        schema_fail(schema, "no value of 'enum' has the type");
    else
        graph_add_words(schema->graph, from, words, used, to);
    for (size_t i = 0; i < used; i++)
        mem_free((char *)words[i].text);
    mem_free(words);
}

static void emit_enum(struct schema *schema, const json_t *node, uint32_t from, uint32_t to)
{
    const json_t *values = json_object_get(node, "enum");
    const json_t *type = json_object_get(node, "type");

    if (!check_enum_words(schema, node) || (type && !check_type(schema, type)))
        return;
    if (values && !json_is_array(values)) {
        schema_fail(schema, "'enum' must be a list");
    } else if (values) {
        emit_words(schema, node, values, from, to);
    } else {
        json_t *one = json_array();
        (void)json_array_append(one, json_object_get(node, "const"));
        emit_words(schema, node, one, from, to);
        json_decref(one);
    }
}

/* ---- types ---- */

static void emit_type(struct schema *schema, const json_t *node, const char *type, uint32_t from,
                      uint32_t to)
{
    struct graph *graph = schema->graph;

    if (strcmp(type, "object") == 0) {
        schema_object(schema, node, from, to);
    } else if (strcmp(type, "array") == 0) {
        schema_array(schema, node, from, to);
    } else if (strcmp(type, "string") == 0) {
        schema_string(schema, node, from, to);
    } else if (strcmp(type, "integer") == 0 || strcmp(type, "number") == 0) {
        schema_number(schema, node, type[0] == 'i', from, to);
    } else if (strcmp(type, "boolean") == 0) {
        graph_add_literal(graph, from, "true", 4, to);
        graph_add_literal(graph, from, "false", 5, to);
    } else {
        graph_add_literal(graph, from, "null", 4, to);
    }
}

/* The type that a schema without "type" speaks of, or NULL: any value. */
static const char *type_by_words(const json_t *node)
{
    static const struct {
        const char *word, *type;
    } hints[] = {{"properties", "object"},
                 {"required", "object"},
                 {"additionalProperties", "object"},
                 {"minProperties", "object"},
                 {"maxProperties", "object"},
                 {"items", "array"},
                 {"prefixItems", "array"},
                 {"minItems", "array"},
                 {"maxItems", "array"},
                 {"uniqueItems", "array"},
                 {"pattern", "string"},
                 {"minLength", "string"},
                 {"maxLength", "string"},
                 {"format", "string"},
                 {"minimum", "number"},
                 {"maximum", "number"},
                 {"exclusiveMinimum", "number"},
                 {"exclusiveMaximum", "number"},
                 {"multipleOf", "number"}};

    for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++) {
        if (json_object_get(node, hints[i].word))
            return hints[i].type;
    }
    return NULL;
}

static void emit_types(struct schema *schema, const json_t *node, uint32_t from, uint32_t to)
{
    const json_t *type = json_object_get(node, "type");
    const char *by_words = type ? NULL : type_by_words(node);
    bool null = json_is_true(json_object_get(node, "nullable"));

    if (!type && !by_words) {
        json_text_call(&schema->text, from, JSON_RULE_VALUE, to);
        return;
    }
    if (type && !check_type(schema, type))
        return;
    bool number = by_words ? false : names_type(type, "number");
    for (size_t i = 0; i < TYPES; i++) {
        const char *name = type_names[i];
        if (strcmp(name, "integer") == 0 && number)
            continue; /* every integer is a number */
        if (by_words ? strcmp(by_words, name) == 0 : names_type(type, name))
            emit_type(schema, node, name, from, to);
        else if (null && strcmp(name, "null") == 0)
            emit_type(schema, node, name, from, to);
    }
}

/* ---- the walk ---- */

static bool has_only(const json_t *node, const char *only)
{
    const char *word;
    json_t *value;

    json_object_foreach((json_t *)node, word, value)
    {
        if (strcmp(word, only) != 0 && !schema_word_is_note(word))
            return false;
    }
    return true;
}

static void emit_any_of(struct schema *schema, const json_t *node, const char *word, uint32_t from,
                        uint32_t to)
{
    const json_t *list = json_object_get(node, word);
    bool alone = has_only(node, word);
    json_t *base = json_copy((json_t *)node);
    size_t taken = 0;

    (void)json_object_del(base, word);
    if (json_array_size(list) == 0)
        schema_fail(schema, "'%s' must be a list of schemas", word);
    for (size_t i = 0; i < json_array_size(list) && !schema->graph->failed; i++) {
        char index[24];
        (void)snprintf(index, sizeof(index), "%zu", i);
        size_t path = schema_enter(schema, word, index);
        const json_t *alternative = json_array_get(list, i);
        if (!alone)
            alternative = schema_both(schema, base, alternative);
        else if (json_object_get(alternative, "allOf"))
            alternative = schema_flat(schema, alternative); /* it may be one that cannot be met */
        if (!json_is_false(alternative) && !schema->graph->failed) {
            schema_emit(schema, alternative, from, to);
            taken++;
        }
        schema_leave(schema, path);
    }
    if (taken == 0)
        schema_fail(schema, "no alternative of '%s' can be met", word);
    json_decref(base);
}

static void emit_object_schema(struct schema *schema, const json_t *node, uint32_t from,
                               uint32_t to)
{
    const json_t *reference = json_object_get(node, "$ref");

    schema_check_words(schema, node);
    if (reference && !json_is_string(reference)) {
        schema_fail(schema, "'$ref' must be a string");
    } else if (reference && has_only(node, "$ref")) {
        emit_reference(schema, json_string_value(reference), from, to);
    } else if (json_object_get(node, "oneOf") && has_only(node, "oneOf")) {
        emit_any_of(schema, node, "oneOf", from, to);
    } else if (reference || json_object_get(node, "allOf") || json_object_get(node, "oneOf")) {
        schema_emit(schema, schema_flat(schema, node), from, to);
    } else if (json_object_get(node, "anyOf")) {
        emit_any_of(schema, node, "anyOf", from, to);
    } else if (json_object_get(node, "enum") || json_object_get(node, "const")) {
        emit_enum(schema, node, from, to);
    } else {
        emit_types(schema, node, from, to);
    }
}

void schema_emit(struct schema *schema, const json_t *node, uint32_t from, uint32_t to)
{
    if (schema->graph->failed)
        return;
    if (++schema->visits > SCHEMA_VISITS_MAX) {
        schema_fail(schema, "the schema is too large: more than %u parts", SCHEMA_VISITS_MAX);
    } else if (schema->depth == GRAMMAR_DEPTH_MAX) {
        schema_fail(schema, "nested more than %u deep", GRAMMAR_DEPTH_MAX);
    } else if (json_is_true(node)) {
        json_text_call(&schema->text, from, JSON_RULE_VALUE, to);
    } else if (json_is_false(node)) {
        schema_fail(schema, "nothing is valid here");
    } else if (!json_is_object(node)) {
        schema_fail(schema, "a schema must be an object or a boolean");
    } else {
        schema->depth++;
        emit_object_schema(schema, node, from, to);
        schema->depth--;
    }
}

uint32_t schema_rule(struct schema *schema, const json_t *node)
{
    uint32_t rule = graph_rule(schema->graph, schema->path, strlen(schema->path));

    schema_emit(schema, node, graph_rule_start(schema->graph, rule),
                graph_rule_end(schema->graph, rule));
    return rule;
}

void schema_into(const json_t *root, struct graph *graph, uint32_t from, uint32_t to)
{
    struct schema schema = {.graph = graph, .root = root, .path = "#"};

    json_text_init(&schema.text, graph);
    schema.refs = map_new(SCHEMA_VISITS_MAX);
    schema.pending = json_array();
    schema.made = json_array();
    schema_emit(&schema, root, from, to);
    emit_pending(&schema);
    json_decref(schema.made);
    json_decref(schema.pending);
    map_free(schema.refs);
}

void front_json_schema(const struct grammar_spec *spec, struct graph *graph, uint32_t root)
{
    json_t *schema = front_parse_json(spec, graph, "schema");

    if (schema)
        schema_into(schema, graph, graph_rule_start(graph, root), graph_rule_end(graph, root));
    json_decref(schema);
}
