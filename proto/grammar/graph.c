/* graph.c - growing arrays with a limit; see graph.h for the picture. */
#include "proto/grammar/graph.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

void graph_init(struct graph *graph, struct errmsg *err)
{
    *graph = (struct graph){.err = err};
}

void graph_done(struct graph *graph)
{
    for (uint32_t i = 0; i < graph->rules_count; i++)
        mem_free((char *)graph->rules[i].name);
    mem_free(graph->rules);
    mem_free(graph->edges);
    mem_free(graph->first_edge);
    *graph = (struct graph){0};
}

int graph_fail(struct graph *graph, int code, const char *format, ...)
{
    char text[ERRMSG_MAX];
    va_list args;

    ASSERT(code < 0);
    if (graph->failed)
        return graph->failed;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    graph->failed = code;
    return errmsg_set(graph->err, code, "%s", text);
}

/* Room for one more entry; false: over `limit`, said so. */
static bool grow(struct graph *graph, void **array, uint32_t count, uint32_t *max, size_t size,
                 uint32_t limit, const char *what)
{
    if (graph->failed)
        return false;
    if (count < *max)
        return true;
    if (count >= limit) {
        (void)graph_fail(graph, -E2BIG, "the grammar is too large: more than %u %s", limit, what);
        return false;
    }
    *max = *max == 0 ? 64 : *max * 2;
    *array = mem_realloc(*array, *max * size);
    return true;
}

uint32_t graph_node(struct graph *graph)
{
    if (!grow(graph, (void **)&graph->first_edge, graph->nodes_count, &graph->nodes_max,
              sizeof(*graph->first_edge), GRAMMAR_NODES_MAX, "places"))
        return 0;
    graph->first_edge[graph->nodes_count] = GRAPH_NONE;
    return graph->nodes_count++;
}

uint32_t graph_rule(struct graph *graph, const char *name, size_t bytes)
{
    uint32_t start = graph_node(graph), end = graph_node(graph);

    if (!grow(graph, (void **)&graph->rules, graph->rules_count, &graph->rules_max,
              sizeof(*graph->rules), GRAMMAR_RULES_MAX, "rules"))
        return 0;
    graph->rules[graph->rules_count] =
        (struct graph_rule){start, end, mem_strndup(name ? name : "", name ? bytes : 0)};
    return graph->rules_count++;
}

uint32_t graph_rule_start(const struct graph *graph, uint32_t rule)
{
    return graph->failed ? 0 : graph->rules[rule].start;
}

uint32_t graph_rule_end(const struct graph *graph, uint32_t rule)
{
    return graph->failed ? 0 : graph->rules[rule].end;
}

static void add_edge(struct graph *graph, uint32_t from, struct graph_edge edge)
{
    if (!grow(graph, (void **)&graph->edges, graph->edges_count, &graph->edges_max,
              sizeof(*graph->edges), GRAMMAR_EDGES_MAX, "steps"))
        return;
    ASSERT(from < graph->nodes_count && edge.to < graph->nodes_count);
    edge.next = graph->first_edge[from];
    graph->first_edge[from] = graph->edges_count;
    graph->edges[graph->edges_count++] = edge;
}

void graph_add_bytes(struct graph *graph, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to)
{
    ASSERT(lo <= hi);
    add_edge(graph, from, (struct graph_edge){.kind = EDGE_BYTES, .lo = lo, .hi = hi, .to = to});
}

void graph_add_empty(struct graph *graph, uint32_t from, uint32_t to)
{
    add_edge(graph, from, (struct graph_edge){.kind = EDGE_EMPTY, .to = to});
}

void graph_add_call(struct graph *graph, uint32_t from, uint32_t rule, uint32_t to)
{
    add_edge(graph, from, (struct graph_edge){.kind = EDGE_CALL, .rule = rule, .to = to});
}

void graph_add_count(struct graph *graph, uint32_t from, uint32_t rule, uint32_t min, uint32_t max,
                     uint32_t to)
{
    uint32_t counter = graph_node(graph);

    ASSERT(min <= max && max > 0);
    graph_add_empty(graph, from, counter);
    add_edge(
        graph, counter,
        (struct graph_edge){.kind = EDGE_COUNT, .rule = rule, .min = min, .max = max, .to = to});
}

void graph_add_literal(struct graph *graph, uint32_t from, const char *text, size_t bytes,
                       uint32_t to)
{
    if (bytes == 0)
        graph_add_empty(graph, from, to);
    for (size_t i = 0; i < bytes && !graph->failed; i++) {
        uint32_t next = i + 1 == bytes ? to : graph_node(graph);
        graph_add_bytes(graph, from, (uint8_t)text[i], (uint8_t)text[i], next);
        from = next;
    }
}

static int by_text(const void *a, const void *b)
{
    const struct graph_word *x = a, *y = b;
    size_t bytes = x->bytes < y->bytes ? x->bytes : y->bytes;
    int order = memcmp(x->text, y->text, bytes);

    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void graph_sort_words(struct graph_word *words, size_t count)
{
    if (count > 0)
        qsort(words, count, sizeof(*words), by_text);
}

static size_t common_bytes(const struct graph_word *a, const struct graph_word *b)
{
    size_t i = 0;

    while (i < a->bytes && i < b->bytes && a->text[i] == b->text[i])
        i++;
    return i;
}

void graph_add_words(struct graph *graph, uint32_t from, struct graph_word *words, size_t count,
                     uint32_t to)
{
    size_t longest = 0;

    graph_sort_words(words, count);
    for (size_t i = 0; i < count; i++)
        longest = words[i].bytes > longest ? words[i].bytes : longest;
    uint32_t *path = mem_calloc(longest + 1, sizeof(*path)); /* nodes of the word before */
    path[0] = from;
    for (size_t i = 0; i < count && !graph->failed; i++) {
        const struct graph_word *word = &words[i];
        size_t at = i == 0 ? 0 : common_bytes(&words[i - 1], word);
        if (i > 0 && at == word->bytes && at == words[i - 1].bytes)
            continue; /* twice the same */
        for (; at < word->bytes; at++) {
            path[at + 1] = graph_node(graph);
            graph_add_bytes(graph, path[at], (uint8_t)word->text[at], (uint8_t)word->text[at],
                            path[at + 1]);
        }
        graph_add_empty(graph, path[word->bytes], to);
    }
    mem_free(path);
}
