/* json.c: the public suite, our bounds, and what is written reads back. */
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/json.h"
#include "proto/base/mem.h"

static const char suite_path[] = SHARED_DIR "/cases/json/jsontestsuite.json.gz";

static json_t *parse(const char *text)
{
    struct errmsg err = {""};
    json_t *value = NULL;
    int r = json_parse(text, strlen(text), 1 << 20, &value, &err);

    if (r < 0)
        print_message("%s: %s\n", text, err.text);
    assert_int_equal(r, 0);
    return value;
}

/* Parse `bytes` bytes that must be refused with `code`; the output stays untouched. */
static void refuse(const char *text, size_t bytes, size_t bytes_max, int code, struct errmsg *err)
{
    json_t marker;
    json_t *value = &marker;

    assert_int_equal(json_parse(text, bytes, bytes_max, &value, err), code);
    assert_ptr_equal(value, &marker);
}

static char *repeat(const char *open, size_t count, const char *close)
{
    struct buffer text;

    buffer_init(&text, SIZE_MAX);
    for (size_t i = 0; i < count; i++)
        buffer_append_text(&text, open);
    for (size_t i = 0; i < count; i++)
        buffer_append_text(&text, close);
    return buffer_take(&text, NULL);
}

static void test_parse_when_any_value_stands_alone_gives_it(void **state)
{
    json_t *value;

    (void)state;
    value = parse(" 42 ");
    assert_int_equal(json_integer_value(value), 42);
    json_decref(value);
    value = parse("\"a\\u0000b\"");
    assert_int_equal(json_string_length(value), 3);
    assert_memory_equal(json_string_value(value), "a\0b", 4);
    json_decref(value);
    value = parse("null");
    assert_true(json_is_null(value));
    json_decref(value);
}

static void test_parse_when_a_key_comes_twice_takes_the_last(void **state)
{
    json_t *value = parse("{\"n\":1,\"m\":2,\"n\":3}");

    (void)state;
    assert_int_equal(json_object_size(value), 2);
    assert_int_equal(json_integer_value(json_object_get(value, "n")), 3);
    json_decref(value);
}

static void test_parse_when_a_key_holds_nul_accepts_and_replaces_it(void **state)
{
    json_t *value = parse("{\"a\\u0000b\" : \"x\\u0000\\\"\", \"c\\\\u0000\":[{\"\\u0000\":1}]}");
    json_t *inner;

    (void)state;
    assert_int_equal(json_string_length(json_object_get(value, "a\xef\xbf\xbd"
                                                               "b")),
                     3);
    inner = json_object_get(value, "c\\u0000"); /* an escaped backslash, no NUL */
    assert_int_equal(json_array_size(inner), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(inner, 0), "\xef\xbf\xbd")),
                     1);
    json_decref(value);
}

static void test_parse_when_at_the_depth_limit_accepts_and_one_more_refuses(void **state)
{
    struct errmsg err = {""};
    char *text = repeat("[", JSON_DEPTH_MAX, "]");
    json_t *value = parse(text);

    (void)state;
    assert_int_equal(json_array_size(value), 1);
    json_decref(value);
    mem_free(text);
    text = repeat("[", JSON_DEPTH_MAX + 1, "]");
    refuse(text, strlen(text), SIZE_MAX, -E2BIG, &err);
    assert_string_equal(err.text, "JSON nests deeper than 128 levels at byte 128");
    mem_free(text);
}

static void test_parse_when_a_million_levels_come_refuses_at_once(void **state)
{
    char *text = repeat("{\"a\":[", 1000000, "");

    (void)state;
    refuse(text, strlen(text), SIZE_MAX, -E2BIG, NULL);
    mem_free(text);
}

static void test_parse_when_brackets_stand_in_strings_does_not_count_them(void **state)
{
    char *brackets = repeat("[{\\\"", 1000, "");
    char *text = mem_printf("[\"%s\"]", brackets);
    json_t *value = parse(text);

    (void)state;
    assert_int_equal(json_string_length(json_array_get(value, 0)), 3000);
    json_decref(value);
    mem_free(text);
    mem_free(brackets);
}

static void test_parse_when_past_the_size_limit_says_both_numbers(void **state)
{
    struct errmsg err = {""};
    json_t *value = NULL;

    (void)state;
    refuse("[1,2]", 5, 4, -E2BIG, &err);
    assert_string_equal(err.text, "JSON of 5 bytes, at most 4 are allowed");
    assert_int_equal(json_parse("[1,2]", 5, 5, &value, &err), 0);
    json_decref(value);
}

