/* candidates.c - lists are cut in place, so ids stay in order. */
#include "worker/sample/candidates.h"

#include "proto/base/assert.h"
#include "proto/base/mem.h"

#define LOOK 32u /* weights looked at together: most of a vocabulary weighs too little */

void candidates_init(struct candidates *candidates, uint32_t vocab_size)
{
    candidates->ids = mem_calloc(vocab_size, sizeof(*candidates->ids));
    candidates->logits = mem_calloc(vocab_size, sizeof(*candidates->logits));
    candidates->weights = mem_calloc(vocab_size, sizeof(*candidates->weights));
    candidates->count = 0;
}

void candidates_done(struct candidates *candidates)
{
    mem_free(candidates->ids);
    mem_free(candidates->logits);
    mem_free(candidates->weights);
}

void candidates_take_best(struct candidates *candidates, const float *logits, uint32_t vocab_size,
                          uint32_t keep, struct select_bins *bins)
{
    select_best(logits, vocab_size, keep, bins, candidates->ids);
    candidates->count = keep;
    for (uint32_t i = 0; i < keep; i++)
        candidates->logits[i] = logits[candidates->ids[i]];
}

static void add(struct candidates *candidates, uint32_t id, float logit, float weight)
{
    candidates->ids[candidates->count] = id;
    candidates->logits[candidates->count] = logit;
    candidates->weights[candidates->count++] = weight;
}

static uint32_t at_least(const float *weights, float least)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < LOOK; i++)
        found += weights[i] >= least;
    return found;
}

void candidates_take_heavy(struct candidates *candidates, const float *logits, const float *weights,
                           uint32_t vocab_size, float least)
{
    candidates->count = 0;
    for (uint32_t first = 0; first < vocab_size; first += LOOK) {
        uint32_t end = vocab_size - first < LOOK ? vocab_size : first + LOOK;
        if (end - first == LOOK && at_least(weights + first, least) == 0)
            continue;
        for (uint32_t i = first; i < end; i++)
            if (weights[i] >= least)
                add(candidates, i, logits[i], weights[i]);
    }
    ASSERT(candidates->count > 0);
}

void candidates_drop_light(struct candidates *candidates, float least)
{
    uint32_t count = candidates->count;

    candidates->count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (candidates->weights[i] >= least)
            add(candidates, candidates->ids[i], candidates->logits[i], candidates->weights[i]);
    ASSERT(candidates->count > 0);
}

void candidates_keep_mass(struct candidates *candidates, double mass, struct select_bins *bins)
{
    uint32_t count = candidates->count;
    struct cut cut = select_mass(candidates->logits, candidates->weights, count, mass, bins);
    uint32_t ties = cut.ties;

    candidates->count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (select_keeps(&cut, candidates->logits[i], &ties))
            add(candidates, candidates->ids[i], candidates->logits[i], candidates->weights[i]);
    ASSERT(candidates->count > 0);
}
