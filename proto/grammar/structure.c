/* structure.c - texts with a value of JSON inside, repeated: what calls of tools look like.
 *
 *   {"alternatives": [{"begin": str, "schema": object or true, "end": str}, ...],
 *    "min": 1, "max": N, "separator": str}
 *
 * One of the alternatives, min to max times, `separator` between two. */
#include <errno.h>
#include <string.h>

#include "proto/grammar/front.h"

#define ALTERNATIVES_MAX 1024u
#define REPEAT_MAX 1024

static void fail(struct graph *graph, const char *what)
{
    (void)graph_fail(graph, -EINVAL, "structure: %s", what);
}

static uint32_t add_text(struct graph *graph, const json_t *text, uint32_t from, uint32_t to)
{
    if (text && !json_is_string(text))
        fail(graph, "'begin', 'end' and 'separator' must be strings");
    graph_add_literal(graph, from, text ? json_string_value(text) : "", json_string_length(text),
                      to);
    return to;
}

static void add_alternative(struct graph *graph, const json_t *alternative, uint32_t rule)
{
    const json_t *schema = json_object_get(alternative, "schema");
    uint32_t begin = graph_node(graph), end = graph_node(graph);

    if (!json_is_object(alternative) || !schema) {
        fail(graph, "an alternative must be an object with a 'schema'");
        return;
    }
    (void)add_text(graph, json_object_get(alternative, "begin"), graph_rule_start(graph, rule),
                   begin);
    schema_into(schema, graph, begin, end);
    (void)add_text(graph, json_object_get(alternative, "end"), end, graph_rule_end(graph, rule));
}

/* one (separator one){min - 1, max - 1} */
static void add_all(struct graph *graph, uint32_t root, uint32_t one, const json_t *separator,
                    json_int_t min, json_int_t max)
{
    uint32_t start = graph_rule_start(graph, root), end = graph_rule_end(graph, root);
    uint32_t first = graph_node(graph);

    graph_add_call(graph, start, one, first);
    if (min == 0)
        graph_add_empty(graph, start, end);
    if (max == 1) {
        graph_add_empty(graph, first, end);
        return;
    }
    uint32_t more = graph_rule(graph, NULL, 0), between = graph_node(graph);
    (void)add_text(graph, separator, graph_rule_start(graph, more), between);
    graph_add_call(graph, between, one, graph_rule_end(graph, more));
    graph_add_count(graph, first, more, min > 1 ? (uint32_t)min - 1 : 0, (uint32_t)max - 1, end);
}

static json_int_t number_of(struct graph *graph, const json_t *spec, const char *name,
                            json_int_t least)
{
    const json_t *value = json_object_get(spec, name);
    json_int_t number = value ? json_integer_value(value) : 1;

    if ((value && !json_is_integer(value)) || number < least || number > REPEAT_MAX)
        (void)graph_fail(graph, -EINVAL, "structure: '%s' must be an integer from %d to %d", name,
                         (int)least, REPEAT_MAX);
    return number;
}

void front_structure(const struct grammar_spec *spec, struct graph *graph, uint32_t root)
{
    json_t *json = front_parse_json(spec, graph, "structure");
    const json_t *alternatives = json_object_get(json, "alternatives");
    size_t count = json_array_size(alternatives);
    json_int_t min = number_of(graph, json, "min", 0), max = number_of(graph, json, "max", 1);

    if (count == 0 || count > ALTERNATIVES_MAX)
        fail(graph, "'alternatives' must be a list of 1 to 1024 objects");
    if (max < min)
        fail(graph, "'max' is less than 'min'");
    uint32_t one = graph_rule(graph, "alternative", 11);
    for (size_t i = 0; i < count && !graph->failed; i++)
        add_alternative(graph, json_array_get(alternatives, i), one);
    if (!graph->failed)
        add_all(graph, root, one, json_object_get(json, "separator"), min, max);
    json_decref(json);
}
