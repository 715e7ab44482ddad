/* test_quickstart.c - the script's flags; that it installs, builds and serves is what tests/run.sh
 * and the README's first command do with the same functions. */
#include <cmocka.h>
#include <string.h>

#include "tests/e2e/harness.h"

#define SCRIPT SOURCE_DIR "/deploy/quickstart.sh"

static void expect(int code, const char *words, const char *const *argv)
{
    struct program program;
    program_run(&program, 10000, argv);
    assert_int_equal(program.code, code);
    if (!strstr(code ? program.err : program.out, words))
        fail_msg("no '%s' in: %s%s", words, program.out, program.err);
    assert_null(strstr(program.err, "1. packages")); /* nothing was begun */
    program_done(&program);
}

static void test_help_names_every_flag(void **state)
{
    static const char *const flags[] = {"--once", "--port", "--groups", "--tp", "-- FLAGS"};
    (void)state;
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        expect(0, flags[i], (const char *const[]){SCRIPT, "--help", NULL});
    expect(0, "usage:", (const char *const[]){SCRIPT, "-h", NULL});
}

static void test_bad_flags_are_refused_before_anything_is_done(void **state)
{
    (void)state;
    expect(1, "no flag '--bogus'", (const char *const[]){SCRIPT, "--bogus", NULL});
    expect(1, "--port needs a number", (const char *const[]){SCRIPT, "--port", NULL});
    expect(1, "not 'http'", (const char *const[]){SCRIPT, "--port", "http", NULL});
    expect(1, "--groups needs a number", (const char *const[]){SCRIPT, "--groups", "-1", NULL});
    expect(1, "--tp needs a number", (const char *const[]){SCRIPT, "--tp", "", NULL});
}

static void test_the_demo_says_how_it_is_called(void **state)
{
    (void)state;
    expect(1, "usage: demo.py URL",
           (const char *const[]){"/usr/bin/env", "python3", SOURCE_DIR "/deploy/demo.py", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help_names_every_flag),
        cmocka_unit_test(test_bad_flags_are_refused_before_anything_is_done),
        cmocka_unit_test(test_the_demo_says_how_it_is_called),
    };
    e2e_begin();
    return e2e_finish(cmocka_run_group_tests(tests, NULL, NULL));
}
