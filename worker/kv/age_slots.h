/* age_slots.h - since when blocks wait: one slot per admission for the newest, then slots of 2, 4,
 * 8
 * ... admissions, so that a hundred of them reach back tens of thousands.
 *
 *   oldest  [ 4 | 4 | ... ] [ 2 | 2 | ... ] [ 1 | 1 | ... | 1 ]  newest
 *
 * A tick opens a slot; where a level has too many, its two oldest become one of the next level
 * (Datar, Gionis, Indyk, Motwani 2002). O(1) per tick, amortised; a time's slot in O(levels).
 * Slots are numbers that the owner hangs its counts and lists on; it merges them when told.
 * Thread: one. */
#ifndef REFRAIN_WORKER_KV_AGE_SLOTS_H
#define REFRAIN_WORKER_KV_AGE_SLOTS_H

#include <stdint.h>

#define AGE_LEVELS 12u
#define AGE_LEVEL_SLOTS 18u /* of level 0; a ring with room for the two that merge */
#define AGE_UPPER_SLOTS 10u /* of the others */
#define AGE_SLOTS (AGE_LEVEL_SLOTS + (AGE_LEVELS - 1) * AGE_UPPER_SLOTS)

struct age_level {
    uint32_t start;        /* time of its oldest slot; each slot spans 2^level */
    uint32_t first, count; /* a ring */
};

struct age_slots {
    uint32_t now;
    struct age_level levels[AGE_LEVELS];
};

/* `from` is now empty, what hung on it is older than all that hangs on `into`. */
typedef void (*age_merge_fn)(void *user, uint32_t into, uint32_t from);

void age_slots_init(struct age_slots *slots); /* time 0 */
void age_slots_tick(struct age_slots *slots, age_merge_fn merge, void *user);
uint32_t age_slot_of(const struct age_slots *slots, uint32_t time); /* time <= now */
/* The number of the level's i-th slot from its oldest, and the time in the middle of it. */
static inline uint32_t age_slot_at(const struct age_slots *slots, uint32_t level, uint32_t i)
{
    uint32_t at = slots->levels[level].first + i;

    if (level == 0)
        return at % AGE_LEVEL_SLOTS;
    return AGE_LEVEL_SLOTS + (level - 1) * AGE_UPPER_SLOTS + at % AGE_UPPER_SLOTS;
}
static inline uint32_t age_slot_time(const struct age_slots *slots, uint32_t level, uint32_t i)
{
    return slots->levels[level].start + (i << level) + (1u << level) / 2;
}

#endif
