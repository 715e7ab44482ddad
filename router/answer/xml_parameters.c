/* xml_parameters.c - <parameter=a>text</parameter>...</function> -> {"a": "text"}.
 *
 *   BETWEEN --<--> TAG --parameter=--> KEY -->--> VALUE_START --> VALUE --</parameter>--> BETWEEN
 *                   +--/function>--> done
 *
 * The tool's schema says what a text is: a string is escaped and sent as it comes; of anything else
 * the whole text is needed, which then is JSON as it stands, or a string after all. One line feed
 * behind the tag and one before the end tag belong to the tags. Held: of a string at most what may
 * become its end; a value of another type that the answer breaks off in is dropped. */
#include <string.h>
#include <strings.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "router/answer/tool_parser_private.h"

#define TAG_PARAMETER "<parameter="
#define TAG_FUNCTION_END "</function>"
#define TAG_PARAMETER_END "</parameter>"

static void emit(struct tool_parser *parser, const char *text)
{
    tool_parser_arguments(parser, text, strlen(text));
}

/* As the inside of a JSON string. */
static void emit_escaped(struct tool_parser *parser, const char *text, size_t bytes)
{
    static const char hex[] = "0123456789abcdef";

    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        char code[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], '\0'};
        if (c == '\n')
            emit(parser, "\\n");
        else if (c == '"' || c == '\\')
            tool_parser_arguments(parser, (const char[]){'\\', text[i]}, 2);
        else if (c < 0x20)
            emit(parser, code);
        else
            tool_parser_arguments(parser, &text[i], 1);
    }
}

static void emit_key(struct tool_parser *parser)
{
    emit(parser, parser->xml.count++ == 0 ? "\"" : ", \"");
    emit_escaped(parser, parser->xml.key, parser->xml.key_bytes);
    emit(parser, "\": ");
}

static void emit_string(struct tool_parser *parser, const char *text, size_t bytes)
{
    emit(parser, "\"");
    emit_escaped(parser, text, bytes);
    emit(parser, "\"");
}

/* ---- types ---- */

static bool is_type(const json_t *value, const char *type)
{
    const char *text = json_string_value(value);
    return text && strcmp(text, type) == 0;
}

/* Of a list of type names, or of schemas with a type each. */
static enum xml_type type_of_list(const json_t *list)
{
    bool string = false, null = false;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *type = json_is_object(item) ? json_object_get(item, "type") : item;
        string = string || is_type(type, "string");
        null = null || is_type(type, "null");
    }
    if (!string)
        return XML_JSON;
    return null ? XML_NULLABLE : XML_STRING;
}

static enum xml_type type_of(const struct tool_parser *parser)
{
    const json_t *function = tools_find(parser->options.tools, parser->name, parser->name_bytes);
    const json_t *properties =
        json_object_get(json_object_get(function, "parameters"), "properties");
    const json_t *schema = json_object_getn(properties, parser->xml.key, parser->xml.key_bytes);
    const json_t *type = json_object_get(schema, "type");
    const json_t *any = json_object_get(schema, "anyOf");
    const json_t *values = json_object_get(schema, "enum");

    if (!any)
        any = json_object_get(schema, "oneOf");
    if (json_is_string(type))
        return is_type(type, "string") ? XML_STRING : XML_JSON;
    if (json_is_array(type) || json_is_array(any))
        return type_of_list(json_is_array(type) ? type : any);
    if (json_is_array(values) && !json_is_string(json_array_get(values, 0)))
        return XML_JSON;
    return XML_STRING;
}

static void emit_typed(struct tool_parser *parser, const char *text, size_t bytes)
{
    while (bytes > 0 && json_is_space(text[0]))
        text++, bytes--;
    while (bytes > 0 && json_is_space(text[bytes - 1]))
        bytes--;
    if (bytes == 4 && strncasecmp(text, "null", 4) == 0)
        emit(parser, "null");
    else if (parser->xml.type == XML_NULLABLE)
        emit_string(parser, text, bytes);
    else if (bytes == 4 && strncasecmp(text, "true", 4) == 0)
        emit(parser, "true");
    else if (bytes == 5 && strncasecmp(text, "false", 5) == 0)
        emit(parser, "false");
    else if (json_scan_whole(text, bytes))
        tool_parser_arguments(parser, text, bytes);
    else
        emit_string(parser, text, bytes);
}

