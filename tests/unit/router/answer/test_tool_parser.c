/* tool_parser.c and the formats: content and calls, however the text is cut.
 *
 * A row's calls are written name(arguments), one behind the other. */
#include <cmocka.h>

#include <string.h>

#include "proto/base/json.h"
#include "router/answer/tool_parser.h"

#define CALLS_BEGIN "<\uff5ctool\u2581calls\u2581begin\uff5c>"
#define CALL_BEGIN "<\uff5ctool\u2581call\u2581begin\uff5c>"
#define SEP "<\uff5ctool\u2581sep\uff5c>"
#define CALL_END "<\uff5ctool\u2581call\u2581end\uff5c>"
#define CALLS_END "<\uff5ctool\u2581calls\u2581end\uff5c>"

struct row {
    const char *text, *content, *calls;
};

static const struct row hermes[] = {
    {"hi", "hi", ""},
    {" hi\n", " hi\n", ""},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "",
     "f({\"a\": 1})"},
    {"I look.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n", "I look.", "f({})"},
    {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n"
     "{\"name\": \"g\", \"arguments\": {\"b\": [1, {\"c\": 2}]}}\n</tool_call>",
     "", "f({\"a\": 1})g({\"b\": [1, {\"c\": 2}]})"},
    {"<tool_call>{\"arguments\": {\"a\": \"}{\\\"\\u00e9\"}, \"name\": \"f\"}</tool_call>", "",
     "f({\"a\": \"}{\\\"\\u00e9\"})"},
    {"<tool_call>{\"name\": \"\\u0066_1\", \"id\": 7, \"arguments\": {}, \"x\": "
     "[null]}</tool_call>",
     "", "f_1({})"},
    {"<tool_call>{\"name\": \"f\"}</tool_call>", "", "f({})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "", "f({})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "",
     "f({\"a\": 1})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"t\": \"</tool_call>\"}}</tool_call>", "",
     "f({\"t\": \"</tool_call>\"})"},
    /* text behind a call */
    {"a <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> b", "a b", "f({})"},
    {"a<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\nb <tool_call>{\"name\":\"g\","
     "\"arguments\":{}}</tool_call>",
     "a\nb", "f({})g({})"},
    /* broken off */
    {"<tool_ca", "<tool_ca", ""},
    {"x <tool_call>{\"name\": \"f", "x <tool_call>{\"name\": \"f", ""},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"Lon", "", "f({\"a\": \"Lon)"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}", "", "f({\"a\": 1})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_c", "", "f({\"a\": 1})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {}}\n<tool_call>{\"name\": \"g\", \"arguments\": "
     "{}}</tool_call>",
     "", "f({})g({})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>{\"na",
     "\n<tool_call>{\"na", "f({})"},
    /* no calls after all */
    {"<tool_call>f(a=1)</tool_call>", "<tool_call>f(a=1)</tool_call>", ""},
    {"<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>",
     ""},
    {"<tool_call>{\"name\": 5, \"arguments\": {}}", "<tool_call>{\"name\": 5, \"arguments\": {}}",
     ""},
    {"<tool_call>{\"name\": \"\", \"arguments\": {}}",
     "<tool_call>{\"name\": \"\", \"arguments\": {}}", ""},
    {"<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>", ""},
    {"<tool_call>{\"name\": \"f\", \"arguments\": 12}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": 12}</tool_call>", ""},
    {"<tool_call><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_call>",
     "f({})"},
    {"<tool_<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_", "f({})"},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": tru}}</tool_call>!", "}}</tool_call>!",
     "f({\"a\": tru)"},
    {"1 < 2 <tool> \xe4\xbd\xa0", "1 < 2 <tool> \xe4\xbd\xa0", ""},
};

