/* test_policy.c - each policy on small views whose answer is worked out by hand. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "router/route/policy.h"

static struct policy_view view_of(struct policy_worker *workers, uint32_t count)
{
    for (uint32_t w = 0; w < count; w++) {
        workers[w].eligible = true;
        workers[w].seconds_per_token = 0.001;
        workers[w].blocks_total = 1000;
        workers[w].sequences_max = 256;
    }
    return (struct policy_view){
        .workers = workers, .workers_count = count, .prompt_tokens = 1000, .block_tokens = 16};
}

static void test_prefix_when_one_worker_holds_the_history_then_it_wins(void **state)
{
    struct policy_worker workers[3] = {0};
    struct policy_view view = view_of(workers, 3);
    struct policy_choice choice = {0};
    (void)state;

    workers[1].hit_tokens = 960;
    for (uint32_t turn = 0; turn < 6; turn++) {
        view.rotation = turn;
        assert_int_equal(policy_prefix.choose(&view, &choice), 0);
        assert_int_equal(choice.worker, 1);
        assert_string_equal(choice.why, "prefix");
        assert_float_equal(choice.own_seconds, 0.040, 1e-9);
    }
}

static void test_prefix_when_the_queue_costs_more_than_recomputing_then_spills(void **state)
{
    struct policy_worker workers[2] = {0};
    struct policy_view view = view_of(workers, 2);
    struct policy_choice choice = {0};
    (void)state;

    workers[0].hit_tokens = 960; /* own 0.04 s instead of 1.0 s */
    workers[0].queued_seconds = 0.90;
    assert_int_equal(policy_prefix.choose(&view, &choice), 0);
    assert_int_equal(choice.worker, 0); /* 0.94 < 1.0 */
    workers[0].queued_seconds = 1.10;
    assert_int_equal(policy_prefix.choose(&view, &choice), 0);
    assert_int_equal(choice.worker, 1);
    assert_string_equal(choice.why, "spill");
}

static void test_prefix_when_only_a_short_prefix_is_shared_then_a_busy_holder_is_left(void **state)
{
    struct policy_worker workers[2] = {0};
    struct policy_view view = view_of(workers, 2);
    struct policy_choice choice = {0};
    (void)state;

    view.prompt_tokens = 80; /* 64 of them a system prompt that worker 0 holds */
    workers[0].hit_tokens = 64;
    workers[0].inflight = 4;
    assert_int_equal(policy_prefix.choose(&view, &choice), 0);
    assert_int_equal(choice.worker, 0); /* 16 + 4 * 8 < 80 */
    workers[0].inflight = 12;
    assert_int_equal(policy_prefix.choose(&view, &choice), 0);
    assert_int_equal(choice.worker, 1); /* 16 + 12 * 8 > 80 */
    view.prompt_tokens = 1000;          /* a long chat stays where it is */
    workers[0].hit_tokens = 960;
    assert_int_equal(policy_prefix.choose(&view, &choice), 0);
    assert_int_equal(choice.worker, 0);
}

static void test_prefix_when_nothing_is_held_then_ties_rotate_and_emptier_wins(void **state)
{
    struct policy_worker workers[3] = {0};
    struct policy_view view = view_of(workers, 3);
    struct policy_choice choice = {0};
    uint32_t taken[3] = {0};
    (void)state;

    for (view.rotation = 0; view.rotation < 9; view.rotation++) {
        assert_int_equal(policy_prefix.choose(&view, &choice), 0);
        assert_string_equal(choice.why, "cold");
        taken[choice.worker]++;
    }
    assert_int_equal(taken[0], 3);
    assert_int_equal(taken[1], 3);
    assert_int_equal(taken[2], 3);
    workers[0].index_blocks = workers[1].index_blocks = 10;
    for (view.rotation = 0; view.rotation < 3; view.rotation++) {
        assert_int_equal(policy_prefix.choose(&view, &choice), 0);
        assert_int_equal(choice.worker, 2);
    }
}

