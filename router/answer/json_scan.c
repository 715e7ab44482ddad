/* json_scan.c - the states of a JSON value; the only memory is one bit per open container.
 *
 *   VALUE --"--> STRING --"--> AFTER      AFTER --,--> VALUE (list) or KEY (object)
 *         --{--> FIRST_KEY                      --] or }--> AFTER of the container around it,
 *         --[--> FIRST_ITEM                               or done
 *         --digit--> INTEGER, FRACTION, EXPONENT --anything else--> AFTER, which sees it again
 *
 * Cost: one switch per byte. */
#include "router/answer/json_scan.h"

#include <string.h>

#include "proto/base/assert.h"

void json_scan_init(struct json_scan *scan)
{
    memset(scan, 0, sizeof(*scan));
}

static bool in_object(const struct json_scan *scan)
{
    unsigned top = scan->depth - 1u;
    return scan->is_object[top / 8] >> (top % 8) & 1;
}

static enum json_scan_result value_over(struct json_scan *scan)
{
    scan->state = JSON_SCAN_AFTER;
    return scan->depth == 0 ? JSON_SCAN_DONE : JSON_SCAN_MORE;
}

static enum json_scan_result open_container(struct json_scan *scan, bool object)
{
    if (scan->depth == JSON_DEPTH_MAX)
        return JSON_SCAN_BAD;
    uint8_t bit = (uint8_t)(1u << (scan->depth % 8));
    if (object)
        scan->is_object[scan->depth / 8] |= bit;
    else
        scan->is_object[scan->depth / 8] &= (uint8_t)~bit;
    scan->depth++;
    scan->state = object ? JSON_SCAN_FIRST_KEY : JSON_SCAN_FIRST_ITEM;
    return JSON_SCAN_MORE;
}

static enum json_scan_result close_container(struct json_scan *scan, char c)
{
    ASSERT(scan->depth > 0);
    if (c != (in_object(scan) ? '}' : ']'))
        return JSON_SCAN_BAD;
    scan->depth--;
    return value_over(scan);
}

static enum json_scan_result go(struct json_scan *scan, enum json_scan_state next)
{
    scan->state = next;
    return JSON_SCAN_MORE;
}

static enum json_scan_result begin_literal(struct json_scan *scan, const char *rest)
{
    scan->literal = rest;
    return go(scan, JSON_SCAN_LITERAL);
}

static enum json_scan_result begin_value(struct json_scan *scan, char c)
{
    switch (c) {
    case ' ':
    case '\n':
    case '\t':
    case '\r':
        return JSON_SCAN_MORE;
    case '"':
        scan->in_key = false;
        return go(scan, JSON_SCAN_STRING);
    case '{':
        return open_container(scan, true);
    case '[':
        return open_container(scan, false);
    case 't':
        return begin_literal(scan, "rue");
    case 'f':
        return begin_literal(scan, "alse");
    case 'n':
        return begin_literal(scan, "ull");
    case '-':
        return go(scan, JSON_SCAN_MINUS);
    case '0':
        return go(scan, JSON_SCAN_ZERO);
    default:
        return c >= '1' && c <= '9' ? go(scan, JSON_SCAN_INTEGER) : JSON_SCAN_BAD;
    }
}

static enum json_scan_result in_string(struct json_scan *scan, char c)
{
    if (c == '\\')
        return go(scan, JSON_SCAN_ESCAPE);
    if ((unsigned char)c < 0x20)
        return JSON_SCAN_BAD;
    if (c != '"')
        return JSON_SCAN_MORE;
    if (!scan->in_key)
        return value_over(scan);
    return go(scan, JSON_SCAN_COLON);
}

static enum json_scan_result after_value(struct json_scan *scan, char c)
{
    if (scan->depth == 0)
        return JSON_SCAN_PAST;
    if (json_is_space(c))
        return JSON_SCAN_MORE;
    if (c == ',')
        return go(scan, in_object(scan) ? JSON_SCAN_KEY : JSON_SCAN_VALUE);
    return close_container(scan, c);
}