static const struct row llama3[] = {
    {"hi {\"name\": \"f\", \"parameters\": {}}", "hi {\"name\": \"f\", \"parameters\": {}}", ""},
    {"{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}", "", "f({\"a\": \"x\"})"},
    {"\n{\"name\": \"f\", \"arguments\": {}}\n", "", "f({})"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "", "f({})"},
    {"ok <|python_tag|>{\"name\": \"f\", \"parameters\": {}}", "ok", "f({})"},
    {"{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {\"b\": {}}}", "",
     "f({})g({\"b\": {}})"},
    {"<|python_tag|>{\"name\": \"f\", \"parameters\": {}};{\"name\": \"g\", \"parameters\": {}}",
     "", "f({})g({})"},
    {"{\"name\": \"f\", \"parameters\": {}}\n{\"name\": \"g\", \"parameters\": {}}", "",
     "f({})g({})"},
    {"{\"parameters\": {\"a\": \"\\\"}\"}, \"name\": \"f\"}", "", "f({\"a\": \"\\\"}\"})"},
    {"{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "", "f({})"},
    /* JSON that is no call of ours */
    {"{\"name\": \"John\", \"parameters\": {}}", "{\"name\": \"John\", \"parameters\": {}}", ""},
    {"{\"name\": \"f\"}", "{\"name\": \"f\"}", ""},
    {"{\"age\": 3}", "{\"age\": 3}", ""},
    {"{}", "{}", ""},
    {"{ not json", "{ not json", ""},
    {"{\"a\": 1} {\"name\": \"f\", \"parameters\": {}}",
     "{\"a\": 1} {\"name\": \"f\", \"parameters\": {}}", ""},
    {"{\"name\": \"f\", \"parameters\": {}}; and so on", "and so on", "f({})"},
    {"{\"name\": \"f\", \"parameters\": {}} {\"x\": 1}", "{\"x\": 1}", "f({})"},
    {"<|python_tag|>brave.call(q=\"x\")", "<|python_tag|>brave.call(q=\"x\")", ""},
    {"{\"name\": \"f\", \"parameters\": {\"a\": [1", "", "f({\"a\": [1)"},
    {"{\"name\": \"f\", \"para", "{\"name\": \"f\", \"para", ""},
    {"{\"name\": \"f\", \"parameters\": {}};", "", "f({})"},
};

static const struct row mistral[] = {
    {"hi", "hi", ""},
    {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "", "f({\"a\": 1})"},
    {"[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
     "{\"b\": \"]\"}}]",
     "", "f({})g({\"b\": \"]\"})"},
    {"[TOOL_CALLS]f[ARGS]{\"a\": 1}", "", "f({\"a\": 1})"},
    {"[TOOL_CALLS]f[CALL_ID]abcdef123[ARGS]{\"a\": 1}", "", "f({\"a\": 1})"},
    {"[TOOL_CALLS]f{\"a\": 1}", "", "f({\"a\": 1})"},
    {"ok [TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{\"b\": \"[TOOL_CALLS]\"}", "ok",
     "f({})g({\"b\": \"[TOOL_CALLS]\"})"},
    {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}] ok", " ok", "f({})"},
    {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}", "", "f({})"},
    {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"\\u4f60\"", "",
     "f({\"a\": \"\\u4f60\")"},
    {"[TOOL_CALLS] [{\"name\": \"f\"", "[TOOL_CALLS] [{\"name\": \"f\"", ""},
    {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\"", "{\"name\"", "f({})"},
    {"[TOOL_CALLS] none", "[TOOL_CALLS] none", ""},
    {"[TOOL_CALLS]f[ARGS]no", "[TOOL_CALLS]f[ARGS]no", ""},
    {"[TOOL_CALLS]f[ARGS", "[TOOL_CALLS]f[ARGS", ""},
    {"[TOOL_CALLS] []", "[TOOL_CALLS] []", ""},
    {"[TOOL_[TOOL_CALLS]f[ARGS]{}", "[TOOL_", "f({})"},
    {"[1, 2] [THINK]", "[1, 2] [THINK]", ""},
};

