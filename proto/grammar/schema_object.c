/* schema_object.c - members in the schema's order, each at most once.
 *
 *   '{' space -> C0            Ci: a member is due, the i-th or a later one
 *   Ci  -> "name" ':' value -> Si+1      and, when the i-th may be left out: Ci -> Ci+1
 *   Si  -> ',' space -> Ci     and, when nothing from i on is required: -> space '}'
 *   C0  -> '}'                 when nothing is required
 *   Cn  -> other name ':' value -> Sn    when more than the declared ones may come
 *
 * Names of other members are all but the declared ones, written in one way, so that "a" cannot
 * come back as "\u0061". Cost: linear in the properties. */
#include <string.h>

#include "proto/base/json.h"
#include "proto/base/mem.h"
#include "proto/grammar/charset.h"
#include "proto/grammar/scan.h"
#include "proto/grammar/schema.h"

#define NAME_BYTES_MAX 256u /* of a declared name, where others may come too */

struct member {
    const char *name;
    size_t bytes;
    const json_t *schema;
    bool required;
};

struct object {
    struct schema *schema;
    struct member *members;
    size_t count;
    const json_t *more;  /* schema of other members, NULL: none may come */
    const json_t *other; /* of a member that is required, but not declared; NULL: none may be */
};

/* ---- names of other members ---- */

static void key_chars(struct charset *set)
{
    charset_init(set);
    charset_add(set, 0x20, CHAR_MAX_CODE);
}

/* words[lo, hi) share their first `at` bytes, which lead to `node`; a name that is none of them
 * ends at `to`, behind its quote. `rest`: no declared name any more. */
struct others {
    struct graph *graph;
    const struct graph_word *words;
    uint32_t rest, to;
};

static uint32_t char_at(const struct graph_word *word, size_t at, size_t *ret_next)
{
    struct scan scan = {word->text, word->bytes, at};
    uint32_t code = scan_next(&scan);

    *ret_next = scan.at;
    return code;
}

static void emit_others(const struct others *others, size_t lo, size_t hi, size_t at, uint32_t node)
{
    struct charset free_chars, one;
    size_t next = at;

    charset_init(&free_chars);
    if (others->words[lo].bytes == at)
        lo++; /* the name itself: no quote here */
    else
        graph_add_bytes(others->graph, node, '"', '"', others->to);
    for (size_t i = lo; i < hi && !others->graph->failed;) {
        uint32_t code = char_at(&others->words[i], at, &next);
        size_t end = i, ignored;
        uint32_t child = graph_node(others->graph);
        while (end < hi && char_at(&others->words[end], at, &ignored) == code)
            end++;
        charset_init(&one);
        charset_add(&one, code, code);
        charset_emit(&one, CHARSET_JSON, others->graph, node, child);
        charset_done(&one);
        charset_add(&free_chars, code, code);
        emit_others(others, i, end, next, child);
        i = end;
    }
    charset_add(&free_chars, 0, 0x1f);
    charset_negate(&free_chars);
    charset_emit(&free_chars, CHARSET_JSON, others->graph, node, others->rest);
    charset_done(&free_chars);
}

/* '"', a name that is not declared, '"'. */
static void emit_other_name(struct object *object, uint32_t from, uint32_t to)
{
    struct graph *graph = object->schema->graph;
    struct graph_word *words = mem_calloc(object->count + 1, sizeof(*words));
    struct others others = {graph, words, graph_node(graph), to};
    uint32_t open = graph_node(graph);
    struct charset chars;

    for (size_t i = 0; i < object->count; i++) {
        words[i] = (struct graph_word){object->members[i].name, object->members[i].bytes};
        if (words[i].bytes > NAME_BYTES_MAX)
            schema_fail(object->schema,
                        "a property's name of %zu bytes together with "
                        "'additionalProperties'; at most %u",
                        words[i].bytes, NAME_BYTES_MAX);
    }
    if (!graph->failed) {
        graph_sort_words(words, object->count);
        graph_add_bytes(graph, from, '"', '"', open);
        emit_others(&others, 0, object->count, 0, open);
        key_chars(&chars);
        charset_emit(&chars, CHARSET_JSON, graph, others.rest, others.rest);
        charset_done(&chars);
        graph_add_bytes(graph, others.rest, '"', '"', to);
    }
    mem_free(words);
}

/* ---- members ---- */

static void emit_value(struct object *object, const json_t *value, const char *name, uint32_t from,
                       uint32_t to)
{
    struct schema *schema = object->schema;
    uint32_t begin = graph_node(schema->graph);
    size_t path = name ? schema_enter(schema, "properties", name)
                       : schema_enter(schema, "additionalProperties", NULL);

    json_text_colon(&schema->text, from, begin);
    schema_emit(schema, value, begin, to);
    schema_leave(schema, path);
}

