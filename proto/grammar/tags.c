/* tags.c - structural tags: free text with parts that begin and end by fixed words and have a
 * grammar of their own between them. Two spellings:
 *
 *   {"structures": [{"begin": str, "schema": object, "end": str}, ...], "triggers": [str, ...]}
 *   {"format": FORMAT}     FORMAT, by its "type":
 *
 *     const_string  value                       json_schema  json_schema
 *     any_text                                  regex        pattern
 *     sequence      elements                    or           elements
 *     tag           begin, content: FORMAT, end: str or [str, ...]
 *     triggered_tags       triggers, tags, at_least_one, stop_after_first
 *     tags_with_separator  tags, separator, at_least_one, stop_after_first
 *
 * Where free text reaches a trigger, a tag whose `begin` starts with it must follow. at_least_one:
 * a tag stands at the front. The first spelling is triggered_tags; a tag may have a schema for
 * content in both. */
#include <errno.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/grammar/front.h"
#include "proto/grammar/regex.h"
#include "proto/grammar/until.h"

#define TAGS_MAX 1024u
#define FIELDS_MAX 5u

struct format {
    const char *type;
    void (*emit)(struct graph *graph, const json_t *format, uint32_t from, uint32_t to);
    const char *fields[FIELDS_MAX];
};

static void emit_format(struct graph *graph, const json_t *format, uint32_t from, uint32_t to);

static const char *text_of(struct graph *graph, const json_t *owner, const char *name,
                           size_t *ret_bytes)
{
    const json_t *value = json_object_get(owner, name);

    if (!json_is_string(value))
        (void)graph_fail(graph, -EINVAL, "structural tag: '%s' must be a string", name);
    *ret_bytes = json_string_length(value);
    return json_is_string(value) ? json_string_value(value) : "";
}

static bool flag_of(struct graph *graph, const json_t *owner, const char *name)
{
    const json_t *value = json_object_get(owner, name);

    if (value && !json_is_boolean(value))
        (void)graph_fail(graph, -EINVAL, "structural tag: '%s' must be true or false", name);
    return json_is_true(value);
}

static const json_t *list_of(struct graph *graph, const json_t *owner, const char *name)
{
    const json_t *list = json_object_get(owner, name);
    size_t count = json_array_size(list);

    if (count == 0 || count > TAGS_MAX)
        (void)graph_fail(graph, -EINVAL, "structural tag: '%s' must be a list of 1 to %u", name,
                         TAGS_MAX);
    return list;
}

/* A field that restricts and is not understood must not be dropped. */
static void check_fields(struct graph *graph, const json_t *object, const struct format *format)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)object, name, value)
    {
        size_t i = 0;
        while (i < FIELDS_MAX && format->fields[i] && strcmp(format->fields[i], name) != 0)
            i++;
        if ((i == FIELDS_MAX || !format->fields[i]) && strcmp(name, "type") != 0 &&
            !json_is_null(value))
            (void)graph_fail(graph, -EINVAL,
                             "structural tag: '%s' of a format of type '%s' is not supported", name,
                             format->type);
    }
}

/* ---- one part ---- */

static void emit_const(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    size_t bytes;
    const char *text = text_of(graph, format, "value", &bytes);

    graph_add_literal(graph, from, text, bytes, to);
}

static void emit_schema(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    const json_t *schema = json_object_get(format, "json_schema");

    if (!json_is_object(schema) && !json_is_boolean(schema))
        (void)graph_fail(graph, -EINVAL,
                         "structural tag: 'json_schema' must be an object, true or false");
    else
        schema_into(schema, graph, from, to);
}

static void emit_regex(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    size_t bytes;
    const char *text = text_of(graph, format, "pattern", &bytes);

    if (!graph->failed)
        regex_emit(text, bytes, REGEX_WHOLE, CHARSET_PLAIN, graph, from, to);
}

static void emit_text(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    (void)format;
    until_emit(graph, from, NULL, 0, NULL, to);
}

static void emit_sequence(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    const json_t *elements = list_of(graph, format, "elements");

    for (size_t i = 0; i < json_array_size(elements) && !graph->failed; i++) {
        uint32_t next = graph_node(graph);
        emit_format(graph, json_array_get(elements, i), from, next);
        from = next;
    }
    graph_add_empty(graph, from, to);
}

static void emit_or(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    const json_t *elements = list_of(graph, format, "elements");

    for (size_t i = 0; i < json_array_size(elements) && !graph->failed; i++) {
        uint32_t first = graph_node(graph), last = graph_node(graph);
        graph_add_empty(graph, from, first);
        emit_format(graph, json_array_get(elements, i), first, last);
        graph_add_empty(graph, last, to);
    }
}

