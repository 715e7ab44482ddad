/* automaton.c - from the built graph to the automaton that is run.
 *
 *   1. reach    forward from all starts over rules that have a text; a call waits until its rule
 *               is known to have one                                  -> productive rules
 *   2. trim     backward from all ends                                -> live nodes
 *   3. nullable the same walk as 1 without byte steps
 *   4. left recursion: rules entered before any byte is taken must not lead back
 *   5. counted repetitions of what may be empty: unrolled, or refused when long
 *   6. pack     edges per node, chains of empty edges skipped, classes of bytes
 *
 * Every pass is linear in nodes and edges, so a hostile text costs what its size costs. */
#include "proto/grammar/automaton.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define UNROLL_MAX 1000u /* counted repetitions of what may be empty */

struct work {
    struct graph *graph;
    uint32_t root;
    bool *productive, *nullable; /* per rule */
    bool *live;                  /* per node */
    uint32_t *rule_of_end;       /* per node, GRAPH_NONE */
    uint32_t *forward;           /* per node: where its chain of single empty edges ends */
    uint32_t *queue;             /* [nodes] */
};

static void work_done(struct work *work)
{
    mem_free(work->productive);
    mem_free(work->nullable);
    mem_free(work->live);
    mem_free(work->rule_of_end);
    mem_free(work->forward);
    mem_free(work->queue);
}

static void work_init(struct work *work, struct graph *graph, uint32_t root)
{
    *work = (struct work){.graph = graph,
                          .root = root,
                          .productive = mem_calloc(graph->rules_count, sizeof(bool)),
                          .nullable = mem_calloc(graph->rules_count, sizeof(bool)),
                          .live = mem_calloc(graph->nodes_count, sizeof(bool)),
                          .rule_of_end = mem_calloc(graph->nodes_count, sizeof(uint32_t)),
                          .forward = mem_calloc(graph->nodes_count, sizeof(uint32_t)),
                          .queue = mem_calloc(graph->nodes_count, sizeof(uint32_t))};
    memset(work->rule_of_end, 0xff, graph->nodes_count * sizeof(uint32_t));
    for (uint32_t rule = 0; rule < graph->rules_count; rule++)
        work->rule_of_end[graph->rules[rule].end] = rule;
}

/* ---- reach ---- */

/* Nodes waiting for a rule: one entry per call edge. */
struct reach {
    struct work *work;
    bool bytes; /* byte steps count */
    bool *reached;
    bool *rules; /* what is found out */
    uint32_t *waiters, *waiter_next;
    uint32_t queued;
};

static void reach_node(struct reach *reach, uint32_t node)
{
    if (reach->reached[node])
        return;
    reach->reached[node] = true;
    reach->work->queue[reach->queued++] = node;
}

static void reach_edge(struct reach *reach, uint32_t index)
{
    const struct graph_edge *edge = &reach->work->graph->edges[index];

    switch (edge->kind) {
    case EDGE_BYTES:
        if (reach->bytes)
            reach_node(reach, edge->to);
        return;
    case EDGE_COUNT:
        if (edge->min == 0)
            reach_node(reach, edge->to);
        /* fall through */
    case EDGE_CALL:
        if (reach->rules[edge->rule]) {
            reach_node(reach, edge->to);
            return;
        }
        reach->waiter_next[index] = reach->waiters[edge->rule];
        reach->waiters[edge->rule] = index;
        return;
    default:
        reach_node(reach, edge->to);
    }
}

/* Which rules' ends can be reached from their starts? */
static void find_rules(struct work *work, bool bytes, bool *ret_rules)
{
    const struct graph *graph = work->graph;
    struct reach reach = {.work = work, .bytes = bytes, .rules = ret_rules};

    reach.reached = mem_calloc(graph->nodes_count, sizeof(bool));
    reach.waiters = mem_calloc(graph->rules_count, sizeof(uint32_t));
    reach.waiter_next = mem_calloc(graph->edges_count + 1, sizeof(uint32_t));
    memset(reach.waiters, 0xff, graph->rules_count * sizeof(uint32_t));
    for (uint32_t rule = 0; rule < graph->rules_count; rule++)
        reach_node(&reach, graph->rules[rule].start);
    for (uint32_t i = 0; i < reach.queued; i++) {
        uint32_t node = work->queue[i], rule = work->rule_of_end[node];
        for (uint32_t e = graph->first_edge[node]; e != GRAPH_NONE; e = graph->edges[e].next)
            reach_edge(&reach, e);
        if (rule == GRAPH_NONE || ret_rules[rule])
            continue;
        ret_rules[rule] = true;
        for (uint32_t e = reach.waiters[rule]; e != GRAPH_NONE; e = reach.waiter_next[e])
            reach_node(&reach, graph->edges[e].to);
    }
    mem_free(reach.reached);
    mem_free(reach.waiters);
    mem_free(reach.waiter_next);
}

