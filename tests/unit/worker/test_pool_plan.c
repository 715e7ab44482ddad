/* test_pool_plan.c - numbers worked out by hand: 1000 bytes a block, 16 tokens a block. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

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
    assert_int_equal(pool_plan_make(&usual, &plan, NULL), 0);
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
    assert_int_equal(pool_plan_make(&request, &plan, NULL), 0);
    assert_int_equal(plan.blocks, 67);
    assert_int_equal(plan.context_tokens, 1024);
    assert_int_equal(plan.sequences_at_full_context, 1);
    assert_true(plan.context_cut);
}

static void test_context_asked_for_that_does_not_fit_is_refused_with_numbers(void **state)
{
    struct pool_request request = usual;
    struct pool_plan plan;
    struct errmsg err;
    (void)state;
    request.kv_bytes = 67999;
    request.context_asked = 1600;
    assert_int_equal(pool_plan_make(&request, &plan, &err), -EINVAL);
    assert_string_equal(err.text, "--max-model-len 1600 needs 103 KV blocks, --kv-cache-memory of "
                                  "67999 bytes holds 67: at most 1024 tokens fit, or give 103000 "
                                  "bytes");
    request.context_asked = 1024;
    assert_int_equal(pool_plan_make(&request, &plan, &err), 0);
    assert_int_equal(plan.context_tokens, 1024);
    assert_false(plan.context_cut);
}

static void test_context_over_the_models_is_refused(void **state)
{
    struct pool_request request = usual;
    struct pool_plan plan;
    struct errmsg err;
    (void)state;
    request.context_asked = 1601;
    assert_int_equal(pool_plan_make(&request, &plan, &err), -EINVAL);
    assert_string_equal(err.text, "--max-model-len 1601: the model was made for 1600 tokens");
}

static void test_more_memory_than_can_be_used_is_not_taken(void **state)
{
    struct pool_request request = usual;
    struct pool_plan plan;
    (void)state;
    request.kv_bytes = 1000ull * 1000 * 1000;
    assert_int_equal(pool_plan_make(&request, &plan, NULL), 0);
    assert_int_equal(plan.blocks, 103 * 256);
    assert_true(plan.blocks_cut);
    request.sequences_max = 1; /* other chats' caches still have a place */
    assert_int_equal(pool_plan_make(&request, &plan, NULL), 0);
    assert_int_equal(plan.blocks, 103 * 64);
}

static void test_hardly_any_memory_is_refused(void **state)
{
    struct pool_request request = usual;
    struct pool_plan plan;
    (void)state;
    request.kv_bytes = 3999;
    assert_int_equal(pool_plan_make(&request, &plan, NULL), -ENOMEM);
    request.kv_bytes = 4000;
    assert_int_equal(pool_plan_make(&request, &plan, NULL), 0);
    assert_int_equal(plan.context_tokens, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_is_as_big_as_its_memory_when_that_can_be_used),
        cmocka_unit_test(test_default_context_that_does_not_fit_is_cut),
        cmocka_unit_test(test_context_asked_for_that_does_not_fit_is_refused_with_numbers),
        cmocka_unit_test(test_context_over_the_models_is_refused),
        cmocka_unit_test(test_more_memory_than_can_be_used_is_not_taken),
        cmocka_unit_test(test_hardly_any_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