static const struct row deepseek[] = {
    {"hi", "hi", ""},
    {CALLS_BEGIN CALL_BEGIN "f" SEP "{\"a\": 1}" CALL_END CALLS_END, "", "f({\"a\": 1})"},
    {"ok" CALLS_BEGIN CALL_BEGIN "f" SEP "{}" CALL_END CALL_BEGIN "g" SEP
     "{\"b\": 2}" CALL_END CALLS_END,
     "ok", "f({})g({\"b\": 2})"},
    {CALLS_BEGIN CALL_BEGIN "function" SEP "f\n```json\n{\"a\": 1}\n```" CALL_END CALLS_END, "",
     "f({\"a\": 1})"},
    {CALLS_BEGIN CALL_BEGIN "function" SEP "f\n```json\n{}\n```" CALL_END "\n" CALL_BEGIN
                            "function" SEP "g\n```json\n{\"b\": {}}\n```" CALL_END CALLS_END " x",
     " x", "f({})g({\"b\": {}})"},
    {CALLS_BEGIN CALL_BEGIN "f" SEP "{\"a\": \"<\uff5ctool", "", "f({\"a\": \"<\uff5ctool)"},
    {CALLS_BEGIN CALL_BEGIN "f" SEP "{}" CALL_END, "", "f({})"},
    {CALLS_BEGIN CALL_BEGIN "f", CALLS_BEGIN CALL_BEGIN "f", ""},
    {CALLS_BEGIN "f()", CALLS_BEGIN "f()", ""},
    {CALLS_BEGIN CALL_BEGIN "function" SEP "f\n{}", CALLS_BEGIN CALL_BEGIN "function" SEP "f\n{}",
     ""},
    {CALLS_BEGIN CALL_BEGIN "f" SEP "{}" CALL_END CALL_BEGIN "g" SEP "no" CALLS_END,
     "g" SEP "no" CALLS_END, "f({})"},
    {"<\uff5ctool", "<\uff5ctool", ""},
};

static const struct row functionary[] = {
    {"hi <b>", "hi <b>", ""},
    {"<function=f>{\"a\": 1}</function>", "", "f({\"a\": 1})"},
    {"ok\n<function=f>{}</function><function=g>{\"b\": \"</function>\"}</function>", "ok",
     "f({})g({\"b\": \"</function>\"})"},
    {"<function=f>{\"a\": 1}", "", "f({\"a\": 1})"},
    {"<function=f>{\"a\"", "", "f({\"a\")"},
    {"<function=f>", "<function=f>", ""},
    {"<function=>{}", "<function=>{}", ""},
    {"<function=f>no</function>", "<function=f>no</function>", ""},
    {"<function=f> {} </function> x", " x", "f({})"},
    {"<function=f g>{}</function>", "<function=f g>{}</function>", ""},
    {"<func<function=f>{}</function>", "<func", "f({})"},
};