/* ---- a tag ---- */

/* Of both spellings. */
static const struct format tag_fields = {"tag", NULL, {"begin", "content", "schema", "end"}};

/* The words that may end it, as a list of UNTIL_WORDS_MAX at most. Returns the count. */
static size_t ends_of(struct graph *graph, const json_t *tag, struct graph_word *ends)
{
    const json_t *end = json_object_get(tag, "end");
    size_t count = json_is_array(end) ? json_array_size(end) : 1;

    if (count == 0 || count > UNTIL_WORDS_MAX)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(end) ? json_array_get(end, i) : end;
        if (!json_is_string(one)) {
            count = 0;
            break;
        }
        ends[i] = (struct graph_word){json_string_value(one), json_string_length(one)};
    }
    if (count == 0)
        (void)graph_fail(graph, -EINVAL,
                         "structural tag: 'end' must be a string or a list of 1 to %u strings",
                         UNTIL_WORDS_MAX);
    return count;
}

/* What comes after the first `begun` bytes of 'begin'. Content of free text is over at its end. */
static void emit_rest(struct graph *graph, const json_t *tag, size_t begun, uint32_t from,
                      uint32_t to)
{
    struct graph_word ends[UNTIL_WORDS_MAX];
    uint32_t to_each[UNTIL_WORDS_MAX], inside = graph_node(graph);
    size_t bytes, count = ends_of(graph, tag, ends);
    const char *begin = text_of(graph, tag, "begin", &bytes);
    const json_t *content = json_object_get(tag, "content"),
                 *schema = json_object_get(tag, "schema");
    const char *type = json_string_value(json_object_get(content, "type"));

    if (!content && !json_is_object(schema) && !json_is_boolean(schema))
        (void)graph_fail(graph, -EINVAL, "structural tag: a tag needs 'content', or a 'schema'");
    check_fields(graph, tag, &tag_fields);
    if (graph->failed)
        return;
    graph_add_literal(graph, from, begin + begun, bytes - begun, inside);
    if (type && strcmp(type, "any_text") == 0) {
        for (size_t i = 0; i < count; i++)
            to_each[i] = to;
        until_emit(graph, inside, ends, count, to_each, GRAPH_NONE);
        return;
    }
    uint32_t full = graph_node(graph);
    if (content)
        emit_format(graph, content, inside, full);
    else
        schema_into(schema, graph, inside, full);
    for (size_t i = 0; i < count; i++)
        graph_add_literal(graph, full, ends[i].text, ends[i].bytes, to);
}

static void emit_tag(struct graph *graph, const json_t *tag, uint32_t from, uint32_t to)
{
    emit_rest(graph, tag, 0, from, to);
}

static void emit_each(struct graph *graph, const json_t *list, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < json_array_size(list) && !graph->failed; i++)
        emit_tag(graph, json_array_get(list, i), from, to);
}

/* ---- many tags ---- */

static bool begins_with(const char *begin, size_t bytes, const struct graph_word *trigger)
{
    return bytes >= trigger->bytes && memcmp(begin, trigger->text, trigger->bytes) == 0;
}

/* Every tag that goes on from `trigger`; none: the trigger would be a dead end. */
static void emit_triggered(struct graph *graph, const json_t *list,
                           const struct graph_word *trigger, uint32_t from, uint32_t to)
{
    bool any = false;

    for (size_t i = 0; i < json_array_size(list) && !graph->failed; i++) {
        size_t bytes;
        const json_t *tag = json_array_get(list, i);
        const char *begin = text_of(graph, tag, "begin", &bytes);
        if (!begins_with(begin, bytes, trigger))
            continue;
        emit_rest(graph, tag, trigger->bytes, from, to);
        any = true;
    }
    if (!any)
        (void)graph_fail(graph, -EINVAL, "structural tag: no tag begins with the trigger '%.*s'",
                         (int)trigger->bytes, trigger->text);
}

static void check_begins(struct graph *graph, const json_t *list, const struct graph_word *triggers,
                         size_t count)
{
    for (size_t i = 0; i < json_array_size(list) && !graph->failed; i++) {
        size_t bytes, t = 0;
        const char *begin = text_of(graph, json_array_get(list, i), "begin", &bytes);
        while (t < count && !begins_with(begin, bytes, &triggers[t]))
            t++;
        if (t == count)
            (void)graph_fail(graph, -EINVAL, "structural tag: tag %zu begins with no trigger", i);
    }
}

