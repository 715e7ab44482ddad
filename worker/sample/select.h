/* select.h - the best n of a vocabulary, without sorting it.
 *
 * Order: value descending, then id ascending. All -0.0 count as 0.0; no NaN. A set of best tokens
 * is described by where it is cut: everything above `key`, and the first `ties` ids that are equal
 * to it. Radix selection, so no input is slow. Thread: any. */
#ifndef REFRAIN_WORKER_SAMPLE_SELECT_H
#define REFRAIN_WORKER_SAMPLE_SELECT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SELECT_BINS 2048
#define SELECT_PIECES 1024
#define SELECT_NEAR 4096

struct cut {
    uint32_t key;
    uint32_t ties;
};

/* Scratch of one selection. */
struct select_bins {
    double mass[SELECT_BINS];
    uint32_t count[SELECT_BINS];
    float piece_max[SELECT_PIECES];
    float near[SELECT_NEAR]; /* values that may be among the best, and their ids */
    uint32_t near_ids[SELECT_NEAR];
};

/* Unsigned order of the keys = order of the floats. */
static inline uint32_t select_key(float value)
{
    uint32_t bits;

    value += 0.0f; /* -0.0 becomes 0.0 */
    memcpy(&bits, &value, sizeof(bits));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* Is the next id in order inside the cut? `ties` starts as cut->ties and is counted down. */
static inline bool select_keeps(const struct cut *cut, float value, uint32_t *ties)
{
    uint32_t key = select_key(value);

    if (key != cut->key)
        return key > cut->key;
    if (*ties == 0)
        return false;
    --*ties;
    return true;
}

/* ret_ids [keep]: the `keep` (1..count) best of values[0..count), ids ascending. */
void select_best(const float *values, uint32_t count, uint32_t keep, struct select_bins *bins,
                 uint32_t *ret_ids);
/* The smallest number of best tokens whose weights sum up to `mass`; at least one. Tokens of weight
 * 0 do not take part; equal values have equal weights, and one weight is above 0. */
struct cut select_mass(const float *values, const float *weights, uint32_t count, double mass,
                       struct select_bins *bins);

#endif
