/* jinja_parse.c - tags and text -> statements; names -> numbers.
 *
 * A body is read until a tag that ends it (endif, else...); who opened it looks which one it was.
 * `include`, `import`, `extends`, `block` and `do` are refused: a chat template is one text. */
#include "router/text/jinja_parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/text/jinja_eval.h"
#include "router/text/jinja_utf8.h"

void jinja_parse_fail(struct jinja_parser *p, const char *format, ...)
{
    char text[256];
    va_list args;
    if (p->code < 0)
        return;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    p->code = errmsg_set(p->err, -EINVAL, "line %u: %s", jinja_parse_peek(p)->line, text);
}

void jinja_parse_unexpected(struct jinja_parser *p, const char *expected)
{
    const struct token *token = jinja_parse_peek(p);
    const char *kind = token->type == TOKEN_EOF            ? "the end of the template"
                       : token->type == TOKEN_VARIABLE_END ? "end of print statement"
                       : token->type == TOKEN_BLOCK_END    ? "end of statement block"
                                                           : NULL;
    if (kind != NULL)
        jinja_parse_fail(p, "expected %s, got %s", expected, kind);
    else
        jinja_parse_fail(p, "expected %s, got '%.*s'", expected,
                         (int)(token->bytes > 40 ? 40 : token->bytes), token->data);
}

void *jinja_parse_alloc(struct jinja_parser *p, size_t bytes)
{
    void *pointer = arena_alloc(p->arena, bytes);
    if (pointer == NULL && p->code == 0)
        p->code = errmsg_set(p->err, -E2BIG, "line %u: the template is too big",
                             jinja_parse_peek(p)->line);
    return pointer;
}

struct node *jinja_parse_node(struct jinja_parser *p, enum node_type type)
{
    struct node *node = jinja_parse_alloc(p, sizeof(*node));
    if (node == NULL)
        return NULL;
    memset(node, 0, sizeof(*node));
    node->type = (uint8_t)type;
    node->line = jinja_parse_peek(p)->line;
    return node;
}

bool jinja_parse_enter(struct jinja_parser *p)
{
    if (p->depth >= CHAT_TEMPLATE_DEPTH_MAX) {
        jinja_parse_fail(p, "nested more than %u levels deep", CHAT_TEMPLATE_DEPTH_MAX);
        return false;
    }
    p->depth++;
    return true;
}

struct jinja_str *jinja_parse_string(struct jinja_parser *p, const char *data, size_t bytes)
{
    struct jinja_str *string = jinja_parse_alloc(p, sizeof(*string));
    if (string == NULL)
        return NULL;
    *string =
        (struct jinja_str){.data = bytes ? data : "",
                           .bytes = (uint32_t)bytes,
                           .chars = jinja_utf8_count(data, bytes), /* shared: never set later */
                           .message = -1};
    return string;
}

uint32_t jinja_parse_symbol(struct jinja_parser *p, const char *name, size_t bytes)
{
    struct jinja_template *tmpl = p->tmpl;
    uintptr_t known = (uintptr_t)map_get(p->symbols, name, bytes);
    if (known > 0)
        return (uint32_t)(known - 1);
    struct jinja_str *string = jinja_parse_string(p, name, bytes);
    if (string == NULL)
        return UINT32_MAX;
    if (tmpl->symbols_count == p->symbols_capacity) {
        uint32_t capacity = p->symbols_capacity ? p->symbols_capacity * 2 : 64;
        struct jinja_str **symbols = jinja_parse_alloc(p, capacity * sizeof(*symbols));
        const struct jinja_callable **functions =
            jinja_parse_alloc(p, capacity * sizeof(*functions));
        if (symbols == NULL || functions == NULL)
            return UINT32_MAX;
        if (tmpl->symbols_count > 0) {
            memcpy(symbols, tmpl->symbols, tmpl->symbols_count * sizeof(*symbols));
            memcpy(functions, tmpl->functions, tmpl->symbols_count * sizeof(*functions));
        }
        tmpl->symbols = symbols;
        tmpl->functions = functions;
        p->symbols_capacity = capacity;
    }
    tmpl->symbols[tmpl->symbols_count] = string;
    tmpl->functions[tmpl->symbols_count] = jinja_function_find(name, bytes);
    int r = map_set(p->symbols, name, bytes, (void *)((uintptr_t)tmpl->symbols_count + 1), NULL);
    ASSERT(r == 0);
    return tmpl->symbols_count++;
}

