/* jinja_eval.c - expressions of the tree -> values; the limits of a render.
 *
 * A plain tree walk. Every node costs a step and a level of depth, so that time and C stack are
 * bounded whatever the template says; chains (a + b + c, a or b or c) are one node each.
 * Names: innermost scope first, then the top level (an array by symbol), then the built-ins. */
#include "router/text/jinja_eval.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"

int jinja_fail(struct jinja_eval *ev, int code, const char *format, ...)
{
    char text[ERRMSG_MAX];
    va_list args;
    ASSERT(code < 0);
    if (ev->code < 0)
        return ev->code;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    ev->code = code;
    return errmsg_set(ev->err, code, "line %u: %s", ev->line, text);
}

int jinja_fail_undefined(struct jinja_eval *ev, const struct value *value)
{
    const struct jinja_undefined *why = value->undefined;
    ASSERT(value->type == VALUE_UNDEFINED);
    if (why == NULL)
        return jinja_fail(ev, -EINVAL, "the value is undefined");
    if (why->hint != NULL)
        return jinja_fail(ev, -EINVAL, "%s", why->hint);
    if (why->object == NULL)
        return jinja_fail(ev, -EINVAL, "'%.*s' is undefined", (int)why->name->bytes,
                          why->name->data);
    if (why->name == NULL)
        return jinja_fail(ev, -EINVAL, "%s has no element %lld", why->object,
                          (long long)why->index);
    if (why->unsafe)
        return jinja_fail(ev, -EINVAL, "access to attribute '%.*s' of '%s' is unsafe.",
                          (int)why->name->bytes, why->name->data, why->object);
    return jinja_fail(ev, -EINVAL, "'%s' has no attribute '%.*s'", why->object,
                      (int)why->name->bytes, why->name->data);
}

void *jinja_alloc(struct jinja_eval *ev, size_t bytes)
{
    void *pointer = arena_alloc(ev->arena, bytes);
    if (pointer == NULL)
        jinja_fail(ev, -E2BIG, "the template needs more than %u bytes of memory",
                   CHAT_TEMPLATE_MEMORY_MAX);
    return pointer;
}

int jinja_charge(struct jinja_eval *ev, uint64_t steps)
{
    if (ev->steps > ev->steps_max || steps > ev->steps_max - ev->steps)
        return jinja_fail(ev, -E2BIG, "the template takes more than %u steps", ev->steps_max);
    ev->steps += (uint32_t)steps;
    return 0;
}

int jinja_enter(struct jinja_eval *ev)
{
    if (ev->depth >= JINJA_EVAL_DEPTH_MAX)
        return jinja_fail(ev, -E2BIG, "nested too deep (calls or data)");
    ev->depth++;
    return jinja_charge(ev, 1);
}

/* The place of `symbol` in one scope, or NULL. Long scopes cost steps. */
static struct jinja_binding *find_binding(struct jinja_eval *ev, const struct jinja_scope *scope,
                                          uint32_t symbol)
{
    ev->steps += scope->count / 16; /* jinja_charge will notice */
    for (uint32_t i = 0; i < scope->count; i++) {
        if (scope->bindings[i].symbol == symbol)
            return &scope->bindings[i];
    }
    return NULL;
}

int jinja_lookup(struct jinja_eval *ev, uint32_t symbol, struct value *ret)
{
    for (const struct jinja_scope *scope = ev->scope; scope != NULL; scope = scope->parent) {
        const struct jinja_binding *binding = find_binding(ev, scope, symbol);
        if (binding != NULL) {
            *ret = binding->value;
            return 0;
        }
    }
    if (ev->root[symbol].type != VALUE_MISSING) {
        *ret = ev->root[symbol];
        return 0;
    }
    if (ev->tmpl->functions[symbol] != NULL) {
        *ret = (struct value){.type = VALUE_FUNCTION, .function = ev->tmpl->functions[symbol]};
        return 0;
    }
    return jinja_make_undefined(ev, NULL, ev->tmpl->symbols[symbol], 0, ret);
}

int jinja_assign(struct jinja_eval *ev, uint32_t symbol, const struct value *value)
{
    struct jinja_scope *scope = ev->scope;
    if (scope == NULL) {
        ev->root[symbol] = *value;
        return 0;
    }
    struct jinja_binding *binding = find_binding(ev, scope, symbol);
    if (binding != NULL) {
        binding->value = *value;
        return 0;
    }
    if (scope->count == scope->capacity) {
        uint32_t capacity = scope->capacity ? scope->capacity * 2 : 4;
        struct jinja_binding *bindings = jinja_alloc(ev, capacity * sizeof(*bindings));
        if (bindings == NULL)
            return ev->code;
        if (scope->count > 0)
            memcpy(bindings, scope->bindings, scope->count * sizeof(*bindings));
        scope->bindings = bindings;
        scope->capacity = capacity;
    }
    scope->bindings[scope->count++] = (struct jinja_binding){symbol, *value};
    return 0;
}

