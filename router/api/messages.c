/* messages.c - one message at a time: role, content, tool calls.
 *
 * Why a copy: templates read content as a string and arguments as an object; clients send several
 * shapes of both. The copy is shallow, only what changes is new. */
#include "router/api/messages.h"

#include <errno.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/json.h"
#include "router/api/fields.h"

#define TOOL_NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
#define ARGUMENTS_BYTES_MAX ((size_t)8 << 20)

static const char *const roles[] = {"system", "user", "assistant", "tool", "developer", NULL};

static bool role_known(const char *role)
{
    for (size_t i = 0; roles[i]; i++) {
        if (strcmp(roles[i], role) == 0)
            return true;
    }
    return false;
}

static const char *param_of(char text[API_PARAM_MAX], size_t message, const char *rest)
{
    (void)snprintf(text, API_PARAM_MAX, "messages[%zu]%s", message, rest);
    return text;
}

/* Text of one part, appended after a newline unless it is the first. */
static int append_part(const json_t *part, size_t message, size_t index, struct buffer *text,
                       struct api_error *error)
{
    char param[API_PARAM_MAX], rest[40];
    const json_t *value = part;

    (void)snprintf(rest, sizeof(rest), ".content[%zu]", index);
    if (json_is_object(part)) {
        const char *type = json_string_value(json_object_get(part, "type"));
        value = json_object_get(part, "text");
        if (type && strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 &&
            strcmp(type, "output_text") != 0)
            return api_error_bad(error, param_of(param, message, rest),
                                 "%s is not of type 'text'; this model takes only text.", param);
    }
    if (!json_is_string(value))
        return api_error_bad(error, param_of(param, message, rest),
                             "%s must be an object with a string 'text'.", param);
    if (index > 0)
        buffer_append_char(text, '\n');
    buffer_append(text, json_string_value(value), json_string_length(value));
    return 0;
}

static int join_parts(const json_t *parts, size_t message, json_t **ret_content,
                      struct api_error *error)
{
    struct buffer text;
    int r = 0;

    buffer_init(&text, SIZE_MAX); /* bounded by the body */
    for (size_t i = 0; i < json_array_size(parts) && r == 0; i++)
        r = append_part(json_array_get(parts, i), message, i, &text, error);
    if (r == 0)
        *ret_content = json_stringn_nocheck(text.data, text.bytes);
    buffer_done(&text);
    return r;
}

/* *ret_content is new. */
static int read_content(const json_t *content, size_t message, const char *role, bool has_calls,
                        json_t **ret_content, struct api_error *error)
{
    char param[API_PARAM_MAX];

    if (json_is_string(content)) {
        *ret_content = json_incref((json_t *)content);
        return 0;
    }
    if (json_is_array(content))
        return join_parts(content, message, ret_content, error);
    if (content && !json_is_null(content))
        return api_error_bad(error, param_of(param, message, ".content"),
                             "%s must be a string or a list of text parts, not %s.", param,
                             fields_type_name(content));
    if (!has_calls && strcmp(role, "assistant") != 0)
        return api_error_bad(error, param_of(param, message, ".content"),
                             "%s is missing: a message of role '%s' needs one.", param, role);
    *ret_content = json_string_nocheck("");
    return 0;
}

/* Arguments as an object. *ret_arguments is new. */
static int read_arguments(const json_t *value, const char *where, json_t **ret_arguments,
                          struct api_error *error)
{
    struct errmsg err;
    json_t *parsed = NULL;

    if (json_is_object(value)) {
        *ret_arguments = json_incref((json_t *)value);
        return 0;
    }
    if (value && !json_is_null(value) && !json_is_string(value))
        return api_error_bad(error, where, "%s must be a JSON text or an object, not %s.", where,
                             fields_type_name(value));
    if (json_is_string(value) && json_string_length(value) > 0) {
        if (json_parse(json_string_value(value), json_string_length(value), ARGUMENTS_BYTES_MAX,
                       &parsed, &err) < 0)
            return api_error_bad(error, where, "%s is no JSON: %s.", where, err.text);
        if (!json_is_object(parsed) && !json_is_null(parsed)) {
            json_decref(parsed);
            return api_error_bad(error, where, "%s must hold a JSON object.", where);
        }
    }
    if (json_is_object(parsed)) {
        *ret_arguments = parsed;
        return 0;
    }
    json_decref(parsed);
    *ret_arguments = json_object();
    return 0;
}

static int read_call(const json_t *call, size_t message, size_t index, json_t *calls,
                     struct api_error *error)
{
    char param[API_PARAM_MAX], rest[64];
    const json_t *function = json_object_get(call, "function");
    json_t *arguments = NULL;

