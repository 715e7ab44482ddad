/* JSON Schema: schema_cases.json (judged by Python's jsonschema, check_schema_cases.py), what is
 * refused, and how JSON may be spaced. */
#include <jansson.h>

#include "tests/unit/proto/grammar/matching.h"

static struct matching m;

static int setup(void **state)
{
    (void)state;
    matching_init(&m, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    matching_done(&m);
    return 0;
}

static void check_list(struct grammar *grammar, const char *schema, const json_t *texts,
                       bool wanted)
{
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        if (accepts_bytes(&m, grammar, json_string_value(text), json_string_length(text)) != wanted)
            fail_msg("%s must%s take: %s", schema, wanted ? "" : " not", json_string_value(text));
    }
}

static void test_texts_of_the_table_are_taken_or_not(void **state)
{
    (void)state;
    json_t *cases =
        json_load_file(SOURCE_DIR "/tests/unit/proto/grammar/schema_cases.json", 0, NULL);
    assert_true(json_array_size(cases) >= 60);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        char *schema = json_dumps(json_object_get(one, "schema"), JSON_COMPACT | JSON_ENCODE_ANY);
        struct grammar *grammar = compiled(GRAMMAR_JSON_SCHEMA, schema);
        check_list(grammar, schema, json_object_get(one, "yes"), true);
        check_list(grammar, schema, json_object_get(one, "no"), false);
        check_list(grammar, schema, json_object_get(one, "unwritten"), false);
        grammar_unref(grammar);
        free(schema);
    }
    json_decref(cases);
}

static void test_what_restricts_and_is_not_supported_is_refused_by_name(void **state)
{
    static const char *const cases[][2] = {
        {"{\"not\":{}}", "'not' is not supported"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"if\":{}}}}", "'#/properties/a': 'if'"},
        {"{\"patternProperties\":{}}", "'patternProperties'"},
        {"{\"type\":\"array\",\"uniqueItems\":true}", "'uniqueItems'"},
        {"{\"type\":\"array\",\"contains\":{}}", "'contains'"},
        {"{\"type\":\"integer\",\"multipleOf\":3}", "'multipleOf'"},
        {"{\"type\":\"object\",\"minProperties\":2}", "'minProperties' 2"},
        {"{\"type\":\"string\",\"format\":\"odd\"}", "'odd'"},
        {"{\"type\":\"string\",\"pattern\":\"a\",\"maxLength\":3}", "at a time"},
        {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "look-around"},
        {"{\"type\":\"text\"}", "'type' 'text'"},
        {"{\"type\":[]}", "'type' must be"},
        {"{\"type\":\"string\",\"minLength\":-1}", "'minLength' must be"},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", "'minLength' is more than 2"},
        {"{\"$ref\":\"http://x/y\"}", "only references into the schema"},
        {"{\"$ref\":\"#/$defs/x\"}", "points at nothing"},
        {"{\"$ref\":\"#\"}", "complete"},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "without an end"},
        {"{\"anyOf\":[]}", "'anyOf' must be"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false}", "'a' is req"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "nothing is valid"},
        {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "'pattern' of two"},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "complete"},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "at least 3 items"},
        {"{\"enum\":[]}", "no value"},
        {"false", "nothing is valid"},
        {"3", "must be an object or a boolean"},
        {"{\"type\":", "schema:"},
        {"{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"object\",\"properties\":"
         "{\"x\":{\"$ref\":\"#/$defs/a\"}},\"required\":[\"x\"]}}}",
         "complete"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_refused(GRAMMAR_JSON_SCHEMA, cases[i][0], -EINVAL, cases[i][1]);
}

static void test_json_object_is_any_object_and_spaces_are_bounded(void **state)
{
    (void)state;
    check_texts(&m, GRAMMAR_JSON_OBJECT, "",
                TEXTS("{}", "{ }", "{\"a\":1}", "{\"a\": [1, 2], \"b\": {\"c\": null}}",
                      "{\n    \"a\": [\n        1,\n        true\n    ]\n}"),
                TEXTS("", "[]", "1", "{", "{\"a\":  1}", "{  }", "{}}", " {}", "{} ",
                      "{\n                     }", "{\t}", "{\"a\" :1}"));
}

static void test_texts_are_not_nested_without_end(void **state)
{
    char text[2048];
    (void)state;
    struct grammar *grammar = compiled(GRAMMAR_JSON_SCHEMA, "true");
    memset(text, '[', 1024);
    memset(text + 1024, ']', 1024);
    assert_true(accepts_bytes(&m, grammar, text + 1024 - 100, 200));
    assert_false(accepts_bytes(&m, grammar, text, 2048));
    grammar_unref(grammar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_of_the_table_are_taken_or_not),
        cmocka_unit_test(test_what_restricts_and_is_not_supported_is_refused_by_name),
        cmocka_unit_test(test_json_object_is_any_object_and_spaces_are_bounded),
        cmocka_unit_test(test_texts_are_not_nested_without_end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
