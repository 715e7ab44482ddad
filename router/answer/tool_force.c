/* tool_force.c - one alternative per tool: what comes before the arguments, their schema, what
 * comes behind. A tool without parameters takes none: {"type": "object", "properties": {}}. */
#include "router/answer/tool_force.h"

#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"

#define BEGIN_BYTES_MAX 4096u

const struct tool_format *tool_force_format(const struct tool_format *format,
                                            bool markers_are_control)
{
    bool marked = format && format->force.marker;

    if (!format || !format->force.begin || (marked && markers_are_control))
        return tool_format_plain();
    return format;
}

static void write_string(struct buffer *out, const char *text)
{
    json_append_string(out, text, strlen(text));
}

static void write_alternative(const struct tool_force *force, const json_t *function,
                              struct buffer *out)
{
    const json_t *name = json_object_get(function, "name");
    const json_t *parameters = json_object_get(function, "parameters");
    struct buffer begin;

    buffer_init(&begin, BEGIN_BYTES_MAX); /* names are short */
    buffer_append_text(&begin, force->begin);
    if (force->plain_name)
        buffer_append(&begin, json_string_value(name), json_string_length(name));
    else
        json_append_string(&begin, json_string_value(name), json_string_length(name));
    buffer_append_text(&begin, force->middle);
    ASSERT(buffer_finish(&begin) == 0);
    buffer_append_text(out, "{\"begin\":");
    json_append_string(out, begin.data, begin.bytes);
    buffer_append_text(out, ",\"schema\":");
    if (json_is_object(parameters))
        json_append_value(out, parameters);
    else
        buffer_append_text(out, "{\"type\":\"object\",\"properties\":{}}");
    buffer_append_text(out, ",\"end\":");
    write_string(out, force->end);
    buffer_append_char(out, '}');
    buffer_done(&begin);
}

void tool_force_write(const struct tool_format *format, const json_t *tools, const char *name,
                      uint32_t calls_max, struct buffer *out)
{
    bool first = true;

    ASSERT(format->force.begin && calls_max > 0);
    buffer_append_text(out, "{\"alternatives\":[");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (name && strcmp(json_string_value(json_object_get(function, "name")), name) != 0)
            continue;
        if (!first)
            buffer_append_char(out, ',');
        write_alternative(&format->force, function, out);
        first = false;
    }
    ASSERT(!first);
    buffer_printf(out, "],\"min\":1,\"max\":%u,\"separator\":", calls_max);
    write_string(out, format->force.separator);
    buffer_append_char(out, '}');
}
