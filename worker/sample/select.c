/* select.c - radix selection by count and by mass.
 *
 *   key bits   [ 11 | 11 | 10 ]   one pass each: histogram of the keys that share the digits found
 *                                 so far; from the highest bin down, which one holds the border?
 *
 * Why not sort or quickselect: three linear passes whatever the input, no pivots to attack, and
 * sums in one fixed order (ids within a bin, bins from the top), so the same logits give the same
 * cut on every machine. Cost: about 3 ns a token. */
#include "worker/sample/select.h"

#include "proto/base/assert.h"

struct digit {
    unsigned shift, bits;
};
static const struct digit digits[] = {{21, 11}, {10, 11}, {0, 10}};
#define DIGITS (sizeof(digits) / sizeof(digits[0]))

/* Does the key share all digits above this one with `prefix`? */
static bool shares(uint32_t key, uint32_t prefix, const struct digit *digit)
{
    unsigned above = digit->shift + digit->bits;

    return above >= 32 || key >> above == prefix >> above;
}

static uint32_t bin_of(uint32_t key, const struct digit *digit)
{
    return key >> digit->shift & ((1u << digit->bits) - 1);
}

struct cut select_best(const float *values, uint32_t count, uint32_t keep, struct select_bins *bins)
{
    struct cut cut = {.key = 0, .ties = keep};

    ASSERT(keep > 0 && keep <= count);
    for (size_t d = 0; d < DIGITS; d++) {
        memset(bins->count, 0, sizeof(bins->count));
        for (uint32_t i = 0; i < count; i++) {
            uint32_t key = select_key(values[i]);
            if (shares(key, cut.key, &digits[d]))
                bins->count[bin_of(key, &digits[d])]++;
        }
        uint32_t bin = (1u << digits[d].bits) - 1;
        while (bins->count[bin] < cut.ties)
            cut.ties -= bins->count[bin--];
        cut.key |= bin << digits[d].shift;
    }
    ASSERT(cut.ties > 0);
    return cut;
}

static void fill_mass(const float *values, const double *weights, uint32_t count, uint32_t prefix,
                      const struct digit *digit, struct select_bins *bins)
{
    memset(bins, 0, sizeof(*bins));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = select_key(values[i]);
        if (weights[i] <= 0 || !shares(key, prefix, digit))
            continue;
        bins->mass[bin_of(key, digit)] += weights[i];
        bins->count[bin_of(key, digit)]++;
    }
}

struct cut select_mass(const float *values, const double *weights, uint32_t count, double mass,
                       struct select_bins *bins)
{
    struct cut cut = {.key = 0, .ties = 0};
    double above = 0;
    uint32_t bin = 0;

    for (size_t d = 0; d < DIGITS; d++) {
        uint32_t lowest = SELECT_BINS;
        fill_mass(values, weights, count, cut.key, &digits[d], bins);
        for (bin = 1u << digits[d].bits; bin-- > 0;) {
            if (bins->count[bin] == 0)
                continue;
            lowest = bin;
            if (above + bins->mass[bin] >= mass)
                break;
            above += bins->mass[bin];
        }
        ASSERT(lowest < SELECT_BINS); /* a weight is above 0 */
        if (bin > lowest) {           /* ran out: the parts round to less than the whole */
            bin = lowest;
            above -= bins->mass[bin];
        }
        cut.key |= bin << digits[d].shift;
    }
    double each = bins->mass[bin] / bins->count[bin];
    do
        cut.ties++;
    while (cut.ties < bins->count[bin] && above + each * cut.ties < mass);
    return cut;
}
