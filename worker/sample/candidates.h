/* candidates.h - the tokens that filters leave, in id order, with what they weigh.
 *
 * A list of a few of the vocabulary: filters and the draw then cost what the list is long. Thread:
 * one at a time. */
#ifndef REFRAIN_WORKER_SAMPLE_CANDIDATES_H
#define REFRAIN_WORKER_SAMPLE_CANDIDATES_H

#include <stdint.h>

#include "worker/sample/select.h"

struct candidates {
    uint32_t *ids; /* all three [vocab_size] */
    float *logits;
    float *weights;
    uint32_t count;
};

void candidates_init(struct candidates *candidates, uint32_t vocab_size);
void candidates_done(struct candidates *candidates);

/* The list becomes the `keep` (1..vocab_size) best, without weights. */
void candidates_take_best(struct candidates *candidates, const float *logits, uint32_t vocab_size,
                          uint32_t keep, struct select_bins *bins);
/* The list becomes what weighs `least` (above 0) or more; at least one does. */
void candidates_take_heavy(struct candidates *candidates, const float *logits, const float *weights,
                           uint32_t vocab_size, float least);
/* Drop what weighs less than `least`; something stays. */
void candidates_drop_light(struct candidates *candidates, float least);
/* Keep the fewest best whose weights sum up to `mass`. */
void candidates_keep_mass(struct candidates *candidates, double mass, struct select_bins *bins);

#endif
