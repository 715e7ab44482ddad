/* json_scan.h - where a JSON value ends, byte by byte, without building it.
 *
 * Strict RFC 8259: what is accepted parses. Text is taken to be valid UTF-8. At most JSON_DEPTH_MAX
 * levels. Embedded; no memory of its own. Thread: one. */
#ifndef REFRAIN_ROUTER_ANSWER_JSON_SCAN_H
#define REFRAIN_ROUTER_ANSWER_JSON_SCAN_H

#include <stdint.h>

#include "proto/base/json.h"

enum json_scan_state {
    JSON_SCAN_VALUE = 0, /* a value, white space before it */
    JSON_SCAN_FIRST_ITEM,
    JSON_SCAN_FIRST_KEY,
    JSON_SCAN_KEY,
    JSON_SCAN_COLON,
    JSON_SCAN_AFTER, /* a value of a container is over */
    JSON_SCAN_STRING,
    JSON_SCAN_ESCAPE,
    JSON_SCAN_HEX,
    JSON_SCAN_LITERAL, /* true, false, null */
    JSON_SCAN_MINUS,
    JSON_SCAN_ZERO,
    JSON_SCAN_INTEGER,
    JSON_SCAN_POINT,
    JSON_SCAN_FRACTION,
    JSON_SCAN_E,
    JSON_SCAN_E_SIGN,
    JSON_SCAN_EXPONENT,
    JSON_SCAN_STATES
};

struct json_scan {
    enum json_scan_state state;
    bool in_key;
    uint8_t depth;
    uint8_t hex_left;
    const char *literal; /* what is left of it */
    uint8_t is_object[JSON_DEPTH_MAX / 8];
};

enum json_scan_result {
    JSON_SCAN_MORE = 0,
    JSON_SCAN_DONE, /* this byte was the value's last */
    JSON_SCAN_PAST, /* the value (a number) ended before this byte */
    JSON_SCAN_BAD   /* no JSON, or too deep; the scan must not go on */
};

void json_scan_init(struct json_scan *scan);
enum json_scan_result json_scan_push(struct json_scan *scan, char c);
/* The text is one whole value, with white space around it at most. */
bool json_scan_whole(const char *text, size_t bytes);

static inline bool json_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

#endif