/* ---- trim ---- */

static bool can_pass(const struct work *work, const struct graph_edge *edge)
{
    if (edge->kind == EDGE_CALL)
        return work->productive[edge->rule];
    return edge->kind != EDGE_COUNT || edge->min == 0 || work->productive[edge->rule];
}

/* Backward from the ends: which nodes lead to one. */
static void find_live(struct work *work)
{
    const struct graph *graph = work->graph;
    uint32_t *first = mem_calloc(graph->nodes_count, sizeof(uint32_t)); /* edges into a node */
    uint32_t *next = mem_calloc(graph->edges_count + 1, sizeof(uint32_t));
    uint32_t *from = mem_calloc(graph->edges_count + 1, sizeof(uint32_t));
    uint32_t queued = 0;

    memset(first, 0xff, graph->nodes_count * sizeof(uint32_t));
    for (uint32_t node = 0; node < graph->nodes_count; node++) {
        for (uint32_t e = graph->first_edge[node]; e != GRAPH_NONE; e = graph->edges[e].next) {
            if (!can_pass(work, &graph->edges[e]))
                continue;
            from[e] = node;
            next[e] = first[graph->edges[e].to];
            first[graph->edges[e].to] = e;
        }
    }
    for (uint32_t rule = 0; rule < graph->rules_count; rule++) {
        work->live[graph->rules[rule].end] = true;
        work->queue[queued++] = graph->rules[rule].end;
    }
    for (uint32_t i = 0; i < queued; i++) {
        for (uint32_t e = first[work->queue[i]]; e != GRAPH_NONE; e = next[e]) {
            if (work->live[from[e]])
                continue;
            work->live[from[e]] = true;
            work->queue[queued++] = from[e];
        }
    }
    mem_free(first);
    mem_free(next);
    mem_free(from);
}

/* ---- left recursion ---- */

enum color { WHITE = 0, GREY, BLACK };

struct left {
    struct work *work;
    uint32_t *calls, *call_next; /* rule -> rules entered before any byte is taken */
    uint32_t *first_call;
    uint32_t calls_count;
};

/* Walk a rule's nodes without taking a byte; note the rules that are entered. */
static void find_left_calls(struct left *left, uint32_t rule, bool *seen)
{
    const struct graph *graph = left->work->graph;
    uint32_t queued = 0;

    seen[graph->rules[rule].start] = true;
    left->work->queue[queued++] = graph->rules[rule].start;
    for (uint32_t i = 0; i < queued; i++) {
        uint32_t e = graph->first_edge[left->work->queue[i]];
        for (; e != GRAPH_NONE; e = graph->edges[e].next) {
            const struct graph_edge *edge = &graph->edges[e];
            if (edge->kind == EDGE_BYTES || !left->work->live[edge->to])
                continue;
            bool enters = edge->kind != EDGE_EMPTY && left->work->productive[edge->rule];
            if (enters) {
                left->calls[left->calls_count] = edge->rule;
                left->call_next[left->calls_count] = left->first_call[rule];
                left->first_call[rule] = left->calls_count++;
            }
            bool passes = edge->kind == EDGE_EMPTY || left->work->nullable[edge->rule] ||
                          (edge->kind == EDGE_COUNT && edge->min == 0);
            if (passes && !seen[edge->to]) {
                seen[edge->to] = true;
                left->work->queue[queued++] = edge->to;
            }
        }
    }
}

/* A rule that can be entered again before a byte is taken, or GRAPH_NONE. Depth first, by hand:
 * rules may be many. */
