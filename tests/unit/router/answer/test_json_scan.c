/* json_scan.c: the end of a value is found where a parser finds it. */
#include <cmocka.h>

#include <string.h>

#include "router/answer/json_scan.h"

static const char *const good[] = {
    "{}",   "[]",     "{\"a\": [1, -0.5e+3, \"x\\u00e9\\n\\\"\"], \"b\": {\"c\": null}}",
    "true", " false", "null ",
    "-0",   "12",     "1.25",
    "1E9",  "\"\"",   "\"\\ud83d\\ude00\"",
    "[ ]",  "{ }",    "[{\"}\": \"]\"}, []]",
    "0",    "0.5e-1", "\"\xe4\xbd\xa0\"",
};

static const char *const bad[] = {
    "",        " ",          "{",       "}",     "[1,]", "{\"a\":1,}", "{a:1}",
    "{'a':1}", "01",         "1.",      ".5",    "+1",   "-",          "1e",
    "1e+",     "nul",        "truee",   "tru e", "\"",   "\"\\x\"",    "\"\\u12g4\"",
    "\"\n\"",  "[1 2]",      "{\"a\"}", "{1:2}", "[}",   "{]",         "1x",
    "5 x",     "{\"a\":1}}", "[1]]",    "1-",    "0x10", "\"\\",       "{\"a\" 1}",
    "NaN",     "Infinity",   "--1",     "1.e5",  "1ee5", "[,1]",       "{,}",
};

static void test_values_are_whole_as_jansson_says(void **state)
{
    json_t *value = NULL;
    struct errmsg err;
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        print_message("%s\n", good[i]);
        assert_true(json_scan_whole(good[i], strlen(good[i])));
        assert_int_equal(json_parse(good[i], strlen(good[i]), 1000, &value, &err), 0);
        json_decref(value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        print_message("%s\n", bad[i]);
        assert_false(json_scan_whole(bad[i], strlen(bad[i])));
        assert_true(json_parse(bad[i], strlen(bad[i]), 1000, &value, &err) < 0);
    }
}

static size_t end_of(const char *text, enum json_scan_result want)
{
    struct json_scan scan;
    enum json_scan_result result = JSON_SCAN_MORE;
    size_t at = 0;

    json_scan_init(&scan);
    while (result == JSON_SCAN_MORE && text[at])
        result = json_scan_push(&scan, text[at++]);
    assert_int_equal(result, want);
    return at;
}

static void test_the_end_is_the_last_byte_or_the_one_behind_a_number(void **state)
{
    (void)state;
    assert_int_equal(end_of("{\"a\":{}}x", JSON_SCAN_DONE), 8);
    assert_int_equal(end_of("\"a\"}", JSON_SCAN_DONE), 3);
    assert_int_equal(end_of("null,", JSON_SCAN_DONE), 4);
    assert_int_equal(end_of("12}", JSON_SCAN_PAST), 3);
    assert_int_equal(end_of("[1}", JSON_SCAN_BAD), 3);
}

static void test_depth_is_bounded(void **state)
{
    char text[2 * (JSON_DEPTH_MAX + 1)];
    (void)state;
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_true(json_scan_whole(text, (size_t)2 * JSON_DEPTH_MAX));
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    assert_false(json_scan_whole(text, sizeof(text)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_whole_as_jansson_says),
        cmocka_unit_test(test_the_end_is_the_last_byte_or_the_one_behind_a_number),
        cmocka_unit_test(test_depth_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
