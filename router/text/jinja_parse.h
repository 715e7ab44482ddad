/* jinja_parse.h - template source -> tree; what jinja_parse.c and jinja_expr.c share. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_PARSE_H
#define REFRAIN_ROUTER_TEXT_JINJA_PARSE_H

#include "proto/base/errmsg.h"
#include "proto/base/map.h"
#include "router/text/jinja_ast.h"
#include "router/text/jinja_lex.h"

struct jinja_parser {
    struct jinja_template *tmpl;
    struct arena *arena;
    const struct token *tokens; /* ends with TOKEN_EOF */
    size_t at;
    struct map *symbols; /* name -> number + 1 */
    uint32_t symbols_capacity;
    uint32_t depth;
    uint32_t loops; /* around us, in this macro or capture */
    bool soft; /* inside an `if`: unknown filters and tests matter only when they are reached */
    const struct node *unknown;                  /* the first one that matters, or NULL */
    bool uses_varargs, uses_kwargs, uses_caller; /* by the macro being parsed */
    struct errmsg *err;
    int code; /* of the first error */
};

/* Fill *tmpl, whose arena is ready. `source` is valid UTF-8 with '\n' line ends and must live in
 * that arena. 0; -EINVAL: syntax, *err names line and cause; -E2BIG: memory. */
int jinja_parse(struct jinja_template *tmpl, const char *source, size_t bytes, struct errmsg *err);

/* Pointers are NULL after an error; the error is set. */
void *jinja_parse_alloc(struct jinja_parser *p, size_t bytes);
struct node *jinja_parse_node(struct jinja_parser *p, enum node_type type);
/* "line N: expected WHAT, got TOKEN" */
void jinja_parse_fail(struct jinja_parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void jinja_parse_unexpected(struct jinja_parser *p, const char *expected);
bool jinja_parse_enter(struct jinja_parser *p);
struct jinja_str *jinja_parse_string(struct jinja_parser *p, const char *data, size_t bytes);
/* Number of the name, or UINT32_MAX. */
uint32_t jinja_parse_symbol(struct jinja_parser *p, const char *name, size_t bytes);

/* A growing array of nodes in the arena. */
struct node_list {
    struct node **items;
    uint32_t count, capacity;
};
bool jinja_parse_push(struct jinja_parser *p, struct node_list *list, struct node *node);

static inline const struct token *jinja_parse_peek(const struct jinja_parser *p)
{
    return &p->tokens[p->at];
}
bool jinja_parse_is_op(const struct jinja_parser *p, enum node_op op);
bool jinja_parse_is_name(const struct jinja_parser *p, const char *name);
bool jinja_parse_skip_op(struct jinja_parser *p, enum node_op op);
bool jinja_parse_skip_name(struct jinja_parser *p, const char *name);
bool jinja_parse_expect_op(struct jinja_parser *p, enum node_op op, const char *what);

/* jinja_literal.c */
struct node *jinja_parse_constant(struct jinja_parser *p, struct value value);
struct node *jinja_parse_string_constant(struct jinja_parser *p); /* adjacent ones are joined */
struct node *jinja_parse_number(struct jinja_parser *p);

/* jinja_expr.c */
struct node *jinja_parse_expression(struct jinja_parser *p, bool with_condexpr);
/* One expression, or several with commas. `end_name`: a word that ends it ("recursive"). */
struct node *jinja_parse_tuple(struct jinja_parser *p, bool with_condexpr, const char *end_name);
/* name, a.b, (a, b): what can be assigned to. */
struct node *jinja_parse_target(struct jinja_parser *p, bool with_namespace, bool with_tuple);
struct call_args *jinja_parse_call_args(struct jinja_parser *p);
/* |name(args)...; with `start_inline` the first '|' is missing (a filter block). */
struct node *jinja_parse_filters(struct jinja_parser *p, struct node *node, bool start_inline);

#endif
