/* jinja_expr.c - expressions: recursive descent with Jinja2's precedence.
 *
 *   a if b else c < or < and < not < comparison < + - < ~ < * / // % < ** < unary < postfix,
 * filters Operators of one level make one flat node, so that long chains do not nest. Every way
 * down passes jinja_parse_enter(), which bounds the nesting. */
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_parse.h"

static struct node *parse_or(struct jinja_parser *p);
static struct node *parse_unary(struct jinja_parser *p, bool with_filter);

static struct node *parse_condexpr(struct jinja_parser *p)
{
    const struct node *unknown = p->unknown;
    struct node *node = parse_or(p);
    while (node != NULL && jinja_parse_is_name(p, "if")) {
        struct node *cond = jinja_parse_node(p, NODE_COND);
        p->at++;
        if (cond == NULL)
            return NULL;
        cond->b = node;
        cond->a = parse_or(p);
        if (cond->a == NULL)
            return NULL;
        if (jinja_parse_skip_name(p, "else")) {
            if (!jinja_parse_enter(p))
                return NULL;
            cond->c = parse_condexpr(p);
            p->depth--;
            if (cond->c == NULL)
                return NULL;
        }
        node = cond;
        p->unknown = unknown; /* conditional, so unknown names in it may stay */
    }
    return node;
}

struct node *jinja_parse_expression(struct jinja_parser *p, bool with_condexpr)
{
    if (!jinja_parse_enter(p))
        return NULL;
    struct node *node = with_condexpr ? parse_condexpr(p) : parse_or(p);
    p->depth--;
    return node;
}

/* `one op one op one`: a single operand stays itself. */
static struct node *parse_joined(struct jinja_parser *p, enum node_type type, const char *word,
                                 enum node_op op, struct node *(*one)(struct jinja_parser *))
{
    struct node_list list = {0};
    struct node *first = one(p);
    if (first == NULL || !(word ? jinja_parse_is_name(p, word) : jinja_parse_is_op(p, op)))
        return first;
    struct node *node = jinja_parse_node(p, type);
    if (node == NULL || !jinja_parse_push(p, &list, first))
        return NULL;
    while (word ? jinja_parse_skip_name(p, word) : jinja_parse_skip_op(p, op)) {
        struct node *next = one(p);
        if (next == NULL || !jinja_parse_push(p, &list, next))
            return NULL;
    }
    node->items = list.items;
    node->count = list.count;
    return node;
}

/* `one (op one)*` with the operators that `match` finds at the current token. */
static struct node *parse_chain(struct jinja_parser *p, enum node_type type,
                                enum node_op (*match)(struct jinja_parser *),
                                struct node *(*one)(struct jinja_parser *))
{
    struct node_list list = {0};
    uint8_t *ops = NULL;
    uint32_t capacity = 0;
    struct node *node = NULL;
    struct node *first = one(p);
    enum node_op op;
    while (first != NULL && (op = match(p)) != OP_NONE) {
        if (node == NULL && (node = jinja_parse_node(p, type)) == NULL)
            return NULL;
        if (list.count == capacity) {
            capacity = capacity ? capacity * 2 : 4;
            uint8_t *grown = jinja_parse_alloc(p, capacity);
            if (grown == NULL)
                return NULL;
            if (list.count > 0)
                memcpy(grown, ops, list.count);
            ops = grown;
        }
        ops[list.count] = (uint8_t)op;
        struct node *next = one(p);
        if (next == NULL || !jinja_parse_push(p, &list, next))
            return NULL;
    }
    if (node == NULL)
        return first;
    node->a = first;
    node->ops = ops;
    node->items = list.items;
    node->count = list.count;
    return node;
}

static enum node_op take_op(struct jinja_parser *p, const uint8_t *wanted, size_t count)
{
    const struct token *token = jinja_parse_peek(p);
    for (size_t i = 0; token->type == TOKEN_OP && i < count; i++) {
        if (token->op == wanted[i]) {
            p->at++;
            return (enum node_op)wanted[i];
        }
    }
    return OP_NONE;
}

static enum node_op match_pow(struct jinja_parser *p)
{
    static const uint8_t ops[] = {OP_POW};
    return take_op(p, ops, sizeof(ops));
}

static enum node_op match_product(struct jinja_parser *p)
{
    static const uint8_t ops[] = {OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD};
    return take_op(p, ops, sizeof(ops));
}

static enum node_op match_sum(struct jinja_parser *p)
{
    static const uint8_t ops[] = {OP_ADD, OP_SUB};
    return take_op(p, ops, sizeof(ops));
}