bool jinja_parse_push(struct jinja_parser *p, struct node_list *list, struct node *node)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? list->capacity * 2 : 4;
        struct node **items = jinja_parse_alloc(p, capacity * sizeof(struct node *));
        if (items == NULL)
            return false;
        if (list->count > 0)
            memcpy(items, list->items, list->count * sizeof(struct node *));
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = node;
    return true;
}

bool jinja_parse_is_op(const struct jinja_parser *p, enum node_op op)
{
    const struct token *token = jinja_parse_peek(p);
    return token->type == TOKEN_OP && token->op == op;
}

static bool token_is_name(const struct token *token, const char *name)
{
    return token->type == TOKEN_NAME && token->bytes == strlen(name) &&
           memcmp(token->data, name, token->bytes) == 0;
}

bool jinja_parse_is_name(const struct jinja_parser *p, const char *name)
{
    return token_is_name(jinja_parse_peek(p), name);
}

bool jinja_parse_skip_op(struct jinja_parser *p, enum node_op op)
{
    bool is = jinja_parse_is_op(p, op);
    p->at += is;
    return is;
}

bool jinja_parse_skip_name(struct jinja_parser *p, const char *name)
{
    bool is = jinja_parse_is_name(p, name);
    p->at += is;
    return is;
}

bool jinja_parse_expect_op(struct jinja_parser *p, enum node_op op, const char *what)
{
    if (jinja_parse_skip_op(p, op))
        return true;
    jinja_parse_unexpected(p, what);
    return false;
}

static bool expect_block_end(struct jinja_parser *p)
{
    if (jinja_parse_peek(p)->type == TOKEN_BLOCK_END) {
        p->at++;
        return true;
    }
    jinja_parse_unexpected(p, "end of statement block");
    return false;
}

static struct node *parse_statement(struct jinja_parser *p);

/* Is the tag at `at` one of the NULL-terminated words? */
static bool at_end_tag(const struct jinja_parser *p, const char *const *ends)
{
    if (jinja_parse_peek(p)->type != TOKEN_BLOCK_BEGIN)
        return false;
    for (size_t i = 0; ends[i] != NULL; i++) {
        if (token_is_name(&p->tokens[p->at + 1], ends[i]))
            return true;
    }
    return false;
}

static struct node *parse_text(struct jinja_parser *p)
{
    const struct token *token = jinja_parse_peek(p);
    struct node *node = jinja_parse_node(p, NODE_TEXT);
    if (node == NULL)
        return NULL;
    struct jinja_str *text = jinja_parse_string(p, token->data, token->bytes);
    p->at++;
    node->constant = jinja_string(text);
    return text ? node : NULL;
}

/* {{ expression }} or the inside of {% print %} */
static struct node *parse_output(struct jinja_parser *p)
{
    struct node *node = jinja_parse_node(p, NODE_OUTPUT);
    if (node == NULL)
        return NULL;
    node->items = jinja_parse_alloc(p, sizeof(struct node *));
    if (node->items == NULL)
        return NULL;
    node->items[0] = jinja_parse_tuple(p, true, NULL);
    node->count = 1;
    return node->items[0] ? node : NULL;
}

/* Statements up to a tag of `ends`, which is left for the caller (its word is the current token).
 */
static bool parse_body(struct jinja_parser *p, const char *const *ends, struct body *ret)
{
    struct node_list list = {0};
    if (!jinja_parse_enter(p))
        return false;
    while (jinja_parse_peek(p)->type != TOKEN_EOF && !at_end_tag(p, ends)) {
        const struct token *token = jinja_parse_peek(p);
        struct node *node;
        if (token->type == TOKEN_DATA) {
            node = parse_text(p);
        } else if (token->type == TOKEN_VARIABLE_BEGIN) {
            p->at++;
            node = parse_output(p);
            if (node != NULL && jinja_parse_peek(p)->type != TOKEN_VARIABLE_END) {
                jinja_parse_unexpected(p, "end of print statement");
                return false;
            }
            p->at++;
        } else {
            ASSERT(token->type == TOKEN_BLOCK_BEGIN);
            p->at++;
            node = parse_statement(p);
            if (node != NULL && !expect_block_end(p))
                return false;
        }
        if (node == NULL || !jinja_parse_push(p, &list, node))
            return false;
    }
    if (jinja_parse_peek(p)->type == TOKEN_EOF && ends[0] != NULL) {
        jinja_parse_fail(p, "the template ends where '%s' is expected", ends[0]);
        return false;
    }
    p->at += ends[0] != NULL; /* the word behind the tag's begin */
    p->depth--;
    *ret = (struct body){list.items, list.count};
    return true;
}