/* from -> text, tag, text, tag ... -> to; tags: what the list of them is called. */
static void emit_tagged_text(struct graph *graph, const json_t *owner, const char *tags,
                             uint32_t from, uint32_t to)
{
    const json_t *list = list_of(graph, owner, tags);
    const json_t *texts = list_of(graph, owner, "triggers");
    bool front = flag_of(graph, owner, "at_least_one");
    bool once = flag_of(graph, owner, "stop_after_first");
    struct graph_word triggers[UNTIL_WORDS_MAX];
    uint32_t reached[UNTIL_WORDS_MAX], text = graph_node(graph);
    size_t count = json_array_size(texts);

    if (count > UNTIL_WORDS_MAX)
        (void)graph_fail(graph, -E2BIG, "structural tag: at most %u triggers are taken",
                         UNTIL_WORDS_MAX);
    for (size_t i = 0; i < count && !graph->failed; i++) {
        const json_t *one = json_array_get(texts, i);
        if (!json_is_string(one))
            (void)graph_fail(graph, -EINVAL, "structural tag: a trigger must be a string");
        triggers[i] = (struct graph_word){json_string_value(one), json_string_length(one)};
        reached[i] = graph_node(graph);
    }
    if (graph->failed)
        return;
    check_begins(graph, list, triggers, count);
    until_emit(graph, text, triggers, count, reached, to);
    for (size_t i = 0; i < count && !graph->failed; i++)
        emit_triggered(graph, list, &triggers[i], reached[i], once ? to : text);
    if (front)
        emit_each(graph, list, from, once ? to : text);
    else
        graph_add_empty(graph, from, text);
}

static void emit_triggered_tags(struct graph *graph, const json_t *format, uint32_t from,
                                uint32_t to)
{
    emit_tagged_text(graph, format, "tags", from, to);
}

/* tag (separator tag)*, or nothing */
static void emit_separated(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    const json_t *list = list_of(graph, format, "tags");
    uint32_t before = graph_node(graph), after = graph_node(graph);
    size_t bytes;
    const char *separator = text_of(graph, format, "separator", &bytes);

    if (!flag_of(graph, format, "at_least_one"))
        graph_add_empty(graph, from, to);
    graph_add_empty(graph, from, before);
    emit_each(graph, list, before, after);
    graph_add_empty(graph, after, to);
    if (!flag_of(graph, format, "stop_after_first"))
        graph_add_literal(graph, after, separator, bytes, before);
}

/* ---- all of it ---- */

static const struct format formats[] = {
    {"const_string", emit_const, {"value"}},
    {"json_schema", emit_schema, {"json_schema"}},
    {"regex", emit_regex, {"pattern"}},
    {"any_text", emit_text, {NULL}},
    {"sequence", emit_sequence, {"elements"}},
    {"or", emit_or, {"elements"}},
    {"tag", emit_tag, {"begin", "content", "schema", "end"}},
    {"triggered_tags",
     emit_triggered_tags,
     {"triggers", "tags", "at_least_one", "stop_after_first"}},
    {"tags_with_separator",
     emit_separated,
     {"tags", "separator", "at_least_one", "stop_after_first"}},
};

static void emit_format(struct graph *graph, const json_t *format, uint32_t from, uint32_t to)
{
    const char *type = json_string_value(json_object_get(format, "type"));

    if (graph->failed)
        return;
    for (size_t i = 0; type && i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (strcmp(type, formats[i].type) == 0) {
            check_fields(graph, format, &formats[i]);
            formats[i].emit(graph, format, from, to);
            return;
        }
    }
    (void)graph_fail(graph, -EINVAL,
                     "structural tag: a format needs a 'type': const_string, json_schema, "
                     "any_text, regex, sequence, or, tag, triggered_tags or tags_with_separator");
}

void front_tags(const struct grammar_spec *spec, struct graph *graph, uint32_t root)
{
    json_t *json = front_parse_json(spec, graph, "structural tag");
    uint32_t from = graph_node(graph), to = graph_node(graph);

    if (json_object_get(json, "format") && json_object_get(json, "structures"))
        (void)graph_fail(
            graph, -EINVAL,
            "structural tag: 'format' and 'structures' are two spellings; one is taken");
    if (json_object_get(json, "format"))
        emit_format(graph, json_object_get(json, "format"), from, to);
    else
        emit_tagged_text(graph, json, "structures", from, to);
    graph_add_empty(graph, graph_rule_start(graph, root), from);
    graph_add_empty(graph, to, graph_rule_end(graph, root));
    json_decref(json);
}