static enum node_op match_compare(struct jinja_parser *p)
{
    static const uint8_t ops[] = {OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE};
    const struct token *token = jinja_parse_peek(p);
    if (jinja_parse_skip_name(p, "in"))
        return OP_IN;
    if (jinja_parse_is_name(p, "not") && token[1].type == TOKEN_NAME && token[1].bytes == 2 &&
        memcmp(token[1].data, "in", 2) == 0) {
        p->at += 2;
        return OP_NOT_IN;
    }
    return take_op(p, ops, sizeof(ops));
}

static struct node *parse_operand(struct jinja_parser *p)
{
    return parse_unary(p, true);
}

static struct node *parse_pow(struct jinja_parser *p)
{
    return parse_chain(p, NODE_CHAIN, match_pow, parse_operand);
}

static struct node *parse_product(struct jinja_parser *p)
{
    return parse_chain(p, NODE_CHAIN, match_product, parse_pow);
}

static struct node *parse_concat(struct jinja_parser *p)
{
    return parse_joined(p, NODE_CONCAT, NULL, OP_TILDE, parse_product);
}

static struct node *parse_sum(struct jinja_parser *p)
{
    return parse_chain(p, NODE_CHAIN, match_sum, parse_concat);
}

static struct node *parse_compare(struct jinja_parser *p)
{
    return parse_chain(p, NODE_COMPARE, match_compare, parse_sum);
}

static struct node *parse_not(struct jinja_parser *p)
{
    if (!jinja_parse_is_name(p, "not"))
        return parse_compare(p);
    struct node *node = jinja_parse_node(p, NODE_NOT);
    p->at++;
    if (node == NULL || !jinja_parse_enter(p))
        return NULL;
    node->a = parse_not(p);
    p->depth--;
    return node->a ? node : NULL;
}

static struct node *parse_and(struct jinja_parser *p)
{
    return parse_joined(p, NODE_AND, "and", OP_NONE, parse_not);
}

static struct node *parse_or(struct jinja_parser *p)
{
    return parse_joined(p, NODE_OR, "or", OP_NONE, parse_and);
}

static struct node *parse_name(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        uint8_t type;
        bool boolean;
    } constants[] = {{"true", VALUE_BOOL, true},   {"True", VALUE_BOOL, true},
                     {"false", VALUE_BOOL, false}, {"False", VALUE_BOOL, false},
                     {"none", VALUE_NONE, false},  {"None", VALUE_NONE, false}};
    const struct token *token = jinja_parse_peek(p);
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        if (!jinja_parse_is_name(p, constants[i].name))
            continue;
        p->at++;
        return jinja_parse_constant(
            p, constants[i].type == VALUE_NONE ? jinja_none() : jinja_bool(constants[i].boolean));
    }
    struct node *node = jinja_parse_node(p, NODE_NAME);
    if (node == NULL)
        return NULL;
    node->symbol = jinja_parse_symbol(p, token->data, token->bytes);
    p->uses_caller = p->uses_caller || node->symbol == SYMBOL_CALLER;
    p->uses_varargs = p->uses_varargs || node->symbol == SYMBOL_VARARGS;
    p->uses_kwargs = p->uses_kwargs || node->symbol == SYMBOL_KWARGS;
    p->at++;
    return node->symbol == UINT32_MAX ? NULL : node;
}

static struct node *parse_list(struct jinja_parser *p)
{
    struct node_list list = {0};
    struct node *node = jinja_parse_node(p, NODE_LIST);
    p->at++;
    while (node != NULL && !jinja_parse_is_op(p, OP_RBRACKET)) {
        if (list.count > 0 && !jinja_parse_expect_op(p, OP_COMMA, "','"))
            return NULL;
        if (jinja_parse_is_op(p, OP_RBRACKET))
            break;
        struct node *item = jinja_parse_expression(p, true);
        if (item == NULL || !jinja_parse_push(p, &list, item))
            return NULL;
    }
    if (node == NULL || !jinja_parse_expect_op(p, OP_RBRACKET, "']'"))
        return NULL;
    node->items = list.items;
    node->count = list.count;
    return node;
}