/* %} body {% end: the word `end` is taken, its %} is the caller's. */
static bool parse_block_body(struct jinja_parser *p, const char *end, struct body *ret)
{
    const char *const ends[] = {end, NULL};
    if (!expect_block_end(p) || !parse_body(p, ends, ret))
        return false;
    p->at++;
    return true;
}

/* A body in a scope of its own: what it names must exist even inside an `if`, as in Jinja2. */
static bool parse_hard_body(struct jinja_parser *p, const char *end, struct body *ret)
{
    bool soft = p->soft;
    p->soft = false;
    bool ok = parse_block_body(p, end, ret);
    p->soft = soft;
    return ok;
}

/* A body whose text is taken: break and continue do not reach out of it. */
static bool parse_captured_body(struct jinja_parser *p, const char *end, struct body *ret)
{
    uint32_t loops = p->loops;
    p->loops = 0;
    bool ok = parse_hard_body(p, end, ret);
    p->loops = loops;
    return ok;
}

static struct node *parse_for(struct jinja_parser *p)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct node *node = jinja_parse_node(p, NODE_FOR);
    if (node == NULL)
        return NULL;
    node->b = jinja_parse_target(p, false, true);
    if (node->b == NULL)
        return NULL;
    if (!jinja_parse_skip_name(p, "in")) {
        jinja_parse_unexpected(p, "'in'");
        return NULL;
    }
    node->a = jinja_parse_tuple(p, false, "recursive");
    if (node->a == NULL)
        return NULL;
    if (jinja_parse_skip_name(p, "if")) {
        node->c = jinja_parse_expression(p, true);
        if (node->c == NULL)
            return NULL;
    }
    node->flag = jinja_parse_skip_name(p, "recursive");
    bool soft = p->soft;
    p->soft = false;
    p->loops++;
    bool ok = expect_block_end(p) && parse_body(p, ends, &node->body);
    p->loops--;
    p->soft = soft;
    if (!ok)
        return NULL;
    if (jinja_parse_skip_name(p, "else"))
        return parse_hard_body(p, "endfor", &node->other) ? node : NULL;
    p->at++;
    return node;
}

static struct node *parse_if(struct jinja_parser *p)
{
    static const char *const ends[] = {"endif", "else", "elif", NULL};
    struct node_list tests = {0};
    struct body *bodies = NULL;
    uint32_t capacity = 0;
    struct node *node = jinja_parse_node(p, NODE_IF);
    bool soft = p->soft;
    if (node == NULL)
        return NULL;
    p->soft = true;
    for (;;) {
        if (tests.count + 2 > capacity) {
            capacity = capacity ? capacity * 2 : 4;
            struct body *grown = jinja_parse_alloc(p, capacity * sizeof(*grown));
            if (grown == NULL)
                return NULL;
            if (tests.count > 0)
                memcpy(grown, bodies, tests.count * sizeof(*grown));
            bodies = grown;
        }
        struct node *test = jinja_parse_tuple(p, false, NULL);
        if (test == NULL || !expect_block_end(p) || !parse_body(p, ends, &bodies[tests.count]) ||
            !jinja_parse_push(p, &tests, test))
            return NULL;
        if (!jinja_parse_skip_name(p, "elif"))
            break;
    }
    bodies[tests.count] = (struct body){0};
    node->items = tests.items;
    node->count = tests.count;
    node->bodies = bodies;
    bool ok = true;
    if (jinja_parse_skip_name(p, "else"))
        ok = parse_block_body(p, "endif", &bodies[tests.count]);
    else
        p->at++;
    p->soft = soft;
    return ok ? node : NULL;
}

static struct node *parse_set(struct jinja_parser *p)
{
    struct node *node = jinja_parse_node(p, NODE_SET);
    if (node == NULL)
        return NULL;
    node->b = jinja_parse_target(p, true, true);
    if (node->b == NULL)
        return NULL;
    if (jinja_parse_skip_op(p, OP_ASSIGN)) {
        node->a = jinja_parse_tuple(p, true, NULL);
        return node->a ? node : NULL;
    }
    node->type = NODE_SET_BLOCK;
    node->a = jinja_parse_filters(p, NULL, false);
    if (p->code < 0)
        return NULL;
    return parse_captured_body(p, "endset", &node->body) ? node : NULL;
}

