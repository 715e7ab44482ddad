/* test_reuse_age.c - what the worth of a block is, for chats whose habits are known. */
#include <cmocka.h>
#include <stdbool.h>

#include "worker/kv/reuse_age.h"

/* `chance` of ten thousand blocks is asked for at each age, of those that are left. */
static void live(struct reuse_ages *ages, uint32_t kind, double (*chance)(uint32_t age))
{
    double left = 10000;

    for (uint32_t age = 1; age < 2000; age++) {
        double asked = left * chance(age);
        for (uint32_t i = 0; i < (uint32_t)asked; i++)
            reuse_ask(ages, kind, age);
        reuse_expose(ages, kind, reuse_bin(age), (uint32_t)left);
        left -= asked;
    }
    for (uint32_t i = 0; i < REUSE_KINDS; i++)
        reuse_learn(ages);
}

static float worth_at(const struct reuse_ages *ages, uint32_t kind, uint32_t age)
{
    return reuse_worth(ages, kind, reuse_bin(age));
}

static void test_bins_are_in_order_and_cover_every_age(void **state)
{
    uint32_t last = 0;
    (void)state;
    for (uint32_t age = 0; age < 100000; age++) {
        uint32_t bin = reuse_bin(age);
        assert_in_range(bin, last, last + 1);
        assert_true(bin < REUSE_BINS);
        last = bin;
    }
    assert_int_equal(last, REUSE_BINS - 1);
    assert_int_equal(reuse_bin(15), 15);
    assert_int_equal(reuse_bin(16), reuse_bin(17));
    assert_int_not_equal(reuse_bin(17), reuse_bin(18));
    assert_int_equal(reuse_bin(32), reuse_bin(35));
}

static void test_before_anything_was_seen_the_older_is_worth_less(void **state)
{
    static struct reuse_ages ages;
    (void)state;
    reuse_ages_init(&ages);
    for (uint32_t age = 16; age < 4000; age++) /* one octave to the next */
        assert_true(worth_at(&ages, REUSE_FRESH, 2 * age) < worth_at(&ages, REUSE_FRESH, age));
    assert_true(worth_at(&ages, REUSE_SHARED, 5) > worth_at(&ages, REUSE_FRESH, 5));
    assert_true(worth_at(&ages, REUSE_ABANDONED, 1) < worth_at(&ages, REUSE_FRESH, 4000));
}

static double in_turn(uint32_t age)
{
    return age == 12 ? 1 : 0;
}

static void test_chats_that_take_turns_are_worth_more_the_nearer_their_turn(void **state)
{
    static struct reuse_ages ages;
    (void)state;
    reuse_ages_init(&ages);
    live(&ages, REUSE_SOMETIMES, in_turn);
    for (uint32_t age = 1; age < 12; age++)
        assert_true(worth_at(&ages, REUSE_SOMETIMES, age) <
                    worth_at(&ages, REUSE_SOMETIMES, age + 1));
    assert_true(worth_at(&ages, REUSE_SOMETIMES, 12) > 0.8f);
    /* One hit after 1 + 12 - age admissions. */
    assert_true(worth_at(&ages, REUSE_SOMETIMES, 3) > 0.08f);
    assert_true(worth_at(&ages, REUSE_SOMETIMES, 3) < 0.12f);
}

/* Half of them come back with a chance of 1/10 each time, the other half never. */
static double half_alive(uint32_t age)
{
    double alive = 0.5;

    for (uint32_t i = 1; i < age; i++)
        alive *= 0.9;
    return alive * 0.1 / (alive + 0.5);
}

static void test_chats_that_end_at_random_are_worth_less_with_age(void **state)
{
    static struct reuse_ages ages;
    (void)state;
    reuse_ages_init(&ages);
    live(&ages, REUSE_FRESH, half_alive);
    assert_true(worth_at(&ages, REUSE_FRESH, 1) > 0.035f);
    assert_true(worth_at(&ages, REUSE_FRESH, 1) < 0.065f);
    assert_true(worth_at(&ages, REUSE_FRESH, 20) < worth_at(&ages, REUSE_FRESH, 1) / 2);
    assert_true(worth_at(&ages, REUSE_FRESH, 200) < worth_at(&ages, REUSE_FRESH, 20) / 2);
}

static double never(uint32_t age)
{
    (void)age;
    return 0;
}

static void test_kind_that_is_never_asked_for_is_worth_least(void **state)
{
    static struct reuse_ages ages;
    (void)state;
    reuse_ages_init(&ages);
    live(&ages, REUSE_FRESH, half_alive);
    live(&ages, REUSE_CHAT_ANSWER, never); /* thinking that the template drops */
    assert_true(worth_at(&ages, REUSE_CHAT_ANSWER, 1) < worth_at(&ages, REUSE_FRESH, 1) / 3);
    live(&ages, REUSE_ABANDONED, in_turn); /* agents that fork: asked for after all */
    assert_true(worth_at(&ages, REUSE_ABANDONED, 11) > worth_at(&ages, REUSE_FRESH, 11));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bins_are_in_order_and_cover_every_age),
        cmocka_unit_test(test_before_anything_was_seen_the_older_is_worth_less),
        cmocka_unit_test(test_chats_that_take_turns_are_worth_more_the_nearer_their_turn),
        cmocka_unit_test(test_chats_that_end_at_random_are_worth_less_with_age),
        cmocka_unit_test(test_kind_that_is_never_asked_for_is_worth_least),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
