/* schema_array.c - declared items first, then any number of others.
 *
 *   '[' space -> N0            Ni: i items are written
 *   N0 -> item -> N1,  Ni -> ',' space item -> Ni+1           while items are declared
 *   Np -> (',' space item){count} -> end -> space ']'
 *   Ni -> space ']'            when i items are enough
 *
 * Without "items", nothing follows declared items but what minItems asks for. */
#include <stdio.h>

#include "proto/grammar/schema.h"

struct array {
    struct schema *schema;
    const json_t *prefix; /* list or NULL */
    const json_t *items;  /* NULL: no others */
    uint32_t min, max;    /* max GRAPH_NO_MAX: any */
    uint32_t to;
};

static void find_items(struct array *array, const json_t *node)
{
    const json_t *items = json_object_get(node, "items");

    array->prefix = json_object_get(node, "prefixItems");
    if (json_is_array(items)) { /* before 2020-12 */
        array->prefix = items;
        items = json_object_get(node, "additionalItems");
    }
    if (!items)
        items = json_object_get(node, "unevaluatedItems");
    size_t count = json_array_size(array->prefix);
    if (!items && count > 0 && array->min > count && array->max > array->min)
        array->max = array->min;
    if (!items && (count == 0 || array->min > count))
        items = json_true();
    array->items = json_is_false(items) ? NULL : items;
    if (array->prefix && !json_is_array(array->prefix))
        schema_fail(array->schema, "'prefixItems' must be a list of schemas");
    if (!array->items && array->max > count)
        array->max = (uint32_t)count;
    if (array->min > array->max)
        schema_fail(array->schema, "at least %u items are asked for, and at most %u may come",
                    array->min, array->max);
}

/* The i-th item with what stands before it. */
static void emit_item(struct array *array, size_t i, uint32_t rule, uint32_t from, uint32_t to)
{
    struct schema *schema = array->schema;
    uint32_t begin = from;
    char index[24];

    if (i > 0) {
        begin = graph_node(schema->graph);
        json_text_open(&schema->text, from, ',', begin);
    }
    if (i < json_array_size(array->prefix)) {
        (void)snprintf(index, sizeof(index), "%zu", i);
        size_t path = schema_enter(schema, "prefixItems", index);
        schema_emit(schema, json_array_get(array->prefix, i), begin, to);
        schema_leave(schema, path);
    } else {
        graph_add_call(schema->graph, begin, rule, to);
    }
}

/* `done` items are written at `from`, the last of the declared ones, or one. */
static void emit_others(struct array *array, uint32_t done, uint32_t rule, uint32_t from)
{
    struct graph *graph = array->schema->graph;
    uint32_t min = array->min > done ? array->min - done : 0;
    uint32_t max = array->max == GRAPH_NO_MAX ? GRAPH_NO_MAX : array->max - done;
    uint32_t end = graph_node(graph), more, item;

    if (max == 0) {
        json_text_close(&array->schema->text, from, ']', array->to);
        return;
    }
    more = graph_rule(graph, NULL, 0);
    item = graph_node(graph);
    json_text_open(&array->schema->text, graph_rule_start(graph, more), ',', item);
    graph_add_call(graph, item, rule, graph_rule_end(graph, more));
    graph_add_count(graph, from, more, min, max, end);
    json_text_close(&array->schema->text, end, ']', array->to);
}

static uint32_t items_rule(struct array *array)
{
    size_t path = schema_enter(array->schema, "items", NULL);
    uint32_t rule = schema_rule(array->schema, array->items);

    schema_leave(array->schema, path);
    return rule;
}

static void emit_items(struct array *array, uint32_t from)
{
    struct schema *schema = array->schema;
    struct graph *graph = schema->graph;
    size_t declared = json_array_size(array->prefix);
    size_t single = declared > 0 ? declared : array->items ? 1 : 0; /* one by one */
    uint32_t rule = array->items ? items_rule(array) : 0;
    uint32_t at = graph_node(graph);

    json_text_open(&schema->text, from, '[', at);
    if (array->min == 0)
        graph_add_bytes(graph, at, ']', ']', array->to);
    if (array->max < single)
        single = array->max;
    for (size_t i = 0; i < single && !graph->failed; i++) {
        uint32_t begin = i == 0 ? graph_node(graph) : at, next = graph_node(graph);
        if (i == 0)
            graph_add_empty(graph, at, begin);
        emit_item(array, i, rule, begin, next);
        if (i + 1 >= array->min && i + 1 < single)
            json_text_close(&schema->text, next, ']', array->to);
        at = next;
    }
    if (single == 0)
        return;
    if (array->items && single >= declared)
        emit_others(array, (uint32_t)single, rule, at);
    else
        json_text_close(&schema->text, at, ']', array->to);
}

void schema_array(struct schema *schema, const json_t *node, uint32_t from, uint32_t to)
{
    struct array array = {.schema = schema, .to = to};

    if (json_is_true(json_object_get(node, "uniqueItems")))
        schema_fail(schema, "'uniqueItems' is not supported");
    array.min = schema_count(schema, node, "minItems", 0);
    array.max = schema_count(schema, node, "maxItems", GRAPH_NO_MAX);
    if (array.min > GRAMMAR_REPEAT_MAX)
        schema_fail(schema, "'minItems' is more than %u", GRAMMAR_REPEAT_MAX);
    if (array.max > GRAMMAR_REPEAT_MAX)
        array.max = GRAPH_NO_MAX; /* no answer is as long */
    find_items(&array, node);
    if (!schema->graph->failed)
        emit_items(&array, from);
}
