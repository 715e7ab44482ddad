/* test_pool_plan.c - numbers worked out by hand: 1000 bytes a block, 16 tokens a block. */
#include <cmocka.h>

#include "worker/pool_plan.h"

static const struct pool_request usual = {.kv_bytes = 1000 * 1000,
                                          .block_bytes = 1000,
                                          .context_asked = 0,
                                          .context_model = 1600,
                                          .sequences_max = 256};

static void test_pool_is_as_big_as_its_memory_when_that_can_be_used(void **state)
{
    struct pool_plan plan;
    (void)state;
    plan = pool_plan_make(&usual);
    assert_int_equal(plan.blocks, 1000);
    assert_int_equal(plan.context_tokens, 1600);
    assert_int_equal(plan.sequences_at_full_context, 1000 / (100 + 1 + 2));
    assert_false(plan.context_cut);
    assert_false(plan.blocks_cut);
}

static void test_default_context_that_does_not_fit_is_cut(void **state)
{
    struct pool_request request = usual;
    struct pool_plan plan;
    (void)state;
    request.kv_bytes = 67999; /* 67 blocks: (67 - 2) * 64 / 65 = 64 of one sequence */
    plan = pool_plan_make(&request);
    assert_int_equal(plan.blocks, 67);
    assert_int_equal(plan.context_tokens, 1024);
    assert_int_equal(plan.sequences_at_full_context, 1);
    assert_true(plan.context_cut);
}

static void test_more_memory_than_can_be_used_is_not_taken(void **state)
{
    struct pool_request request = usual;
    struct pool_plan plan;
    (void)state;
    request.kv_bytes = 1000ull * 1000 * 1000;
    plan = pool_plan_make(&request);
    assert_int_equal(plan.blocks, 103 * 256);
    assert_true(plan.blocks_cut);
    request.sequences_max = 1; /* other chats' caches still have a place */
    plan = pool_plan_make(&request);
    assert_int_equal(plan.blocks, 103 * 64);
}

/* 1000 blocks of 16 tokens for sequences of 1600 */
static void test_concurrency_when_printed_is_vllms_tokens_over_length(void **state)
{
    struct pool_plan plan = pool_plan_make(&usual);
    (void)state;
    assert_true(pool_plan_concurrency(&plan) == 10.0);
}

/* 600 bytes of a block are of layers that slide; a window of 160 tokens lies in 11 blocks at most,
 * a step of 64 tokens in 4. */
static const struct pool_request sliding = {.kv_bytes = 1000 * 1000,
                                            .block_bytes = 400,
                                            .context_model = 1600,
                                            .sequences_max = 256,
                                            .window_block_bytes = 600,
                                            .window_tokens = 160,
                                            .step_tokens_max = 64};

static void test_memory_is_split_so_that_short_and_long_ones_leave_the_same_idle(void **state)
{
    struct pool_plan plan;
    (void)state;
    /* A sequence of 1600 tokens: 100 + 1 + 2 blocks, 11 + 4 + 0 + 2 window blocks. */
    assert_int_equal(pool_plan_bytes_for(&sliding, 1600), 103 * 400 + 17 * 600);
    plan = pool_plan_make(&sliding);
    assert_int_equal(plan.context_tokens, 1600);
    assert_int_equal(plan.sequence_windows, 17);
    assert_true(plan.blocks * 400ull + plan.window_blocks * 600ull <= sliding.kv_bytes);
    assert_true(plan.blocks * 400ull + plan.window_blocks * 600ull > sliding.kv_bytes - 1000);
    /* Share of memory in use where all are short: window_blocks * 1000; long: 103 * 400 + 17 * 600
     * for 103 blocks. */
    double shorts = plan.window_blocks * 1000.0,
           longs = plan.blocks / 103.0 * (103 * 400 + 17 * 600);
    assert_true(shorts / longs > 0.99 && shorts / longs < 1.01);
    assert_true(shorts > 0.5 * (double)sliding.kv_bytes);
    assert_int_equal(plan.sequences_at_full_context, plan.blocks / 103);
}

static void test_a_context_that_just_fits_gets_its_blocks_of_both_kinds(void **state)
{
    struct pool_request request = sliding;
    struct pool_plan plan;
    (void)state;
    request.kv_bytes = 103 * 400 + 17 * 600;
    plan = pool_plan_make(&request);
    assert_int_equal(plan.context_tokens, 1600);
    assert_false(plan.context_cut);
    assert_int_equal(plan.blocks, 103);
    assert_int_equal(plan.window_blocks, 17);
    assert_true(pool_plan_concurrency(&plan) == 1.0);
    request.kv_bytes -= 400;
    plan = pool_plan_make(&request);
    assert_true(plan.context_cut);
    assert_int_equal(plan.context_tokens, 1584);
    assert_int_equal(plan.context_tokens, pool_plan_tokens_within(&request));
}

static void test_where_all_layers_slide_blocks_are_books_for_any_length(void **state)
{
    struct pool_request request = sliding;
    struct pool_plan plan;
    (void)state;
    request.block_bytes = 0;
    request.kv_bytes = 600 * 170;
    plan = pool_plan_make(&request);
    assert_int_equal(plan.window_blocks, 170);
    assert_int_equal(plan.sequences_at_full_context, 10);
    assert_int_equal(plan.blocks, (170 / 11 + 1) * 103); /* as many as can hold a window */
    assert_true(pool_plan_concurrency(&plan) == 10.0);
    assert_false(plan.blocks_cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_split_so_that_short_and_long_ones_leave_the_same_idle),
        cmocka_unit_test(test_a_context_that_just_fits_gets_its_blocks_of_both_kinds),
        cmocka_unit_test(test_where_all_layers_slide_blocks_are_books_for_any_length),
        cmocka_unit_test(test_pool_is_as_big_as_its_memory_when_that_can_be_used),
        cmocka_unit_test(test_default_context_that_does_not_fit_is_cut),
        cmocka_unit_test(test_more_memory_than_can_be_used_is_not_taken),
        cmocka_unit_test(test_concurrency_when_printed_is_vllms_tokens_over_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