static struct node *parse_dict(struct jinja_parser *p)
{
    struct node_list list = {0};
    struct node *node = jinja_parse_node(p, NODE_DICT);
    p->at++;
    while (node != NULL && !jinja_parse_is_op(p, OP_RBRACE)) {
        if (list.count > 0 && !jinja_parse_expect_op(p, OP_COMMA, "','"))
            return NULL;
        if (jinja_parse_is_op(p, OP_RBRACE))
            break;
        struct node *key = jinja_parse_expression(p, true);
        if (key == NULL || !jinja_parse_push(p, &list, key) ||
            !jinja_parse_expect_op(p, OP_COLON, "':'"))
            return NULL;
        struct node *value = jinja_parse_expression(p, true);
        if (value == NULL || !jinja_parse_push(p, &list, value))
            return NULL;
    }
    if (node == NULL || !jinja_parse_expect_op(p, OP_RBRACE, "'}'"))
        return NULL;
    node->items = list.items;
    node->count = list.count;
    return node;
}

static bool tuple_ends(const struct jinja_parser *p, const char *end_name)
{
    const struct token *token = jinja_parse_peek(p);
    return token->type == TOKEN_VARIABLE_END || token->type == TOKEN_BLOCK_END ||
           token->type == TOKEN_EOF || jinja_parse_is_op(p, OP_RPAREN) ||
           (end_name && jinja_parse_is_name(p, end_name));
}

static struct node *parse_tuple(struct jinja_parser *p, bool with_condexpr, const char *end_name,
                                bool in_parens)
{
    struct node_list list = {0};
    bool is_tuple = false;
    struct node *node = jinja_parse_node(p, NODE_TUPLE);
    while (node != NULL && !tuple_ends(p, end_name)) {
        struct node *item = jinja_parse_expression(p, with_condexpr);
        if (item == NULL || !jinja_parse_push(p, &list, item))
            return NULL;
        if (!jinja_parse_skip_op(p, OP_COMMA))
            break;
        is_tuple = true;
    }
    if (node == NULL)
        return NULL;
    if (!is_tuple && list.count == 1)
        return list.items[0];
    if (!is_tuple && !in_parens) {
        jinja_parse_unexpected(p, "an expression");
        return NULL;
    }
    node->items = list.items;
    node->count = list.count;
    return node;
}

struct node *jinja_parse_tuple(struct jinja_parser *p, bool with_condexpr, const char *end_name)
{
    return parse_tuple(p, with_condexpr, end_name, false);
}

static struct node *parse_primary(struct jinja_parser *p)
{
    const struct token *token = jinja_parse_peek(p);
    struct node *node;
    switch ((enum token_type)token->type) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return jinja_parse_string_constant(p);
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return jinja_parse_number(p);
    case TOKEN_OP:
        if (token->op == OP_LBRACKET)
            return parse_list(p);
        if (token->op == OP_LBRACE)
            return parse_dict(p);
        if (token->op != OP_LPAREN)
            break;
        p->at++;
        node = parse_tuple(p, true, NULL, true);
        return node && jinja_parse_expect_op(p, OP_RPAREN, "')'") ? node : NULL;
    default:
        break;
    }
    jinja_parse_unexpected(p, "an expression");
    return NULL;
}

/* obj.name, obj.0 */
static struct node *parse_attribute(struct jinja_parser *p, struct node *object)
{
    p->at++;
    const struct token *token = jinja_parse_peek(p);
    if (token->type == TOKEN_INTEGER) {
        struct node *item = jinja_parse_node(p, NODE_GETITEM);
        if (item == NULL)
            return NULL;
        item->a = object;
        item->b = jinja_parse_number(p);
        return item->b ? item : NULL;
    }
    if (token->type != TOKEN_NAME) {
        jinja_parse_unexpected(p, "a name or number");
        return NULL;
    }
    struct node *node = jinja_parse_node(p, NODE_GETATTR);
    if (node == NULL)
        return NULL;
    node->a = object;
    node->name = jinja_parse_string(p, token->data, token->bytes);
    node->callable = jinja_method_find(token->data, token->bytes);
    p->at++;
    return node->name ? node : NULL;
}

/* One part of a subscript: an expression, or start:stop:step into bounds (then *ret_slice). */
static struct node *parse_subscribed(struct jinja_parser *p, struct node *bounds[3],
                                     bool *ret_slice)
{
    *ret_slice = false;
    for (int i = 0; i < 3; i++) {
        if (!jinja_parse_is_op(p, OP_COLON) && !jinja_parse_is_op(p, OP_RBRACKET) &&
            !jinja_parse_is_op(p, OP_COMMA)) {
            bounds[i] = jinja_parse_expression(p, true);
            if (bounds[i] == NULL)
                return NULL;
        }
        if (i == 2 || !jinja_parse_skip_op(p, OP_COLON))
            break;
        *ret_slice = true;
    }
    return bounds[0];
}