static void test_prefix_when_the_pool_is_full_of_referenced_blocks_then_avoided(void **state)
{
    struct policy_worker workers[2] = {0};
    struct policy_view view = view_of(workers, 2);
    struct policy_choice choice = {0};
    (void)state;

    workers[0].hit_tokens = 500;
    workers[0].blocks_referenced = 999;
    assert_int_equal(policy_prefix.choose(&view, &choice), 0);
    assert_int_equal(choice.worker, 1);
}

static void test_every_policy_when_no_worker_is_eligible_then_eagain(void **state)
{
    struct policy_worker workers[2] = {0};
    struct policy_view view = view_of(workers, 2);
    struct policy_choice choice = {.worker = 77};
    (void)state;

    workers[0].eligible = workers[1].eligible = false;
    for (size_t i = 0; policy_names[i]; i++) {
        assert_non_null(policy_find(policy_names[i]));
        assert_int_equal(policy_find(policy_names[i])->choose(&view, &choice), -EAGAIN);
        assert_int_equal(choice.worker, 77);
    }
    assert_null(policy_find("no_such"));
}

static void test_round_robin_when_one_is_draining_then_the_others_take_turns(void **state)
{
    struct policy_worker workers[3] = {0};
    struct policy_view view = view_of(workers, 3);
    struct policy_choice choice = {0};
    uint32_t taken[3] = {0};
    (void)state;

    workers[1].eligible = false;
    for (view.rotation = 0; view.rotation < 8; view.rotation++) {
        assert_int_equal(policy_round_robin.choose(&view, &choice), 0);
        taken[choice.worker]++;
    }
    assert_int_equal(taken[0], 4);
    assert_int_equal(taken[1], 0);
    assert_int_equal(taken[2], 4);
}

static void test_session_when_a_worker_leaves_then_only_its_sessions_move(void **state)
{
    struct policy_worker workers[4] = {0};
    struct policy_view view = view_of(workers, 4);
    struct policy_choice before = {0}, after = {0};
    uint32_t on[4] = {0};
    (void)state;

    for (uint64_t session = 1; session <= 400; session++) {
        view.session_hash = session;
        workers[2].eligible = true;
        assert_int_equal(policy_session.choose(&view, &before), 0);
        on[before.worker]++;
        workers[2].eligible = false;
        assert_int_equal(policy_session.choose(&view, &after), 0);
        if (before.worker != 2)
            assert_int_equal(after.worker, before.worker);
        assert_int_not_equal(after.worker, 2);
    }
    for (int w = 0; w < 4; w++)
        assert_in_range(on[w], 60, 140);
}

static void test_least_loaded_when_one_has_fewer_requests_then_it_wins(void **state)
{
    struct policy_worker workers[3] = {0};
    struct policy_view view = view_of(workers, 3);
    struct policy_choice choice = {0};
    (void)state;

    workers[0].inflight = 2;
    workers[1].inflight = 1;
    workers[2].inflight = 3;
    assert_int_equal(policy_least_loaded.choose(&view, &choice), 0);
    assert_int_equal(choice.worker, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix_when_one_worker_holds_the_history_then_it_wins),
        cmocka_unit_test(test_prefix_when_the_queue_costs_more_than_recomputing_then_spills),
        cmocka_unit_test(test_prefix_when_only_a_short_prefix_is_shared_then_a_busy_holder_is_left),
        cmocka_unit_test(test_prefix_when_nothing_is_held_then_ties_rotate_and_emptier_wins),
        cmocka_unit_test(test_prefix_when_the_pool_is_full_of_referenced_blocks_then_avoided),
        cmocka_unit_test(test_every_policy_when_no_worker_is_eligible_then_eagain),
        cmocka_unit_test(test_round_robin_when_one_is_draining_then_the_others_take_turns),
        cmocka_unit_test(test_session_when_a_worker_leaves_then_only_its_sessions_move),
        cmocka_unit_test(test_least_loaded_when_one_has_fewer_requests_then_it_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
