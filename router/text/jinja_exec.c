/* jinja_exec.c - statements of the tree: output, if, set, macro, call, filter, with.
 *
 * A scope is made by loops, macros, call and filter blocks, block sets, with and generation; `if`
 * has none, so what it sets stays visible. Loops are in jinja_loop.c. */
#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "router/text/jinja_eval.h"

static int exec_output(struct jinja_eval *ev, const struct node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        struct value value;
        int r = jinja_eval_node(ev, node->items[i], &value);
        if (r >= 0)
            r = jinja_write_value(ev, &value);
        if (r < 0)
            return r;
    }
    return 0;
}

static int exec_if(struct jinja_eval *ev, const struct node *node)
{
    for (uint32_t i = 0; i < node->count; i++) {
        struct value test;
        int r = jinja_eval_node(ev, node->items[i], &test);
        if (r < 0)
            return r;
        if (jinja_truth(&test))
            return jinja_exec_body(ev, &node->bodies[i]);
    }
    return jinja_exec_body(ev, &node->bodies[node->count]);
}

static int set_namespace(struct jinja_eval *ev, const struct node *target,
                         const struct value *value)
{
    struct value object;
    struct value key = jinja_string(target->name);
    int r = jinja_lookup(ev, target->symbol, &object);
    if (r < 0)
        return r;
    if (object.type != VALUE_NAMESPACE)
        return jinja_fail(ev, -EINVAL, "cannot assign attribute on non-namespace object");
    return jinja_dict_set(ev, object.dict, &key, value);
}

int jinja_assign_target(struct jinja_eval *ev, const struct node *target, const struct value *value)
{
    struct jinja_vec items;
    if (target->type == NODE_NAME)
        return jinja_assign(ev, target->symbol, value);
    if (target->type == NODE_NSREF)
        return set_namespace(ev, target, value);
    ASSERT(target->type == NODE_TUPLE);
    int r = jinja_enter(ev);
    if (r >= 0 && value->type == VALUE_UNDEFINED)
        r = jinja_fail_undefined(ev, value);
    if (r >= 0)
        r = jinja_iterate(ev, value, &items);
    if (r >= 0 && items.count != target->count)
        r = jinja_fail(ev, -EINVAL, "%s values to unpack (expected %u, got %u)",
                       items.count < target->count ? "not enough" : "too many", target->count,
                       items.count);
    for (uint32_t i = 0; r >= 0 && i < target->count; i++)
        r = jinja_assign_target(ev, target->items[i], &items.values[i]);
    jinja_leave(ev);
    return r;
}

/* Run `body` in a new scope and take its text. */
static int capture_body(struct jinja_eval *ev, const struct body *body, struct value *ret)
{
    struct jinja_capture capture;
    struct jinja_scope *outer = ev->scope;
    struct jinja_scope *scope = jinja_scope_new(ev, outer);
    if (scope == NULL)
        return ev->code;
    jinja_capture_begin(ev, &capture);
    ev->scope = scope;
    int r = jinja_exec_body(ev, body);
    ev->scope = outer;
    if (r < 0)
        return r;
    return jinja_capture_end(ev, &capture, ret); /* break and continue cannot cross a capture */
}

/* A filter chain whose innermost operand is missing: give it `text`. */
static int apply_block_filter(struct jinja_eval *ev, const struct node *filter, struct value *text)
{
    struct jinja_args args;
    int r = 0;
    if (filter->a != NULL)
        r = apply_block_filter(ev, filter->a, text);
    if (r >= 0)
        r = jinja_eval_args(ev, filter->args, &args);
    if (r < 0)
        return r;
    ev->line = filter->line;
    if (filter->callable == NULL)
        return jinja_fail(ev, -EINVAL, "no filter named '%.*s'", (int)filter->name->bytes,
                          filter->name->data);
    struct value self = *text;
    return jinja_call_bound(ev, filter->callable, &self, &args, text);
}

static int exec_set(struct jinja_eval *ev, const struct node *node)
{
    struct value value;
    int r = jinja_eval_node(ev, node->a, &value);
    return r < 0 ? r : jinja_assign_target(ev, node->b, &value);
}

static int exec_set_block(struct jinja_eval *ev, const struct node *node)
{
    struct value text;
    int r = capture_body(ev, &node->body, &text);
    if (r >= 0 && node->a != NULL)
        r = apply_block_filter(ev, node->a, &text);
    return r < 0 ? r : jinja_assign_target(ev, node->b, &text);
}

