/* repetition.c: cases by hand, and random answers against the plain definition. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "proto/base/rng.h"
#include "proto/sampling_limits.h"
#include "worker/sched/repetition.h"

/* After how many of the tokens the answer ends; 0: it does not. */
static uint32_t ends_at(uint32_t min, uint32_t max, uint32_t times, const char *answer)
{
    const struct repetition_rule rule = {min, max, times};
    struct repetition *repetition = NULL;
    uint32_t ids[200], at = 0;

    assert_int_equal(repetition_new(&rule, &repetition, NULL), 0);
    for (uint32_t i = 0; i < strlen(answer) && at == 0; i++) {
        ids[i] = (uint32_t)answer[i];
        if (repetition_take(repetition, ids, i + 1))
            at = i + 1;
    }
    repetition_free(repetition);
    return at;
}

static void test_a_tail_of_one_pattern_is_found_with_its_last_token(void **state)
{
    (void)state;
    assert_int_equal(ends_at(1, 4, 3, "xyaaab"), 5);
    assert_int_equal(ends_at(2, 4, 3, "xabababa"), 7);
    assert_int_equal(ends_at(2, 4, 3, "aaaaaaaa"), 6); /* "aa" three times */
    assert_int_equal(ends_at(3, 4, 2, "abcdabcd"), 8);
    assert_int_equal(ends_at(1, 3, 2, "abcdabcd"), 0); /* a pattern of four */
    assert_int_equal(ends_at(1, 4, 3, "abcabcab"), 0); /* not yet three times */
    assert_int_equal(ends_at(1, 1, 4, "aaabaaaa"), 8);
}

static bool tail_repeats(const uint32_t *ids, uint32_t count, const struct repetition_rule *rule)
{
    for (uint64_t size = rule->pattern_min; size <= rule->pattern_max; size++) {
        uint64_t all = size * rule->count_min;
        bool same = all <= count;
        for (uint64_t i = 0; same && i + size < all; i++)
            same = ids[count - 1 - i] == ids[count - 1 - i - size];
        if (same)
            return true;
    }
    return false;
}

static void test_every_token_of_random_answers_agrees_with_the_definition(void **state)
{
    uint64_t at = 0, found = 0;
    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        struct repetition *repetition = NULL;
        struct repetition_rule rule = {1 + round % 3, 3 + round % 5, 2 + round % 3};
        uint32_t ids[60];
        assert_int_equal(repetition_new(&rule, &repetition, NULL), 0);
        for (uint32_t i = 0; i < 60; i++) {
            ids[i] = rng_uniform(7, at++) < 0.8; /* two letters: they repeat often */
            bool repeats = repetition_take(repetition, ids, i + 1);
            assert_int_equal(repeats, tail_repeats(ids, i + 1, &rule));
            found += repeats;
        }
        repetition_free(repetition);
    }
    assert_true(found > 500 && found < 11000);
}

static void test_rules_that_make_no_sense_are_refused(void **state)
{
    static const struct repetition_rule bad[] = {
        {0, 3, 2}, {4, 3, 2}, {1, REPETITION_PATTERN_MAX + 1, 2}, {1, 3, 1}, {1, 3, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct repetition *repetition = NULL;
        assert_int_equal(repetition_new(&bad[i], &repetition, NULL), -EINVAL);
        assert_null(repetition);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tail_of_one_pattern_is_found_with_its_last_token),
        cmocka_unit_test(test_every_token_of_random_answers_agrees_with_the_definition),
        cmocka_unit_test(test_rules_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
