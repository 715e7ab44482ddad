/* test_limits.c - turns and age of a session, by id and by what its messages extend. */
#include <errno.h>

#include "router/session/limits.h"
#include "talk.h"

static int take(struct limits *limits, uint64_t session, const char *letters, uint64_t now_ms,
                struct session_use *use)
{
    struct talk t;
    talk_init(&t, letters);
    int r = limits_take(limits, session, &t.conversation, now_ms, use);
    talk_done(&t);
    return r;
}

static void test_turns_by_prefix_chain(void **state)
{
    const struct limits_settings settings = {.turns_max = 3};
    struct limits *limits = limits_new(&settings);
    struct session_use use;
    (void)state;
    assert_int_equal(take(limits, 0, "su", 0, &use), 0);
    assert_int_equal(use.turns, 1);
    assert_int_equal(take(limits, 0, "suau", 0, &use), 0);
    assert_int_equal(take(limits, 0, "suau", 0, &use), 0); /* again: the same turn */
    assert_int_equal(use.turns, 2);
    assert_int_equal(take(limits, 0, "suauau", 0, &use), 0);
    assert_int_equal(take(limits, 0, "suauauau", 0, &use), -EDQUOT);
    assert_int_equal(use.turns, 4);
    assert_int_equal(take(limits, 0, "suauauau", 0, &use), -EDQUOT); /* refused: not counted */
    assert_int_equal(use.turns, 4);
    assert_int_equal(take(limits, 0, "suauct", 0, &use), 0); /* a branch at turn 2 */
    assert_int_equal(use.turns, 3);
    assert_int_equal(take(limits, 0, "u", 0, &use), 0); /* another chat */
    assert_int_equal(use.turns, 1);
    limits_free(limits);
}

static void test_turns_by_session_id_whatever_the_messages(void **state)
{
    const struct limits_settings settings = {.turns_max = 2};
    struct limits *limits = limits_new(&settings);
    struct session_use use;
    (void)state;
    assert_int_equal(take(limits, 77, "su", 0, &use), 0);
    assert_int_equal(take(limits, 77, "su", 0, &use), 0); /* again */
    assert_int_equal(take(limits, 77, "u", 0, &use), 0);
    assert_int_equal(use.turns, 2);
    assert_int_equal(take(limits, 77, "suau", 0, &use), -EDQUOT);
    assert_int_equal(take(limits, 78, "suau", 0, &use), 0);
    limits_free(limits);
}

static void test_age_counts_from_the_first_turn(void **state)
{
    const struct limits_settings settings = {.age_ms_max = 1000};
    struct limits *limits = limits_new(&settings);
    struct session_use use;
    (void)state;
    assert_int_equal(take(limits, 0, "su", 5000, &use), 0);
    assert_int_equal(take(limits, 0, "suau", 6000, &use), 0);
    assert_int_equal(use.age_ms, 1000);
    assert_int_equal(take(limits, 0, "suauau", 6001, &use), -ETIME);
    assert_int_equal(use.age_ms, 1001);
    /* Somebody else opens with the same words: a new session, not an old one. */
    assert_int_equal(take(limits, 0, "su", 9000, &use), 0);
    assert_int_equal(use.age_ms, 0);
    limits_free(limits);
}

static void test_off_keeps_nothing_and_the_table_is_bounded(void **state)
{
    const struct limits_settings off = {0}, on = {.turns_max = 1};
    struct limits *limits = limits_new(&off);
    struct session_use use;
    (void)state;
    assert_int_equal(take(limits, 1, "su", 0, &use), 0);
    assert_int_equal(limits_entries(limits), 0);
    limits_free(limits);
    limits = limits_new(&on);
    for (uint64_t i = 1; i <= LIMITS_ENTRIES_MAX + 10; i++)
        assert_int_equal(take(limits, i, "u", 0, &use), 0);
    assert_int_equal(limits_entries(limits), LIMITS_ENTRIES_MAX);
    assert_int_equal(take(limits, 11, "uau", 0, &use), -EDQUOT); /* still known */
    assert_int_equal(take(limits, 1, "uau", 0, &use), 0);        /* the oldest went */
    limits_free(limits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_by_prefix_chain),
        cmocka_unit_test(test_turns_by_session_id_whatever_the_messages),
        cmocka_unit_test(test_age_counts_from_the_first_turn),
        cmocka_unit_test(test_off_keeps_nothing_and_the_table_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
