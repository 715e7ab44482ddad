/* test_admin_table.c - JSON answers as tables for people. */
#include <cmocka.h>
#include <string.h>

#include "worker/admin_table.h"

static void assert_table(const char *json, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 1 << 16);
    admin_table_render(json, &out);
    assert_string_equal(out.data, expected);
    buffer_done(&out);
}

static void test_an_object_becomes_aligned_lines(void **state)
{
    (void)state;
    assert_table("{\"a\":1,\"longer\":\"x y\",\"b\":[1,2],\"c\":true}", "a       1\n"
                                                                        "longer  x y\n"
                                                                        "b       [1,2]\n"
                                                                        "c       true\n");
}

static void test_rows_become_columns_as_wide_as_their_widest_cell(void **state)
{
    (void)state;
    assert_table("{\"rows\":[{\"id\":\"a\",\"n\":1000},{\"id\":\"bcd\",\"n\":2},{\"id\":\"e\"}]}",
                 "id   n\n"
                 "a    1000\n"
                 "bcd  2\n"
                 "e    \n");
}

static void test_other_values_stand_alone(void **state)
{
    (void)state;
    assert_table("{\"rows\":[]}", "rows  []\n");
    assert_table("{}", "");
    assert_table("no json", "no json\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_object_becomes_aligned_lines),
        cmocka_unit_test(test_rows_become_columns_as_wide_as_their_widest_cell),
        cmocka_unit_test(test_other_values_stand_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
