/* buffer.c: growth to the bound, the sticky failure, consume and take. */
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/mem.h"

static struct buffer buffer;

static int set_up(void **state)
{
    (void)state;
    buffer_init(&buffer, 100);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (buffer.data == NULL || buffer.data[buffer.bytes] != '\0' || buffer.bytes > buffer.bytes_max)
        return -1;
    buffer_done(&buffer);
    buffer_done(&buffer); /* harmless the second time */
    return buffer.bytes == 0 ? 0 : -1;
}

static void test_init_when_nothing_was_appended_is_an_empty_text(void **state)
{
    (void)state;
    assert_string_equal(buffer.data, "");
    assert_int_equal(buffer.bytes, 0);
    assert_int_equal(buffer_finish(&buffer), 0);
    buffer_clear(&buffer);
    buffer_consume(&buffer, 0);
    buffer_append(&buffer, NULL, 0);
    buffer_printf(&buffer, "%s", "");
    assert_string_equal(buffer.data, "");
}

static void test_append_when_in_bounds_collects_and_terminates(void **state)
{
    (void)state;
    buffer_append_text(&buffer, "data: ");
    buffer_append(&buffer, "a\0b", 3);
    buffer_append_char(&buffer, '\n');
    buffer_printf(&buffer, "%d-%s", 42, "x");
    assert_int_equal(buffer.bytes, 14);
    assert_memory_equal(buffer.data, "data: a\0b\n42-x", 15);
}

static void test_trim_keeps_memory_up_to_what_is_kept(void **state)
{
    (void)state;
    buffer_append_text(&buffer, "a text");
    size_t capacity = buffer.capacity;
    buffer_trim(&buffer, capacity);
    assert_string_equal(buffer.data, "");
    assert_int_equal(buffer.capacity, capacity);
    buffer_trim(&buffer, capacity - 1);
    assert_int_equal(buffer.capacity, 0);
    buffer_append_text(&buffer, "again, with the same bound");
    assert_int_equal(buffer_finish(&buffer), 0);
    for (int i = 0; i < 100; i++)
        buffer_append_char(&buffer, 'x');
    assert_int_equal(buffer_finish(&buffer), -ENOBUFS);
    buffer_trim(&buffer, 0);
    assert_int_equal(buffer_finish(&buffer), 0);
}

static void test_append_when_it_just_fits_succeeds(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        buffer_append_char(&buffer, 'x');
    assert_int_equal(buffer_finish(&buffer), 0);
    assert_int_equal(buffer.bytes, 100);
}

static void test_append_when_past_the_bound_fails_and_sticks(void **state)
{
    char text[98] = {0};

    (void)state;
    memset(text, 'x', 97);
    buffer_append_text(&buffer, text);
    buffer_append(&buffer, "1234", 4);
    assert_int_equal(buffer_finish(&buffer), -ENOBUFS);
    buffer_append_char(&buffer, 'y'); /* would fit, but must not follow a gap */
    assert_int_equal(buffer.bytes, 97);
    buffer_clear(&buffer);
    assert_int_equal(buffer_finish(&buffer), 0);
    buffer_append_text(&buffer, "again");
    assert_string_equal(buffer.data, "again");
}

static void test_printf_when_past_the_bound_leaves_the_content(void **state)
{
    (void)state;
    buffer_append_text(&buffer, "kept");
    buffer_printf(&buffer, "%*d", 97, 1);
    assert_int_equal(buffer_finish(&buffer), -ENOBUFS);
    assert_string_equal(buffer.data, "kept");
    assert_int_equal(buffer.bytes, 4);
}

static void test_printf_when_it_needs_every_size_of_room_writes_whole(void **state)
{
    (void)state;
    for (int width = 1; width <= 100; width++) {
        buffer_init(&buffer, 100);
        buffer_printf(&buffer, "%*d", width, 7);
        assert_int_equal(buffer.bytes, width);
        assert_int_equal(buffer.data[width - 1], '7');
        buffer_done(&buffer);
        buffer_append_text(&buffer, "0123456789"); /* room for 64: both ways of printf */
        buffer_printf(&buffer, "%*d", width > 90 ? 90 : width, 7);
        assert_int_equal(buffer.bytes, 10 + (width > 90 ? 90 : width));
        assert_int_equal(buffer.data[buffer.bytes - 1], '7');
        buffer_done(&buffer);
    }
}

static void test_consume_when_a_parser_took_some_keeps_the_rest(void **state)
{
    (void)state;
    buffer_append_text(&buffer, "GET / HTTP/1.1");
    buffer_consume(&buffer, 4);
    assert_string_equal(buffer.data, "/ HTTP/1.1");
    assert_int_equal(buffer.bytes, 10);
    buffer_consume(&buffer, 10);
    assert_string_equal(buffer.data, "");
}

static void test_take_when_filled_hands_over_and_starts_anew(void **state)
{
    size_t bytes = 0;
    char *text;

    (void)state;
    buffer_append_text(&buffer, "mine");
    text = buffer_take(&buffer, &bytes);
    assert_string_equal(text, "mine");
    assert_int_equal(bytes, 4);
    assert_string_equal(buffer.data, "");
    mem_free(text);
    text = buffer_take(&buffer, NULL);
    assert_string_equal(text, "");
    mem_free(text);
    buffer_append_text(&buffer, "next");
    assert_string_equal(buffer.data, "next");
}

static void test_append_when_there_is_no_bound_grows_to_megabytes(void **state)
{
    struct buffer big;

    (void)state;
    buffer_init(&big, SIZE_MAX);
    for (int i = 0; i < 300000; i++)
        buffer_append(&big, "0123456789", 10);
    assert_int_equal(big.bytes, 3000000);
    assert_int_equal(big.data[2999999], '9');
    assert_int_equal(buffer_finish(&big), 0);
    buffer_done(&big);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_init_when_nothing_was_appended_is_an_empty_text),
        TEST(test_append_when_in_bounds_collects_and_terminates),
        TEST(test_trim_keeps_memory_up_to_what_is_kept),
        TEST(test_append_when_it_just_fits_succeeds),
        TEST(test_append_when_past_the_bound_fails_and_sticks),
        TEST(test_printf_when_past_the_bound_leaves_the_content),
        TEST(test_printf_when_it_needs_every_size_of_room_writes_whole),
        TEST(test_consume_when_a_parser_took_some_keeps_the_rest),
        TEST(test_take_when_filled_hands_over_and_starts_anew),
        TEST(test_append_when_there_is_no_bound_grows_to_megabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
