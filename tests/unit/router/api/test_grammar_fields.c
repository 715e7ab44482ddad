/* response_format, guided_* and structured_outputs: what they ask for, and how they are refused. */
#include <cmocka.h>
#include <errno.h>

#include <stdio.h>
#include <string.h>

#include "router/api/grammar_fields.h"

struct parsed {
    struct arena arena;
    struct api_request request;
    struct api_error error;
    int r;
};

static struct parsed parse(const char *members)
{
    struct parsed parsed;
    char body[2048];
    memset(&parsed, 0, sizeof(parsed));
    arena_init(&parsed.arena, 1 << 20);
    int bytes = snprintf(body, sizeof(body),
                         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"
                         "%s}",
                         members);
    parsed.r = request_json_parse(API_CHAT, body, (size_t)bytes, &parsed.arena, &parsed.request,
                                  &parsed.error);
    return parsed;
}

static void done(struct parsed *parsed)
{
    api_request_done(&parsed->request);
    arena_done(&parsed->arena);
}

static void check(const char *members, enum grammar_kind kind, const char *text, const char *param)
{
    struct parsed parsed = parse(members);
    const struct grammar_spec *grammar = &parsed.request.grammar;
    if (parsed.r < 0)
        fail_msg("%s: %s", members, parsed.error.message);
    assert_int_equal(grammar->kind, kind);
    assert_int_equal(grammar->bytes, strlen(text));
    assert_true(strlen(text) == 0 || memcmp(grammar->text, text, strlen(text)) == 0);
    if (param != NULL)
        assert_string_equal(parsed.request.grammar_param, param);
    done(&parsed);
}

static void refuse(const char *members, const char *param, const char *words)
{
    struct parsed parsed = parse(members);
    if (parsed.r == 0 || strcmp(parsed.error.param, param) != 0 ||
        strstr(parsed.error.message, words) == NULL)
        fail_msg("%s: %d '%s' %s", members, parsed.r, parsed.error.param, parsed.error.message);
    assert_int_equal(parsed.error.status, 400);
    done(&parsed);
}

static void test_every_spelling_arrives(void **state)
{
    (void)state;
    check("\"response_format\":{\"type\":\"text\"}", GRAMMAR_NONE, "", NULL);
    check("\"response_format\":{\"type\":\"json_object\"}", GRAMMAR_JSON_OBJECT, "",
          "response_format");
    check(
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":"
        "true,\"schema\":{\"z\": 1, \"a\": [ 2 ]}}}",
        GRAMMAR_JSON_SCHEMA, "{\"z\":1,\"a\":[2]}", "response_format");
    check("\"guided_json\":{\"type\":\"null\"}", GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}",
          "guided_json");
    check("\"guided_json\":\"{\\\"type\\\": 1}\"", GRAMMAR_JSON_SCHEMA, "{\"type\": 1}",
          "guided_json");
    check("\"guided_regex\":\"a+\"", GRAMMAR_REGEX, "a+", "guided_regex");
    check("\"guided_choice\":[\"a\", \"b\"]", GRAMMAR_CHOICE, "[\"a\",\"b\"]", "guided_choice");
    check("\"guided_grammar\":\"root ::= \\\"a\\\"\"", GRAMMAR_EBNF, "root ::= \"a\"",
          "guided_grammar");
    check("\"structured_outputs\":{\"regex\":\"b\"}", GRAMMAR_REGEX, "b", "structured_outputs");
    check("\"structured_outputs\":{\"structural_tag\":\"{}\"}", GRAMMAR_TAGS, "{}",
          "structured_outputs");
    check("\"response_format\":{\"type\":\"structural_tag\",\"triggers\":[]}", GRAMMAR_TAGS,
          "{\"type\":\"structural_tag\",\"triggers\":[]}", "response_format");
    check("\"structured_outputs\":{\"json_object\":true}", GRAMMAR_JSON_OBJECT, "",
          "structured_outputs");
    check("\"structured_outputs\":{\"json_object\":false,\"choice\":[\"x\"]}", GRAMMAR_CHOICE,
          "[\"x\"]", "structured_outputs");
    check("\"grammar\":\"root ::= \\\"a\\\"\"", GRAMMAR_EBNF, "root ::= \"a\"", "grammar");
    check("\"ebnf\":\"root ::= \\\"a\\\"\"", GRAMMAR_EBNF, "root ::= \"a\"", "ebnf");
    check("\"regex\":\"a+\"", GRAMMAR_REGEX, "a+", "regex");
    check("\"json_schema\":{\"type\":\"null\"}", GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}",
          "json_schema");
    check("\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"object\"}}",
          GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\"}", "response_format");
    check("\"grammar\":\"\",\"json_schema\":null", GRAMMAR_NONE, "", NULL);
    check("\"guided_decoding_backend\":\"outlines\",\"guided_regex\":null", GRAMMAR_NONE, "", NULL);
}

