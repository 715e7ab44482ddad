/* test_chunk.c - where a prompt is cut; worked out by hand. */
#include <cmocka.h>

#include "worker/sched/chunk.h"

static void test_prompt_within_the_budget_is_not_cut(void **state)
{
    const struct chunk_limits limits = {.step_tokens = 40, .block_tokens = 16};
    (void)state;
    assert_int_equal(chunk_next(&limits, 0, 1), 1);
    assert_int_equal(chunk_next(&limits, 0, 40), 40);
    assert_int_equal(chunk_next(&limits, 96, 100), 4); /* the tail needs no border */
}

static void test_cut_when_the_budget_is_short_ends_on_a_block_border(void **state)
{
    const struct chunk_limits limits = {.step_tokens = 40, .block_tokens = 16};
    (void)state;
    assert_int_equal(chunk_next(&limits, 0, 100), 32); /* 40 rounded down to blocks */
    assert_int_equal(chunk_next(&limits, 0, 41), 32);
    assert_int_equal(chunk_next(&limits, 32, 73), 32); /* 72 down to 64 */
}

static void test_cut_after_a_copied_head_ends_on_a_border_too(void **state)
{
    const struct chunk_limits limits = {.step_tokens = 40, .block_tokens = 16};
    (void)state;
    assert_int_equal(chunk_next(&limits, 7, 100), 25);  /* 47 down to 32 */
    assert_int_equal(chunk_next(&limits, 24, 100), 40); /* 64 is a border */
}

static void test_budget_that_reaches_no_border_gives_nothing(void **state)
{
    const struct chunk_limits short_of_one = {.step_tokens = 15, .block_tokens = 16};
    const struct chunk_limits nothing = {.step_tokens = 0, .block_tokens = 16};
    (void)state;
    assert_int_equal(chunk_next(&short_of_one, 0, 100), 0);
    assert_int_equal(chunk_next(&short_of_one, 1, 100), 15);
    assert_int_equal(chunk_next(&short_of_one, 90, 100), 10);
    assert_int_equal(chunk_next(&nothing, 5, 6), 0);
}

static void test_any_prompt_ends_in_steps_of_one_block(void **state)
{
    const struct chunk_limits limits = {.step_tokens = 16, .block_tokens = 16};
    (void)state;
    for (uint32_t total = 1; total < 200; total++)
        for (uint32_t computed = 0; computed < total;) {
            uint32_t rows = chunk_next(&limits, computed, total);
            assert_true(rows > 0 && rows <= 16);
            computed += rows;
            assert_true(computed == total || computed % 16 == 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompt_within_the_budget_is_not_cut),
        cmocka_unit_test(test_cut_when_the_budget_is_short_ends_on_a_block_border),
        cmocka_unit_test(test_cut_after_a_copied_head_ends_on_a_border_too),
        cmocka_unit_test(test_budget_that_reaches_no_border_gives_nothing),
        cmocka_unit_test(test_any_prompt_ends_in_steps_of_one_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