static void test_parse_when_over_the_count_of_values_refuses_before_it_builds(void **state)
{
    static const struct {
        const char *text;
        size_t values;
    } cases[] = {{"7", 1},
                 {"[]", 2},
                 {"[0]", 2},
                 {"[0,1]", 3},
                 {"{\"a\":1}", 2},
                 {"[[],{}]", 5},
                 {"[\",,[{\", \"\\\",\"]", 3}};
    struct errmsg err = {""};
    json_t *value = NULL;
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = cases[i].text;
        size_t bytes = strlen(text);
        assert_int_equal(json_parse_values(text, bytes, cases[i].values, &value, &err), 0);
        json_decref(value);
        if (cases[i].values > 1)
            assert_int_equal(json_parse_values(text, bytes, cases[i].values - 1, &value, &err),
                             -E2BIG);
    }
    assert_int_equal(json_parse_values("[1,2,3,", 7, 3, &value, &err), -E2BIG);
    assert_string_equal(err.text, "JSON has more than 3 values at byte 4");
}

static void test_parse_when_malformed_says_where_without_quoting(void **state)
{
    struct errmsg err = {""};
    static const char text[] = "{\"prompt\": \"secret\" \"x\"}";

    (void)state;
    refuse(text, strlen(text), SIZE_MAX, -EINVAL, &err);
    assert_non_null(strstr(err.text, "at byte "));
    assert_null(strstr(err.text, "secret"));
    assert_null(strstr(err.text, "near"));
}

static void test_parse_when_input_is_broken_refuses(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"", 0},
        {"[1]\0", 4},
        {"\0", 1},
        {"[1] x", 5},
        {"NaN", 3},
        {"[Infinity]", 10},
        {"1e400", 5},
        {"\"\xff\"", 3},
        {"\"\\ud800\"", 8},
        {"\"abc", 4},
        {"\"abc\\", 5},
        {"\"\\u00", 5},
        {"\"a\0b\"", 5},
        {"\xef\xbb\xbf{}", 5},
        {"]", 1},
        {"{\"\\u0000\":}", 11},
        {"123456789012345678901", 21},
        {"123\0", 4},
        {"123\0 x", 6},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refuse(cases[i].text, cases[i].bytes, SIZE_MAX, -EINVAL, NULL);
}

static void check_written(const char *text, const char *expected)
{
    json_t *value = parse(text);
    struct buffer out;

    buffer_init(&out, 4096);
    json_append_value(&out, value);
    assert_int_equal(buffer_finish(&out), 0);
    assert_string_equal(out.data, expected);
    buffer_done(&out);
    json_decref(value);
}

static void test_append_value_when_numbers_are_real_writes_shortest(void **state)
{
    (void)state;
    check_written("[0.1, 0.7, 1.0, 1e2, -0.0, 1e-7, 12345678901234567, 1e300]",
                  "[0.1,0.7,1.0,100.0,-0.0,1e-07,12345678901234567,1e+300]");
}

static void test_append_value_when_nested_keeps_order_and_text(void **state)
{
    (void)state;
    check_written(
        " { \"z\" : [ ] , \"a\" : { \"k\" : [ true , false , null , -7 ] } , \"\" : {} } ",
        "{\"z\":[],\"a\":{\"k\":[true,false,null,-7]},\"\":{}}");
    check_written("\"\\u00e9\\u0001\\n\\\"\\\\\\/\\ud83d\\ude00\\u007f\"",
                  "\"\xc3\xa9\\u0001\\n\\\"\\\\/\xf0\x9f\x98\x80\x7f\"");
}

static void test_append_string_when_every_ascii_byte_stands_in_it_reads_back(void **state)
{
    struct buffer out;
    char text[128];
    json_t *value = NULL;

    (void)state;
    for (int i = 0; i < 128; i++)
        text[i] = (char)i;
    buffer_init(&out, 4096);
    json_append_string(&out, text, sizeof(text));
    assert_int_equal(json_parse(out.data, out.bytes, 4096, &value, NULL), 0);
    assert_int_equal(json_string_length(value), 128);
    assert_memory_equal(json_string_value(value), text, 128);
    json_decref(value);
    buffer_clear(&out);
    json_append_string(&out, NULL, 0);
    assert_string_equal(out.data, "\"\"");
    buffer_done(&out);
}

static void test_append_value_when_the_buffer_is_full_says_so_at_the_end(void **state)
{
    json_t *value = parse("[1,2,3,4,5,6,7,8,9]");
    struct buffer out;

    (void)state;
    buffer_init(&out, 10);
    json_append_value(&out, value);
    assert_int_equal(buffer_finish(&out), -ENOBUFS);
    buffer_done(&out);
    json_decref(value);
}