static enum json_scan_result in_key(struct json_scan *scan, char c)
{
    if (json_is_space(c))
        return JSON_SCAN_MORE;
    if (c == '}' && scan->state == JSON_SCAN_FIRST_KEY)
        return close_container(scan, c);
    if (c != '"')
        return JSON_SCAN_BAD;
    scan->in_key = true;
    return go(scan, JSON_SCAN_STRING);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* The states of a number; a byte that does not belong to it is for AFTER. */
static enum json_scan_result in_number(struct json_scan *scan, char c)
{
    enum json_scan_state state = scan->state;
    bool whole = state == JSON_SCAN_ZERO || state == JSON_SCAN_INTEGER;

    if (is_digit(c)) {
        if (state == JSON_SCAN_ZERO)
            return JSON_SCAN_BAD;
        if (state == JSON_SCAN_MINUS)
            return go(scan, c == '0' ? JSON_SCAN_ZERO : JSON_SCAN_INTEGER);
        if (state == JSON_SCAN_POINT)
            return go(scan, JSON_SCAN_FRACTION);
        return state >= JSON_SCAN_E ? go(scan, JSON_SCAN_EXPONENT) : JSON_SCAN_MORE;
    }
    if (c == '.' && whole)
        return go(scan, JSON_SCAN_POINT);
    if ((c == 'e' || c == 'E') && (whole || state == JSON_SCAN_FRACTION))
        return go(scan, JSON_SCAN_E);
    if ((c == '+' || c == '-') && state == JSON_SCAN_E)
        return go(scan, JSON_SCAN_E_SIGN);
    if (!whole && state != JSON_SCAN_FRACTION && state != JSON_SCAN_EXPONENT)
        return JSON_SCAN_BAD;
    scan->state = JSON_SCAN_AFTER;
    return after_value(scan, c);
}

enum json_scan_result json_scan_push(struct json_scan *scan, char c)
{
    ASSERT(scan->state < JSON_SCAN_STATES);
    switch (scan->state) {
    case JSON_SCAN_VALUE:
        return begin_value(scan, c);
    case JSON_SCAN_FIRST_ITEM:
        return c == ']' ? close_container(scan, c) : begin_value(scan, c);
    case JSON_SCAN_FIRST_KEY:
    case JSON_SCAN_KEY:
        return in_key(scan, c);
    case JSON_SCAN_COLON:
        if (c == ':')
            return go(scan, JSON_SCAN_VALUE);
        return json_is_space(c) ? JSON_SCAN_MORE : JSON_SCAN_BAD;
    case JSON_SCAN_AFTER:
        return after_value(scan, c);
    case JSON_SCAN_STRING:
        return in_string(scan, c);
    case JSON_SCAN_ESCAPE:
        if (c == 'u') {
            scan->hex_left = 4;
            return go(scan, JSON_SCAN_HEX);
        }
        return c && strchr("\"\\/bfnrt", c) ? go(scan, JSON_SCAN_STRING) : JSON_SCAN_BAD;
    case JSON_SCAN_HEX:
        if (!is_hex(c))
            return JSON_SCAN_BAD;
        return --scan->hex_left == 0 ? go(scan, JSON_SCAN_STRING) : JSON_SCAN_MORE;
    case JSON_SCAN_LITERAL:
        if (c != *scan->literal)
            return JSON_SCAN_BAD;
        return *++scan->literal ? JSON_SCAN_MORE : value_over(scan);
    default:
        return in_number(scan, c);
    }
}

bool json_scan_whole(const char *text, size_t bytes)
{
    struct json_scan scan;
    enum json_scan_result result = JSON_SCAN_MORE;
    size_t i = 0;

    json_scan_init(&scan);
    while (i < bytes && result == JSON_SCAN_MORE)
        result = json_scan_push(&scan, text[i++]);
    if (result == JSON_SCAN_PAST)
        i--; /* that byte is not the value's */
    if (result == JSON_SCAN_MORE)
        result = json_scan_push(&scan, ' '); /* a number ends at the end of the text */
    while (i < bytes && json_is_space(text[i]))
        i++;
    return i == bytes && (result == JSON_SCAN_DONE || result == JSON_SCAN_PAST);
}
