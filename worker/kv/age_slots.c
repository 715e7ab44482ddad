/* age_slots.c - see the header. Level 0 keeps 16 to 17 slots, the others 8 to 9; the oldest slot of
 * the last level takes everything older. Invariant: a level starts where the one above it ends. */
#include "worker/kv/age_slots.h"

#include <string.h>

#include "proto/base/assert.h"

static uint32_t slots_max(uint32_t level)
{
    return level == 0 ? 17 : 9;
}

static uint32_t push(struct age_slots *slots, uint32_t level, uint32_t start)
{
    struct age_level *at = &slots->levels[level];

    if (at->count == 0)
        at->start = start;
    ASSERT(at->count <= slots_max(level));
    ASSERT(at->start + (at->count << level) == start);
    at->count++;
    return age_slot_at(slots, level, at->count - 1);
}

static void pop_oldest(struct age_slots *slots, uint32_t level)
{
    struct age_level *at = &slots->levels[level];

    at->first = (at->first + 1) % (level == 0 ? AGE_LEVEL_SLOTS : AGE_UPPER_SLOTS);
    at->start += 1u << level;
    at->count--;
}

void age_slots_init(struct age_slots *slots)
{
    memset(slots, 0, sizeof(*slots));
    (void)push(slots, 0, 0);
}

void age_slots_tick(struct age_slots *slots, age_merge_fn merge, void *user)
{
    (void)push(slots, 0, ++slots->now);
    for (uint32_t level = 0; slots->levels[level].count > slots_max(level); level++) {
        uint32_t older = age_slot_at(slots, level, 0), newer = age_slot_at(slots, level, 1);
        if (level + 1 == AGE_LEVELS) {
            merge(user, newer, older);
            pop_oldest(slots, level);
            return;
        }
        uint32_t into = push(slots, level + 1, slots->levels[level].start);
        merge(user, into, newer);
        merge(user, into, older);
        pop_oldest(slots, level);
        pop_oldest(slots, level);
    }
}

uint32_t age_slot_of(const struct age_slots *slots, uint32_t time)
{
    uint32_t level = 0;

    ASSERT(time <= slots->now);
    while (level + 1 < AGE_LEVELS && slots->levels[level + 1].count > 0 &&
           time < slots->levels[level].start)
        level++;
    if (time < slots->levels[level].start)
        return age_slot_at(slots, level, 0);
    return age_slot_at(slots, level, (time - slots->levels[level].start) >> level);
}
