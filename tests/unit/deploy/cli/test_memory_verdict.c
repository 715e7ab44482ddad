/* test_memory_verdict.c - growth that ends is no leak, growth that goes on is. */
#include <cmocka.h>
#include <string.h>

#include "deploy/cli/memory_verdict.h"

#define ROUNDS 8
#define MIB 1048576.0

static enum memory_verdict judge(enum memory_kind kind, double before, const double *values,
                                 double explained_per_round)
{
    struct memory_row row = {.kind = kind, .before = before};
    for (size_t i = 0; i < ROUNDS; i++) {
        row.values[i] = values[i];
        row.explained[i] = explained_per_round * (double)(i + 1);
    }
    memory_judge(&row, ROUNDS);
    return row.verdict;
}

static void test_what_requests_hold_is_0_while_nothing_runs(void **state)
{
    const double none[ROUNDS] = {0}, two[ROUNDS] = {0, 0, 0, 0, 0, 0, 1, 1};
    const double late[ROUNDS] = {0, 0, 0, 0, 0, 0, 0, 1}; /* one that was just being let go */
    const double always[ROUNDS] = {3, 3, 3, 3, 3, 3, 3, 3};
    (void)state;
    assert_int_equal(judge(MEMORY_ZERO, 0, none, 0), VERDICT_STEADY);
    assert_int_equal(judge(MEMORY_ZERO, 0, two, 0), VERDICT_LEAK);
    assert_int_equal(judge(MEMORY_ZERO, 0, late, 0), VERDICT_STEADY);
    assert_int_equal(judge(MEMORY_ZERO, 0, always, 0), VERDICT_LEAK);
}

static void test_held_bytes_may_rise_to_a_level(void **state)
{
    const double level[ROUNDS] = {50000, 90000, 99000, 100000, 100000, 100000, 100000, 100000};
    const double step[ROUNDS] = {1000, 1000, 1000, 1000, 1000, 90000, 90000, 90000};
    const double leak[ROUNDS] = {2000, 4000, 6000, 8000, 10000, 12000, 14000, 16000};
    const double saw[ROUNDS] = {9000, 1000, 9000, 1000, 9000, 1000, 9000, 1000};
    const double slow[ROUNDS] = {100, 200, 300, 400, 500, 600, 700, 800};
    (void)state;
    assert_int_equal(judge(MEMORY_HELD, 1000, level, 0), VERDICT_GROWTH);
    assert_int_equal(judge(MEMORY_HELD, 1000, step, 0), VERDICT_GROWTH);
    assert_int_equal(judge(MEMORY_HELD, 1000, leak, 0), VERDICT_LEAK);
    assert_int_equal(judge(MEMORY_HELD, 1000, saw, 0), VERDICT_STEADY);
    assert_int_equal(judge(MEMORY_HELD, 50, slow, 0), VERDICT_GROWTH); /* within a page */
}

static void test_a_leak_with_a_quiet_round_is_found(void **state)
{
    const double leak[ROUNDS] = {2000, 4000, 6000, 8000, 10000, 10000, 14000, 16000};
    (void)state;
    assert_int_equal(judge(MEMORY_HELD, 1000, leak, 0), VERDICT_LEAK);
}

static void test_a_cache_may_grow(void **state)
{
    double values[ROUNDS];
    (void)state;
    for (size_t i = 0; i < ROUNDS; i++)
        values[i] = (1 + (double)i) * MIB;
    assert_int_equal(judge(MEMORY_CACHE, 0, values, 0), VERDICT_GROWTH);
}

static void test_resident_memory_is_explained_by_what_is_counted(void **state)
{
    double values[ROUNDS];
    (void)state;
    for (size_t i = 0; i < ROUNDS; i++)
        values[i] = (100 + 10 * (double)i) * MIB;
    assert_int_equal(judge(MEMORY_RESIDENT, 90 * MIB, values, 10 * MIB), VERDICT_GROWTH);
    assert_int_equal(judge(MEMORY_RESIDENT, 90 * MIB, values, 2 * MIB), VERDICT_LEAK);
    assert_int_equal(judge(MEMORY_RESIDENT, 90 * MIB, values, 9 * MIB), VERDICT_GROWTH);
}

static void test_every_verdict_has_words(void **state)
{
    struct memory_row row = {.kind = MEMORY_CACHE, .verdict = VERDICT_GROWTH};
    (void)state;
    assert_string_equal(memory_verdict_name(&row), "growth (reclaimable cache)");
    row.kind = MEMORY_HELD;
    assert_string_equal(memory_verdict_name(&row), "growth, has ended");
    row.verdict = VERDICT_LEAK;
    assert_string_equal(memory_verdict_name(&row), "LEAK");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_requests_hold_is_0_while_nothing_runs),
        cmocka_unit_test(test_held_bytes_may_rise_to_a_level),
        cmocka_unit_test(test_a_leak_with_a_quiet_round_is_found),
        cmocka_unit_test(test_a_cache_may_grow),
        cmocka_unit_test(test_resident_memory_is_explained_by_what_is_counted),
        cmocka_unit_test(test_every_verdict_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