static bool add_param(struct jinja_parser *p, struct macro_def *def, uint32_t *capacity)
{
    struct node *target = jinja_parse_target(p, false, false);
    uint32_t at = def->params_count;
    if (target == NULL)
        return false;
    if (target->type != NODE_NAME) {
        jinja_parse_fail(p, "a parameter must be a name");
        return false;
    }
    if (at == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 8;
        uint32_t *params = jinja_parse_alloc(p, *capacity * sizeof(*params));
        struct jinja_str **names = jinja_parse_alloc(p, *capacity * sizeof(*names));
        struct node **defaults = jinja_parse_alloc(p, *capacity * sizeof(*defaults));
        if (params == NULL || names == NULL || defaults == NULL)
            return false;
        if (at > 0) {
            memcpy(params, def->params, at * sizeof(*params));
            memcpy(names, def->param_names, at * sizeof(*names));
            memcpy(defaults, def->defaults, at * sizeof(*defaults));
        }
        def->params = params;
        def->param_names = names;
        def->defaults = defaults;
    }
    def->params[at] = target->symbol;
    def->param_names[at] = p->tmpl->symbols[target->symbol];
    def->defaults[at] = NULL;
    def->params_count++;
    if (jinja_parse_skip_op(p, OP_ASSIGN)) {
        def->defaults[at] = jinja_parse_expression(p, true);
        return def->defaults[at] != NULL;
    }
    if (at > 0 && def->defaults[at - 1] != NULL) {
        jinja_parse_fail(p, "non-default argument follows default argument");
        return false;
    }
    return true;
}

static bool parse_signature(struct jinja_parser *p, struct macro_def *def)
{
    uint32_t capacity = 0;
    if (!jinja_parse_expect_op(p, OP_LPAREN, "'('"))
        return false;
    while (!jinja_parse_is_op(p, OP_RPAREN)) {
        if (def->params_count > 0 && !jinja_parse_expect_op(p, OP_COMMA, "','"))
            return false;
        if (!add_param(p, def, &capacity))
            return false;
    }
    p->at++;
    return true;
}

/* Parameters and body of a macro or call block; what the body uses is noted. */
static struct macro_def *parse_macro_def(struct jinja_parser *p, struct macro_def *def,
                                         const char *end)
{
    bool varargs = p->uses_varargs, kwargs = p->uses_kwargs, caller = p->uses_caller;
    p->uses_varargs = p->uses_kwargs = p->uses_caller = false;
    if (!parse_captured_body(p, end, &def->body))
        return NULL;
    def->uses_varargs = p->uses_varargs;
    def->uses_kwargs = p->uses_kwargs;
    def->uses_caller = p->uses_caller;
    for (uint32_t i = 0; i < def->params_count; i++) { /* a parameter of that name is just that */
        def->uses_varargs = def->uses_varargs && def->params[i] != SYMBOL_VARARGS;
        def->uses_kwargs = def->uses_kwargs && def->params[i] != SYMBOL_KWARGS;
        def->uses_caller = def->uses_caller && def->params[i] != SYMBOL_CALLER;
    }
    p->uses_varargs = varargs;
    p->uses_kwargs = kwargs;
    p->uses_caller = caller;
    return def;
}

static struct node *parse_macro(struct jinja_parser *p)
{
    struct node *node = jinja_parse_node(p, NODE_MACRO);
    struct macro_def *def = jinja_parse_alloc(p, sizeof(*def));
    if (node == NULL || def == NULL)
        return NULL;
    *def = (struct macro_def){0};
    struct node *name = jinja_parse_target(p, false, false);
    if (name == NULL)
        return NULL;
    if (name->type != NODE_NAME) {
        jinja_parse_fail(p, "a macro needs a name");
        return NULL;
    }
    def->symbol = name->symbol;
    def->name = p->tmpl->symbols[name->symbol];
    if (!parse_signature(p, def))
        return NULL;
    node->macro = parse_macro_def(p, def, "endmacro");
    return node->macro ? node : NULL;
}

static struct node *parse_call_block(struct jinja_parser *p)
{
    struct node *node = jinja_parse_node(p, NODE_CALL_BLOCK);
    struct macro_def *def = jinja_parse_alloc(p, sizeof(*def));
    if (node == NULL || def == NULL)
        return NULL;
    *def = (struct macro_def){0};
    if (jinja_parse_is_op(p, OP_LPAREN) && !parse_signature(p, def))
        return NULL;
    node->a = jinja_parse_expression(p, true);
    if (node->a == NULL)
        return NULL;
    if (node->a->type != NODE_CALL) {
        jinja_parse_fail(p, "expected a call");
        return NULL;
    }
    node->macro = parse_macro_def(p, def, "endcall");
    return node->macro ? node : NULL;
}