static uint32_t find_cycle(const struct left *left, uint8_t *color, uint32_t *at, uint32_t *stack)
{
    uint32_t rules = left->work->graph->rules_count;

    memcpy(at, left->first_call, rules * sizeof(*at));
    for (uint32_t rule = 0; rule < rules; rule++) {
        uint32_t depth = 0;
        if (color[rule] != WHITE)
            continue;
        color[rule] = GREY;
        stack[depth++] = rule;
        while (depth > 0) {
            uint32_t top = stack[depth - 1];
            if (at[top] == GRAPH_NONE) {
                color[top] = BLACK;
                depth--;
                continue;
            }
            uint32_t called = left->calls[at[top]];
            at[top] = left->call_next[at[top]];
            if (color[called] == GREY)
                return called;
            if (color[called] == WHITE) {
                color[called] = GREY;
                stack[depth++] = called;
            }
        }
    }
    return GRAPH_NONE;
}

static int check_left_recursion(struct work *work)
{
    const struct graph *graph = work->graph;
    struct left left = {.work = work};
    bool *seen = mem_calloc(graph->nodes_count, sizeof(bool));
    uint8_t *color = mem_calloc(graph->rules_count, sizeof(uint8_t));
    uint32_t *at = mem_calloc(graph->rules_count, sizeof(uint32_t));
    uint32_t *stack = mem_calloc(graph->rules_count, sizeof(uint32_t));
    int r = 0;

    left.calls = mem_calloc(graph->edges_count + 1, sizeof(uint32_t));
    left.call_next = mem_calloc(graph->edges_count + 1, sizeof(uint32_t));
    left.first_call = mem_calloc(graph->rules_count, sizeof(uint32_t));
    memset(left.first_call, 0xff, graph->rules_count * sizeof(uint32_t));
    for (uint32_t rule = 0; rule < graph->rules_count; rule++)
        find_left_calls(&left, rule, seen);
    uint32_t cycle = find_cycle(&left, color, at, stack);
    if (cycle != GRAPH_NONE)
        r = graph_fail(work->graph, -EINVAL,
                       "'%.100s' leads back to itself before any text is taken (left recursion)",
                       graph->rules[cycle].name);
    mem_free(seen);
    mem_free(color);
    mem_free(at);
    mem_free(stack);
    mem_free(left.calls);
    mem_free(left.call_next);
    mem_free(left.first_call);
    return r;
}

/* ---- repetitions of what may be empty ---- */

/* Any number from 0 to max is the same then; as calls in a row, so that a count always means bytes
 * were taken. */
static void unroll(struct work *work, uint32_t node, struct graph_edge edge)
{
    struct graph *graph = work->graph;

    if (edge.max == GRAPH_NO_MAX) {
        graph_add_call(graph, node, edge.rule, node);
        graph_add_empty(graph, node, edge.to);
        return;
    }
    for (uint32_t i = 0; i < edge.max && !graph->failed; i++) {
        uint32_t next = graph_node(graph);
        graph_add_empty(graph, node, edge.to);
        graph_add_call(graph, node, edge.rule, next);
        node = next;
    }
    graph_add_empty(graph, node, edge.to);
}

/* True: the graph has changed. */
static bool unroll_all(struct work *work)
{
    struct graph *graph = work->graph;
    uint32_t nodes_count = graph->nodes_count;
    bool changed = false;

    for (uint32_t node = 0; node < nodes_count && !graph->failed; node++) {
        uint32_t e = graph->first_edge[node];
        if (e == GRAPH_NONE || graph->edges[e].kind != EDGE_COUNT)
            continue;
        struct graph_edge edge = graph->edges[e];
        if (!work->nullable[edge.rule])
            continue;
        if (edge.max != GRAPH_NO_MAX && edge.max > UNROLL_MAX) {
            (void)graph_fail(graph, -E2BIG,
                             "something that may be empty is repeated up to %u times; at most %u",
                             edge.max, UNROLL_MAX);
            break;
        }
        graph->first_edge[node] = GRAPH_NONE; /* a counter has this edge only */
        unroll(work, node, edge);
        changed = true;
    }
    return changed && !graph->failed;
}

/* ---- pack ---- */

static void find_forwards(struct work *work)
{
    const struct graph *graph = work->graph;

    for (uint32_t node = 0; node < graph->nodes_count; node++) {
        uint32_t at = node;
        for (uint32_t hops = 0; hops < 64; hops++) { /* longer chains, and circles, stay */
            uint32_t e = graph->first_edge[at];
            if (e == GRAPH_NONE || graph->edges[e].kind != EDGE_EMPTY ||
                graph->edges[e].next != GRAPH_NONE)
                break;
            at = graph->edges[e].to;
        }
        work->forward[node] = at;
    }
}

