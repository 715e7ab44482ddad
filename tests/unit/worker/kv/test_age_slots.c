/* test_age_slots.c - slots of growing width, and the ghosts that the same policy keeps. */
#include <cmocka.h>
#include <string.h>

#include "worker/kv/age_slots.h"
#include "worker/kv/ghosts.h"

#define TIMES 60000u

/* What hangs on a slot: the times from first to last. */
struct held {
    uint32_t first[AGE_SLOTS], last[AGE_SLOTS];
};

static void on_merge(void *user, uint32_t into, uint32_t from)
{
    struct held *held = user;

    if (held->first[into] == UINT32_MAX)
        held->last[into] = held->last[from];
    else
        assert_int_equal(held->last[from] + 1, held->first[into]); /* older, without a gap */
    held->first[into] = held->first[from];
    held->first[from] = UINT32_MAX;
}

static void test_every_time_stays_in_its_slot(void **state)
{
    static struct held held;
    struct age_slots slots;
    (void)state;
    memset(held.first, 0xff, sizeof(held.first));
    age_slots_init(&slots);
    held.first[age_slot_of(&slots, 0)] = held.last[age_slot_of(&slots, 0)] = 0;
    for (uint32_t now = 1; now < TIMES; now++) {
        age_slots_tick(&slots, on_merge, &held);
        uint32_t slot = age_slot_of(&slots, now);
        assert_int_equal(held.first[slot], UINT32_MAX);
        held.first[slot] = held.last[slot] = now;
        for (uint32_t time = now; time < TIMES; time -= time / 7 + 1) {
            slot = age_slot_of(&slots, time);
            assert_in_range(time, held.first[slot], held.last[slot]);
        }
    }
    for (uint32_t age = 1; age < 30000; age++) {
        uint32_t slot = age_slot_of(&slots, TIMES - 1 - age);
        assert_true(held.last[slot] - held.first[slot] <= age / 8);
    }
}

static void test_ghosts_forget_the_oldest_of_a_bucket(void **state)
{
    struct ghosts ghosts = {.buckets = NULL};
    struct ghost forgotten, ghost = {.used = 1};
    (void)state;
    assert_int_equal(ghosts_init(&ghosts, 32), 0); /* 16 buckets of 4 */
    for (uint64_t i = 1; i <= 4; i++) {
        ghost.tag = 16 * i; /* one bucket */
        assert_false(ghosts_add(&ghosts, &ghost, &forgotten));
    }
    ghost.tag = 80;
    assert_true(ghosts_add(&ghosts, &ghost, &forgotten));
    assert_int_equal(forgotten.tag, 16);
    assert_int_equal(ghosts_count(&ghosts), 4);
    assert_false(ghosts_take(&ghosts, 16, &ghost));
    assert_true(ghosts_take(&ghosts, 32, &ghost));
    assert_int_equal(ghost.tag, 32);
    assert_int_equal(ghosts_count(&ghosts), 3);
    ghost = (struct ghost){.tag = 48, .used = 9}; /* lost again: the older loss is forgotten */
    assert_true(ghosts_add(&ghosts, &ghost, &forgotten));
    assert_int_equal(forgotten.used, 1);
    assert_int_equal(ghosts_count(&ghosts), 3);
    assert_true(ghosts_take(&ghosts, 48, &ghost));
    assert_int_equal(ghost.used, 9);
    ghost.tag = 0; /* cannot be told from no ghost */
    assert_true(ghosts_add(&ghosts, &ghost, &forgotten));
    assert_int_equal(ghosts_count(&ghosts), 2);
    ghosts_done(&ghosts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_time_stays_in_its_slot),
        cmocka_unit_test(test_ghosts_forget_the_oldest_of_a_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
