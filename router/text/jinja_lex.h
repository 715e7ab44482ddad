/* jinja_lex.h - template source -> tokens, whitespace control already applied. */
#ifndef REFRAIN_ROUTER_TEXT_JINJA_LEX_H
#define REFRAIN_ROUTER_TEXT_JINJA_LEX_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

enum token_type {
    TOKEN_EOF = 0,
    TOKEN_DATA, /* text between tags */
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* without its quotes, escapes not yet resolved */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OP, /* op: enum node_op */
};

struct token {
    uint8_t type;
    uint8_t op;
    uint32_t line;
    uint32_t bytes;
    const char *data; /* into the source */
};

/* `source` has '\n' line ends and is valid UTF-8. 0 and an array that the caller gives to mem_free;
 * -EINVAL, *err names line and cause. */
int jinja_lex(const char *source, size_t bytes, struct token **ret_tokens, size_t *ret_count,
              struct errmsg *err);

#endif
