/* expr.c - Thompson's construction, with counters for long repetitions.
 *
 *   x*       from -> (loop) -> to, x from loop to loop
 *   x{m,n}   short: copies of x in a row; long: one COUNT edge over a rule that is x
 *
 * So a{1000000} is one node, and ((a{100}){100}){100} three. Depth of recursion: a few times the
 * nesting of the text, which the parsers bound. */
#include "proto/grammar/expr.h"

#include <string.h>

#include "proto/base/assert.h"

#define COPIES_COST_MAX 48u /* nodes, about */

struct expr *expr_new(struct arena *arena, enum expr_kind kind)
{
    struct expr *expr = arena_zalloc(arena, sizeof(*expr));

    if (expr)
        expr->kind = kind;
    return expr;
}

struct expr *expr_set(struct arena *arena, struct charset *set)
{
    struct expr *expr = expr_new(arena, EXPR_SET);

    charset_normalize(set);
    if (expr && set->count > 0) {
        size_t bytes = set->count * sizeof(*set->ranges);
        expr->set.ranges = arena_alloc(arena, bytes);
        if (expr->set.ranges)
            memcpy(expr->set.ranges, set->ranges, bytes);
        expr->set.count = expr->set.ranges ? set->count : 0;
        expr = expr->set.ranges ? expr : NULL;
    }
    charset_done(set);
    return expr;
}

struct expr *expr_char(struct arena *arena, uint32_t code)
{
    struct charset set;

    charset_init(&set);
    charset_add(&set, code, code);
    return expr_set(arena, &set);
}

struct expr *expr_repeat(struct arena *arena, struct expr *child, uint32_t min, uint32_t max)
{
    struct expr *expr = expr_new(arena, EXPR_REPEAT);

    if (!expr)
        return NULL;
    expr->children = expr->last_child = child;
    expr->min = min;
    expr->max = max;
    return expr;
}

void expr_append(struct expr *parent, struct expr *child)
{
    if (parent->last_child)
        parent->last_child->next = child;
    else
        parent->children = child;
    parent->last_child = child;
}

/* About how many nodes it takes; saturates well above what is compared with. */
static uint32_t cost_of(const struct expr *expr)
{
    uint32_t cost = 1, copies;

    switch (expr->kind) {
    case EXPR_SET:
        for (uint32_t i = 0; i < expr->set.count && cost < COPIES_COST_MAX; i++)
            cost += expr->set.ranges[i].hi < 0x80 ? 0 : 4;
        return cost;
    case EXPR_SEQ:
    case EXPR_ALT:
        for (const struct expr *child = expr->children; child; child = child->next) {
            cost += cost_of(child);
            if (cost > COPIES_COST_MAX)
                return cost;
        }
        return cost;
    case EXPR_REPEAT:
        copies = expr->max != GRAPH_NO_MAX ? expr->max : expr->min + 1;
        cost = cost_of(expr->children);
        return cost > COPIES_COST_MAX || copies > COPIES_COST_MAX ? cost + COPIES_COST_MAX
                                                                  : 1 + cost * copies;
    default:
        return 1;
    }
}

static void emit_loop(const struct expr *child, enum charset_form form, struct graph *graph,
                      uint32_t from, uint32_t to)
{
    uint32_t loop = graph_node(graph);

    graph_add_empty(graph, from, loop);
    expr_emit(child, form, graph, loop, loop);
    graph_add_empty(graph, loop, to);
}

static void emit_copies(const struct expr *expr, enum charset_form form, struct graph *graph,
                        uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < expr->min && !graph->failed; i++) {
        bool last = i + 1 == expr->min && expr->max == expr->min;
        uint32_t next = last ? to : graph_node(graph);
        expr_emit(expr->children, form, graph, from, next);
        from = next;
    }
    if (expr->max == GRAPH_NO_MAX) {
        emit_loop(expr->children, form, graph, from, to);
        return;
    }
    for (uint32_t i = expr->min; i < expr->max && !graph->failed; i++) {
        uint32_t next = i + 1 == expr->max ? to : graph_node(graph);
        graph_add_empty(graph, from, to);
        expr_emit(expr->children, form, graph, from, next);
        from = next;
    }
}

static void emit_repeat(const struct expr *expr, enum charset_form form, struct graph *graph,
                        uint32_t from, uint32_t to)
{
    const struct expr *child = expr->children;
    uint32_t copies = expr->max != GRAPH_NO_MAX ? expr->max : expr->min + 1;

    ASSERT(expr->min <= expr->max);
    if (expr->max == 0) {
        graph_add_empty(graph, from, to);
    } else if (copies <= COPIES_COST_MAX &&
               (copies == 1 || cost_of(child) * copies <= COPIES_COST_MAX)) {
        emit_copies(expr, form, graph, from, to);
    } else {
        uint32_t rule = graph_rule(graph, NULL, 0);
        expr_emit(child, form, graph, graph_rule_start(graph, rule), graph_rule_end(graph, rule));
        graph_add_count(graph, from, rule, expr->min, expr->max, to);
    }
}

void expr_emit(const struct expr *expr, enum charset_form form, struct graph *graph, uint32_t from,
               uint32_t to)
{
    if (graph->failed)
        return;
    switch (expr->kind) {
    case EXPR_SET:
        charset_emit(&expr->set, form, graph, from, to);
        return;
    case EXPR_SEQ:
        for (const struct expr *child = expr->children; child; child = child->next) {
            uint32_t next = child->next ? graph_node(graph) : to;
            expr_emit(child, form, graph, from, next);
            from = next;
        }
        if (!expr->children)
            graph_add_empty(graph, from, to);
        return;
    case EXPR_ALT:
        for (const struct expr *child = expr->children; child; child = child->next)
            expr_emit(child, form, graph, from, to);
        return;
    case EXPR_REPEAT:
        emit_repeat(expr, form, graph, from, to);
        return;
    case EXPR_RULE:
        graph_add_call(graph, from, expr->rule, to);
        return;
    case EXPR_EMPTY:
    case EXPR_ANCHOR_START:
    case EXPR_ANCHOR_END:
        graph_add_empty(graph, from, to);
        return;
    }
}