static int exec_filter_block(struct jinja_eval *ev, const struct node *node)
{
    struct value text;
    int r = capture_body(ev, &node->body, &text);
    if (r >= 0)
        r = apply_block_filter(ev, node->a, &text);
    return r < 0 ? r : jinja_write_value(ev, &text);
}

static int exec_macro(struct jinja_eval *ev, const struct node *node)
{
    struct value macro;
    int r = jinja_make_macro(ev, node->macro, &macro);
    return r < 0 ? r : jinja_assign(ev, node->macro->symbol, &macro);
}

/* The call of a call block gets one more keyword: caller. */
static int exec_call_block(struct jinja_eval *ev, const struct node *node)
{
    struct value callee, caller, text;
    struct jinja_args args;
    const struct node *call = node->a;
    int r = jinja_eval_node(ev, call->a, &callee);
    if (r >= 0)
        r = jinja_eval_args(ev, call->args, &args);
    if (r >= 0)
        r = jinja_make_macro(ev, node->macro, &caller);
    if (r < 0)
        return r;
    struct jinja_named *named = jinja_alloc(ev, (args.named_count + 1) * sizeof(*named));
    if (named == NULL)
        return ev->code;
    if (args.named_count > 0)
        memcpy(named, args.named, args.named_count * sizeof(*named));
    named[args.named_count] = (struct jinja_named){ev->tmpl->symbols[SYMBOL_CALLER], caller};
    args.named = named;
    args.named_count++;
    ev->line = node->line;
    r = jinja_call_value(ev, &callee, &args, &text);
    return r < 0 ? r : jinja_write_value(ev, &text);
}

static int exec_scoped(struct jinja_eval *ev, const struct node *node)
{
    struct jinja_scope *outer = ev->scope;
    struct jinja_scope *scope = jinja_scope_new(ev, outer);
    int r = scope ? 0 : ev->code;
    for (uint32_t i = 0; r >= 0 && i < node->count; i += 2) {
        struct value value;
        ev->scope = outer; /* values of `with` do not see each other */
        r = jinja_eval_node(ev, node->items[i + 1], &value);
        ev->scope = scope;
        if (r >= 0)
            r = jinja_assign_target(ev, node->items[i], &value);
    }
    ev->scope = scope;
    if (r >= 0)
        r = jinja_exec_body(ev, &node->body);
    ev->scope = outer;
    return r;
}

static int exec_for(struct jinja_eval *ev, const struct node *node)
{
    struct value iterable;
    int r = jinja_eval_node(ev, node->a, &iterable);
    return r < 0 ? r : jinja_exec_for(ev, node, &iterable, 0);
}

static int exec_statement(struct jinja_eval *ev, const struct node *node)
{
    switch ((enum node_type)node->type) {
    case NODE_OUTPUT:
        return exec_output(ev, node);
    case NODE_FOR:
        return exec_for(ev, node);
    case NODE_IF:
        return exec_if(ev, node);
    case NODE_SET:
        return exec_set(ev, node);
    case NODE_SET_BLOCK:
        return exec_set_block(ev, node);
    case NODE_MACRO:
        return exec_macro(ev, node);
    case NODE_CALL_BLOCK:
        return exec_call_block(ev, node);
    case NODE_FILTER_BLOCK:
        return exec_filter_block(ev, node);
    case NODE_WITH:
    case NODE_SCOPE:
        return exec_scoped(ev, node);
    case NODE_BREAK:
        return JINJA_BREAK;
    case NODE_CONTINUE:
        return JINJA_CONTINUE;
    default:
        ASSERT(!"a statement");
        return -EINVAL;
    }
}

int jinja_exec_body(struct jinja_eval *ev, const struct body *body)
{
    for (uint32_t i = 0; i < body->count; i++) {
        const struct node *node = body->items[i];
        int r;
        if (node->type == NODE_TEXT) {
            r = jinja_write_str(ev, node->constant.string);
        } else {
            r = jinja_enter(ev);
            if (r < 0)
                return r;
            ev->line = node->line;
            r = exec_statement(ev, node);
            jinja_leave(ev);
        }
        if (r != 0)
            return r;
    }
    return 0;
}
