/* test_step_time.c - work and rows, worked out by hand. */
#include <cmocka.h>

#include "worker/sched/step_time.h"

static void test_work_is_rows_and_what_they_attend_to(void **state)
{
    const struct step_time shallow = {.row_positions = 0}, deep = {.row_positions = 1000};
    (void)state;
    assert_float_equal(step_time_work(&shallow, 5000, 7), 7, 1e-9);
    assert_float_equal(step_time_work(&deep, 2000, 1), 3, 1e-9);
    /* 11 + (1000 + 1001 + ... + 1010) / 1000 = 11 + 11.055 */
    assert_float_equal(step_time_work(&deep, 1000, 11), 22.055, 1e-9);
    assert_float_equal(step_time_work(&deep, 1000, 0), 0, 1e-9);
}

static void test_rows_are_those_that_the_work_is_enough_for(void **state)
{
    const struct step_time shallow = {.row_positions = 0}, deep = {.row_positions = 1000};
    (void)state;
    assert_int_equal(step_time_rows(&shallow, 5000, 64.9, 2048), 64);
    assert_int_equal(step_time_rows(&shallow, 0, 5000, 2048), 2048);
    assert_int_equal(step_time_rows(&deep, 3000, 40, 2048), 9); /* 10 would attend to a bit more */
    assert_int_equal(step_time_rows(&deep, 3000, 0, 2048), 0);
    assert_int_equal(step_time_rows(&shallow, 0, -3.5, 2048),
                     0); /* more was given than there was */
    for (uint32_t position = 0; position < 8000; position += 37) {
        uint32_t rows = step_time_rows(&deep, position, 100, 2048);
        assert_in_range(rows, 1, 100);
        assert_true(step_time_work(&deep, position, rows) < 102);
        assert_true(step_time_work(&deep, position, rows + 2) > 98);
    }
}

static void test_time_follows_what_steps_took(void **state)
{
    struct step_time time = {.row_positions = 0};
    (void)state;
    step_time_learn(&time, 10, 1000);
    assert_float_equal(time.work_ns, 100, 1e-9); /* the first one is believed */
    step_time_learn(&time, 10, 2000);
    assert_float_equal(time.work_ns, 150, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_is_rows_and_what_they_attend_to),
        cmocka_unit_test(test_rows_are_those_that_the_work_is_enough_for),
        cmocka_unit_test(test_time_follows_what_steps_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