    (void)snprintf(rest, sizeof(rest), ".tool_calls[%zu].function.arguments", index);
    if (!json_is_string(json_object_get(function, "name")))
        return api_error_bad(error, param_of(param, message, ".tool_calls"),
                             "%s[%zu] must be an object with a 'function' that has a 'name'.",
                             param, index);
    int r = read_arguments(json_object_get(function, "arguments"), param_of(param, message, rest),
                           &arguments, error);
    if (r < 0)
        return r;
    json_t *call_copy = json_copy((json_t *)call);
    json_t *function_copy = json_copy((json_t *)function);
    (void)json_object_set_new(function_copy, "arguments", arguments);
    (void)json_object_set_new(call_copy, "function", function_copy);
    (void)json_array_append_new(calls, call_copy);
    return 0;
}

/* Replace the copy's tool_calls by ones with objects as arguments; drop an empty list. */
static int read_calls(json_t *copy, size_t message, bool *ret_has_calls, struct api_error *error)
{
    char param[API_PARAM_MAX];
    json_t *value = json_object_get(copy, "tool_calls");

    *ret_has_calls = false;
    if (!value)
        return 0;
    if (!json_is_array(value) && !json_is_null(value))
        return api_error_bad(error, param_of(param, message, ".tool_calls"),
                             "%s must be a list, not %s.", param, fields_type_name(value));
    if (json_array_size(value) == 0) {
        (void)json_object_del(copy, "tool_calls");
        return 0;
    }
    json_t *calls = json_array();
    int r = 0;
    for (size_t i = 0; i < json_array_size(value) && r == 0; i++)
        r = read_call(json_array_get(value, i), message, i, calls, error);
    if (r < 0) {
        json_decref(calls);
        return r;
    }
    (void)json_object_set_new(copy, "tool_calls", calls);
    *ret_has_calls = true;
    return 0;
}

static int read_message(const json_t *message, size_t index, json_t *messages,
                        struct api_error *error)
{
    char param[API_PARAM_MAX];
    json_t *content = NULL;
    bool has_calls;

    if (!json_is_object(message))
        return api_error_bad(error, param_of(param, index, ""), "%s must be an object, not %s.",
                             param, fields_type_name(message));
    const char *role = json_string_value(json_object_get(message, "role"));
    if (!role || !role_known(role))
        return api_error_bad(error, param_of(param, index, ".role"),
                             "%s must be one of system, user, assistant, tool, developer.", param);
    json_t *copy = json_copy((json_t *)message);
    int r = read_calls(copy, index, &has_calls, error);
    if (r == 0)
        r = read_content(json_object_get(message, "content"), index, role, has_calls, &content,
                         error);
    if (r < 0) {
        json_decref(copy);
        return r;
    }
    (void)json_object_set_new(copy, "content", content);
    (void)json_array_append_new(messages, copy);
    return 0;
}

int messages_read(const json_t *value, json_t **ret_messages, struct api_error *error)
{
    size_t count = json_array_size(value);

    if (!json_is_array(value))
        return api_error_bad(error, "messages", "'messages' must be a list, not %s.",
                             fields_type_name(value));
    if (count == 0)
        return api_error_bad(error, "messages", "'messages' is empty; at least 1 is needed.");
    if (count > MESSAGES_MAX)
        return api_error_bad(error, "messages", "'messages' has %zu entries; at most %u are taken.",
                             count, MESSAGES_MAX);
    json_t *messages = json_array();
    for (size_t i = 0; i < count; i++) {
        int r = read_message(json_array_get(value, i), i, messages, error);
        if (r < 0) {
            json_decref(messages);
            return r;
        }
    }
    *ret_messages = messages;
    return 0;
}

int messages_read_tools(const json_t *value, const json_t **ret_tools, struct api_error *error)
{
    size_t count = json_array_size(value);

    if (!json_is_array(value))
        return api_error_bad(error, "tools", "'tools' must be a list, not %s.",
                             fields_type_name(value));
    if (count > TOOLS_MAX)
        return api_error_bad(error, "tools", "'tools' has %zu entries; at most %u are taken.",
                             count, TOOLS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *tool = json_array_get(value, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        const json_t *function = json_object_get(tool, "function");
        char param[API_PARAM_MAX];
        (void)snprintf(param, sizeof(param), "tools[%zu]", i);
        if (!type || strcmp(type, "function") != 0)
            return api_error_bad(error, param, "%s must be an object of type 'function'.", param);
        const json_t *name = json_object_get(function, "name");
        const json_t *parameters = json_object_get(function, "parameters");
        size_t bytes = json_string_length(name);
        if (!json_is_string(name))
            return api_error_bad(error, param, "%s.function must have a string 'name'.", param);
        if (bytes == 0 || bytes > TOOL_NAME_BYTES_MAX)
            return api_error_bad(error, param,
                                 "%s.function.name has %zu bytes; it must have 1 to %u.", param,
                                 bytes, TOOL_NAME_BYTES_MAX);
        if (strspn(json_string_value(name), TOOL_NAME_LETTERS) != bytes)
            return api_error_bad(error, param,
                                 "%s.function.name must have letters (a-z, A-Z), digits, '_' and "
                                 "'-' only.",
                                 param);
        if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
            return api_error_bad(error, param, "%s.function.parameters must be an object, not %s.",
                                 param, fields_type_name(parameters));
    }
    *ret_tools = count > 0 ? value : NULL;
    return 0;
}
