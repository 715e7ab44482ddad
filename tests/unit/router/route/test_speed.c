/* test_speed.c - what is believed of a group's speed: guesses, news, old values. */
#include <cmocka.h>
#include <math.h>

#include "router/route/speed.h"

static void test_guess_that_is_worse_than_what_others_measured_is_not_believed(void **state)
{
    struct speed slow, fast, best = {0};
    (void)state;
    speed_begin(&slow, 0.010, 1000);
    speed_begin(&fast, 0.008, 1000);
    speed_tell(&fast, 0.001, 1100);
    speed_take_better(&best, &slow);
    speed_take_better(&best, &fast);
    assert_true(best.seconds_per_token == 0.001);
    assert_true(fabs(speed_believed(&slow, &best, 1100) - 0.001) < 1e-12);
    assert_true(speed_believed(&fast, &best, 1100) == 0.001);
}

static void test_guesses_alone_all_count_as_the_best_of_them(void **state)
{
    struct speed a, b, best = {0};
    (void)state;
    speed_begin(&a, 0.010, 0);
    speed_begin(&b, 0.002, 0);
    speed_take_better(&best, &b);
    speed_take_better(&best, &a);
    assert_true(speed_believed(&a, &best, 0) == 0.002);
    assert_true(speed_believed(&b, &best, 0) == 0.002);
}

static void test_measured_value_is_believed_and_loses_half_its_excess_in_three_seconds(void **state)
{
    struct speed slow, fast, best = {0};
    (void)state;
    speed_begin(&slow, 0.001, 0);
    speed_begin(&fast, 0.001, 0);
    speed_tell(&slow, 0.009, 10000);
    speed_tell(&fast, 0.001001, 10000);
    speed_tell(&fast, 0.001, 10000);
    speed_take_better(&best, &slow);
    speed_take_better(&best, &fast);
    assert_true(fabs(speed_believed(&slow, &best, 10000) - 0.009) < 1e-12);
    assert_true(fabs(speed_believed(&slow, &best, 13000) - 0.005) < 1e-12);
    assert_true(fabs(speed_believed(&slow, &best, 16000) - 0.003) < 1e-12);
    speed_tell(&slow, 0.009, 16000); /* the same number is no news */
    assert_true(fabs(speed_believed(&slow, &best, 16000) - 0.003) < 1e-12);
    speed_tell(&slow, 0.0091, 16000);
    assert_true(fabs(speed_believed(&slow, &best, 16000) - 0.0091) < 1e-12);
    assert_true(speed_believed(&fast, &best, 99000) == 0.001); /* the best does not age */
}

static void test_unknown_speed_is_that_of_the_best_and_none_is_none(void **state)
{
    struct speed unknown = {0}, known, best = {0};
    (void)state;
    assert_true(speed_believed(&unknown, &best, 5) == 0);
    speed_begin(&known, 0.004, 0);
    speed_take_better(&best, &unknown);
    speed_take_better(&best, &known);
    speed_take_better(&best, &unknown);
    assert_true(speed_believed(&unknown, &best, 5) == 0.004);
}

static void test_slow_measured_value_is_better_than_a_fast_guess(void **state)
{
    struct speed guess, measured, best = {0};
    (void)state;
    speed_begin(&guess, 0.0001, 0);
    speed_begin(&measured, 1, 0);
    speed_tell(&measured, 0.002, 0);
    speed_take_better(&best, &guess);
    speed_take_better(&best, &measured);
    assert_true(best.seconds_per_token == 0.002);
    speed_take_better(&best, &guess);
    assert_true(best.seconds_per_token == 0.002);
    assert_true(speed_believed(&guess, &best, 0) == 0.002); /* a guess draws no chat away */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guess_that_is_worse_than_what_others_measured_is_not_believed),
        cmocka_unit_test(test_guesses_alone_all_count_as_the_best_of_them),
        cmocka_unit_test(
            test_measured_value_is_believed_and_loses_half_its_excess_in_three_seconds),
        cmocka_unit_test(test_unknown_speed_is_that_of_the_best_and_none_is_none),
        cmocka_unit_test(test_slow_measured_value_is_better_than_a_fast_guess),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
