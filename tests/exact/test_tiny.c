/* test_tiny.c - random schedules over two tiny models on 1, 2 and 3 ranks: quick enough for the
 * sanitizers. golden/test_exact_schedules.c does the same on a real model. */
#include <cmocka.h>

#include "tests/exact/tiny.h"

/* Reached: what happens with every model. */
static const struct exact_counts *play_all(struct exact *exact, uint32_t ranks, uint32_t schedules)
{
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
    return counts;
}

static void play(const char *model, uint32_t ranks, uint32_t schedules, uint64_t seed)
{
    struct exact *exact = tiny_open(model, ranks, seed);
    const struct exact_counts *counts = play_all(exact, ranks, schedules);
    assert_true(counts->tier_stores > 0 && counts->tier_loads > 0);
    assert_true(counts->disk_stores > 0 && counts->disk_loads > 0);
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

/* Layers with a window: prompts of up to four windows, window blocks for one sequence and up. */
static void play_windows(const char *model, uint32_t ranks, uint32_t schedules, uint64_t seed)
{
    struct exact *exact = tiny_open(model, ranks, seed);
    assert_true(play_all(exact, ranks, schedules)->window_evictions > schedules);
    exact_close(exact);
}

static void test_logits_where_all_layers_slide_have_the_bits_of_the_run_alone(void **state)
{
    (void)state;
    play_windows(TINY_MISTRAL, 1, 100, 5);
    play_windows(TINY_MISTRAL, 2, 50, 6);
}

static void test_logits_where_some_layers_slide_have_the_bits_of_the_run_alone(void **state)
{
    (void)state;
    play_windows(TINY_GEMMA2, 1, 50, 7);
    play_windows(TINY_GEMMA3, 1, 100, 8);
    play_windows(TINY_GEMMA3, 3, 50, 9);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_in_schedules_on_one_rank_have_the_bits_of_the_run_alone),
        cmocka_unit_test(test_logits_in_schedules_on_two_ranks_have_the_bits_of_the_run_alone),
        cmocka_unit_test(test_logits_in_schedules_on_three_ranks_have_the_bits_of_the_run_alone),
        cmocka_unit_test(test_logits_where_all_layers_slide_have_the_bits_of_the_run_alone),
        cmocka_unit_test(test_logits_where_some_layers_slide_have_the_bits_of_the_run_alone),
    };
    family = argc > 1 ? argv[1] : NULL;
    return tiny_there() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