static struct node *parse_subscript(struct jinja_parser *p, struct node *object)
{
    struct node_list list = {0};
    struct node *bounds[3] = {NULL, NULL, NULL};
    bool is_slice = false;
    p->at++;
    while (!is_slice && !jinja_parse_is_op(p, OP_RBRACKET)) {
        if (list.count > 0 && !jinja_parse_expect_op(p, OP_COMMA, "','"))
            return NULL;
        struct node *item = parse_subscribed(p, bounds, &is_slice);
        if (p->code < 0 || (!is_slice && (item == NULL || !jinja_parse_push(p, &list, item)))) {
            if (p->code == 0)
                jinja_parse_unexpected(p, "an expression");
            return NULL;
        }
        if (is_slice && list.count > 0) {
            jinja_parse_fail(p, "a slice among several subscripts is not supported");
            return NULL;
        }
        bounds[0] = is_slice ? bounds[0] : NULL;
    }
    struct node *node = jinja_parse_node(p, is_slice ? NODE_SLICE : NODE_GETITEM);
    if (node == NULL || !jinja_parse_expect_op(p, OP_RBRACKET, "']'"))
        return NULL;
    node->a = object;
    if (is_slice) {
        node->items = jinja_parse_alloc(p, sizeof(bounds));
        if (node->items != NULL)
            memcpy(node->items, bounds, sizeof(bounds));
        return node->items ? node : NULL;
    }
    if (list.count == 1) {
        node->b = list.items[0];
        return node;
    }
    node->b = jinja_parse_node(p, NODE_TUPLE); /* a[] and a[1, 2] */
    if (node->b == NULL)
        return NULL;
    node->b->items = list.items;
    node->b->count = list.count;
    return node;
}

static bool add_named(struct jinja_parser *p, struct call_args *args, struct node_list *named,
                      uint32_t *capacity)
{
    const struct token *token = jinja_parse_peek(p);
    struct jinja_str *name = jinja_parse_string(p, token->data, token->bytes);
    if (name == NULL)
        return false;
    if (named->count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 4;
        struct jinja_str **grown = jinja_parse_alloc(p, *capacity * sizeof(struct jinja_str *));
        if (grown == NULL)
            return false;
        if (named->count > 0)
            memcpy(grown, args->names, named->count * sizeof(struct jinja_str *));
        args->names = grown;
    }
    args->names[named->count] = name;
    p->at += 2;
    struct node *value = jinja_parse_expression(p, true);
    return value != NULL && jinja_parse_push(p, named, value);
}

struct call_args *jinja_parse_call_args(struct jinja_parser *p)
{
    struct node_list values = {0}, named = {0};
    uint32_t capacity = 0;
    bool first = true;
    struct call_args *args = jinja_parse_alloc(p, sizeof(*args));
    if (args == NULL || !jinja_parse_expect_op(p, OP_LPAREN, "'('"))
        return NULL;
    *args = (struct call_args){0};
    for (; !jinja_parse_is_op(p, OP_RPAREN); first = false) {
        const struct token *token = jinja_parse_peek(p);
        if (!first && !jinja_parse_expect_op(p, OP_COMMA, "',' or ')'"))
            return NULL;
        if (!first && jinja_parse_is_op(p, OP_RPAREN))
            break;
        token = jinja_parse_peek(p);
        bool ok = true;
        if (jinja_parse_skip_op(p, OP_MUL)) {
            ok = args->star == NULL && args->star_star == NULL;
            args->star = ok ? jinja_parse_expression(p, true) : NULL;
            ok = ok && args->star != NULL;
        } else if (jinja_parse_skip_op(p, OP_POW)) {
            ok = args->star_star == NULL;
            args->star_star = ok ? jinja_parse_expression(p, true) : NULL;
            ok = ok && args->star_star != NULL;
        } else if (token->type == TOKEN_NAME && token[1].type == TOKEN_OP &&
                   token[1].op == OP_ASSIGN) {
            ok = args->star_star == NULL && add_named(p, args, &named, &capacity);
        } else {
            ok = args->star == NULL && args->star_star == NULL && named.count == 0;
            struct node *value = ok ? jinja_parse_expression(p, true) : NULL;
            ok = value != NULL && jinja_parse_push(p, &values, value);
        }
        if (!ok) {
            jinja_parse_fail(p, "invalid syntax for function call expression");
            return NULL;
        }
    }
    args->values = values.items;
    args->count = values.count;
    args->named = named.items;
    args->named_count = named.count;
    return jinja_parse_expect_op(p, OP_RPAREN, "')'") ? args : NULL;
}