static struct node *parse_filter_block(struct jinja_parser *p)
{
    struct node *node = jinja_parse_node(p, NODE_FILTER_BLOCK);
    if (node == NULL)
        return NULL;
    node->a = jinja_parse_filters(p, NULL, true);
    if (node->a == NULL)
        return NULL;
    return parse_captured_body(p, "endfilter", &node->body) ? node : NULL;
}

static struct node *parse_with(struct jinja_parser *p)
{
    struct node_list list = {0};
    struct node *node = jinja_parse_node(p, NODE_WITH);
    while (node != NULL && jinja_parse_peek(p)->type != TOKEN_BLOCK_END) {
        if (list.count > 0 && !jinja_parse_expect_op(p, OP_COMMA, "','"))
            return NULL;
        struct node *target = jinja_parse_target(p, false, false);
        if (target == NULL || !jinja_parse_push(p, &list, target) ||
            !jinja_parse_expect_op(p, OP_ASSIGN, "'='"))
            return NULL;
        struct node *value = jinja_parse_expression(p, true);
        if (value == NULL || !jinja_parse_push(p, &list, value))
            return NULL;
    }
    if (node == NULL)
        return NULL;
    node->items = list.items;
    node->count = list.count;
    return parse_hard_body(p, "endwith", &node->body) ? node : NULL;
}

static struct node *parse_generation(struct jinja_parser *p)
{
    struct node *node = jinja_parse_node(p, NODE_SCOPE);
    if (node == NULL)
        return NULL;
    return parse_captured_body(p, "endgeneration", &node->body) ? node : NULL;
}

static struct node *parse_jump(struct jinja_parser *p, enum node_type type)
{
    if (p->loops == 0) {
        jinja_parse_fail(p, "'%s' outside of a loop", type == NODE_BREAK ? "break" : "continue");
        return NULL;
    }
    return jinja_parse_node(p, type);
}

static struct node *parse_break(struct jinja_parser *p)
{
    return parse_jump(p, NODE_BREAK);
}

static struct node *parse_continue(struct jinja_parser *p)
{
    return parse_jump(p, NODE_CONTINUE);
}

static struct node *parse_statement(struct jinja_parser *p) /* at is behind {% */
{
    static const struct {
        const char *word;
        struct node *(*parse)(struct jinja_parser *);
    } statements[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_continue},
        {"print", parse_output},
    };
    const struct token *token = jinja_parse_peek(p);
    for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
        if (jinja_parse_skip_name(p, statements[i].word))
            return statements[i].parse(p);
    }
    if (token->type != TOKEN_NAME)
        jinja_parse_unexpected(p, "a tag name");
    else
        jinja_parse_fail(p, "unknown or unsupported tag '%.*s'",
                         (int)(token->bytes > 40 ? 40 : token->bytes), token->data);
    return NULL;
}

static bool fixed_symbols(struct jinja_parser *p)
{
    static const char *const names[] = {
        [SYMBOL_MESSAGES] = "messages",   [SYMBOL_TOOLS] = "tools",
        [SYMBOL_DOCUMENTS] = "documents", [SYMBOL_ADD_GENERATION_PROMPT] = "add_generation_prompt",
        [SYMBOL_BOS_TOKEN] = "bos_token", [SYMBOL_EOS_TOKEN] = "eos_token",
        [SYMBOL_LOOP] = "loop",           [SYMBOL_CALLER] = "caller",
        [SYMBOL_VARARGS] = "varargs",     [SYMBOL_KWARGS] = "kwargs",
    };
    for (uint32_t i = 0; i < SYMBOLS_FIXED; i++) {
        if (jinja_parse_symbol(p, names[i], strlen(names[i])) != i)
            return false;
    }
    return true;
}

int jinja_parse(struct jinja_template *tmpl, const char *source, size_t bytes, struct errmsg *err)
{
    static const char *const no_end[] = {NULL};
    struct token *tokens;
    size_t count;
    int r = jinja_lex(source, bytes, &tokens, &count, err);
    if (r < 0)
        return r;
    struct jinja_parser parser = {
        .tmpl = tmpl, .arena = &tmpl->arena, .tokens = tokens, .symbols = map_new(0), .err = err};
    if (fixed_symbols(&parser))
        (void)parse_body(&parser, no_end, &tmpl->body);
    if (parser.code == 0 && parser.unknown != NULL)
        parser.code = errmsg_set(err, -EINVAL, "line %u: no %s named '%.*s'", parser.unknown->line,
                                 parser.unknown->type == NODE_TEST ? "test" : "filter",
                                 (int)parser.unknown->name->bytes, parser.unknown->name->data);
    map_free(parser.symbols);
    mem_free(tokens);
    return parser.code;
}
