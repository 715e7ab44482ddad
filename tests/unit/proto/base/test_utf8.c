/* utf8.c: whole characters, and what is none. */
#include <cmocka.h>

#include "proto/base/utf8.h"

static void test_utf8_span_when_invalid_then_ends_before_it(void **state)
{
    (void)state;
    assert_int_equal(utf8_span("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 10), 10);
    assert_int_equal(utf8_span("a\xc0\x80", 3), 1);        /* overlong NUL */
    assert_int_equal(utf8_span("\xe0\x80\x80", 3), 0);     /* overlong */
    assert_int_equal(utf8_span("\xed\xa0\x80", 3), 0);     /* surrogate */
    assert_int_equal(utf8_span("\xf4\x90\x80\x80", 4), 0); /* past U+10FFFF */
    assert_int_equal(utf8_span("ab\xe2\x82", 4), 2);       /* cut */
    assert_int_equal(utf8_span("\x80", 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_span_when_invalid_then_ends_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