struct jinja_scope *jinja_scope_new(struct jinja_eval *ev, struct jinja_scope *parent)
{
    struct jinja_scope *scope = jinja_alloc(ev, sizeof(*scope));
    if (scope != NULL)
        *scope = (struct jinja_scope){.parent = parent};
    return scope;
}

static int eval_items(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value *values = jinja_alloc(ev, ((size_t)node->count + 1) * sizeof(*values));
    if (values == NULL)
        return ev->code;
    for (uint32_t i = 0; i < node->count; i++) {
        int r = jinja_eval_node(ev, node->items[i], &values[i]);
        if (r < 0)
            return r;
    }
    return jinja_make_list(ev, node->type == NODE_LIST ? VALUE_LIST : VALUE_TUPLE, values,
                           node->count, ret);
}

static int eval_dict(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct jinja_dict *dict = jinja_dict_new(ev, node->count / 2);
    if (dict == NULL)
        return ev->code;
    for (uint32_t i = 0; i < node->count; i += 2) {
        struct value key, value;
        int r = jinja_eval_node(ev, node->items[i], &key);
        if (r >= 0)
            r = jinja_eval_node(ev, node->items[i + 1], &value);
        if (r >= 0)
            r = jinja_dict_set(ev, dict, &key, &value);
        if (r < 0)
            return r;
    }
    *ret = (struct value){.type = VALUE_DICT, .dict = dict};
    return 0;
}

static int eval_slice(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value object, bounds[3];
    int r = jinja_eval_node(ev, node->a, &object);
    for (int i = 0; r >= 0 && i < 3; i++) {
        bounds[i] = jinja_missing();
        if (node->items[i] != NULL)
            r = jinja_eval_node(ev, node->items[i], &bounds[i]);
    }
    return r < 0 ? r : jinja_slice(ev, &object, bounds, ret);
}

static int eval_call(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value callee;
    struct jinja_args args;
    const struct node *target = node->a;
    if (target->type == NODE_GETATTR && target->callable != NULL) { /* no bound method needed */
        int r = jinja_eval_node(ev, target->a, &callee);
        if (r < 0)
            return r;
        const struct jinja_callable *method = jinja_method_match(target->callable, callee.type);
        if (method != NULL && method->call != NULL) {
            r = jinja_eval_args(ev, node->args, &args);
            ev->line = node->line;
            return r < 0 ? r : jinja_call_bound(ev, method, &callee, &args, ret);
        }
        struct value object = callee;
        ev->line = target->line;
        r = jinja_getattr(ev, &object, target->name, target->callable, &callee);
        if (r < 0)
            return r;
    } else {
        int r = jinja_eval_node(ev, target, &callee);
        if (r < 0)
            return r;
    }
    int r = jinja_eval_args(ev, node->args, &args);
    ev->line = node->line;
    return r < 0 ? r : jinja_call_value(ev, &callee, &args, ret);
}

static int eval_filter(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value self;
    struct jinja_args args;
    ASSERT(node->a != NULL);
    int r = jinja_eval_node(ev, node->a, &self);
    if (r >= 0)
        r = jinja_eval_args(ev, node->args, &args);
    if (r < 0)
        return r;
    ev->line = node->line;
    if (node->callable == NULL)
        return jinja_fail(ev, -EINVAL, "no %s named '%.*s'",
                          node->type == NODE_TEST ? "test" : "filter", (int)node->name->bytes,
                          node->name->data);
    return jinja_call_bound(ev, node->callable, &self, &args, ret);
}

static int eval_chain(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value left, right;
    int r = jinja_eval_node(ev, node->a, &left);
    for (uint32_t i = 0; r >= 0 && i < node->count; i++) {
        r = jinja_eval_node(ev, node->items[i], &right);
        ev->line = node->line;
        if (r >= 0)
            r = jinja_binary(ev, node->ops[i], &left, &right, &left);
    }
    if (r >= 0)
        *ret = left;
    return r;
}

static int compare_values(struct jinja_eval *ev, uint8_t op, const struct value *a,
                          const struct value *b, bool *ret)
{
    static const char *const names[] = {
        [OP_LT] = "<", [OP_LE] = "<=", [OP_GT] = ">", [OP_GE] = ">="};
    int order = 2;
    int r;
    if (op == OP_EQ || op == OP_NE) {
        r = jinja_equal(ev, a, b, ret);
        *ret = *ret == (op == OP_EQ);
        return r;
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        r = jinja_contains(ev, a, b, ret);
        *ret = *ret == (op == OP_IN);
        return r;
    }
    r = jinja_compare(ev, a, b, names[op], &order);
    *ret = op == OP_LT   ? order == -1
           : op == OP_LE ? order == -1 || order == 0
           : op == OP_GT ? order == 1
                         : order == 1 || order == 0;
    return r;
}

