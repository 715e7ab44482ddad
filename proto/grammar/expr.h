/* expr.h - what regex and EBNF texts are parsed into, and how it becomes a part of the graph.
 *
 * Ownership: everything in the arena given to expr_new. Thread: one. */
#ifndef REFRAIN_PROTO_GRAMMAR_EXPR_H
#define REFRAIN_PROTO_GRAMMAR_EXPR_H

#include "proto/base/arena.h"
#include "proto/grammar/charset.h"

enum expr_kind {
    EXPR_EMPTY = 0,
    EXPR_SET,    /* one character of ranges */
    EXPR_SEQ,    /* children one after the other */
    EXPR_ALT,    /* one of the children */
    EXPR_REPEAT, /* the child min..max times; max GRAPH_NO_MAX: no end */
    EXPR_RULE,
    EXPR_ANCHOR_START,
    EXPR_ANCHOR_END,
};

struct expr {
    enum expr_kind kind;
    struct expr *children, *last_child, *next;
    struct charset set; /* ranges in the arena */
    uint32_t min, max, rule;
};

/* NULL: the arena is full. */
struct expr *expr_new(struct arena *arena, enum expr_kind kind);
/* Normalizes and takes *set over: it is empty afterwards. */
struct expr *expr_set(struct arena *arena, struct charset *set);
struct expr *expr_char(struct arena *arena, uint32_t code);
struct expr *expr_repeat(struct arena *arena, struct expr *child, uint32_t min, uint32_t max);
void expr_append(struct expr *parent, struct expr *child);

void expr_emit(const struct expr *expr, enum charset_form form, struct graph *graph, uint32_t from,
               uint32_t to);

#endif
