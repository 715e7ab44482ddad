/* call_object.c - {"name": "f", "arguments": {...}}: members in any order, others skipped.
 *
 *   OPEN --{--> FIRST_KEY --"--> IN_KEY --"--> COLON --:--> VALUE --> IN_VALUE --> AFTER --}--> end
 *                NEXT_KEY --"------^                                                |
 *                   ^---------------------------- , --------------------------------+
 *
 * The call counts as soon as name and the first byte of its arguments are known; then arguments go
 * to the call byte by byte. Arguments before the name wait in `held`. Arguments that are null or
 * missing are {}; a string that holds an object is that object, since models write both. */
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/answer/tool_parser_private.h"

static bool equals(const char *text, size_t bytes, const char *word)
{
    return bytes == strlen(word) && memcmp(text, word, bytes) == 0;
}

static enum call_field field_of(const char *key, size_t bytes)
{
    if (equals(key, bytes, "\"name\""))
        return CALL_NAME;
    if (equals(key, bytes, "\"arguments\"") || equals(key, bytes, "\"parameters\""))
        return CALL_ARGUMENTS;
    return CALL_OTHER;
}

/* A JSON string -> its text, new; NULL: no text (a lone surrogate). */
static json_t *decode(const char *text, size_t bytes)
{
    struct errmsg err;
    json_t *value = NULL;

    if (json_parse(text, bytes, TOOL_HELD_MAX, &value, &err) < 0)
        return NULL;
    return value;
}

static bool read_name(struct tool_parser *parser, const char *text, size_t bytes)
{
    json_t *value = decode(text, bytes);
    size_t count = json_string_length(value);
    bool fits =
        value && count > 0 && count <= TOOL_NAME_MAX && strlen(json_string_value(value)) == count;
    if (fits) {
        memcpy(parser->name, json_string_value(value), count + 1);
        parser->name_bytes = count;
    }
    json_decref(value);
    return fits;
}

/* Arguments in a string: must hold an object. */
static bool commit_string(struct tool_parser *parser, const char *text, size_t bytes)
{
    json_t *value = decode(text, bytes);
    json_t *object = value ? decode(json_string_value(value), json_string_length(value)) : NULL;
    bool fits = json_is_object(object) && tool_parser_commit(parser);

    if (fits)
        tool_parser_arguments(parser, json_string_value(value), json_string_length(value));
    json_decref(object);
    json_decref(value);
    return fits;
}

/* A whole value that stands in held: the call begins with it. */
static bool commit_value(struct tool_parser *parser, size_t from, size_t bytes)
{
    const char *text = parser->held.data + from;

    if (equals(text, bytes, "null")) {
        if (!tool_parser_commit(parser))
            return false;
        tool_parser_arguments(parser, "{}", 2);
        return true;
    }
    if (text[0] == '"')
        return commit_string(parser, text, bytes);
    if (text[0] != '{')
        return false;
    char *copy = mem_strndup(text, bytes); /* held is used up by the commit */
    bool fits = tool_parser_commit(parser);
    if (fits)
        tool_parser_arguments(parser, copy, bytes);
    mem_free(copy);
    return fits;
}

/* held[from..end) is the value of the current field. */
static bool value_over(struct tool_parser *parser, size_t end)
{
    struct call_object *object = &parser->object;
    size_t from = object->from;

    object->state = CALL_AFTER;
    if (object->field == CALL_NAME) {
        if (!read_name(parser, parser->held.data + from, end - from))
            return false;
        object->has_name = true;
        return !object->has_arguments ||
               commit_value(parser, object->arguments_from, object->arguments_bytes);
    }
    if (object->field == CALL_OTHER)
        return true;
    object->has_arguments = true;
    if (object->streaming) {
        object->streaming = false;
        return true;
    }
    object->arguments_from = from;
    object->arguments_bytes = end - from;
    return !object->has_name || commit_value(parser, from, end - from);
}

static enum tool_take in_value(struct tool_parser *parser, char c)
{
    struct call_object *object = &parser->object;
    enum json_scan_result result = json_scan_push(&object->scan, c);