static int eval_compare(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value left, right;
    bool holds = true;
    int r = jinja_eval_node(ev, node->a, &left);
    for (uint32_t i = 0; r >= 0 && holds && i < node->count; i++) {
        r = jinja_eval_node(ev, node->items[i], &right);
        ev->line = node->line;
        if (r >= 0)
            r = compare_values(ev, node->ops[i], &left, &right, &holds);
        left = right;
    }
    if (r >= 0)
        *ret = jinja_bool(holds);
    return r;
}

static int eval_concat(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct jinja_str *joined = NULL;
    for (uint32_t i = 0; i < node->count; i++) {
        struct value item;
        struct jinja_str *text = NULL;
        int r = jinja_eval_node(ev, node->items[i], &item);
        if (r >= 0 && item.type == VALUE_STRING)
            text = item.string; /* a rope stays a rope */
        else if (r >= 0)
            r = jinja_to_str(ev, &item, &text);
        if (r < 0)
            return r;
        joined = joined == NULL ? text : jinja_str_concat(ev, joined, text);
        if (joined == NULL)
            return ev->code;
    }
    if (joined->markup) { /* ~ gives plain text */
        struct jinja_str *copy = jinja_alloc(ev, sizeof(*copy));
        if (copy == NULL)
            return ev->code;
        *copy = *joined;
        copy->markup = false;
        joined = copy;
    }
    *ret = jinja_string(joined);
    return 0;
}

static int eval_logic(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    for (uint32_t i = 0; i < node->count; i++) {
        int r = jinja_eval_node(ev, node->items[i], ret);
        if (r < 0 || jinja_truth(ret) == (node->type == NODE_OR))
            return r;
    }
    return 0; /* the last operand */
}

static int eval_unary(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value value;
    const struct value zero = jinja_int(0);
    int r = jinja_eval_node(ev, node->a, &value);
    if (r < 0)
        return r;
    if (node->type == NODE_NOT) {
        *ret = jinja_bool(!jinja_truth(&value));
        return 0;
    }
    if (value.type == VALUE_UNDEFINED)
        return jinja_fail_undefined(ev, &value);
    if (!jinja_is_number(&value))
        return jinja_fail(ev, -EINVAL, "bad operand type for unary %s: '%s'",
                          node->type == NODE_NEG ? "-" : "+", jinja_type_name(&value));
    if (value.type == VALUE_FLOAT) {
        if (node->type == NODE_NEG)
            value.number = -value.number;
        *ret = value;
        return 0;
    }
    return jinja_binary(ev, node->type == NODE_NEG ? OP_SUB : OP_ADD, &zero, &value, ret);
}

static int eval_cond(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value test;
    int r = jinja_eval_node(ev, node->a, &test);
    if (r < 0)
        return r;
    if (jinja_truth(&test))
        return jinja_eval_node(ev, node->b, ret);
    if (node->c != NULL)
        return jinja_eval_node(ev, node->c, ret);
    r = jinja_make_undefined(ev, NULL, NULL, 0, ret);
    if (r >= 0)
        ret->undefined->hint = "the inline if-expression evaluated to false and no else section "
                               "was defined.";
    return r;
}

static int eval_expression(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    struct value object, key;
    int r;
    switch ((enum node_type)node->type) {
    case NODE_CONST:
        *ret = node->constant;
        return 0;
    case NODE_NAME:
        return jinja_lookup(ev, node->symbol, ret);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_items(ev, node, ret);
    case NODE_DICT:
        return eval_dict(ev, node, ret);
    case NODE_GETATTR:
        r = jinja_eval_node(ev, node->a, &object);
        ev->line = node->line;
        return r < 0 ? r : jinja_getattr(ev, &object, node->name, node->callable, ret);
    case NODE_GETITEM:
        r = jinja_eval_node(ev, node->a, &object);
        if (r >= 0)
            r = jinja_eval_node(ev, node->b, &key);
        return r < 0 ? r : jinja_getitem(ev, &object, &key, ret);
    case NODE_SLICE:
        return eval_slice(ev, node, ret);
    case NODE_CALL:
        return eval_call(ev, node, ret);
    case NODE_FILTER:
    case NODE_TEST:
        return eval_filter(ev, node, ret);
    case NODE_CHAIN:
        return eval_chain(ev, node, ret);
    case NODE_COMPARE:
        return eval_compare(ev, node, ret);
    case NODE_CONCAT:
        return eval_concat(ev, node, ret);
    case NODE_AND:
    case NODE_OR:
        return eval_logic(ev, node, ret);
    case NODE_NOT:
    case NODE_NEG:
    case NODE_POS:
        return eval_unary(ev, node, ret);
    case NODE_COND:
        return eval_cond(ev, node, ret);
    default:
        ASSERT(!"an expression");
        return -EINVAL;
    }
}

int jinja_eval_node(struct jinja_eval *ev, const struct node *node, struct value *ret)
{
    if (node->type == NODE_CONST) {
        *ret = node->constant;
        return 0;
    }
    int r = jinja_enter(ev);
    if (r < 0)
        return r;
    ev->line = node->line;
    r = eval_expression(ev, node, ret);
    jinja_leave(ev);
    return r;
}
