/* automaton.h - a compiled grammar as machine.c reads it. Private to proto/grammar.
 *
 * Nodes of all rules in one numbering. What a node may do: take a byte (steps), or without taking
 * one go elsewhere (jumps). Every node can reach its rule's end, and every rule has a text: a
 * machine that is somewhere can always finish. */
#ifndef REFRAIN_PROTO_GRAMMAR_AUTOMATON_H
#define REFRAIN_PROTO_GRAMMAR_AUTOMATON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/grammar/graph.h"

struct grammar_step {
    uint8_t lo, hi;
    uint32_t to;
};

struct grammar_jump {
    uint8_t kind; /* EDGE_EMPTY, EDGE_CALL, EDGE_COUNT */
    bool tail;    /* CALL: nothing comes after it in its rule, so nothing is pushed */
    uint32_t to;
    uint32_t start; /* of the called rule */
    uint32_t min, max;
};

struct grammar_node {
    uint32_t steps_at, steps_count;
    uint32_t jumps_at, jumps_count;
    bool is_end; /* of its rule */
};

struct grammar {
    _Atomic uint32_t refs;
    enum grammar_kind kind;
    uint32_t start; /* node */
    struct grammar_node *nodes;
    struct grammar_step *steps;
    struct grammar_jump *jumps;
    uint32_t nodes_count, steps_count, jumps_count;
    /* Bytes that no step tells apart share a class. */
    uint8_t byte_class[256];
    uint8_t class_byte[256]; /* one byte of each class */
    uint32_t classes_count;
};

/* The graph's rules, rule `root` first, as an automaton: unreachable and dead parts left out.
 * -EINVAL: the root has no text, or a rule calls itself without taking a byte; -E2BIG; or the
 * graph's own failure. One reference in *ret_grammar. */
int automaton_pack(struct graph *graph, uint32_t root, struct grammar **ret_grammar);

#endif
