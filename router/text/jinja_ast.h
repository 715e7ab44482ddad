/* jinja_ast.h - a compiled template: a tree in one arena, never changed after parsing. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_AST_H
#define REFRAIN_ROUTER_TEXT_JINJA_AST_H

#include "proto/base/arena.h"
#include "router/text/jinja_value.h"

/* Names are numbered while parsing; these come first, in this order. */
enum symbol {
    SYMBOL_MESSAGES = 0,
    SYMBOL_TOOLS,
    SYMBOL_DOCUMENTS,
    SYMBOL_ADD_GENERATION_PROMPT,
    SYMBOL_BOS_TOKEN,
    SYMBOL_EOS_TOKEN,
    SYMBOL_LOOP,
    SYMBOL_CALLER,
    SYMBOL_VARARGS,
    SYMBOL_KWARGS,
    SYMBOLS_FIXED,
};

enum node_op {
    OP_NONE = 0,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_TILDE,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
    OP_ASSIGN,
    OP_DOT,
    OP_COLON,
    OP_PIPE,
    OP_COMMA,
    OP_SEMICOLON,
    OP_LPAREN,
    OP_RPAREN,
    OP_LBRACKET,
    OP_RBRACKET,
    OP_LBRACE,
    OP_RBRACE,
};

enum node_type {
    NODE_CONST,   /* constant */
    NODE_NAME,    /* symbol */
    NODE_LIST,    /* items */
    NODE_TUPLE,   /* items */
    NODE_DICT,    /* items: key, value, key, value... (count = 2 * pairs) */
    NODE_GETATTR, /* a.name; callable = the methods of that name */
    NODE_GETITEM, /* a[b] */
    NODE_SLICE,   /* a[items 0:1:2], items may be NULL */
    NODE_CALL,    /* a(args) */
    NODE_FILTER,  /* a|name(args); a NULL: the text of the block */
    NODE_TEST,    /* a is name(args) */
    NODE_CHAIN,   /* a ops[0] items[0] ops[1] items[1]..., from the left */
    NODE_COMPARE, /* the same, and-ed as Python does */
    NODE_CONCAT,  /* items, ~ */
    NODE_AND,     /* items */
    NODE_OR,      /* items */
    NODE_NOT,     /* a */
    NODE_NEG,     /* a */
    NODE_POS,     /* a */
    NODE_COND,    /* b if a else c; c may be NULL */
    NODE_NSREF,   /* symbol.name, as a target only */

    NODE_TEXT,         /* constant */
    NODE_OUTPUT,       /* items */
    NODE_FOR,          /* for b in a if c: body, other; flag: recursive */
    NODE_IF,           /* items[i] -> bodies[i]; bodies[count] = else */
    NODE_SET,          /* b = a */
    NODE_SET_BLOCK,    /* b = body, filtered by a (may be NULL) */
    NODE_MACRO,        /* macro */
    NODE_CALL_BLOCK,   /* a (a call), with macro as caller */
    NODE_FILTER_BLOCK, /* a (a filter chain over NULL) over body */
    NODE_WITH,         /* targets items[0,2,..] = items[1,3,..], body */
    NODE_SCOPE,        /* body in a scope of its own */
    NODE_BREAK,
    NODE_CONTINUE,
};

struct body {
    struct node **items;
    uint32_t count;
};

struct call_args {
    struct node **values;
    uint32_t count;
    struct jinja_str **names; /* of the keyword arguments */
    struct node **named;
    uint32_t named_count;
    struct node *star, *star_star; /* *args, **kwargs, may be NULL */
};

struct macro_def {
    const struct jinja_str *name; /* NULL: a call block */
    uint32_t symbol;
    uint32_t *params; /* symbols */
    struct jinja_str **param_names;
    struct node **defaults; /* NULL where there is none */
    uint32_t params_count;
    bool uses_varargs, uses_kwargs, uses_caller;
    struct body body;
};

struct node {
    uint8_t type; /* enum node_type */
    bool flag;
    uint32_t line;
    uint32_t symbol;
    uint32_t count; /* of items */
    struct node *a, *b, *c;
    struct node **items;
    union {
        struct value constant;
        const uint8_t *ops; /* enum node_op */
        struct macro_def *macro;
        struct {
            struct jinja_str *name;
            const struct jinja_callable *callable;
            struct call_args *args; /* NULL: none */
        };
        struct {
            struct body body, other;
        };
        struct body *bodies;
    };
};

struct jinja_template {
    struct arena arena;
    struct body body;
    struct jinja_str **symbols;              /* name of each symbol */
    const struct jinja_callable **functions; /* the built-in of that name, or NULL */
    uint32_t symbols_count;
};

#endif