static const struct row firefunction[] = {
    {"hi", "hi", ""},
    {" functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "", "f({\"a\": 1})"},
    {"functools[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]", "",
     "f({})g({})"},
    {"functools[{\"name\": \"f\", \"arguments\": {}},", "", "f({})"},
    {"functools[{\"name\": \"f\", \"arguments\": {\"a\":", "", "f({\"a\":)"},
    {"functools[{\"name\": \"f\"", "functools[{\"name\": \"f\"", ""},
    {"functools[]", "functools[]", ""},
    {"functools are fun", "functools are fun", ""},
    {"functionfunctools[{\"name\": \"f\", \"arguments\": {}}]", "function", "f({})"},
    {"functools[{\"name\": \"f\", \"arguments\": {}}] x", " x", "f({})"},
};

#define XML(inside) "<tool_call>\n<function=f>\n" inside "</function>\n</tool_call>"

static const struct row qwen3_coder[] = {
    {"hi", "hi", ""},
    {XML(""), "", "f({})"},
    {XML("<parameter=s>\nLondon\n</parameter>\n"), "", "f({\"s\": \"London\"})"},
    {XML("<parameter=s>\n\na \"b\"\\\n\tc\n\n</parameter>\n"), "",
     "f({\"s\": \"\\na \\\"b\\\"\\\\\\n\\u0009c\\n\"})"},
    {XML("<parameter=n>\n12\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n"), "",
     "f({\"n\": 12, \"b\": true})"},
    {XML("<parameter=n>\ntwelve\n</parameter>\n"), "", "f({\"n\": \"twelve\"})"},
    {XML("<parameter=o>\n{\"x\": [1,\n2]}\n</parameter>\n"), "", "f({\"o\": {\"x\": [1,\n2]}})"},
    {XML("<parameter=m>\nnull\n</parameter><parameter=any>5</parameter>"), "",
     "f({\"m\": null, \"any\": 5})"},
    {XML("<parameter=m>\nnulls\n</parameter>"), "", "f({\"m\": \"nulls\"})"},
    {XML("<parameter=s>null</parameter>"), "", "f({\"s\": \"null\"})"},
    {XML("<parameter=unknown>5</parameter>"), "", "f({\"unknown\": \"5\"})"},
    {XML("<parameter=s>if a < b </p></parameter>"), "", "f({\"s\": \"if a < b </p>\"})"},
    {XML("<parameter=s>\xe4\xbd\xa0</parameter>"), "", "f({\"s\": \"\xe4\xbd\xa0\"})"},
    {XML("<parameter=s>a\r\x01</parameter>"), "", "f({\"s\": \"a\\u000d\\u0001\"})"},
    {XML("<parameter=s>\n</parameter>"), "", "f({\"s\": \"\"})"},
    {"ok\n" XML("") "\n" XML("<parameter=n>1</parameter>"), "ok", "f({})f({\"n\": 1})"},
    {"<function=g>\n<parameter=x>\ny\n</parameter>\n</function>", "", "g({\"x\": \"y\"})"},
    {"<function=g>\n</function>\n</tool_call>", "", "g({})"},
    {"<function=g></function><function=f></function>", "", "g({})f({})"},
    /* broken off */
    {"<tool_call>\n<function=f>\n<parameter=s>\nLon", "", "f({\"s\": \"Lon)"},
    {"<tool_call>\n<function=f>\n<parameter=n>\n1", "", "f({)"},
    {"<tool_call>\n<function=f>\n<param", "<tool_call>\n<function=f>\n<param", ""},
    {"<tool_call>\n<function=f", "<tool_call>\n<function=f", ""},
    {XML("<parameter=n>1</parameter>what"), "what</function>\n</tool_call>", "f({\"n\": 1)"},
    {XML("<parameter=n>1</parameter><para>"), "<para></function>\n</tool_call>", "f({\"n\": 1)"},
    {XML("<parameter=>1</parameter>"), XML("<parameter=>1</parameter>"), ""},
    {"<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", ""},
};

static const struct row seed_oss[] = {
    {"hi", "hi", ""},
    {"<seed:tool_call>\n<function=f>\n<parameter=s>a\nb</parameter>\n</function>\n"
     "</seed:tool_call>",
     "", "f({\"s\": \"a\\nb\"})"},
    {"<seed:tool_call></seed:tool_call>", "<seed:tool_call></seed:tool_call>", ""},
};

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"},"
    "\"b\": {\"type\": \"boolean\"}, \"o\": {\"type\": \"object\"}, \"m\": {\"type\": [\"string\","
    "\"null\"]}, \"any\": {\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}]}}}}},"
    "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";

struct output {
    struct buffer content;
    struct tool_calls calls;
};

static void parse(const struct tool_parser_options *wanted, const char *text, size_t first,
                  size_t step, struct output *ret)
{
    struct tool_parser_options options = *wanted;
    size_t bytes = strlen(text), at = 0;

    buffer_init(&ret->content, 1 << 22);
    tool_calls_init(&ret->calls, 3, options.format->short_ids, 1 << 22);
    options.content = &ret->content;
    options.calls = &ret->calls;
    struct tool_parser *parser = tool_parser_new(&options);
    while (at < bytes) {
        size_t count = at == 0 && first ? first : step;
        count = count > bytes - at ? bytes - at : count;
        tool_parser_push(parser, text + at, count);
        at += count;
    }
    tool_parser_finish(parser);
    tool_parser_free(parser);
}

static void output_done(struct output *output)
{
    buffer_done(&output->content);
    tool_calls_done(&output->calls);
}

static void expect(const struct tool_parser_options *options, const struct row *row, size_t first,
                   size_t step)
{
    struct output output;
    struct buffer calls;

    parse(options, row->text, first, step, &output);
    buffer_init(&calls, 1 << 20);
    for (uint32_t i = 0; i < output.calls.count; i++) {
        const struct tool_call *call = &output.calls.list[i];
        buffer_printf(&calls, "%s(%.*s)", call->name, (int)call->bytes,
                      tool_call_arguments(&output.calls, call));
    }
    if (strcmp(output.content.data, row->content) != 0 || strcmp(calls.data, row->calls) != 0)
        print_message("first %zu step %zu of: %s\n", first, step, row->text);
    assert_string_equal(output.content.data, row->content);
    assert_string_equal(calls.data, row->calls);
    buffer_done(&calls);
    output_done(&output);
}

static void run(const char *format, const struct row *rows, size_t count)
{
    json_t *tools = json_loads(tools_text, 0, NULL);
    const struct tool_parser_options options = {.format = tool_format_find(format), .tools = tools};

    assert_non_null(tools);
    assert_non_null(options.format);
    for (size_t i = 0; i < count; i++) {
        expect(&options, &rows[i], 0, 100000);
        expect(&options, &rows[i], 0, 1);
        for (size_t first = 1; first < strlen(rows[i].text); first++)
            expect(&options, &rows[i], first, 100000);
    }
    json_decref(tools);
}

#define RUN(name) run(#name, name, sizeof(name) / sizeof(name[0]))

static void test_hermes(void **state)
{
    (void)state;
    RUN(hermes);
}

static void test_llama3(void **state)
{
    (void)state;
    run("llama3_json", llama3, sizeof(llama3) / sizeof(llama3[0]));
}

static void test_mistral(void **state)
{
    (void)state;
    RUN(mistral);
}

static void test_deepseek(void **state)
{
    (void)state;
    run("deepseek_v31", deepseek, sizeof(deepseek) / sizeof(deepseek[0]));
}

static void test_functionary(void **state)
{
    (void)state;
    RUN(functionary);
}

static void test_firefunction(void **state)
{
    (void)state;
    RUN(firefunction);
}

static void test_qwen3_coder(void **state)
{
    (void)state;
    RUN(qwen3_coder);
}

static void test_seed_oss(void **state)
{
    (void)state;
    RUN(seed_oss);
}

static void test_control_tokens_are_never_content(void **state)
{
    static const struct row rows[] = {
        {"ok[TOOL_CALLS] none[ARGS]!", "ok none!", ""},
        {"[TOOL_CALLS]f[ARGS]{}", "", "f({})"},
        {"a [ARGS]b", "a b", ""},
    };
    const struct tool_parser_options options = {.format = tool_format_find("mistral"),
                                                .hide_markers = true};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        expect(&options, &rows[i], 0, 1000);
        expect(&options, &rows[i], 0, 1);
    }
}

#define CALL(name) "<tool_call>{\"name\": \"" name "\", \"arguments\": {}}</tool_call>"

static void test_calls_past_the_maximum(void **state)
{
    const struct row one = {CALL("a") CALL("b") CALL("c") "x", "x", "a({})"};
    const struct row full = {CALL("a") CALL("b") CALL("c") CALL("d"), CALL("d"),
                             "a({})b({})c({})"}; /* there is room for three */
    struct tool_parser_options options = {.format = tool_format_find("hermes"), .one_call = true};
    (void)state;
    expect(&options, &one, 0, 1);
    options.one_call = false;
    expect(&options, &full, 0, 1);
}

static void test_ids_are_ascii_of_their_length_and_differ(void **state)
{
    static const char *const formats[] = {"hermes", "mistral"};
    static const char *const texts[] = {CALL("a") CALL("b"),
                                        "[TOOL_CALLS]a[ARGS]{}[TOOL_CALLS]b[ARGS]{}"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct tool_parser_options options = {.format = tool_format_find(formats[i])};
        struct output output;
        parse(&options, texts[i], 0, 1000, &output);
        assert_int_equal(output.calls.count, 2);
        const char *id = output.calls.list[0].id;
        if (i == 0) {
            assert_memory_equal(id, "call_", 5);
            id += 5;
        }
        assert_int_equal(strspn(id, letters), i == 0 ? 24 : 9);
        assert_int_equal(strlen(id), i == 0 ? 24 : 9);
        assert_string_not_equal(output.calls.list[0].id, output.calls.list[1].id);
        output_done(&output);
    }
}

static void test_held_text_is_bounded(void **state)
{
    static const char head[] = "<tool_call>{\"arguments\": {\"a\": \"";
    const struct tool_parser_options options = {.format = tool_format_find("hermes")};
    size_t bytes = TOOL_HELD_MAX + 1000;
    struct output output;
    char *text = test_malloc(bytes + 1);
    (void)state;
    memset(text, 'x', bytes);
    memcpy(text, head, strlen(head));
    text[bytes] = '\0';
    parse(&options, text, 0, 4096, &output);
    assert_int_equal(output.calls.count, 0);
    assert_string_equal(output.content.data, text);
    output_done(&output);
    test_free(text);
}

static void test_arguments_stream_before_the_call_is_over(void **state)
{
    struct output output;
    const struct tool_parser_options options = {
        .format = tool_format_find("hermes"), .content = &output.content, .calls = &output.calls};
    static const char text[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"Lon";
    (void)state;
    buffer_init(&output.content, 1000);
    tool_calls_init(&output.calls, 1, false, 1000);
    struct tool_parser *parser = tool_parser_new(&options);
    tool_parser_push(parser, text, strlen(text));
    assert_int_equal(output.calls.count, 1);
    assert_string_equal(output.calls.arguments.data, "{\"a\": \"Lon");
    tool_parser_push(parser, "don\"}", 5);
    assert_string_equal(output.calls.arguments.data, "{\"a\": \"London\"}");
    tool_parser_free(parser);
    output_done(&output);
}

/* The parser looks at a start's first byte again only as a first byte. */
static void test_starts_have_their_first_byte_once(void **state)
{
    static const char *const names[] = {"hermes",       "llama3_json", "json",
                                        "mistral",      "deepseek_v3", "functionary",
                                        "firefunction", "qwen3_coder", "seed_oss"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct tool_format *format = tool_format_find(names[i]);
        assert_non_null(format);
        for (size_t s = 0; s < TOOL_STARTS_MAX && format->starts[s].text; s++) {
            const char *text = format->starts[s].text;
            assert_true(strlen(text) <= TOOL_TEXT_MAX);
            assert_null(strchr(text + 1, text[0]));
        }
    }
}

static char *read_template(const char *name, size_t *ret_bytes)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/cases/templates/%s.jinja", SHARED_DIR, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return NULL;
    char *text = test_malloc(1 << 16);
    *ret_bytes = fread(text, 1, 1 << 16, file);
    (void)fclose(file);
    return text;
}

static void test_templates_say_their_format(void **state)
{
    static const char *const rows[][2] = {
        {"hermes-2-pro-llama-3-tool-use", "hermes"},
        {"qwen2.5-7b-instruct", "hermes"},
        {"qwen3-0.6b", "hermes"},
        {"qwen3-coder", "qwen3_coder"},
        {"llama-3.1-8b-instruct", "llama3_json"},
        {"llama-3.2-3b-instruct", "llama3_json"},
        {"mistral-small-3.2-2506", "mistral"},
        {"deepseek-v3.1", "deepseek_v3"},
        {"deepseek-r1-distill-llama-8b", "deepseek_v3"},
        {"seed-oss", "seed_oss"},
        {"functionary-medium-v3.1", "functionary"},
        {"firefunction-v2", "firefunction"},
        {"phi-3.5-mini", ""},
        {"gemma-2-2b-it", ""},
        {"gpt-oss-120b", ""},
    };
    size_t bytes = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *text = read_template(rows[i][0], &bytes);
        if (!text)
            skip(); /* without the shared cases */
        const struct tool_format *format = tool_format_of_template(text, bytes);
        print_message("%s\n", rows[i][0]);
        assert_string_equal(format ? format->name : "", rows[i][1]);
        test_free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hermes),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_mistral),
        cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_functionary),
        cmocka_unit_test(test_firefunction),
        cmocka_unit_test(test_qwen3_coder),
        cmocka_unit_test(test_seed_oss),
        cmocka_unit_test(test_control_tokens_are_never_content),
        cmocka_unit_test(test_calls_past_the_maximum),
        cmocka_unit_test(test_ids_are_ascii_of_their_length_and_differ),
        cmocka_unit_test(test_held_text_is_bounded),
        cmocka_unit_test(test_arguments_stream_before_the_call_is_over),
        cmocka_unit_test(test_starts_have_their_first_byte_once),
        cmocka_unit_test(test_templates_say_their_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