static struct node *parse_call(struct jinja_parser *p, struct node *callee)
{
    struct node *node = jinja_parse_node(p, NODE_CALL);
    if (node == NULL)
        return NULL;
    node->a = callee;
    node->args = jinja_parse_call_args(p);
    return node->args ? node : NULL;
}

/* One more postfix or filter makes the tree one level deeper: `*levels` bounds it. */
static bool deeper(struct jinja_parser *p, uint32_t *levels)
{
    (*levels)++;
    return jinja_parse_enter(p);
}

static struct node *parse_postfix(struct jinja_parser *p, struct node *node, uint32_t *levels)
{
    while (node != NULL) {
        bool dot = jinja_parse_is_op(p, OP_DOT);
        bool bracket = jinja_parse_is_op(p, OP_LBRACKET);
        if (!dot && !bracket && !jinja_parse_is_op(p, OP_LPAREN))
            break;
        if (!deeper(p, levels))
            return NULL;
        node = dot       ? parse_attribute(p, node)
               : bracket ? parse_subscript(p, node)
                         : parse_call(p, node);
    }
    return node;
}

/* a.b.c of filter and test names */
static struct jinja_str *parse_dotted(struct jinja_parser *p)
{
    const struct token *token = jinja_parse_peek(p);
    if (token->type != TOKEN_NAME) {
        jinja_parse_unexpected(p, "a name");
        return NULL;
    }
    const char *start = token->data;
    const char *end = token->data + token->bytes;
    p->at++;
    while (jinja_parse_is_op(p, OP_DOT) && token[2].type == TOKEN_NAME) {
        token += 2;
        end = token->data + token->bytes;
        p->at += 2;
    }
    return jinja_parse_string(p, start, (size_t)(end - start));
}

static void note_unknown(struct jinja_parser *p, const struct node *node)
{
    if (node->callable == NULL && !p->soft && p->unknown == NULL)
        p->unknown = node;
}

static struct node *parse_filter(struct jinja_parser *p, struct node *operand)
{
    struct node *node = jinja_parse_node(p, NODE_FILTER);
    if (node == NULL)
        return NULL;
    node->a = operand;
    node->name = parse_dotted(p);
    if (node->name == NULL)
        return NULL;
    node->callable = jinja_filter_find(node->name->data, node->name->bytes);
    note_unknown(p, node);
    if (jinja_parse_is_op(p, OP_LPAREN)) {
        node->args = jinja_parse_call_args(p);
        if (node->args == NULL)
            return NULL;
    }
    return node;
}

struct node *jinja_parse_filters(struct jinja_parser *p, struct node *node, bool start_inline)
{
    uint32_t levels = 0;
    while (start_inline || jinja_parse_is_op(p, OP_PIPE)) {
        if (!start_inline)
            p->at++;
        start_inline = false;
        if (!deeper(p, &levels))
            return NULL;
        node = parse_filter(p, node);
        if (node == NULL)
            return NULL;
    }
    p->depth -= levels;
    return node;
}

/* Does a token start the bare argument of a test (`x is divisibleby 3`)? */
static bool starts_argument(const struct jinja_parser *p)
{
    const struct token *token = jinja_parse_peek(p);
    switch ((enum token_type)token->type) {
    case TOKEN_NAME:
        return !jinja_parse_is_name(p, "else") && !jinja_parse_is_name(p, "or") &&
               !jinja_parse_is_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT:
        return true;
    case TOKEN_OP:
        return token->op == OP_LBRACKET || token->op == OP_LBRACE;
    default:
        return false;
    }
}

static struct call_args *parse_bare_argument(struct jinja_parser *p)
{
    uint32_t levels = 0;
    struct call_args *args = jinja_parse_alloc(p, sizeof(*args));
    if (args == NULL)
        return NULL;
    if (jinja_parse_is_name(p, "is")) {
        jinja_parse_fail(p, "You cannot chain multiple tests with is");
        return NULL;
    }
    *args = (struct call_args){.count = 1};
    args->values = jinja_parse_alloc(p, sizeof(struct node *));
    if (args->values == NULL || !jinja_parse_enter(p))
        return NULL;
    args->values[0] = parse_postfix(p, parse_primary(p), &levels);
    p->depth -= levels + 1;
    return args->values[0] ? args : NULL;
}

