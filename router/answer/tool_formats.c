/* tool_formats.c - which format: by name, by template, by vocabulary.
 *
 * Order counts for templates: XML formats share their marker with Hermes, and Functionary's
 * template mentions Llama's tag. */
#include "router/answer/tool_format.h"

#include <string.h>

static const struct tool_format *const *const families[] = {tool_formats_xml, tool_formats_named,
                                                            tool_formats_json};
#define FAMILIES (sizeof(families) / sizeof(families[0]))

const struct tool_format *tool_format_at(size_t index)
{
    for (size_t f = 0; f < FAMILIES; f++) {
        for (size_t i = 0; families[f][i]; i++) {
            if (index-- == 0)
                return families[f][i];
        }
    }
    return NULL;
}

const struct tool_format *tool_format_find(const char *name)
{
    static const char *const aliases[][2] = {{"qwen3_xml", "qwen3_coder"},
                                             {"llama4_json", "llama3_json"},
                                             {"deepseek_v31", "deepseek_v3"}};
    const struct tool_format *format;

    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
        if (strcmp(aliases[i][0], name) == 0)
            name = aliases[i][1];
    }
    for (size_t i = 0; (format = tool_format_at(i)) != NULL; i++) {
        if (strcmp(format->name, name) == 0)
            return format;
    }
    return NULL;
}

static bool mentions(const char *source, size_t bytes, const char *const *needles)
{
    for (size_t i = 0; needles[i]; i++) {
        if (!memmem(source, bytes, needles[i], strlen(needles[i])))
            return false;
    }
    return needles[0] != NULL;
}

const struct tool_format *tool_format_of_template(const char *source, size_t bytes)
{
    const struct tool_format *format;

    for (size_t i = 0; (format = tool_format_at(i)) != NULL; i++) {
        if (mentions(source, bytes, format->needles))
            return format;
    }
    return NULL;
}

const struct tool_format *tool_format_by_token(size_t index, const char **ret_token)
{
    const struct tool_format *format;

    for (size_t i = 0; (format = tool_format_at(i)) != NULL; i++) {
        if (format->token && index-- == 0) {
            *ret_token = format->token;
            return format;
        }
    }
    return NULL;
}
