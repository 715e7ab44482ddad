/* reuse_age.c - see the header. Cost: O(1) per count, O(bins) per learning of a kind (~2 us).
 *
 * A rate is asked / exposed, pulled towards an expected rate as if some more blocks had been seen
 * at that rate (the mean of a gamma prior): where much was seen the data speak, else what is
 * expected.
 *
 *   group of ages (an octave), all chats   expected: half the rate of the group before it
 *     bin, all chats                       expected: its group's
 *   group, one kind                        expected: that of all
 *     bin, one kind                        expected: that of all, times what this kind makes of it
 *
 * So a sharp peak, chats that take turns, stays sharp; old ages, where little happens, are smooth;
 * and an age that nothing has reached yet is worth less than a younger one, as in LRU. Measured by
 * sim_eviction: the four weights may be halved or doubled without harm. */
#include "worker/kv/reuse_age.h"

#include <stdbool.h>
#include <string.h>

#define GROUP_BLOCKS 8.0f /* weights of what is expected, in blocks asked for */
#define BIN_BLOCKS 8.0f
#define KIND_GROUP_BLOCKS 128.0f
#define KIND_BIN_BLOCKS 128.0f
#define FADE 0.9985f /* per learning of a kind, every REUSE_KINDS admissions: half after 4000 */
#define RATE_MAX 0.98f
#define RATE_MIN 1e-7f
#define GROUPS (4u + REUSE_LEVELS)

static uint32_t width_of(uint32_t bin)
{
    return bin < 16 ? 1 : 2u << ((bin - 16) / 8);
}

uint32_t reuse_bin(uint32_t age)
{
    if (age < 16)
        return age;
    uint32_t level = 28 - (uint32_t)__builtin_clz(age); /* 16..31: 1 */
    uint32_t bin = 16 + (level - 1) * 8 + (age >> level) - 8;
    return bin < REUSE_BINS ? bin : REUSE_BINS - 1;
}

/* Octaves: 0, 1, 2-3, 4-7, 8-15, 16-31 ... */
static uint32_t group_of(uint32_t bin)
{
    if (bin >= 16)
        return 5 + (bin - 16) / 8;
    return bin == 0 ? 0 : 32 - (uint32_t)__builtin_clz(bin);
}

static float rate_with(float asked, float exposed, float expected, float blocks)
{
    float rate = (asked + blocks) / (exposed + blocks / expected);

    if (rate > RATE_MAX)
        return RATE_MAX;
    return rate > RATE_MIN ? rate : RATE_MIN;
}

/* The rates of one kind, or of all that are chats, by bin. */
struct tally {
    float asked[REUSE_BINS], exposed[REUSE_BINS];
    float group_asked[GROUPS], group_exposed[GROUPS];
};

static void add_kind(struct tally *tally, const struct reuse_ages *ages, uint32_t kind)
{
    for (uint32_t bin = 0; bin < REUSE_BINS; bin++) {
        tally->asked[bin] += ages->asked[kind][bin];
        tally->exposed[bin] += ages->exposed[kind][bin];
        tally->group_asked[group_of(bin)] += ages->asked[kind][bin];
        tally->group_exposed[group_of(bin)] += ages->exposed[kind][bin];
    }
}

/* Before anything was seen: a system prompt is wanted at once, a chat soon, the rest never. */
static float rate_unseen(uint32_t kind)
{
    if (kind == REUSE_ABANDONED)
        return RATE_MIN;
    return kind == REUSE_SHARED ? 0.25f : 0.03f;
}

static void group_rates(const struct tally *tally, float unseen, float ret_rates[GROUPS])
{
    float expected = unseen;

    for (uint32_t g = 0; g < GROUPS; g++) {
        ret_rates[g] =
            rate_with(tally->group_asked[g], tally->group_exposed[g], expected, GROUP_BLOCKS);
        expected = g < 4 ? ret_rates[g] : ret_rates[g] / 2;
    }
}

static void rates_of(const struct reuse_ages *ages, uint32_t kind, float ret_rates[REUSE_BINS])
{
    struct tally all = {.asked = {0}}, own = {.asked = {0}};
    float groups[GROUPS];
    bool of_chats = kind >= REUSE_FRESH && kind <= REUSE_CHAT_ANSWER;

    add_kind(&own, ages, kind);
    for (uint32_t k = REUSE_FRESH; k <= REUSE_RARE; k++)
        add_kind(&all, ages, k);
    const struct tally *base = of_chats ? &all : &own;
    group_rates(base, rate_unseen(kind), groups);
    for (uint32_t bin = 0; bin < REUSE_BINS; bin++) {
        uint32_t g = group_of(bin);
        float rate = rate_with(base->asked[bin], base->exposed[bin], groups[g], BIN_BLOCKS);
        if (of_chats) {
            float group =
                rate_with(own.group_asked[g], own.group_exposed[g], groups[g], KIND_GROUP_BLOCKS);
            rate = rate_with(own.asked[bin], own.exposed[bin], rate * (group / groups[g]),
                             KIND_BIN_BLOCKS);
        }
        ret_rates[bin] = rate;
    }
}

/* (1 - rate)^width, width a power of two. */
static float survive(float rate, uint32_t width)
{
    float stay = 1 - rate;

    for (; width > 1; width /= 2)
        stay *= stay;
    return stay;
}

/* A run of bins that is best kept as a whole: per block at its start, how many are asked for in it,
 * the time they are kept, how many stay. */
struct run {
    float asked, kept, stay;
};

/* From the oldest bin on: a bin joins the run behind it as long as that one is worth more. Then its
 * run's asked / kept is the maximum over all horizons. */
static void work_out(struct reuse_ages *ages, uint32_t kind)
{
    struct run runs[REUSE_BINS];
    float rates[REUSE_BINS];
    uint32_t count = 0;

    rates_of(ages, kind, rates);
    for (uint32_t bin = REUSE_BINS; bin-- > 0;) {
        float stay = survive(rates[bin], width_of(bin));
        struct run run = {1 - stay, (1 - stay) / rates[bin], stay};
        while (count > 0 && runs[count - 1].asked * run.kept > run.asked * runs[count - 1].kept) {
            const struct run *next = &runs[--count];
            run.asked += run.stay * next->asked;
            run.kept += run.stay * next->kept;
            run.stay *= next->stay;
        }
        runs[count++] = run;
        ages->worth[kind][bin] = run.asked / run.kept;
    }
}

void reuse_ages_init(struct reuse_ages *ages)
{
    memset(ages, 0, sizeof(*ages));
    for (uint32_t kind = 0; kind < REUSE_KINDS; kind++)
        work_out(ages, kind);
}

void reuse_ask(struct reuse_ages *ages, uint32_t kind, uint32_t age)
{
    ages->asked[kind][reuse_bin(age)]++;
}

void reuse_learn(struct reuse_ages *ages)
{
    uint32_t kind = ages->next_kind;

    work_out(ages, kind);
    for (uint32_t bin = 0; bin < REUSE_BINS; bin++) {
        ages->asked[kind][bin] *= FADE;
        ages->exposed[kind][bin] *= FADE;
    }
    ages->next_kind = (kind + 1) % REUSE_KINDS;
}