static void emit_member(struct object *object, const struct member *member, uint32_t from,
                        uint32_t to)
{
    struct graph *graph = object->schema->graph;
    uint32_t colon = graph_node(graph);
    struct buffer text;

    buffer_init(&text, GRAMMAR_TEXT_MAX * 6 + 2);
    json_append_string(&text, member->name, member->bytes);
    graph_add_literal(graph, from, text.data, text.bytes, colon);
    emit_value(object, member->schema, member->name, colon, to);
    buffer_done(&text);
}

static void emit_more(struct object *object, uint32_t due, uint32_t to)
{
    struct schema *schema = object->schema;
    uint32_t colon = graph_node(schema->graph), after = graph_node(schema->graph);

    if (object->count == 0)
        json_text_call(&schema->text, due, JSON_RULE_STRING, colon);
    else
        emit_other_name(object, due, colon);
    emit_value(object, object->more, NULL, colon, after);
    json_text_open(&schema->text, after, ',', due);
    json_text_close(&schema->text, after, '}', to);
}

static void emit_members(struct object *object, uint32_t from, uint32_t to)
{
    struct schema *schema = object->schema;
    struct graph *graph = schema->graph;
    size_t required_end = 0; /* one past the last required one */
    uint32_t due = graph_node(graph);

    for (size_t i = 0; i < object->count; i++)
        required_end = object->members[i].required ? i + 1 : required_end;
    json_text_open(&schema->text, from, '{', due);
    if (required_end == 0) {
        uint32_t first = graph_node(graph);
        graph_add_bytes(graph, due, '}', '}', to);
        graph_add_empty(graph, due, first);
        due = first;
    }
    for (size_t i = 0; i < object->count && !graph->failed; i++) {
        uint32_t after = graph_node(graph), next = graph_node(graph);
        emit_member(object, &object->members[i], due, after);
        if (!object->members[i].required)
            graph_add_empty(graph, due, next);
        json_text_open(&schema->text, after, ',', next);
        if (i + 1 >= required_end)
            json_text_close(&schema->text, after, '}', to);
        due = next;
    }
    if (object->more)
        emit_more(object, due, to);
}

/* ---- what the schema says ---- */

static void collect(struct object *object, const json_t *properties, json_t *required)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)properties, name, value)
    {
        bool needed = json_object_get(required, name) != NULL;
        (void)json_object_del(required, name);
        if (json_is_false(value) && !needed)
            continue; /* must not come: it does not */
        object->members[object->count++] = (struct member){name, strlen(name), value, needed};
    }
    json_object_foreach(required, name, value)
    { /* required, and not declared */
        if (!object->other)
            schema_fail(object->schema,
                        "'%.60s' is required, but 'properties' does not have it "
                        "and 'additionalProperties' is false",
                        name);
        else
            object->members[object->count++] =
                (struct member){name, strlen(name), object->other, true};
    }
}

/* Counts of members: only where they say nothing new. */
static void check_counts(struct object *object, const json_t *node)
{
    uint32_t min = schema_count(object->schema, node, "minProperties", 0);
    uint32_t max = schema_count(object->schema, node, "maxProperties", GRAPH_NO_MAX);
    size_t required = 0;

    for (size_t i = 0; i < object->count; i++)
        required += object->members[i].required;
    if (min > required)
        schema_fail(object->schema, "'minProperties' %u is not supported: %zu are required", min,
                    required);
    if (max != GRAPH_NO_MAX && (object->more || max < object->count))
        schema_fail(object->schema, "'maxProperties' %u is not supported here", max);
}

/* Other members: what additionalProperties says; unsaid, only where nothing is declared. */
static void find_more(struct object *object, const json_t *node, const json_t *properties)
{
    const json_t *more = json_object_get(node, "additionalProperties");

    if (!more)
        more = json_object_get(node, "unevaluatedProperties");
    object->more = object->other = json_is_false(more) ? NULL : more;
    if (!more) {
        object->other = json_true();
        object->more = json_object_size(properties) > 0 ? NULL : json_true();
    }
}

static json_t *required_set(struct schema *schema, const json_t *node)
{
    const json_t *list = json_object_get(node, "required");
    json_t *set = json_object();

    if (list && !json_is_array(list))
        schema_fail(schema, "'required' must be a list of names");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name)
            (void)json_object_set_new(set, name, json_true());
        else
            schema_fail(schema, "'required' must be a list of names");
    }
    return set;
}

void schema_object(struct schema *schema, const json_t *node, uint32_t from, uint32_t to)
{
    const json_t *properties = json_object_get(node, "properties");
    json_t *required = required_set(schema, node);
    struct object object = {.schema = schema};

    if (properties && !json_is_object(properties))
        schema_fail(schema, "'properties' must be an object");
    find_more(&object, node, properties);
    object.members = mem_calloc(json_object_size(properties) + json_object_size(required) + 1,
                                sizeof(*object.members));
    collect(&object, properties, required);
    check_counts(&object, node);
    if (!schema->graph->failed)
        emit_members(&object, from, to);
    mem_free(object.members);
    json_decref(required);
}
