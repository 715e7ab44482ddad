/* select.c - radix selection by count and by mass.
 *
 *   key bits   [ 11 | 11 | 10 ]   one pass each: histogram of the keys that share the digits found
 *                                 so far; from the highest bin down, which one holds the border?
 *
 *   few of many: the same over the largest values of pieces of the vocabulary. The n-th of them is
 *                a bound, for n values are as large; only what reaches it is looked at again.
 *
 * Why not sort or quickselect: three linear passes whatever the input, no pivots to attack, and
 * sums in one fixed order (ids within a bin, bins from the top), so the same logits give the same
 * cut on every machine. Cost: about 3 ns a token; 40 of 49,152 by pieces: 20 us. */
#include "worker/sample/select.h"

#include "proto/base/assert.h"
#include "worker/sample/best.h"

#define PIECE_MIN 128u
#define PIECES_PER_BEST 4u /* with fewer, most pieces reach the bound */

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

static struct cut cut_best(const float *values, uint32_t count, uint32_t keep,
                           struct select_bins *bins)
{
    struct cut cut = {.key = 0, .ties = keep};

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

/* Values that reach the bound by pieces, into bins->near; 0: too many, or too few pieces. */
static uint32_t gather_near(const float *values, uint32_t count, uint32_t keep,
                            struct select_bins *bins)
{
    uint32_t piece = (count + SELECT_PIECES - 1) / SELECT_PIECES, near = 0;

    piece = piece > PIECE_MIN ? piece : PIECE_MIN;
    uint32_t pieces = (count + piece - 1) / piece;
    if (pieces < keep * PIECES_PER_BEST || keep > SELECT_PIECES)
        return 0;
    best_of_pieces(values, count, piece, bins->piece_max);
    uint32_t bound = cut_best(bins->piece_max, pieces, keep, bins).key;
    for (uint32_t p = 0; p < pieces; p++) {
        if (select_key(bins->piece_max[p]) < bound)
            continue;
        uint32_t end = count - p * piece < piece ? count : (p + 1) * piece;
        for (uint32_t i = p * piece; i < end; i++) {
            if (select_key(values[i]) < bound)
                continue;
            if (near == SELECT_NEAR)
                return 0;
            bins->near[near] = values[i];
            bins->near_ids[near++] = i;
        }
    }
    return near;
}

void select_best(const float *values, uint32_t count, uint32_t keep, struct select_bins *bins,
                 uint32_t *ret_ids)
{
    ASSERT(keep > 0 && keep <= count);
    uint32_t near = gather_near(values, count, keep, bins), kept = 0;
    const float *from = near > 0 ? bins->near : values;
    uint32_t from_count = near > 0 ? near : count;
    struct cut cut = cut_best(from, from_count, keep, bins);
    uint32_t ties = cut.ties;

    for (uint32_t i = 0; i < from_count; i++)
        if (select_keeps(&cut, from[i], &ties))
            ret_ids[kept++] = near > 0 ? bins->near_ids[i] : i;
    ASSERT(kept == keep);
}

static void fill_mass(const float *values, const float *weights, uint32_t count, uint32_t prefix,
                      const struct digit *digit, struct select_bins *bins)
{
    memset(bins->mass, 0, sizeof(bins->mass));
    memset(bins->count, 0, sizeof(bins->count));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = select_key(values[i]);
        if (weights[i] <= 0 || !shares(key, prefix, digit))
            continue;
        bins->mass[bin_of(key, digit)] += weights[i];
        bins->count[bin_of(key, digit)]++;
    }
}

struct cut select_mass(const float *values, const float *weights, uint32_t count, double mass,
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
