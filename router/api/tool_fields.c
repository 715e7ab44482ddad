/* tool_fields.c - tool_choice. */
#include "router/api/tool_fields.h"

#include <errno.h>
#include <string.h>

static int refuse_shape(struct field_reader *reader, const struct field *field)
{
    return api_error_bad(reader->error, field->name,
                         "'tool_choice' must be none, auto, required or {\"type\": \"function\", "
                         "\"function\": {\"name\": ...}}.");
}

int tool_fields_read_choice(struct field_reader *reader, const struct field *field,
                            const json_t *value)
{
    static const char *const words[] = {
        [API_TOOLS_NONE] = "none", [API_TOOLS_AUTO] = "auto", [API_TOOLS_REQUIRED] = "required"};
    struct api_request *request = reader->out;
    const char *type = json_string_value(json_object_get(value, "type"));
    const json_t *name = json_object_get(json_object_get(value, "function"), "name");

    request->tool_choice_given = true;
    for (size_t i = 0; json_is_string(value) && i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(json_string_value(value), words[i]) == 0) {
            request->tool_choice = (enum api_tool_choice)i;
            return 0;
        }
    }
    if (!type || strcmp(type, "function") != 0 || !json_is_string(name))
        return refuse_shape(reader, field);
    request->tool_choice = API_TOOLS_NAMED;
    request->tool_name = name;
    return 0;
}

int tool_fields_refuse_old(struct field_reader *reader, const struct field *field,
                           const json_t *value)
{
    if (json_is_array(value) && json_array_size(value) == 0)
        return 0; /* says nothing */
    return api_error_set(reader->error, 400, "unsupported_parameter", field->name,
                         "'%s' is not supported; use '%s'.", field->name,
                         strcmp(field->name, "functions") == 0 ? "tools" : "tool_choice");
}

static bool has_tool(const struct api_request *request)
{
    for (size_t i = 0; i < json_array_size(request->tools); i++) {
        const json_t *function = json_object_get(json_array_get(request->tools, i), "function");
        if (json_equal(json_object_get(function, "name"), request->tool_name))
            return true;
    }
    return false;
}

int tool_fields_check(struct api_request *request, struct api_error *error)
{
    if (!request->tool_choice_given)
        request->tool_choice = API_TOOLS_AUTO;
    if (!request->tools && request->tool_choice > API_TOOLS_AUTO)
        return api_error_bad(error, "tool_choice",
                             "'tool_choice' needs a call, but there are no 'tools'.");
    if (!request->tools)
        request->tool_choice = API_TOOLS_NONE;
    if (request->tool_choice == API_TOOLS_NAMED && !has_tool(request))
        return api_error_bad(error, "tool_choice",
                             "'tool_choice' names the function '%.100s', which is not in 'tools'.",
                             json_string_value(request->tool_name));
    if (request->tool_choice > API_TOOLS_AUTO && request->grammar.kind != GRAMMAR_NONE &&
        strcmp(request->grammar_param, "response_format") != 0)
        return api_error_bad(error, request->grammar_param,
                             "'%s' and a 'tool_choice' that needs a call exclude each other: an "
                             "answer is either of that form or a call.",
                             request->grammar_param);
    return 0;
}