static bool keeps(const struct work *work, const struct graph_edge *edge)
{
    if (!work->live[edge->to])
        return false;
    return (edge->kind != EDGE_CALL && edge->kind != EDGE_COUNT) || work->productive[edge->rule] ||
           (edge->kind == EDGE_COUNT && edge->min == 0);
}

static struct grammar_jump make_jump(const struct work *work, const struct graph_edge *edge)
{
    const struct graph *graph = work->graph;
    struct grammar_jump jump = {
        .kind = edge->kind, .to = work->forward[edge->to], .min = edge->min, .max = edge->max};

    if (edge->kind == EDGE_EMPTY)
        return jump;
    if (!work->productive[edge->rule]) { /* none of them: on */
        jump.kind = EDGE_EMPTY;
        return jump;
    }
    jump.start = work->forward[graph->rules[edge->rule].start];
    jump.tail = edge->kind == EDGE_CALL && work->rule_of_end[jump.to] != GRAPH_NONE &&
                graph->first_edge[jump.to] == GRAPH_NONE;
    return jump;
}

static void pack_edges(const struct work *work, struct grammar *grammar)
{
    const struct graph *graph = work->graph;

    grammar->nodes_count = graph->nodes_count;
    grammar->nodes = mem_calloc(graph->nodes_count, sizeof(*grammar->nodes));
    grammar->steps = mem_calloc(graph->edges_count + 1, sizeof(*grammar->steps));
    grammar->jumps = mem_calloc(graph->edges_count + 1, sizeof(*grammar->jumps));
    for (uint32_t node = 0; node < graph->nodes_count; node++) {
        struct grammar_node *packed = &grammar->nodes[node];
        packed->steps_at = grammar->steps_count;
        packed->jumps_at = grammar->jumps_count;
        packed->is_end = work->rule_of_end[node] != GRAPH_NONE;
        for (uint32_t e = graph->first_edge[node]; e != GRAPH_NONE; e = graph->edges[e].next) {
            const struct graph_edge *edge = &graph->edges[e];
            if (!keeps(work, edge))
                continue;
            if (edge->kind == EDGE_BYTES)
                grammar->steps[grammar->steps_count++] =
                    (struct grammar_step){edge->lo, edge->hi, work->forward[edge->to]};
            else
                grammar->jumps[grammar->jumps_count++] = make_jump(work, edge);
        }
        packed->steps_count = grammar->steps_count - packed->steps_at;
        packed->jumps_count = grammar->jumps_count - packed->jumps_at;
    }
    grammar->steps =
        mem_realloc(grammar->steps, (grammar->steps_count + 1) * sizeof(*grammar->steps));
    grammar->jumps =
        mem_realloc(grammar->jumps, (grammar->jumps_count + 1) * sizeof(*grammar->jumps));
}

static void find_classes(struct grammar *grammar)
{
    bool begins[257] = {[0] = true};

    for (uint32_t i = 0; i < grammar->steps_count; i++) {
        begins[grammar->steps[i].lo] = true;
        begins[grammar->steps[i].hi + 1] = true;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        if (begins[byte])
            grammar->class_byte[grammar->classes_count++] = (uint8_t)byte;
        grammar->byte_class[byte] = (uint8_t)(grammar->classes_count - 1);
    }
}

static int check(struct work *work)
{
    struct graph *graph = work->graph;

    find_rules(work, true, work->productive);
    if (!work->productive[work->root])
        return graph_fail(graph, -EINVAL, "no text can ever be complete in this grammar");
    find_live(work);
    find_rules(work, false, work->nullable);
    return check_left_recursion(work);
}

int automaton_pack(struct graph *graph, uint32_t root, struct grammar **ret_grammar)
{
    struct work work;
    int r = graph->failed;

    if (r < 0)
        return r;
    work_init(&work, graph, root);
    r = check(&work);
    if (r == 0 && unroll_all(&work)) {
        work_done(&work);
        work_init(&work, graph, root);
        r = check(&work);
    }
    r = r < 0 ? r : graph->failed;
    if (r == 0) {
        struct grammar *grammar = mem_zalloc(sizeof(*grammar));
        atomic_init(&grammar->refs, 1);
        find_forwards(&work);
        grammar->start = work.forward[graph->rules[root].start];
        pack_edges(&work, grammar);
        find_classes(grammar);
        *ret_grammar = grammar;
    }
    work_done(&work);
    return r;
}
