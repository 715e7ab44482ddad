/* chunk.c - cutting a prompt into the steps' budgets.
 *
 * A cut ends on a block border, so that every block a chunk touches is full and can be sealed (and
 * found by others) right after the step. The prompt's end needs no border. The start needs none
 * either: after the copy of a block's head it lies inside a block. */
#include "worker/sched/chunk.h"

#include "proto/base/assert.h"

uint32_t chunk_next(const struct chunk_limits *limits, uint32_t computed, uint32_t total)
{
    uint32_t rest = total - computed;

    ASSERT(computed < total);
    ASSERT(limits->block_tokens > 0);
    if (rest <= limits->step_tokens)
        return rest;
    uint32_t end = computed + limits->step_tokens;
    end -= end % limits->block_tokens;
    return end > computed ? end - computed : 0;
}
