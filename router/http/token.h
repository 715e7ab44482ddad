/* token.h - the small texts of HTTP: character classes, lists.
 *
 * Pure functions over the caller's bytes. Thread: any. */
#ifndef REFRAIN_ROUTER_HTTP_TOKEN_H
#define REFRAIN_ROUTER_HTTP_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_class {
    TOKEN_TCHAR = 1,  /* RFC 9110 5.6.2: methods, header names */
    TOKEN_VALUE = 2,  /* RFC 9110 5.5: tab, space, visible ASCII, bytes from 0x80 */
    TOKEN_TARGET = 4, /* what may stand in a request line's middle at all: visible ASCII */
    TOKEN_URI = 8,    /* RFC 3986: unreserved, sub-delims, ":@/?%[]" */
    TOKEN_HOST = 16,  /* RFC 3986: unreserved, sub-delims, ":[]%" */
};

extern const uint8_t token_classes[256];

static inline bool token_is(char c, enum token_class class)
{
    return (token_classes[(uint8_t)c] & class) != 0;
}

/* How many bytes from the first on are of that class. */
size_t token_span(const char *text, size_t bytes, enum token_class class);
bool token_is_name(const char *text);  /* of a header; not empty */
bool token_is_value(const char *text); /* of a header; may be empty */
bool token_is_host(const char *text);  /* of the Host header; may be empty */
int token_hex(char c);                 /* 0..15, or -1 */
/* The next element of a comma-separated list, or NULL; *list moves on. Empty ones are skipped. */
const char *http_list_next(const char **list, size_t *ret_bytes);
/* Is `token` an element of `list`? Any case. */
bool http_list_has(const char *list, const char *token);

#endif
