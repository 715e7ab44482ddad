/* jinja_literal.c - strings and numbers of expressions.
 *
 * Strings have Python's escapes; those that name nothing valid are refused. Integers have 64 bits.
 */
#include <string.h>

#include "router/text/jinja_eval.h"
#include "router/text/jinja_parse.h"
#include "router/text/jinja_utf8.h"

struct node *jinja_parse_constant(struct jinja_parser *p, struct value value)
{
    struct node *node = jinja_parse_node(p, NODE_CONST);
    if (node != NULL)
        node->constant = value;
    return node;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One escape at *from (behind the backslash); false: not a valid one. */
static bool unescape(const char **from, const char *end, char **to)
{
    static const char letters[] = "abfnrtv\\'\"";
    static const char meanings[] = "\a\b\f\n\r\t\v\\'\"";
    char c = *(*from)++;
    const char *found = c ? strchr(letters, c) : NULL;
    uint32_t code_point = 0;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == '\n')
        return true;
    if (found != NULL) {
        *(*to)++ = meanings[found - letters];
        return true;
    }
    if (c >= '0' && c <= '7') {
        code_point = (uint32_t)(c - '0');
        for (int i = 0; i < 2 && *from < end && **from >= '0' && **from <= '7'; i++)
            code_point = code_point * 8 + (uint32_t)(*(*from)++ - '0');
        *to += jinja_utf8_encode(code_point, *to);
        return true;
    }
    if (c == 'N')
        return false; /* \N{NAME}: no table of names here */
    if (digits == 0) {
        *(*to)++ = '\\';
        *(*to)++ = c;
        return true;
    }
    for (int i = 0; i < digits; i++) {
        int value = *from < end ? hex_value(**from) : -1;
        if (value < 0)
            return false;
        code_point = code_point * 16 + (uint32_t)value;
        (*from)++;
    }
    if (code_point > 0x10ffff || (code_point >= 0xd800 && code_point < 0xe000))
        return false;
    *to += jinja_utf8_encode(code_point, *to); /* never longer than the escape */
    return true;
}

/* Adjacent string tokens are one string. */
struct node *jinja_parse_string_constant(struct jinja_parser *p)
{
    size_t max = 0;
    for (size_t i = p->at; p->tokens[i].type == TOKEN_STRING; i++)
        max += p->tokens[i].bytes;
    char *text = jinja_parse_alloc(p, max + 1);
    char *to = text;
    if (text == NULL)
        return NULL;
    for (; jinja_parse_peek(p)->type == TOKEN_STRING; p->at++) {
        const struct token *token = jinja_parse_peek(p);
        const char *end = token->data + token->bytes;
        for (const char *from = token->data; from < end;) {
            if (*from != '\\') {
                *to++ = *from++;
                continue;
            }
            from++;
            if (from == end || !unescape(&from, end, &to)) {
                jinja_parse_fail(p, "a string has an escape that is not valid");
                return NULL;
            }
        }
    }
    struct jinja_str *string = jinja_parse_string(p, text, (size_t)(to - text));
    return string ? jinja_parse_constant(p, jinja_string(string)) : NULL;
}

struct node *jinja_parse_number(struct jinja_parser *p)
{
    const struct token *token = jinja_parse_peek(p);
    int64_t integer;
    double number;
    bool ok;
    p->at++;
    if (token->type == TOKEN_INTEGER) {
        ok = jinja_parse_int(token->data, token->bytes,
                             token->bytes > 1 && token->data[0] == '0' ? 0 : 10, &integer);
        if (ok)
            return jinja_parse_constant(p, jinja_int(integer));
    } else {
        ok = jinja_parse_float(token->data, token->bytes, &number);
        if (ok)
            return jinja_parse_constant(p, jinja_float(number));
    }
    p->at--;
    jinja_parse_fail(p, "the number '%.*s' is not valid or too big",
                     (int)(token->bytes > 40 ? 40 : token->bytes), token->data);
    return NULL;
}