static struct node *parse_test(struct jinja_parser *p, struct node *operand)
{
    p->at++;
    bool negated = jinja_parse_skip_name(p, "not");
    struct node *node = jinja_parse_node(p, NODE_TEST);
    if (node == NULL)
        return NULL;
    node->a = operand;
    node->name = parse_dotted(p);
    if (node->name == NULL)
        return NULL;
    node->callable = jinja_test_find(node->name->data, node->name->bytes);
    note_unknown(p, node);
    if (jinja_parse_is_op(p, OP_LPAREN))
        node->args = jinja_parse_call_args(p);
    else if (starts_argument(p))
        node->args = parse_bare_argument(p);
    if (p->code < 0)
        return NULL;
    if (!negated)
        return node;
    struct node *not_node = jinja_parse_node(p, NODE_NOT);
    if (not_node != NULL)
        not_node->a = node;
    return not_node;
}

static struct node *parse_filter_expr(struct jinja_parser *p, struct node *node, uint32_t *levels)
{
    while (node != NULL) {
        bool pipe = jinja_parse_is_op(p, OP_PIPE);
        bool test = jinja_parse_is_name(p, "is");
        if (!pipe && !test && !jinja_parse_is_op(p, OP_LPAREN))
            break;
        if (!deeper(p, levels))
            return NULL;
        if (pipe)
            p->at++;
        node = pipe ? parse_filter(p, node) : test ? parse_test(p, node) : parse_call(p, node);
    }
    return node;
}

static struct node *parse_unary(struct jinja_parser *p, bool with_filter)
{
    uint32_t levels = 0;
    struct node *node;
    if (!jinja_parse_enter(p))
        return NULL;
    if (jinja_parse_is_op(p, OP_SUB) || jinja_parse_is_op(p, OP_ADD)) {
        node = jinja_parse_node(p, jinja_parse_is_op(p, OP_SUB) ? NODE_NEG : NODE_POS);
        p->at++;
        if (node != NULL) {
            node->a = parse_unary(p, false);
            node = node->a ? node : NULL;
        }
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node, &levels);
    if (with_filter)
        node = parse_filter_expr(p, node, &levels);
    p->depth -= levels + 1;
    return node;
}

static struct node *parse_one_target(struct jinja_parser *p, bool with_namespace)
{
    const struct token *token = jinja_parse_peek(p);
    if (token->type == TOKEN_OP && token->op == OP_LPAREN) {
        p->at++;
        struct node *inner = jinja_parse_target(p, with_namespace, true);
        return inner && jinja_parse_expect_op(p, OP_RPAREN, "')'") ? inner : NULL;
    }
    if (token->type != TOKEN_NAME) {
        jinja_parse_unexpected(p, "a name to assign to");
        return NULL;
    }
    struct node *node = parse_name(p);
    if (node == NULL)
        return NULL;
    if (node->type != NODE_NAME) {
        jinja_parse_fail(p, "can't assign to a constant");
        return NULL;
    }
    if (!with_namespace || !jinja_parse_is_op(p, OP_DOT))
        return node;
    token = &p->tokens[p->at + 1];
    if (token->type != TOKEN_NAME) {
        jinja_parse_unexpected(p, "a name");
        return NULL;
    }
    node->type = NODE_NSREF;
    node->name = jinja_parse_string(p, token->data, token->bytes);
    p->at += 2;
    return node->name ? node : NULL;
}

struct node *jinja_parse_target(struct jinja_parser *p, bool with_namespace, bool with_tuple)
{
    struct node_list list = {0};
    if (!jinja_parse_enter(p))
        return NULL;
    struct node *node = parse_one_target(p, with_namespace);
    if (node != NULL && with_tuple && jinja_parse_is_op(p, OP_COMMA)) {
        struct node *tuple = jinja_parse_node(p, NODE_TUPLE);
        if (tuple == NULL || !jinja_parse_push(p, &list, node))
            return NULL;
        while (jinja_parse_skip_op(p, OP_COMMA)) {
            const struct token *token = jinja_parse_peek(p);
            bool ends = token->type == TOKEN_BLOCK_END || jinja_parse_is_name(p, "in") ||
                        jinja_parse_is_op(p, OP_ASSIGN) || jinja_parse_is_op(p, OP_RPAREN);
            if (ends)
                break;
            struct node *next = parse_one_target(p, with_namespace);
            if (next == NULL || !jinja_parse_push(p, &list, next))
                return NULL;
        }
        tuple->items = list.items;
        tuple->count = list.count;
        node = tuple;
    }
    p->depth--;
    return node;
}
