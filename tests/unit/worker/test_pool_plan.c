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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_is_as_big_as_its_memory_when_that_can_be_used),
        cmocka_unit_test(test_default_context_that_does_not_fit_is_cut),
        cmocka_unit_test(test_more_memory_than_can_be_used_is_not_taken),
        cmocka_unit_test(test_concurrency_when_printed_is_vllms_tokens_over_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
