/* test_tiny.c - random schedules over two tiny models on 1, 2 and 3 ranks: quick enough for the
 * sanitizers. golden/test_exact_schedules.c does the same on a real model. */
#include <cmocka.h>

#include "tests/exact/tiny.h"

static void play(const char *model, uint32_t ranks, uint32_t schedules, uint64_t seed)
{
    struct exact *exact = tiny_open(model, ranks, seed);
    struct errmsg err = {""};
    for (uint32_t k = 0; k < schedules; k++) {
        if (exact_run(exact, k, &err) != 0)
            fail_msg("%u ranks: %s", ranks, err.text);
    }
    const struct exact_counts *counts = exact_counts(exact);
    assert_int_equal(counts->schedules, schedules);
    assert_true(counts->positions > 20 * counts->schedules);
    assert_true(counts->preemptions > 0 && counts->evictions > 0);
    assert_true(counts->hits > 0 && counts->copies > counts->forks && counts->forks > 0);
    assert_true(counts->holds > 0 && counts->chunks > 0 && counts->cancels > 0);
    assert_true(counts->tier_stores > 0 && counts->tier_loads > 0);
    exact_close(exact);
}

static void test_logits_in_schedules_on_one_rank_have_the_bits_of_the_run_alone(void **state)
{
    (void)state;
    play(TINY_F32, 1, 200, 1);
    play(TINY_Q8_0, 1, 200, 2);
}

static void test_logits_in_schedules_on_two_ranks_have_the_bits_of_the_run_alone(void **state)
{
    (void)state;
    play(TINY_F32, 2, 50, 3);
}

static void test_logits_in_schedules_on_three_ranks_have_the_bits_of_the_run_alone(void **state)
{
    (void)state;
    play(TINY_Q8_0, 3, 50, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_in_schedules_on_one_rank_have_the_bits_of_the_run_alone),
        cmocka_unit_test(test_logits_in_schedules_on_two_ranks_have_the_bits_of_the_run_alone),
        cmocka_unit_test(test_logits_in_schedules_on_three_ranks_have_the_bits_of_the_run_alone),
    };
    return tiny_there() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
