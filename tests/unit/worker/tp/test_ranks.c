/* test_ranks.c - the arguments of a rank process; the processes themselves are tested with the
 * whole worker (test_worker_group.c). */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "worker/tp/ranks.h"

static void test_a_ranks_arguments_come_off_the_front(void **state)
{
    char *line[] = {(char *)"prog", (char *)"--rank",      (char *)"2",   (char *)"--group-fd",
                    (char *)"7",    (char *)"--kv-blocks", (char *)"900", (char *)"--window-blocks",
                    (char *)"30",   (char *)"--model=x",   NULL};
    char **argv = line;
    int argc = 10;
    struct rank_arguments arguments;
    (void)state;
    assert_int_equal(rank_arguments_take(&argc, &argv, &arguments), 0);
    assert_int_equal(arguments.rank, 2);
    assert_int_equal(arguments.group_fd, 7);
    assert_int_equal(arguments.kv_blocks, 900);
    assert_int_equal(arguments.window_blocks, 30);
    assert_int_equal(argc, 2);
    assert_string_equal(argv[0], "prog");
    assert_string_equal(argv[1], "--model=x");
}

static void test_other_programs_arguments_are_left_alone(void **state)
{
    char *line[] = {(char *)"prog", (char *)"--model", (char *)"--rank", NULL};
    char **argv = line;
    int argc = 3;
    struct rank_arguments arguments;
    (void)state;
    assert_int_equal(rank_arguments_take(&argc, &argv, &arguments), -ENOENT);
    assert_int_equal(argc, 3);
    assert_ptr_equal(argv, line);
}

static void test_bad_numbers_are_refused(void **state)
{
    static const char *const ranks[] = {"0", "8", "-1", "x", ""};
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        char *line[] = {(char *)"prog",
                        (char *)"--rank",
                        (char *)(uintptr_t)ranks[i],
                        (char *)"--group-fd",
                        (char *)"7",
                        (char *)"--kv-blocks",
                        (char *)"900",
                        (char *)"--window-blocks",
                        (char *)"0",
                        NULL};
        char **argv = line;
        int argc = 9;
        struct rank_arguments arguments;
        assert_int_equal(rank_arguments_take(&argc, &argv, &arguments), -EINVAL);
        argc = 3;
        assert_int_equal(rank_arguments_take(&argc, &argv, &arguments), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_ranks_arguments_come_off_the_front),
        cmocka_unit_test(test_other_programs_arguments_are_left_alone),
        cmocka_unit_test(test_bad_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