static void test_two_grammars_and_wrong_shapes_are_refused(void **state)
{
    (void)state;
    refuse("\"guided_regex\":\"a\",\"guided_choice\":[\"b\"]", "guided_choice", "exclude");
    refuse("\"response_format\":{\"type\":\"json_object\"},\"guided_regex\":\"a\"", "guided_regex",
           "'response_format' and 'guided_regex' exclude");
    refuse("\"structured_outputs\":{\"regex\":\"a\",\"json\":{}}", "structured_outputs", "one of");
    refuse("\"structured_outputs\":[]", "structured_outputs", "an object");
    refuse("\"structured_outputs\":{\"structural_tag\":3}", "structured_outputs.structural_tag",
           "'structured_outputs.structural_tag' must be an object");
    refuse("\"structured_outputs\":{\"regex\":[]}", "structured_outputs.regex", "a string");
    refuse("\"guided_json\":3", "guided_json", "a schema");
    refuse("\"grammar\":\"root ::= a\",\"guided_regex\":\"b\"", "grammar", "exclude");
    refuse("\"guided_regex\":{}", "guided_regex", "a string");
    refuse("\"guided_choice\":\"a\"", "guided_choice", "a list");
    refuse("\"response_format\":{}", "response_format", "'type'");
    refuse("\"response_format\":{\"type\":\"yaml\"}", "response_format.type", "json_schema");
    refuse("\"response_format\":{\"type\":\"grammar\"}", "response_format.type", "not supported");
    refuse("\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema",
           "'json_schema'");
    refuse("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}",
           "response_format.json_schema.schema", "must be an object");
}

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"

static void test_a_grammar_beside_a_call_that_must_come_is_refused(void **state)
{
    (void)state;
    refuse(TOOLS "\"tool_choice\":\"required\",\"guided_regex\":\"a\"", "guided_regex",
           "'guided_regex' and a 'tool_choice'");
    refuse(TOOLS "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},"
                 "\"structured_outputs\":{\"regex\":\"a\"}",
           "structured_outputs", "'structured_outputs' and a 'tool_choice'");
    check(TOOLS "\"tool_choice\":\"auto\",\"guided_regex\":\"a\"", GRAMMAR_REGEX, "a", NULL);
    check(TOOLS "\"tool_choice\":\"required\",\"response_format\":{\"type\":\"json_object\"}",
          GRAMMAR_JSON_OBJECT, "", "response_format");
}

static void test_a_grammar_that_does_not_compile_is_refused_by_its_field(void **state)
{
    const struct errmsg err = {"there is no such thing"};
    (void)state;
    struct parsed parsed = parse("\"guided_regex\":\"a(?=b)\"");
    assert_int_equal(parsed.r, 0);
    assert_int_equal(grammar_fields_refuse(&parsed.request, &err, &parsed.error), -EINVAL);
    assert_int_equal(parsed.error.status, 400);
    assert_string_equal(parsed.error.param, "guided_regex");
    assert_string_equal(parsed.error.message, "'guided_regex' is refused: there is no such thing.");
    done(&parsed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_spelling_arrives),
        cmocka_unit_test(test_two_grammars_and_wrong_shapes_are_refused),
        cmocka_unit_test(test_a_grammar_beside_a_call_that_must_come_is_refused),
        cmocka_unit_test(test_a_grammar_that_does_not_compile_is_refused_by_its_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
