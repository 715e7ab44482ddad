/* tool_force.c: the grammar's text, and that what it describes is read as calls. */
#include <cmocka.h>

#include <string.h>

#include "proto/base/json.h"
#include "router/answer/tool_force.h"
#include "router/answer/tool_parser.h"

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"p\\\"q\"}}]";

static void expect(const char *format, bool control, const char *name, uint32_t max,
                   const char *want)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    struct buffer out;

    buffer_init(&out, 1 << 16);
    tool_force_write(tool_force_format(format ? tool_format_find(format) : NULL, control), tools,
                     name, max, &out);
    assert_int_equal(buffer_finish(&out), 0);
    assert_string_equal(out.data, want);
    buffer_done(&out);
    json_decref(tools);
}

#define GET_SCHEMA "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}}}"
#define NO_SCHEMA "{\"type\":\"object\",\"properties\":{}}"

static void test_one_alternative_per_tool(void **state)
{
    (void)state;
    expect("hermes", false, NULL, 16,
           "{\"alternatives\":[{\"begin\":\"<tool_call>\\n{\\\"name\\\": \\\"get\\\", "
           "\\\"arguments\\\": \",\"schema\":" GET_SCHEMA ",\"end\":\"}\\n</tool_call>\"},"
           "{\"begin\":\"<tool_call>\\n{\\\"name\\\": \\\"p\\\\\\\"q\\\", "
           "\\\"arguments\\\": \",\"schema\":" NO_SCHEMA ",\"end\":\"}\\n</tool_call>\"}],"
           "\"min\":1,\"max\":16,\"separator\":\"\\n\"}");
}

static void test_a_name_leaves_one(void **state)
{
    (void)state;
    expect("llama3_json", true, "get", 1,
           "{\"alternatives\":[{\"begin\":\"{\\\"name\\\": \\\"get\\\", \\\"parameters\\\": \","
           "\"schema\":" GET_SCHEMA ",\"end\":\"}\"}],\"min\":1,\"max\":1,\"separator\":\"; \"}");
    expect("mistral", false, "get", 1,
           "{\"alternatives\":[{\"begin\":\"[TOOL_CALLS]get[ARGS]\",\"schema\":" GET_SCHEMA
           ",\"end\":\"\"}],\"min\":1,\"max\":1,\"separator\":\"\"}");
}

static void test_bare_json_where_the_own_format_cannot_be_forced(void **state)
{
    (void)state;
    assert_ptr_equal(tool_force_format(tool_format_find("mistral"), true), tool_format_plain());
    assert_ptr_equal(tool_force_format(tool_format_find("qwen3_coder"), false),
                     tool_format_plain());
    assert_ptr_equal(tool_force_format(NULL, false), tool_format_plain());
    assert_ptr_equal(tool_force_format(tool_format_find("hermes"), false),
                     tool_format_find("hermes"));
    expect(NULL, false, "get", 1,
           "{\"alternatives\":[{\"begin\":\"{\\\"name\\\": \\\"get\\\", \\\"arguments\\\": \","
           "\"schema\":" GET_SCHEMA ",\"end\":\"}\"}],\"min\":1,\"max\":1,\"separator\":\"; \"}");
}

/* A text of the grammar: every alternative once, with {} as its value. */
static void write_sample(const json_t *spec, struct buffer *out)
{
    const json_t *list = json_object_get(spec, "alternatives");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (i > 0)
            buffer_append_text(out, json_string_value(json_object_get(spec, "separator")));
        buffer_append_text(out, json_string_value(json_object_get(item, "begin")));
        buffer_append_text(out, "{}");
        buffer_append_text(out, json_string_value(json_object_get(item, "end")));
    }
}

static void test_what_is_forced_is_read_as_calls(void **state)
{
    static const char *const formats[] = {"hermes", "llama3_json", "json", "mistral",
                                          "functionary"};
    static const char two[] = "[{\"function\": {\"name\": \"f-1\"}}, {\"function\": {\"name\": "
                              "\"g.h\"}}]";
    json_t *tools = json_loads(two, 0, NULL);
    (void)state;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        struct buffer text, sample, content;
        struct tool_calls calls;
        const struct tool_format *format = tool_format_find(formats[i]);
        const struct tool_parser_options options = {
            .format = format, .tools = tools, .content = &content, .calls = &calls};
        buffer_init(&text, 1 << 16);
        buffer_init(&sample, 1 << 16);
        buffer_init(&content, 1 << 16);
        tool_calls_init(&calls, 4, false, 1 << 16);
        tool_force_write(format, tools, NULL, 4, &text);
        json_t *spec = json_loads(text.data, 0, NULL);
        write_sample(spec, &sample);
        struct tool_parser *parser = tool_parser_new(&options);
        tool_parser_push(parser, sample.data, sample.bytes);
        tool_parser_finish(parser);
        print_message("%s: %s\n", formats[i], sample.data);
        assert_string_equal(content.data, "");
        assert_int_equal(calls.count, 2);
        assert_string_equal(calls.list[0].name, "f-1");
        assert_string_equal(calls.list[1].name, "g.h");
        assert_string_equal(calls.arguments.data, "{}{}");
        tool_parser_free(parser);
        json_decref(spec);
        tool_calls_done(&calls);
        buffer_done(&content);
        buffer_done(&sample);
        buffer_done(&text);
    }
    json_decref(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_alternative_per_tool),
        cmocka_unit_test(test_a_name_leaves_one),
        cmocka_unit_test(test_bare_json_where_the_own_format_cannot_be_forced),
        cmocka_unit_test(test_what_is_forced_is_read_as_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
