/* penalties.c - which tokens were there already, and what that costs them.
 *
 * A count per vocabulary entry is kept for the length of one call and wiped by walking the same ids
 * again: a row pays for its own length, not for the vocabulary. */
#include "worker/sample/penalties.h"

#include <stdbool.h>

#include "proto/base/assert.h"

#define IN_PROMPT 0x80000000u /* beside the count of the output */

static float penalised(const struct sample_params *params, float logit, uint32_t times)
{
    double value = logit;

    if (params->repetition_penalty != 1)
        value = value > 0 ? value / params->repetition_penalty : value * params->repetition_penalty;
    value -= params->frequency_penalty * times;
    if (times > 0)
        value -= params->presence_penalty;
    return (float)value;
}

static void charge(const struct sample_row *row, const uint32_t *ids, uint32_t count, float *logits,
                   uint32_t *counts)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = ids[i];
        if (counts[id] == 0)
            continue; /* charged already */
        logits[id] = penalised(row->params, logits[id], counts[id] & ~IN_PROMPT);
        counts[id] = 0;
    }
}

bool penalties_apply(const struct sample_row *row, float *logits, uint32_t vocab_size,
                     uint32_t *counts)
{
    const struct sample_params *p = row->params;
    bool repetition = p->repetition_penalty != 1;
    uint32_t prompt_count = repetition ? row->prompt_count : 0;

    if (!repetition && p->presence_penalty == 0 && p->frequency_penalty == 0)
        return false;
    for (uint32_t i = 0; i < row->output_count; i++) {
        ASSERT(row->output_ids[i] < vocab_size);
        counts[row->output_ids[i]]++;
    }
    for (uint32_t i = 0; i < prompt_count; i++) {
        ASSERT(row->prompt_ids[i] < vocab_size);
        counts[row->prompt_ids[i]] |= IN_PROMPT;
    }
    charge(row, row->output_ids, row->output_count, logits, counts);
    charge(row, row->prompt_ids, prompt_count, logits, counts);
    return true;
}
