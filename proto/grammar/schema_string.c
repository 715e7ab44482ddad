/* schema_string.c - strings: any, of a length, of a pattern, of a format.
 *
 * A length counts characters as JSON Schema does: an escape is one. Patterns and formats are
 * regular expressions whose characters are written as JSON strings write them. A format stands for
 * texts that a strict reader takes (29 February only in leap years), not for all of its grammar. */
#include <string.h>

#include "proto/grammar/regex.h"
#include "proto/grammar/schema.h"

#define YEAR "(000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LEAP "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                             \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)" \
    "|02-(0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
#define TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define LABEL "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#define BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define HEX4 "[0-9a-fA-F]{1,4}"

static const struct {
    const char *name;
    const char *regex; /* NULL: says nothing about the text */
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration",
     "P(\\d{1,9}W|(\\d{1,9}Y)?(\\d{1,9}M)?\\d{1,9}D|T(\\d{1,9}H)?(\\d{1,9}M)?\\d{1,9}S)"},
    {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
    {"email", "[a-zA-Z0-9_+-]+(\\.[a-zA-Z0-9_+-]+)*@" LABEL "(\\." LABEL ")+"},
    {"hostname", LABEL "(\\." LABEL ")*"},
    {"ipv4", BYTE "(\\." BYTE "){3}"},
    {"ipv6", HEX4 "(:" HEX4 "){7}"},
    {"uri", "[a-zA-Z][a-zA-Z0-9+.-]*://[a-zA-Z0-9.-]+(:\\d{1,5})?"
            "(/([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})*)*"
            "(\\?([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2})*)?"
            "(#([a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2})*)?"},
    {"binary", NULL},
    {"byte", NULL},
    {"password", NULL},
};

static void quoted_regex(struct schema *schema, const char *regex, size_t bytes,
                         enum regex_match match, uint32_t from, uint32_t to)
{
    struct graph *graph = schema->graph;
    uint32_t begin = graph_node(graph), end = graph_node(graph);

    graph_add_bytes(graph, from, '"', '"', begin);
    regex_emit(regex, bytes, match, CHARSET_JSON, graph, begin, end);
    graph_add_bytes(graph, end, '"', '"', to);
}

static void emit_length(struct schema *schema, const json_t *node, uint32_t from, uint32_t to)
{
    struct graph *graph = schema->graph;
    uint32_t min = schema_count(schema, node, "minLength", 0);
    uint32_t max = schema_count(schema, node, "maxLength", GRAPH_NO_MAX);
    uint32_t begin = graph_node(graph), end = graph_node(graph);

    max = max > GRAMMAR_REPEAT_MAX ? GRAPH_NO_MAX : max; /* no answer is as long */
    if (min > GRAMMAR_REPEAT_MAX || min > max)
        schema_fail(schema, "'minLength' is more than %u", max < min ? max : GRAMMAR_REPEAT_MAX);
    if (schema->graph->failed)
        return;
    if (min == 0 && max == GRAPH_NO_MAX) {
        json_text_call(&schema->text, from, JSON_RULE_STRING, to);
        return;
    }
    graph_add_bytes(graph, from, '"', '"', begin);
    if (max == 0)
        graph_add_empty(graph, begin, end);
    else
        graph_add_count(graph, begin, json_text_rule(&schema->text, JSON_RULE_CHAR), min, max, end);
    graph_add_bytes(graph, end, '"', '"', to);
}

static void emit_format(struct schema *schema, const char *name, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(formats[i].name, name) != 0)
            continue;
        if (formats[i].regex)
            quoted_regex(schema, formats[i].regex, strlen(formats[i].regex), REGEX_WHOLE, from, to);
        else
            json_text_call(&schema->text, from, JSON_RULE_STRING, to);
        return;
    }
    schema_fail(schema,
                "'format' '%.40s' is not supported; date, time, date-time, duration, uuid, "
                "email, hostname, ipv4, ipv6 and uri are",
                name);
}

static bool has_length(struct schema *schema, const json_t *node)
{
    return schema_count(schema, node, "minLength", 0) > 0 ||
           schema_count(schema, node, "maxLength", GRAPH_NO_MAX) != GRAPH_NO_MAX;
}

void schema_string(struct schema *schema, const json_t *node, uint32_t from, uint32_t to)
{
    const json_t *pattern = json_object_get(node, "pattern");
    const json_t *format = json_object_get(node, "format");

    if ((pattern && !json_is_string(pattern)) || (format && !json_is_string(format))) {
        schema_fail(schema, "'pattern' and 'format' must be strings");
    } else if ((pattern && format) || ((pattern || format) && has_length(schema, node))) {
        schema_fail(schema, "only one of 'pattern', 'format' and 'minLength'/'maxLength' is "
                            "supported at a time");
    } else if (pattern) {
        quoted_regex(schema, json_string_value(pattern), json_string_length(pattern), REGEX_SEARCH,
                     from, to);
    } else if (format) {
        emit_format(schema, json_string_value(format), from, to);
    } else {
        emit_length(schema, node, from, to);
    }
}
