/* test_tags.c - structural tags, both spellings. */
#include "tests/unit/proto/grammar/matching.h"

static struct matching m;

#define SCHEMA_X \
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]}"

static void test_text_is_free_until_a_trigger(void **state)
{
    static const char calls[] =
        "{\"type\":\"structural_tag\",\"structures\":["
        "{\"begin\":\"<f=a>\",\"schema\":" SCHEMA_X ",\"end\":\"</f>\"},"
        "{\"begin\":\"<f=b>\",\"schema\":{\"type\":\"boolean\"},\"end\":\"</f>\"}],"
        "\"triggers\":[\"<f=\"]}";
    (void)state;
    check_texts(&m, GRAMMAR_TAGS, calls,
                TEXTS("", "any text, < f", "<<f=b>true</f>", "a<f=a>{\"x\":1}</f> b <f=b>false</f>",
                      "<f=b>true</f><f=b>true</f>\xc3\xa9", "<f<f<f"),
                TEXTS("<f=", "<f=c>1</f>", "a<f=a>{}</f>", "<f=b>true", "x<f=b>true</f><f=q"));
}

static void test_of_triggers_that_overlap_the_first_to_end_counts(void **state)
{
    static const char both[] =
        "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"abc\",\"bc\"],\"tags\":["
        "{\"type\":\"tag\",\"begin\":\"abcX\",\"content\":{\"type\":\"const_string\",\"value\":"
        "\"1\"},"
        "\"end\":\".\"},"
        "{\"type\":\"tag\",\"begin\":\"bcY\",\"content\":{\"type\":\"const_string\",\"value\":"
        "\"2\"},"
        "\"end\":[\"!\",\"?\"]}]}}";
    (void)state;
    check_texts(&m, GRAMMAR_TAGS, both, TEXTS("ab", "abcX1.", "abcY2!", "bcY2?", "zbcY2!aabcX1.b"),
                TEXTS("bc", "bcX1.", "abc", "abcX1!", "bcY2.", "aabcZ"));
}

static void test_formats_nest(void **state)
{
    static const char text[] =
        "{\"format\":{\"type\":\"sequence\",\"elements\":["
        "{\"type\":\"tag\",\"begin\":\"<think>\",\"content\":{\"type\":\"any_text\"},"
        "\"end\":\"</think>\"},"
        "{\"type\":\"or\",\"elements\":[{\"type\":\"regex\",\"pattern\":\"[0-9]+\"},"
        "{\"type\":\"json_schema\",\"json_schema\":" SCHEMA_X "}]}]}}";
    static const char list[] =
        "{\"format\":{\"type\":\"tags_with_separator\",\"separator\":\",\",\"at_least_one\":true,"
        "\"tags\":[{\"begin\":\"<\",\"content\":{\"type\":\"regex\",\"pattern\":\"a|b\"},\"end\":"
        "\">\"}"
        "]}}";
    static const char once[] =
        "{\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<\"],\"at_least_one\":true,"
        "\"stop_after_first\":true,\"tags\":[{\"begin\":\"<a>\",\"content\":{\"type\":\"any_text\"}"
        ","
        "\"end\":\"<e>\"}]}}";
    (void)state;
    check_texts(&m, GRAMMAR_TAGS, text,
                TEXTS("<think></think>1", "<think>a < b </thin</think>{\"x\":2}"),
                TEXTS("1", "<think>a", "<think>a</think>", "<think>a</think>b</think>1"));
    check_texts(&m, GRAMMAR_TAGS, list, TEXTS("<a>", "<b>,<a>"), TEXTS("", "<a>,", "<a><b>"));
    check_texts(&m, GRAMMAR_TAGS, once, TEXTS("<a><e>", "<a>t<<e>"),
                TEXTS("", "t", "<a>t", "<a><e>t", "t<a><e>"));
}

static void test_what_cannot_be_is_refused_with_a_sentence(void **state)
{
    (void)state;
    check_refused(GRAMMAR_TAGS, "{}", -EINVAL, "'structures'");
    check_refused(GRAMMAR_TAGS, "[", -EINVAL, "structural tag:");
    check_refused(GRAMMAR_TAGS, "{\"format\":{\"type\":\"any_text\"},\"structures\":[]}", -EINVAL,
                  "two spellings");
    check_refused(GRAMMAR_TAGS,
                  "{\"structures\":[{\"begin\":\"<a\",\"schema\":{},\"end\":\"\"}],"
                  "\"triggers\":[\"<b\"]}",
                  -EINVAL, "tag 0 begins with no trigger");
    check_refused(GRAMMAR_TAGS,
                  "{\"structures\":[{\"begin\":\"<a\",\"schema\":{},\"end\":\"\"}],"
                  "\"triggers\":[\"<\",\"<b\"]}",
                  -EINVAL, "the trigger '<b'");
    check_refused(GRAMMAR_TAGS,
                  "{\"structures\":[{\"begin\":\"<a\",\"end\":\"\"}],\"triggers\":[\"<\"]}",
                  -EINVAL, "'schema'");
    check_refused(GRAMMAR_TAGS,
                  "{\"structures\":[{\"begin\":\"a\",\"schema\":{},\"end\":\"\"}],"
                  "\"triggers\":[\"\"]}",
                  -EINVAL, "empty");
    check_refused(GRAMMAR_TAGS, "{\"format\":{\"type\":\"poem\"}}", -EINVAL, "const_string");
    check_refused(GRAMMAR_TAGS, "{\"format\":{\"type\":\"any_text\",\"excludes\":[\"x\"]}}",
                  -EINVAL, "'excludes' of a format of type 'any_text'");
    check_refused(
        GRAMMAR_TAGS,
        "{\"format\":{\"type\":\"tag\",\"begin\":\"a\",\"content\":{\"type\":\"any_text\"},"
        "\"end\":3}}",
        -EINVAL, "'end'");
}

static void test_formats_nested_too_deep_are_refused(void **state)
{
    char text[8192] = "{\"format\":";
    size_t bytes = strlen(text);
    (void)state;
    for (int i = 0; i < 200; i++)
        bytes += (size_t)sprintf(text + bytes, "{\"type\":\"or\",\"elements\":[");
    check_refused(GRAMMAR_TAGS, text, -EINVAL, "128");
}

static int set_up(void **state)
{
    static const char *const words[] = {"<f=", "<f",  "=a",       ">t",      "</f>",    "abc",
                                        "bc",  "aab", "</think>", "<think>", "{\"x\":", NULL};
    (void)state;
    matching_init(&m, words);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    matching_done(&m);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_is_free_until_a_trigger),
        cmocka_unit_test(test_of_triggers_that_overlap_the_first_to_end_counts),
        cmocka_unit_test(test_formats_nest),
        cmocka_unit_test(test_what_cannot_be_is_refused_with_a_sentence),
        cmocka_unit_test(test_formats_nested_too_deep_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
