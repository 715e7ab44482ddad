/* test_metrics_page.c - samples with and without labels, braces in quotes, lines that are none. */
#include <cmocka.h>
#include <string.h>

#include "deploy/cli/metrics_page.h"

static void test_samples_are_taken_apart(void **state)
{
    struct metrics_page page;
    struct errmsg err;
    (void)state;

    assert_int_equal(metrics_page_parse("# HELP a text\n# TYPE a gauge\n"
                                        "a 1\n\nb{x=\"1\",y=\"}{\\\"\"} 2.5e3\nc{} -7\n",
                                        &page, &err),
                     0);
    assert_int_equal(page.count, 3);
    assert_string_equal(page.samples[0].name, "a");
    assert_string_equal(page.samples[0].labels, "");
    assert_true(page.samples[0].value == 1);
    assert_string_equal(page.samples[1].name, "b");
    assert_string_equal(page.samples[1].labels, "x=\"1\",y=\"}{\\\"\"");
    assert_true(page.samples[1].value == 2500);
    assert_true(page.samples[2].value == -7);
    metrics_page_done(&page);
}

static void test_lines_that_are_no_samples_are_named(void **state)
{
    static const char *const bad[] = {"a 1\nb\n", "a 1\n{x=\"1\"} 2\n", "a 1\nb{x=\"1\" 2\n",
                                      "a 1\nb{} x\n"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct metrics_page page;
        struct errmsg err = {""};
        assert_true(metrics_page_parse(bad[i], &page, &err) < 0);
        assert_non_null(strstr(err.text, "line 2"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_are_taken_apart),
        cmocka_unit_test(test_lines_that_are_no_samples_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
