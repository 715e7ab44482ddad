/* json.h - jansson with our bounds, and the few helpers that every caller would write again.
 *
 * json_parse: at most `bytes_max` bytes and JSON_DEPTH_MAX levels; duplicate keys take the last
 * value; NUL inside strings allowed (use json_string_length); invalid UTF-8, lone surrogates, NaN
 * and trailing bytes refused. */
#ifndef REFRAIN_PROTO_BASE_JSON_H
#define REFRAIN_PROTO_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/errmsg.h"

#define JSON_DEPTH_MAX 128

/* jansson's memory counts under MEM_JSON from here on. First thing in main(): what jansson has
 * allocated before could not be given back. */
void json_count_memory(void);
/* Any JSON value; the caller owns *ret_value (json_decref). 0; -EINVAL: malformed, *err says what
 * and at which byte; -E2BIG: more than bytes_max or too deep. Never overflows the C stack. */
int json_parse(const char *text, size_t bytes, size_t bytes_max, json_t **ret_value,
               struct errmsg *err);
/* The same of a text from outside, which many small values make slow: 8 MiB of "0," take half a
 * second. -E2BIG: more than values_max of them, counted before any is built: elements and members,
 * and each array and object once more. */
int json_parse_values(const char *text, size_t bytes, size_t values_max, json_t **ret_value,
                      struct errmsg *err);
/* Append `text` as a JSON string with quotes: control characters and quotes escaped, UTF-8 as is.
 * `text` must be valid UTF-8. */
void json_append_string(struct buffer *out, const char *text, size_t bytes);
/* The same for a sentence that may be cut within a character, or quote what is no UTF-8: such bytes
 * become '?'. */
void json_append_sentence(struct buffer *out, const char *text);
/* Append a value, compact. */
void json_append_value(struct buffer *out, const json_t *value);

#endif