/* The suite's texts are base64: not all are UTF-8. Returns the bytes, the caller frees. */
static char *decode_base64(const char *text, size_t *ret_bytes)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = mem_alloc(strlen(text) + 1);
    size_t bytes = 0;
    uint32_t bits = 0;
    int bits_count = 0;

    for (; *text != '\0' && *text != '='; text++) {
        const char *at = strchr(alphabet, *text);

        assert_non_null(at);
        bits = bits << 6 | (uint32_t)(at - alphabet);
        bits_count += 6;
        if (bits_count >= 8) {
            bits_count -= 8;
            out[bytes++] = (char)(bits >> bits_count & 0xff);
        }
    }
    *ret_bytes = bytes;
    return mem_realloc(out, bytes); /* exact, so that ASan sees one byte too far */
}

static json_t *load_suite(void)
{
    struct buffer text;
    char chunk[65536];
    size_t got;
    json_t *suite = NULL;
    FILE *pipe;

    pipe = popen("gzip -dc '" SHARED_DIR "/cases/json/jsontestsuite.json.gz'", "r");
    assert_non_null(pipe);
    buffer_init(&text, (size_t)64 << 20);
    while ((got = fread(chunk, 1, sizeof(chunk), pipe)) > 0)
        buffer_append(&text, chunk, got);
    assert_int_equal(pclose(pipe), 0);
    assert_int_equal(json_parse(text.data, text.bytes, text.bytes_max, &suite, NULL), 0);
    buffer_done(&text);
    return suite;
}

static void test_parse_when_given_the_public_suite_agrees_with_it(void **state)
{
    int counts[3] = {0}; /* accept, reject, either */
    int wrong = 0;
    size_t index;
    json_t *item;
    json_t *suite;

    (void)state;
    if (access(suite_path, R_OK) < 0) {
        print_message("skipped: no %s\n", suite_path);
        skip();
    }
    suite = load_suite();
    json_array_foreach(json_object_get(suite, "cases"), index, item)
    {
        const char *expect = json_string_value(json_object_get(item, "expect"));
        size_t bytes;
        char *text = decode_base64(json_string_value(json_object_get(item, "b64")), &bytes);
        json_t *value = NULL;
        int r = json_parse(text, bytes, (size_t)1 << 20, &value, NULL);

        assert_int_equal(bytes, json_integer_value(json_object_get(item, "len")));
        counts[expect[0] == 'a' ? 0 : (expect[0] == 'r' ? 1 : 2)]++;
        if ((expect[0] == 'a' && r < 0) || (expect[0] == 'r' && r == 0)) {
            print_message("%s: %s, got %d\n", json_string_value(json_object_get(item, "name")),
                          expect, r);
            wrong++;
        }
        if (r == 0)
            json_decref(value);
        mem_free(text);
    }
    json_decref(suite);
    assert_int_equal(wrong, 0);
    assert_int_equal(counts[0], 95);
    assert_int_equal(counts[1], 188);
    assert_int_equal(counts[2], 35);
}

static void test_append_sentence_when_cut_in_a_character_is_utf8(void **state)
{
    struct buffer out;
    (void)state;
    buffer_init(&out, 100);
    json_append_sentence(&out, "caf\xc3\xa9 \xe2\x82\xac");
    assert_string_equal(out.data, "\"caf\xc3\xa9 \xe2\x82\xac\"");
    buffer_clear(&out);
    json_append_sentence(&out, "a\xe2\x82 \"b\xff\"");
    assert_string_equal(out.data, "\"a?? \\\"b?\\\"\"");
    buffer_clear(&out);
    json_append_sentence(&out, "cut \xe2\x82");
    assert_string_equal(out.data, "\"cut ??\"");
    buffer_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse_when_any_value_stands_alone_gives_it),
        cmocka_unit_test(test_parse_when_a_key_comes_twice_takes_the_last),
        cmocka_unit_test(test_parse_when_a_key_holds_nul_accepts_and_replaces_it),
        cmocka_unit_test(test_parse_when_at_the_depth_limit_accepts_and_one_more_refuses),
        cmocka_unit_test(test_parse_when_a_million_levels_come_refuses_at_once),
        cmocka_unit_test(test_parse_when_brackets_stand_in_strings_does_not_count_them),
        cmocka_unit_test(test_parse_when_past_the_size_limit_says_both_numbers),
        cmocka_unit_test(test_parse_when_over_the_count_of_values_refuses_before_it_builds),
        cmocka_unit_test(test_parse_when_malformed_says_where_without_quoting),
        cmocka_unit_test(test_parse_when_input_is_broken_refuses),
        cmocka_unit_test(test_append_value_when_numbers_are_real_writes_shortest),
        cmocka_unit_test(test_append_value_when_nested_keeps_order_and_text),
        cmocka_unit_test(test_append_string_when_every_ascii_byte_stands_in_it_reads_back),
        cmocka_unit_test(test_append_value_when_the_buffer_is_full_says_so_at_the_end),
        cmocka_unit_test(test_append_sentence_when_cut_in_a_character_is_utf8),
        cmocka_unit_test(test_parse_when_given_the_public_suite_agrees_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
