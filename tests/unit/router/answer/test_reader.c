/* reader.c: reasoning before calls, each half alone, and a second start. */
#include <cmocka.h>

#include <string.h>

#include "router/answer/reader.h"

static const char text[] = "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", "
                           "\"arguments\": {\"a\": 1}}\n</tool_call>";

struct fixture {
    struct answer_reader_plan plan;
    struct answer_reader reader;
    struct buffer content;
};

static void setup(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->plan.bytes_max = 1000;
    f->plan.reasoning = reasoning_find("qwen3");
    f->plan.tool_format = tool_format_find("hermes");
    buffer_init(&f->content, 1000);
}

static void read_bytes(struct fixture *f)
{
    for (size_t i = 0; i < strlen(text); i++)
        answer_reader_push(&f->reader, text + i, 1);
    answer_reader_finish(&f->reader);
    assert_int_equal(answer_reader_check(&f->reader), 0);
}

static void teardown(struct fixture *f)
{
    answer_reader_done(&f->reader);
    buffer_done(&f->content);
}

static void test_reasoning_content_and_calls(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    answer_reader_init(&f.reader, &f.plan, &f.content);
    for (int round = 0; round < 2; round++) {
        read_bytes(&f);
        assert_string_equal(f.reader.thoughts.data, "\nhm\n");
        assert_string_equal(f.content.data, "\n\nI look.");
        assert_int_equal(f.reader.calls.count, 1);
        assert_string_equal(f.reader.calls.list[0].name, "f");
        assert_string_equal(f.reader.calls.arguments.data, "{\"a\": 1}");
        buffer_clear(&f.content);
        answer_reader_restart(&f.reader);
        assert_int_equal(f.reader.calls.count, 0);
    }
    teardown(&f);
}

static void test_dropped_reasoning_is_nowhere(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.plan.drop_reasoning = true;
    f.plan.tool_format = NULL;
    answer_reader_init(&f.reader, &f.plan, &f.content);
    read_bytes(&f);
    assert_string_equal(f.reader.thoughts.data, "");
    assert_string_equal(f.content.data, strstr(text, "\n\nI look."));
    teardown(&f);
}

static void test_calls_alone_leave_the_tags_in_content(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.plan.reasoning = NULL;
    answer_reader_init(&f.reader, &f.plan, &f.content);
    read_bytes(&f);
    assert_string_equal(f.content.data, "<think>\nhm\n</think>\n\nI look.");
    assert_int_equal(f.reader.calls.count, 1);
    teardown(&f);
}

static void test_more_than_fits_is_said(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f);
    f.plan.bytes_max = 3;
    f.plan.reasoning = NULL;
    answer_reader_init(&f.reader, &f.plan, &f.content);
    answer_reader_push(&f.reader, text, strlen(text));
    assert_true(answer_reader_check(&f.reader) < 0);
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reasoning_content_and_calls),
        cmocka_unit_test(test_dropped_reasoning_is_nowhere),
        cmocka_unit_test(test_calls_alone_leave_the_tags_in_content),
        cmocka_unit_test(test_more_than_fits_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