    switch (result) {
    case JSON_SCAN_BAD:
        return TOOL_BAD;
    case JSON_SCAN_PAST:
        return value_over(parser, parser->held.bytes - 1) ? TOOL_PASS : TOOL_BAD;
    default:
        if (object->streaming) {
            tool_parser_arguments(parser, &c, 1);
            buffer_clear(&parser->held);
        }
        if (result == JSON_SCAN_DONE && !value_over(parser, parser->held.bytes))
            return TOOL_BAD;
        return TOOL_MORE;
    }
}

static enum tool_take begin_value(struct tool_parser *parser, char c)
{
    struct call_object *object = &parser->object;

    if (json_is_space(c))
        return TOOL_MORE;
    if (object->field == CALL_NAME && (object->has_name || c != '"'))
        return TOOL_BAD;
    if (object->field == CALL_ARGUMENTS && object->has_arguments)
        return TOOL_BAD;
    object->state = CALL_IN_VALUE;
    object->from = parser->held.bytes - 1;
    json_scan_init(&object->scan);
    if (object->field == CALL_ARGUMENTS && c == '{' && object->has_name) {
        if (!tool_parser_commit(parser))
            return TOOL_BAD;
        object->streaming = true;
    }
    return in_value(parser, c);
}

static enum tool_take in_key(struct tool_parser *parser, char c)
{
    struct call_object *object = &parser->object;
    enum json_scan_result result = json_scan_push(&object->scan, c);

    if (result == JSON_SCAN_BAD)
        return TOOL_BAD;
    if (result == JSON_SCAN_DONE) {
        object->field =
            field_of(parser->held.data + object->from, parser->held.bytes - object->from);
        object->state = CALL_COLON;
    }
    return TOOL_MORE;
}

static enum tool_take object_over(struct tool_parser *parser)
{
    const struct call_object *object = &parser->object;

    if (!object->has_name)
        return TOOL_BAD;
    if (object->has_arguments)
        return TOOL_NEXT;
    if (parser->options.format->strict || !tool_parser_commit(parser))
        return TOOL_BAD;
    tool_parser_arguments(parser, "{}", 2);
    return TOOL_NEXT;
}

static enum tool_take go(struct call_object *object, enum call_object_state next)
{
    object->state = next;
    return TOOL_MORE;
}

static enum tool_take take(struct tool_parser *parser, char c)
{
    struct call_object *object = &parser->object;
    bool first = object->state == CALL_FIRST_KEY;

    switch (object->state) {
    case CALL_OPEN:
        if (c != '{')
            return TOOL_BAD;
        tool_parser_hold(parser, 1);
        return go(object, CALL_FIRST_KEY);
    case CALL_FIRST_KEY:
    case CALL_NEXT_KEY:
        if (json_is_space(c))
            return TOOL_MORE;
        if (c != '"')
            return first && c == '}' ? object_over(parser) : TOOL_BAD;
        object->from = parser->held.bytes - 1;
        json_scan_init(&object->scan);
        object->state = CALL_IN_KEY;
        return in_key(parser, c);
    case CALL_IN_KEY:
        return in_key(parser, c);
    case CALL_COLON:
        if (json_is_space(c))
            return TOOL_MORE;
        return c == ':' ? go(object, CALL_VALUE) : TOOL_BAD;
    case CALL_VALUE:
        return begin_value(parser, c);
    case CALL_IN_VALUE:
        return in_value(parser, c);
    default:
        if (json_is_space(c))
            return TOOL_MORE;
        if (c == ',')
            return go(object, CALL_NEXT_KEY);
        return c == '}' ? object_over(parser) : TOOL_BAD;
    }
}

enum tool_take call_object_take(struct tool_parser *parser, char c)
{
    enum tool_take result = take(parser, c);

    if (result == TOOL_PASS) /* a number ended; the byte is for what comes behind it */
        result = take(parser, c);
    ASSERT(result != TOOL_PASS);
    return result;
}