/* ---- states ---- */

static bool begin_call(struct tool_parser *parser)
{
    if (!parser->xml.committed) {
        if (!tool_parser_commit(parser))
            return false;
        emit(parser, "{");
        parser->xml.committed = true;
    }
    buffer_clear(&parser->held);
    parser->in_call = false;
    return true;
}

static enum tool_take in_tag(struct tool_parser *parser)
{
    struct xml_parameters *xml = &parser->xml;
    const char *tag = parser->held.data + xml->from;
    size_t bytes = parser->held.bytes - xml->from;

    if (bytes <= sizeof(TAG_PARAMETER) - 1 && memcmp(tag, TAG_PARAMETER, bytes) == 0) {
        if (bytes == sizeof(TAG_PARAMETER) - 1) {
            xml->state = XML_KEY;
            xml->key_bytes = 0;
        }
        return TOOL_MORE;
    }
    if (bytes > sizeof(TAG_FUNCTION_END) - 1 || memcmp(tag, TAG_FUNCTION_END, bytes) != 0)
        return TOOL_BAD;
    if (bytes < sizeof(TAG_FUNCTION_END) - 1)
        return TOOL_MORE;
    if (!begin_call(parser))
        return TOOL_BAD;
    emit(parser, "}");
    return TOOL_NEXT;
}

static enum tool_take in_key(struct tool_parser *parser, char c)
{
    struct xml_parameters *xml = &parser->xml;

    if (c != '>') {
        if ((unsigned char)c < ' ' || xml->key_bytes == TOOL_NAME_MAX)
            return TOOL_BAD;
        xml->key[xml->key_bytes++] = c;
        return TOOL_MORE;
    }
    if (xml->key_bytes == 0 || !begin_call(parser))
        return TOOL_BAD;
    xml->type = type_of(parser);
    xml->state = XML_VALUE_START;
    xml->matched = 0;
    if (xml->type == XML_STRING) {
        emit_key(parser);
        emit(parser, "\"");
    }
    return TOOL_MORE;
}

static enum tool_take value_over(struct tool_parser *parser)
{
    struct xml_parameters *xml = &parser->xml;
    size_t bytes = parser->held.bytes - (sizeof(TAG_PARAMETER_END) - 1);

    if (bytes > 0 && parser->held.data[bytes - 1] == '\n')
        bytes--;
    if (xml->type == XML_STRING) {
        ASSERT(bytes == 0);
        emit(parser, "\"");
    } else {
        emit_key(parser);
        emit_typed(parser, parser->held.data, bytes);
    }
    buffer_clear(&parser->held);
    xml->state = XML_BETWEEN;
    return TOOL_MORE;
}

static enum tool_take in_value(struct tool_parser *parser, char c)
{
    struct xml_parameters *xml = &parser->xml;
    size_t before = parser->held.bytes - 1;

    if (c == TAG_PARAMETER_END[xml->matched]) {
        if (++xml->matched == sizeof(TAG_PARAMETER_END) - 1)
            return value_over(parser);
        return TOOL_MORE;
    }
    bool goes_on = c == '<' || (c == '\n' && xml->type == XML_STRING);
    if (xml->type == XML_STRING) { /* what was held is no end; the byte may begin one */
        emit_escaped(parser, parser->held.data, goes_on ? before : before + 1);
        buffer_consume(&parser->held, goes_on ? before : before + 1);
    }
    xml->matched = c == '<';
    return TOOL_MORE;
}

enum tool_take xml_parameters_take(struct tool_parser *parser, char c)
{
    struct xml_parameters *xml = &parser->xml;

    switch (xml->state) {
    case XML_BETWEEN:
        if (c != '<')
            return json_is_space(c) ? TOOL_MORE : TOOL_BAD;
        xml->from = parser->held.bytes - 1;
        xml->state = XML_TAG;
        tool_parser_hold(parser, 1);
        return TOOL_MORE;
    case XML_TAG:
        return in_tag(parser);
    case XML_KEY:
        return in_key(parser, c);
    case XML_VALUE_START:
        xml->state = XML_VALUE;
        if (c != '\n')
            return in_value(parser, c);
        buffer_clear(&parser->held);
        return TOOL_MORE;
    default:
        return in_value(parser, c);
    }
}
