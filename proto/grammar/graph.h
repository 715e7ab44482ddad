/* graph.h - the automaton while it is being built: nodes, edges, rules.
 *
 *   edge   BYTES lo..hi    takes one byte
 *          EMPTY           takes nothing
 *          CALL rule       takes a text of that rule, then goes on at `to`
 *          COUNT rule      takes min..max texts of that rule; the node has no other edge
 *
 * A rule is an automaton of its own with one start and one end; rules may call each other, so the
 * whole is a pushdown automaton. Whoever adds a piece between two nodes (`from`, `to`) adds no edge
 * into `from` and none out of `to`: pieces can then share both ends.
 *
 * Errors stick, as in buffer.h: past a limit (or once somebody called graph_fail) nothing is added
 * any more and node numbers are 0; grammar_compile looks once, at the end.
 * Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_GRAPH_H
#define REFRAIN_PROTO_GRAMMAR_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"
#include "proto/grammar/grammar.h"

#define GRAPH_NONE UINT32_MAX
#define GRAPH_NO_MAX UINT32_MAX /* of a COUNT: any number of times */

enum graph_edge_kind { EDGE_BYTES = 0, EDGE_EMPTY, EDGE_CALL, EDGE_COUNT };

struct graph_edge {
    uint8_t kind; /* enum graph_edge_kind */
    uint8_t lo, hi;
    uint32_t to;
    uint32_t rule; /* CALL, COUNT */
    uint32_t min, max;
    uint32_t next; /* of the same node, GRAPH_NONE: the last */
};

struct graph_rule {
    uint32_t start, end;
    const char *name; /* for sentences; the graph's copy, "" for our own rules */
};

struct graph {
    uint32_t *first_edge; /* per node */
    uint32_t nodes_count, nodes_max;
    struct graph_edge *edges;
    uint32_t edges_count, edges_max;
    struct graph_rule *rules;
    uint32_t rules_count, rules_max;
    int failed; /* 0, -E2BIG or -EINVAL */
    struct errmsg *err;
};

/* err outlives the graph; the sentence of the first failure goes there. */
void graph_init(struct graph *graph, struct errmsg *err);
void graph_done(struct graph *graph);
/* The first failure stays. Returns the code, so that `return graph_fail(...)`. */
int graph_fail(struct graph *graph, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

uint32_t graph_node(struct graph *graph);
/* A rule with start and end; name may be NULL, `bytes` of it are copied. */
uint32_t graph_rule(struct graph *graph, const char *name, size_t bytes);
uint32_t graph_rule_start(const struct graph *graph, uint32_t rule);
uint32_t graph_rule_end(const struct graph *graph, uint32_t rule);

void graph_add_bytes(struct graph *graph, uint32_t from, uint8_t lo, uint8_t hi, uint32_t to);
void graph_add_empty(struct graph *graph, uint32_t from, uint32_t to);
void graph_add_call(struct graph *graph, uint32_t from, uint32_t rule, uint32_t to);
/* min <= max; max GRAPH_NO_MAX: no end. */
void graph_add_count(struct graph *graph, uint32_t from, uint32_t rule, uint32_t min, uint32_t max,
                     uint32_t to);
/* The bytes one after the other; none of them: an empty edge. */
void graph_add_literal(struct graph *graph, uint32_t from, const char *text, size_t bytes,
                       uint32_t to);

struct graph_word {
    const char *text;
    size_t bytes;
};
void graph_sort_words(struct graph_word *words, size_t count); /* by bytes */
/* One of the words; common beginnings are shared. Sorts `words`. */
void graph_add_words(struct graph *graph, uint32_t from, struct graph_word *words, size_t count,
                     uint32_t to);

#endif
