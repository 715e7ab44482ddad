/* errmsg.c: texts, codes, and what happens at 512 bytes. */
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "proto/base/errmsg.h"

static void test_set_when_given_a_code_stores_text_and_returns_it(void **state)
{
    struct errmsg err;

    (void)state;
    assert_int_equal(errmsg_set(&err, -EINVAL, "block %d of %d", 3, 2), -EINVAL);
    assert_string_equal(err.text, "block 3 of 2");
}

static void test_all_when_nobody_listens_return_the_code(void **state)
{
    (void)state;
    assert_int_equal(errmsg_set(NULL, -E2BIG, "x"), -E2BIG);
    assert_int_equal(errmsg_prefix(NULL, -E2BIG, "x"), -E2BIG);
    errno = ENOENT;
    assert_int_equal(errmsg_errno(NULL, "x"), -ENOENT);
}

static void test_errno_when_a_call_failed_adds_its_reason(void **state)
{
    struct errmsg err;

    (void)state;
    errno = ENOENT;
    assert_int_equal(errmsg_errno(&err, "open '%s'", "a.gguf"), -ENOENT);
    assert_string_equal(err.text, "open 'a.gguf': No such file or directory");
}

static void test_errno_when_errno_is_zero_is_still_negative(void **state)
{
    struct errmsg err;

    (void)state;
    errno = 0;
    assert_int_equal(errmsg_errno(&err, "write"), -EIO);
}

static void test_prefix_when_called_on_the_way_up_nests(void **state)
{
    struct errmsg err;

    (void)state;
    (void)errmsg_set(&err, -EINVAL, "no such key");
    (void)errmsg_prefix(&err, -EINVAL, "line %d", 7);
    assert_int_equal(errmsg_prefix(&err, -EINVAL, "a.conf"), -EINVAL);
    assert_string_equal(err.text, "a.conf: line 7: no such key");
}

static void test_set_when_the_text_is_too_long_cuts_with_dots(void **state)
{
    struct errmsg err;
    char text[ERRMSG_MAX + 1];

    (void)state;
    memset(text, 'x', ERRMSG_MAX);
    text[ERRMSG_MAX - 1] = '\0'; /* 511: just fits */
    (void)errmsg_set(&err, -EINVAL, "%s", text);
    assert_string_equal(err.text, text);
    text[ERRMSG_MAX - 1] = 'x';
    text[ERRMSG_MAX] = '\0'; /* 512: one too long */
    (void)errmsg_set(&err, -EINVAL, "%s", text);
    assert_int_equal(strlen(err.text), ERRMSG_MAX - 1);
    assert_string_equal(err.text + ERRMSG_MAX - 5, "x...");
}

static void test_set_when_the_cut_hits_a_character_keeps_utf8_whole(void **state)
{
    struct errmsg err;
    char text[600] = "x";

    (void)state;
    for (int i = 0; i < 250; i++)
        strcat(text, "\xc3\xa9"); /* from offset 1: 508 is the second byte of one */
    strcat(text, "0123456789abcdef");
    (void)errmsg_set(&err, -EINVAL, "%s", text);
    assert_string_equal(err.text + strlen(err.text) - 3, "...");
    assert_int_not_equal((unsigned char)err.text[strlen(err.text) - 4], 0xc3);
}

static void test_prefix_when_both_are_long_stays_in_bounds(void **state)
{
    struct errmsg err;
    char text[ERRMSG_MAX];

    (void)state;
    memset(text, 'y', ERRMSG_MAX - 1);
    text[ERRMSG_MAX - 1] = '\0';
    (void)errmsg_set(&err, -EINVAL, "%s", text);
    (void)errmsg_prefix(&err, -EINVAL, "%s", text);
    assert_int_equal(strlen(err.text), ERRMSG_MAX - 1);
    assert_string_equal(err.text + ERRMSG_MAX - 4, "...");
    errno = ENOENT;
    (void)errmsg_errno(&err, "%s", text);
    assert_string_equal(err.text + ERRMSG_MAX - 4, "...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_when_given_a_code_stores_text_and_returns_it),
        cmocka_unit_test(test_all_when_nobody_listens_return_the_code),
        cmocka_unit_test(test_errno_when_a_call_failed_adds_its_reason),
        cmocka_unit_test(test_errno_when_errno_is_zero_is_still_negative),
        cmocka_unit_test(test_prefix_when_called_on_the_way_up_nests),
        cmocka_unit_test(test_set_when_the_text_is_too_long_cuts_with_dots),
        cmocka_unit_test(test_set_when_the_cut_hits_a_character_keeps_utf8_whole),
        cmocka_unit_test(test_prefix_when_both_are_long_stays_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
