/* test_rank_model.c - what rank 0 tells the shared memory of its group. */
#include <cmocka.h>

#include "worker/engine/rank_model.h"

static void test_group_limits_bound_every_number_of_a_step(void **state)
{
    struct backend backend = {.kv_format = "a-format-1"};
    struct rank_model model = {.backend = &backend,
                               .config = {.vocab_size = 320, .hidden = 64},
                               .groups = {.full_layers = 2},
                               .shard = {.ranks = 2}};
    const struct rank_limits limits = {.rows_max = 32,
                                       .sequences_max = 4,
                                       .context_tokens_max = 100,
                                       .kv_blocks = 50,
                                       .rank_timeout_ms = 700,
                                       .window_blocks = 9};
    (void)state;
    struct group_limits group = rank_model_group_limits(&model, &limits);
    assert_int_equal(group.ranks, 2);
    assert_int_equal(group.step_bytes_max,
                     step_ring_bytes_max(&(struct step_sizes){32, 4, 7, 8, 0, 1, 0}));
    assert_int_equal(group.reduce_floats_max, 32 * 64);
    assert_int_equal(group.ids_max, 320);
    assert_int_equal(group.blocks_max, 50);
    assert_string_equal(group.kv_format, "a-format-1");
    assert_int_equal(group.step_deadline_ms, 700);
    assert_int_equal(group.window_blocks_max, 0);
    model.groups = (struct layer_groups){1, 3, 40};
    group = rank_model_group_limits(&model, &limits);
    assert_int_equal(group.step_bytes_max,
                     step_ring_bytes_max(&(struct step_sizes){32, 4, 7, 8, 0, 2, 0}));
    assert_int_equal(group.blocks_max, 50);
    assert_int_equal(group.window_tokens, 40);
    assert_int_equal(group.window_blocks_max, 9);
    model.groups = (struct layer_groups){0, 4, 40};
    assert_int_equal(rank_model_group_limits(&model, &limits).blocks_max, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_limits_bound_every_number_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
